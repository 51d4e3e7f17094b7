"""One network measured in several ways: as trained, calibrated, on mirrored images.

The volumes are predicted once for each way of predicting and stay on the device; surfaces are compared once for each
label map, since calibration changes no label.
"""

import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Literal, NamedTuple, Protocol, TypeVar

from crac.calibration import Calibrator, build_calibrator
from crac.data import Split, Store
from crac.evaluation.case import Case, CaseSource, RememberedCases
from crac.evaluation.crossfit import calibrated_case, fit_batches
from crac.evaluation.engine import evaluate
from crac.evaluation.measure import Evaluation, Shapes
from crac.evaluation.protocol import Protocol as MeasuringProtocol
from crac.evaluation.run import RunCases
from crac.metrics.masks import Mask
from crac.models.model import Model


class Variant(Protocol):
    """A way to use a network."""

    @property
    def calibrator(self) -> str | None:
        """What is fitted on the validation part, one of :data:`crac.CALIBRATORS`; None for nothing."""

    @property
    def fitted_on(self) -> Mask:
        """Which voxels it is fitted on."""

    @property
    def mirror(self) -> bool:
        """Whether predictions are averaged over mirrored images."""


AnyVariant = TypeVar("AnyVariant", bound=Variant)


class Tested(NamedTuple):
    """What was measured for a variant.

    Attributes:
        evaluation: The measures of the test volumes.
        calibrator: What was fitted, as plain data; None where nothing was.
        seconds: How long it took, the predictions included for the first variant that needs them.
    """

    evaluation: Evaluation
    calibrator: dict[str, Any] | None
    seconds: float


class CalibratedCases:
    """The cases of another source with calibrated probabilities.

    Args:
        cases: The source.
        calibrator: On the device of the cases.
    """

    def __init__(self, cases: CaseSource, calibrator: Calibrator) -> None:
        self.names, self.on_gpu = cases.names, cases.on_gpu
        self._cases, self._calibrator = cases, calibrator

    def load(self, name: str) -> Case:
        """The case of that name."""
        return calibrated_case(self._calibrator, self._cases.load(name))


def measure_variants(
    variants: Sequence[AnyVariant],
    model: Model,
    store: Store,
    split: Split,
    protocol: MeasuringProtocol,
    seen: Callable[[Case, dict[str, Any]], None] | None = None,
) -> Iterator[tuple[AnyVariant, Tested]]:
    """Measure a network in every way on the test part; calibrators are fitted on the validation part.

    Args:
        variants: What to measure.
        model: A model without a calibrator.
        store: Where the volumes are.
        split: The parts.
        protocol: How to measure.
        seen: Called with every case and its row where the network is measured as it was trained.
    """
    for mirror, alike in itertools.groupby(sorted(variants, key=lambda one: one.mirror), key=lambda one: one.mirror):
        own = replace(model, mirror=mirror)
        held, test = (RememberedCases(RunCases(own, store, part)) for part in (split.validation, split.test))
        shapes: Shapes = {}
        for variant in alike:
            start = time.perf_counter()
            cases: CaseSource = test
            calibrator = None
            if variant.calibrator is not None:
                calibrator = _fitted(variant.calibrator, variant.fitted_on, held, model, protocol)
                cases = CalibratedCases(test, calibrator)
            as_trained = calibrator is None and not mirror
            evaluation = evaluate(cases, protocol, seen=seen if as_trained else None, shapes=shapes)
            about = None if calibrator is None else _about(calibrator)
            yield variant, Tested(evaluation, about, time.perf_counter() - start)


def _fitted(name: str, mask: Mask, cases: CaseSource, model: Model, protocol: MeasuringProtocol) -> Calibrator:
    calibrator = build_calibrator(name, len(protocol.class_names), regions=protocol.regions)
    calibrator.to(model.device)
    # One temperature over all voxels is how others scale it; the fairer fit weighs patients alike, as `crac calibrate`.
    weight: Literal["voxel", "volume"] = "voxel" if (name, mask) == ("temperature", "all") else "volume"
    batches = fit_batches(cases, cases.names, calibrator)
    return calibrator.fit(batches, mask=mask, weight=weight, ignore_index=protocol.ignore_index)


def _about(calibrator: Calibrator) -> dict[str, Any]:
    """The calibrator as a result keeps it."""
    scales = calibrator.coefficients == "scale"
    values = calibrator.temperature.flatten() if scales else calibrator.weights
    fitted = {name: calibrator.fitted[name] for name in ("mask", "weight", "batches", "voxels", "notes")}
    return {"name": calibrator.name, "temperature" if scales else "weights": values.tolist(), **fitted}
