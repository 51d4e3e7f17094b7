"""The guarantees of a run: a file beside its weights, which holds for these and their calibration alone."""

from pathlib import Path
from typing import Any

from crac.errors import InputError
from crac.files import sha256
from crac.guarantees import Guarantees, load_guarantees
from crac.models.model import CALIBRATION, Model

GUARANTEES = "guarantees.json"
"""File in the folder of a run, written by ``crac guarantee``."""


def tied_to(run: Path, model: Model, checkpoint: str = "best") -> dict[str, Any]:
    """What the guarantees of a run depend on: its weights, its calibration, and mirrored versions of the images."""
    calibration = None if model.calibrator is None else sha256(run / CALIBRATION)
    weights = sha256(run / f"{checkpoint}.safetensors")
    return {"checkpoint_sha256": weights, "calibration_sha256": calibration, "flips": model.flips}


def run_guarantees(run: Path, model: Model, checkpoint: str = "best") -> Guarantees | None:
    """Read the guarantees of a run; None if it has none.

    Raises:
        InputError: They were fitted on something else than the model, so that they promise nothing about it.
    """
    path = run / GUARANTEES
    if not path.is_file():
        return None
    found, now = load_guarantees(path), tied_to(run, model, checkpoint)
    problem = ""
    if found.num_classes != len(model.card.class_names):
        problem = f"are for {found.num_classes} classes, the model has {len(model.card.class_names)}"
    elif found.fitted.get("checkpoint_sha256") != now["checkpoint_sha256"]:
        problem = f"were fitted on other weights than {checkpoint}.safetensors holds"
    elif found.fitted.get("calibration_sha256") != now["calibration_sha256"]:
        if now["calibration_sha256"] is None:
            problem = "were fitted on calibrated probabilities, and these are not"
        elif found.fitted.get("calibration_sha256") is None:
            problem = f"were fitted before {CALIBRATION} was"
        else:
            problem = f"were fitted with another {CALIBRATION}"
    elif found.fitted.get("flips") != now["flips"]:
        problem = f"were fitted {'without' if now['flips'] else 'with'} mirrored versions of the images (--tta)"
    if problem:
        raise InputError(f"the guarantees of {path} {problem}: run crac guarantee again, or choose --no-guarantees")
    return found
