"""The guarantees of a run: a file beside its weights, which holds for these and their calibration alone."""

from pathlib import Path
from typing import Any

from crac.errors import InputError
from crac.guarantees import Guarantees, load_guarantees
from crac.models.model import CALIBRATION
from crac.models.predictor import Predictor

GUARANTEES = "guarantees.json"
"""File in the folder of a run, written by ``crac guarantee``."""


def tied_to(model: Predictor) -> dict[str, Any]:
    """What guarantees depend on, as plain data: weights, calibration, and mirrored versions of the images."""
    own = model.identity()
    if (members := own.pop("members", None)) is not None:
        calibrations = [own["calibration"], *(member["calibration"] for member in members)]
        own["checkpoint_sha256"] = [member["checkpoint_sha256"] for member in members]
        own["calibration"] = calibrations if any(calibrations) else None
    return {name: own[name] for name in ("checkpoint_sha256", "calibration", "mirror")}


def run_guarantees(run: Path, model: Predictor) -> Guarantees | None:
    """Read the guarantees of a run or a cross-validation; None if it has none.

    Raises:
        InputError: They were fitted on something else than the model, so that they promise nothing about it.
    """
    path = run / GUARANTEES
    if not path.is_file():
        return None
    found, now = load_guarantees(path), tied_to(model)
    before = found.fitted.get("model", {})
    problem = ""
    if found.num_classes != len(model.card.class_names):
        problem = f"are for {found.num_classes} classes, the model has {len(model.card.class_names)}"
    elif before.get("checkpoint_sha256") != now.get("checkpoint_sha256"):
        problem = "were fitted on other weights"
    elif before.get("calibration") != now.get("calibration"):
        if now.get("calibration") is None:
            problem = "were fitted on calibrated probabilities, and these are not"
        else:
            problem = f"were fitted before {CALIBRATION} was, or with another one"
    elif before != now:
        problem = f"were fitted {'without' if model.mirror else 'with'} mirrored versions of the images (--mirror)"
    if problem:
        raise InputError(f"the guarantees of {path} {problem}: run crac guarantee again, or choose --no-guarantees")
    return found
