"""What resuming restores."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from crac.errors import InputError
from crac.models.checkpoint import Checkpoint
from crac.training import resume


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda tensors, info: info.update(step=3), "losses"),
        (lambda tensors, info: info.pop("history"), "history"),
        (lambda tensors, info: tensors.update({"optimizer.999.step": torch.zeros(())}), "index"),
        (lambda tensors, info: tensors.update({"optimizer.0.exp_avg": torch.zeros(3)}), "exp_avg has shape"),
    ],
)
def test_a_checkpoint_that_lacks_what_resuming_needs(
    run: Path, change: Callable[[dict[str, Any], dict[str, Any]], None], message: str
) -> None:
    saved = Checkpoint.load(run / "last.safetensors")
    change(saved.tensors, saved.info)
    saved.save(run / "last.safetensors")
    with pytest.raises(InputError, match=rf"last\.safetensors cannot be resumed from: .*{message}"):
        resume(run)
