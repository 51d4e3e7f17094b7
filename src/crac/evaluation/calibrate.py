"""Calibrate a run on its validation part, if patients left out show a gain."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from crac.calibration import CALIBRATORS, Calibrator, build_calibrator
from crac.evaluation.case import RememberedCases
from crac.evaluation.crossfit import Gain, cross_fit, fit_batches
from crac.evaluation.protocol import Protocol, Regions
from crac.evaluation.run import RunCases
from crac.files import finite, sha256
from crac.models.model import CALIBRATION, Model
from crac.progress import Track, silent


class Calibration(NamedTuple):
    """What came of it: the gains on patients left out, and the calibrator if it was written to the run."""

    gains: list[Gain]
    calibrator: Calibrator | None


def calibrate_run(
    run: Path,
    model: Model,
    method: str = "class_region",
    data: Path | None = None,
    *,
    folds: int = 5,
    force: bool = False,
    checkpoint: str = "best",
    track: Track = silent,
) -> Calibration:
    """Fit a calibrator and write ``calibration.json`` into the run, unless no gain in likelihood is shown.

    Args:
        run: Folder of the run.
        model: Loaded from it, without a calibrator.
        method: One of :data:`crac.CALIBRATORS`.
        data: Store, if it is no longer where the run found it.
        folds: Groups of patients that are left out in turn, to see what it is worth.
        force: Write it even where no gain is shown.
        checkpoint: Which checkpoint of the run the model is.
        track: Shows progress.
    """
    cases, make = _cases(run, model, data), _maker(model, method)
    gains = cross_fit(cases, make, _protocol(model), folds, track).gains()
    if not (gains[0].shown or force):
        return Calibration(gains, None)
    calibrator = make()
    calibrator.fit(fit_batches(cases, cases.names, calibrator), weight="batch")
    own = {gain.measure: {**gain._asdict(), "difference": list(gain.difference)} for gain in gains}
    weights = run / f"{checkpoint}.safetensors"
    calibrator.fitted |= {"checkpoint_sha256": sha256(weights), "flips": model.flips, "gain": finite(own)}
    calibrator.save(run / CALIBRATION)
    return Calibration(gains, calibrator)


def compare_calibrators(
    run: Path, model: Model, data: Path | None = None, *, folds: int = 5, track: Track = silent
) -> dict[str, list[Gain]]:
    """Judge every calibrator on patients left out and write nothing; arguments as for :func:`calibrate_run`."""
    cases = _cases(run, model, data)
    methods = [name for name in CALIBRATORS if name != "identity"]
    return {name: cross_fit(cases, _maker(model, name), _protocol(model), folds, track).gains() for name in methods}


def _cases(run: Path, model: Model, data: Path | None) -> RememberedCases:
    # The validation part: the network has seen the training part, and the test part is to stay unseen.
    return RememberedCases(RunCases.of(run, model, "validation", data))


def _maker(model: Model, method: str) -> Callable[[], Calibrator]:
    classes = len(model.card.class_names)
    return lambda: build_calibrator(method, classes, regions=_regions(model)).to(model.device)


def _protocol(model: Model) -> Protocol:
    masks = ("band", "label_foreground")
    return Protocol.named("paper", model.card.class_names, regions=_regions(model), masks=masks)


def _regions(model: Model) -> Regions:
    return "slice" if model.card.dims == 2 else "volume"
