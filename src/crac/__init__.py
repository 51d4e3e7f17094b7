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
    from pathlib import Path

    from crac.calibration import CALIBRATORS, build_calibrator, load_calibrator
    from crac.models.model import Model

__all__ = [
    "CALIBRATORS",
    "METHODS",
    "BWCRLoss",
    "CELoss",
    "CRaCLoss",
    "CalibrationMeter",
    "DeepSupervision",
    "ECPLoss",
    "FLLoss",
    "LSLoss",
    "ML1ACELoss",
    "MbLSLoss",
    "NACLLoss",
    "SVLSLoss",
    "__version__",
    "build_calibrator",
    "build_loss",
    "dice",
    "friedman_rank",
    "functional",
    "hd95",
    "load",
    "load_calibrator",
]


def __getattr__(name: str) -> Any:
    # Calibrators are imported when they are asked for: a quarter of the time that importing the rest takes.
    if name in ("CALIBRATORS", "build_calibrator", "calibration", "load_calibrator"):
        calibration = importlib.import_module("crac.calibration")
        return calibration if name == "calibration" else getattr(calibration, name)
    raise AttributeError(f"module 'crac' has no attribute {name!r}")


def load(run: str | Path, device: str = "auto") -> Model:
    """Load the best model of a run, ready to predict; needs the ``train`` extra.

    Args:
        run: Folder of a run, or a checkpoint file of one.
        device: ``"auto"``, ``"cpu"``, ``"cuda"``, ...
    """
    from crac.models.model import Model

    return Model.load(run, device)
