"""What a checkpoint says about its model."""

from pathlib import Path

import pytest

import crac
from crac.errors import InputError
from crac.models.checkpoint import Checkpoint


def test_a_card_of_another_version_is_one_sentence(run: Path, tmp_path: Path) -> None:
    saved = Checkpoint.load(run / "best.safetensors")
    saved.info["model"]["recipe"]["future"] = 1
    saved.save(tmp_path / "new.safetensors")
    with pytest.raises(InputError, match=r"new\.safetensors does not say .*: unknown setting 'recipe.future'$"):
        crac.load(tmp_path / "new.safetensors")
