"""The paper's inner and outer iteration as a training that survives the real world. Needs the ``train`` extra."""

from crac.errors import require

for _package in ("pydantic", "yaml", "safetensors", "nibabel"):
    require(_package)

from crac.training.config import TrainConfig  # noqa: E402
from crac.training.folds import FoldsResult, resume_folds, train_folds  # noqa: E402
from crac.training.train import Result, TrainingError, resume, train  # noqa: E402

__all__ = [
    "FoldsResult",
    "Result",
    "TrainConfig",
    "TrainingError",
    "resume",
    "resume_folds",
    "train",
    "train_folds",
]
