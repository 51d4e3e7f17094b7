"""The practical recipe learns quickly from few volumes, and none of its parts depends on how a run is carried out."""

import signal
from pathlib import Path
from typing import Any

import pytest
from tests.training.atria import atria_store

from conftest_training import trained
from crac.data import Store
from crac.training import TrainConfig, resume, train
from crac.training.log import Log

EVERYTHING = {
    "recipe": "practical", "method": "crac", "backbone": "nnunet", "width": 2, "augment": "strong", "mirror": True,
    "patch_size": (32, 32), "foreground": 0.5, "deterministic": True,
}  # fmt: skip


@pytest.mark.parametrize(("dims", "more"), [(2, {"epochs": 5, "batch_size": 8}), (3, {"epochs": 2})])
def test_twelve_volumes_and_five_epochs_find_the_atrium(dims: int, more: dict[str, Any], tmp_path: Path) -> None:
    store = atria_store(tmp_path, dims)
    settings = {"data": store.path, "width": 8, "accelerator": "cpu", **more}
    result = train(TrainConfig.make(settings), tmp_path / "run")
    assert max(row["dice"] for row in result.history) > 0.5


@pytest.mark.parametrize("settings", [{}, {"dims": 3, "patch_size": (32, 32, 32), "batch_size": 2}])
def test_resume_is_bit_equal_with_every_part_on(
    settings: dict[str, Any], small: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = small(**EVERYTHING | settings)
    train(config, tmp_path / "whole")

    def stop_after_two(self: Log, number: int) -> None:
        if number == 2:
            signal.raise_signal(signal.SIGINT)

    with monkeypatch.context() as patched:
        patched.setattr(Log, "step", stop_after_two)
        assert not train(config, tmp_path / "parts").finished
    assert resume(tmp_path / "parts").finished
    assert trained(tmp_path / "parts") == trained(tmp_path / "whole")


@pytest.mark.parametrize("method", ["crac", "bwcr"])
def test_deep_supervision_and_clipping_change_the_training(method: str, small: Any, tmp_path: Path) -> None:
    losses = []
    for number, change in enumerate([{}, {"deep_supervision": False}, {"clip_norm": 1e-3}, {"dice_weight": 0}]):
        config = small(**EVERYTHING | {"method": method, "epochs": 1} | change)
        losses.append(train(config, tmp_path / str(number)).history[0]["train_loss"])
    assert len(set(losses)) == 4


def test_the_methods_own_dice_weight_wins(small: Any, store: Store, tmp_path: Path) -> None:
    by_option = small(epochs=1, dice_weight=3, method_options={"dice_weight": 0.5})
    by_setting = small(epochs=1, dice_weight=0.5)
    losses = [
        train(config, tmp_path / str(n)).history[0]["train_loss"] for n, config in enumerate([by_option, by_setting])
    ]
    assert losses[0] == losses[1]
