"""The paper's inner and outer iteration as a training that survives the real world. Needs the ``train`` extra."""

from crac.errors import require

for _package in ("pydantic", "yaml", "safetensors", "nibabel"):
    require(_package)

from crac.training.config import TrainConfig  # noqa: E402
from crac.training.train import Result, TrainingError, resume, train  # noqa: E402

__all__ = ["Result", "TrainConfig", "TrainingError", "resume", "train"]
