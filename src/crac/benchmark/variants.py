"""One network measured in several ways: as trained, calibrated, on mirrored images.

The volumes are predicted once for each way of predicting and stay on the device; surfaces are compared once for each
label map, since calibration changes no label.
"""

import itertools
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Literal, NamedTuple

from crac.benchmark.suite import Cell
from crac.benchmark.views import Views
from crac.calibration import Calibrator, build_calibrator
from crac.data import Split, Store
from crac.evaluation import Case, Evaluation, Protocol, evaluate
from crac.evaluation.case import CaseSource, RememberedCases
from crac.evaluation.crossfit import calibrated_case, fit_batches
from crac.evaluation.measure import Shapes
from crac.evaluation.run import RunCases
from crac.models.model import Model


class Tested(NamedTuple):
    """What was measured for a cell.

    Attributes:
        cell: Which cell.
        evaluation: The measures of the test volumes.
        calibrator: What was fitted, as plain data; None where nothing was.
        views: What the figures need; None for a calibrated network, whose logits and slices are not shown.
        seconds: How long it took, the predictions included for the first cell that needs them.
    """

    cell: Cell
    evaluation: Evaluation
    calibrator: dict[str, Any] | None
    views: Views | None
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


def measure_cells(
    cells: Sequence[Cell], model: Model, store: Store, split: Split, protocol: Protocol
) -> Iterator[Tested]:
    """Measure a network in the way of every cell, on the test part; calibrators are fitted on the validation part.

    Args:
        cells: What to measure.
        model: Without a calibrator.
        store: Where the volumes are.
        split: The parts.
        protocol: How to measure.
    """
    for mirror, alike in itertools.groupby(sorted(cells, key=lambda cell: cell.mirror), key=lambda cell: cell.mirror):
        own = replace(model, mirror=mirror)
        held, test = (RememberedCases(RunCases(own, store, part)) for part in (split.validation, split.test))
        shapes: Shapes = {}
        for cell in alike:
            start = time.perf_counter()
            cases: CaseSource = test
            calibrator, views = None, None if mirror else Views(store)
            if cell.calibrator is not None:
                calibrator, views = _fitted(cell, held, model, protocol), None
                cases = CalibratedCases(test, calibrator)
            evaluation = evaluate(cases, protocol, seen=views, shapes=shapes)
            about = None if calibrator is None else _about(calibrator)
            yield Tested(cell, evaluation, about, views, time.perf_counter() - start)


def _fitted(cell: Cell, cases: CaseSource, model: Model, protocol: Protocol) -> Calibrator:
    assert cell.calibrator is not None
    calibrator = build_calibrator(cell.calibrator, len(protocol.class_names), regions=protocol.regions)
    calibrator.to(model.device)
    # A temperature over all voxels is how others scale it; the fairer fit weighs patients alike.
    weight: Literal["voxel", "volume"] = "voxel" if cell.fitted_on == "all" else "volume"
    batches = fit_batches(cases, cases.names, calibrator)
    return calibrator.fit(batches, mask=cell.fitted_on, weight=weight, ignore_index=protocol.ignore_index)


def _about(calibrator: Calibrator) -> dict[str, Any]:
    """The calibrator as a result keeps it."""
    scales = calibrator.coefficients == "scale"
    values = calibrator.temperature.flatten() if scales else calibrator.weights
    fitted = {name: calibrator.fitted[name] for name in ("mask", "weight", "batches", "voxels", "notes")}
    return {"name": calibrator.name, "temperature" if scales else "weights": values.tolist(), **fitted}
