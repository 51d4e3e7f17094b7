"""Calibrate a model on cases it was not trained on, if patients left out show a gain."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch

from crac.calibration import CALIBRATORS, Calibrator, build_calibrator
from crac.evaluation.audit import file_cases, with_classes
from crac.evaluation.case import CaseSource, RememberedCases
from crac.evaluation.crossfit import JUDGED, CrossFit, Gain, cross_fit, fit_batches
from crac.evaluation.nnunet import Orientation
from crac.evaluation.protocol import Protocol, Regions
from crac.evaluation.run import RunCases
from crac.files import finite, sha256
from crac.metrics.claims import LEAST_PATIENTS
from crac.metrics.masks import Mask
from crac.models.model import Model
from crac.progress import Track, silent

CPU = torch.device("cpu")


class Calibration(NamedTuple):
    """The gains on patients left out, these before and after, and the calibrator: the identity without a gain."""

    gains: list[Gain]
    crossed: CrossFit
    calibrator: Calibrator


@dataclass(frozen=True)
class Calibratable:
    """Cases a calibrator can be fitted on, and what is to be known about them.

    Args:
        cases: Held-out cases of the model.
        num_classes: ``K``, the background included.
        protocol: How the gain is measured; its regions are the calibrator's.
        device: Where the calibrator works.
        about: What is written into the calibrator's file.
        radii: Distances to the predicted boundary that separate the calibrator's regions; by default its own.
    """

    cases: CaseSource
    num_classes: int
    protocol: Protocol
    device: torch.device = CPU
    about: dict[str, Any] = field(default_factory=dict)
    radii: Sequence[int] | None = None

    def make(self, method: str) -> Calibrator:
        """A fresh calibrator."""
        made = build_calibrator(method, self.num_classes, radii=self.radii, regions=self.protocol.regions)
        return made.to(self.device)


def of_run(run: Path, model: Model, data: Path | None = None, checkpoint: str = "best") -> Calibratable:
    """The validation part of a run: the network has seen the training part, and the test part is to stay unseen.

    Args:
        run: Folder of the run.
        model: Loaded from it, without a calibrator.
        data: Store, if it is no longer where the run found it.
        checkpoint: Which checkpoint of the run the model is.
    """
    cases = RunCases.of(run, model, "validation", data)
    protocol = Protocol.for_network(
        "paper", model.card.dims, model.card.class_names, cases.store.ignore_index, masks=JUDGED
    )
    about = {"checkpoint_sha256": sha256(run / f"{checkpoint}.safetensors"), "mirror": model.mirror}
    return Calibratable(RememberedCases(cases), len(model.card.class_names), protocol, model.device, about)


def of_files(
    probabilities: Path,
    labels: Path,
    regions: Regions = "volume",
    patient: str | None = None,
    *,
    orientation: Orientation | None = None,
    ignore_index: int | None = None,
    class_names: Sequence[str] = (),
    jobs: int = 1,
    track: Track = silent,
) -> Calibratable:
    """Probabilities that any model gave for cases it was not trained on, and their labels.

    Args:
        probabilities: Folder, see :func:`crac.evaluation.audit`.
        labels: Folder of NIfTI label maps.
        regions: Where neighbourhoods are taken that tell inside from boundary.
        patient: Regular expression for the part of a file's name that says whose it is; by default each volume is of
            another patient.
        class_names: Background first; numbers by default.
        orientation: Orientation of nnU-Net's ``.npz`` whose ``.pkl`` are missing, see :func:`crac.evaluation.audit`.
        ignore_index: Label of voxels that nobody has labelled, if there is one.
        jobs: Processes that check the files.
        track: Shows progress.
    """
    found = file_cases(
        probabilities, labels, patient, orientation=orientation, ignore_index=ignore_index, jobs=jobs, track=track
    )
    return of_cases(*found, regions, ignore_index, class_names)


def of_cases(
    cases: CaseSource,
    num_classes: int,
    regions: Regions = "volume",
    ignore_index: int | None = None,
    class_names: Sequence[str] = (),
) -> Calibratable:
    """Cases of a model that gives probabilities on the grid of the image, as :func:`of_files` makes them."""
    protocol = with_classes(Protocol.named("clinical", class_names, regions=regions, masks=JUDGED), num_classes)
    protocol = replace(protocol, ignore_index=ignore_index)
    return Calibratable(RememberedCases(cases), num_classes, protocol)


def calibrate(
    given: Calibratable,
    method: str = "class_region",
    *,
    mask: Mask | None = None,
    folds: int = 5,
    force: bool = False,
    track: Track = silent,
) -> Calibration:
    """Fit a calibrator on all cases; where patients left out show no gain in likelihood, take the identity.

    The likelihood that decides is that of the voxels it is fitted on.

    Args:
        given: The cases, see :func:`of_run` and :func:`of_files`.
        method: One of :data:`crac.CALIBRATORS`.
        mask: Voxels it is fitted on, see :meth:`crac.calibration.Calibrator.fit`.
        folds: Groups of patients that are left out in turn, to see what it is worth.
        force: Fit even where no gain is shown.
        track: Shows progress.
    """
    mask = given.make(method).default_mask if mask is None else mask
    crossed = _crossed(given, method, mask, folds, track)
    gains = crossed.gains(mask)
    shown = gains[0].shown
    calibrator = given.make(method if shown or force else "identity")
    batches, ignored = fit_batches(given.cases, given.cases.names, calibrator), given.protocol.ignore_index
    calibrator.fit(batches, mask=mask, ignore_index=ignored, weight="volume")
    if not shown:
        taken = "it was fitted all the same" if force else "so probabilities stay as they are"
        why = f"the interval of {gains[0].measure} shows no gain on patients left out"
        if gains[0].difference.low != gains[0].difference.low:
            why = f"the patients left out are too few to show a gain (at least {LEAST_PATIENTS} are needed)"
        note = f"{method}: {why}, {taken}"
        calibrator.fitted["notes"] = [note, *calibrator.fitted["notes"]]
    elif worse := _worse_nearby(calibrator, mask, gains):
        calibrator.fitted["notes"] = [*calibrator.fitted["notes"], worse]
    own = {gain.measure: {**gain._asdict(), "difference": list(gain.difference)} for gain in gains}
    calibrator.fitted |= given.about | {"judged": method, "gain": finite(own)}
    return Calibration(gains, crossed, calibrator)


def _worse_nearby(calibrator: Calibrator, mask: Mask, gains: list[Gain]) -> str:
    """Say so where a fit on all voxels gave up likelihood near organs, and what helps; nothing otherwise."""
    near = next((gain for gain in gains if gain.measure == "nll[band]" and gain.difference.estimate > 0), None)
    if near is None or mask != "all" or not calibrator.by_region or len(calibrator.radii) > 1:
        return ""
    return (
        f"near organs the likelihood is no better (nll[band] {near.before:.3g}, then {near.after:.3g}): their "
        "background may need another temperature than what is far away, which --radii 1 3 gives it"
    )


def compare_calibrators(
    given: Calibratable, *, mask: Mask | None = None, folds: int = 5, track: Track = silent
) -> dict[str, list[Gain]]:
    """Judge every calibrator on patients left out, all of them first by the likelihood of the same voxels.

    These are all voxels unless ``mask`` names others; arguments as for :func:`calibrate`.
    """
    names, decisive = [name for name in CALIBRATORS if name != "identity"], mask or "all"
    return {name: _crossed(given, name, mask, folds, track).gains(decisive) for name in names}


def _crossed(given: Calibratable, method: str, mask: Mask | None, folds: int, track: Track) -> CrossFit:
    return cross_fit(given.cases, partial(given.make, method), given.protocol, folds, track, mask)
