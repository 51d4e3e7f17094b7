"""Segmentation networks whose probabilities can be trusted."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from crac import functional
from crac._version import __version__
from crac.losses import (
    METHODS,
    BWCRLoss,
    CELoss,
    CRaCLoss,
    DeepSupervision,
    ECPLoss,
    FLLoss,
    LSLoss,
    MbLSLoss,
    ML1ACELoss,
    NACLLoss,
    SVLSLoss,
    build_loss,
)
from crac.metrics import CalibrationMeter, dice, friedman_rank, hd95

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from crac.calibration import CALIBRATORS, build_calibrator, load_calibrator
    from crac.guarantees import Case, Guarantees, Margin, Referral, RiskControl, VolumeInterval, load_guarantees
    from crac.models.predictor import Predictor

__all__ = [
    "CALIBRATORS",
    "METHODS",
    "BWCRLoss",
    "CELoss",
    "CRaCLoss",
    "CalibrationMeter",
    "Case",
    "DeepSupervision",
    "ECPLoss",
    "FLLoss",
    "Guarantees",
    "LSLoss",
    "ML1ACELoss",
    "Margin",
    "MbLSLoss",
    "NACLLoss",
    "Referral",
    "RiskControl",
    "SVLSLoss",
    "VolumeInterval",
    "__version__",
    "build_calibrator",
    "build_loss",
    "dice",
    "friedman_rank",
    "functional",
    "hd95",
    "load",
    "load_calibrator",
    "load_guarantees",
]

_LATER = {
    "calibration": ("CALIBRATORS", "build_calibrator", "load_calibrator"),
    "guarantees": (
        "Case",
        "Guarantees",
        "Margin",
        "Referral",
        "RiskControl",
        "VolumeInterval",
        "load_guarantees",
    ),
}
"""Packages that are imported when they are asked for, for it takes a quarter of the time of the rest; their names."""


def __getattr__(name: str) -> Any:
    for package, names in _LATER.items():
        if name == package or name in names:
            module = importlib.import_module(f"crac.{package}")
            return module if name == package else getattr(module, name)
    raise AttributeError(f"module 'crac' has no attribute {name!r}")


def load(
    run: str | Path | Sequence[str | Path], device: str = "auto", *, mirror: bool = False, calibrated: bool = True
) -> Predictor:
    """Load the best model of a run, ready to predict; needs the ``train`` extra.

    Args:
        run: Folder of a run, or a checkpoint file of one; several of them, or a folder of folds, are an ensemble.
        device: ``"auto"``, ``"cpu"``, ``"cuda"``, ...
        mirror: Average the probabilities over mirrored versions of each image.
        calibrated: Use what ``crac calibrate`` has found, where it has.
    """
    from crac.models.ensemble import load

    return load(run, device, mirror=mirror, calibrated=calibrated)
