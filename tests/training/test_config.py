"""Settings: one name everywhere, and a sentence for everything that is wrong."""

from pathlib import Path

import pytest

from crac.errors import InputError, ProblemsError
from crac.training import TrainConfig


def test_defaults_are_the_papers() -> None:
    config = TrainConfig.make({"data": "store"})
    assert (config.epochs, config.batch_size) == (100, 16)
    assert [config.rate(epoch) for epoch in (0, 49, 50, 99)] == [1e-3, 1e-3, 1e-4, 1e-4]


def test_options_win_over_the_file_and_the_dump_reads_back(tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text("data: here\nepochs: 7\nmethod: nacl\nmethod_options: {alpha: 0.2}\npatch_size: [8, 16]\n")
    config = TrainConfig.load(file, {"epochs": 9})
    assert (config.epochs, config.method, config.patch_size) == (9, "nacl", (8, 16))
    file.write_text(config.dump())
    assert TrainConfig.load(file) == config


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"data": "x", "epoch": 3}, "unknown setting 'epoch'; known are data, method"),
        ({}, "data is missing"),
        ({"data": "x", "epochs": 0}, "epochs: input should be greater than or equal to 1; got 0"),
        ({"data": "x", "learning_rate": float("nan")}, "learning_rate: input should be a finite number"),
        ({"data": "x", "method": "mse"}, "method must be one of ce, fl, .*; got 'mse'"),
        ({"data": "x", "backbone": "vit"}, "backbone must be one of unet, nnunet; got 'vit'"),
        ({"data": "x", "precision": "int8"}, "precision: input should be 'fp32', .*; got 'int8'"),
    ],
)
def test_bad_settings(settings: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        TrainConfig.make(settings)


def test_all_problems_are_reported_together() -> None:
    with pytest.raises(ProblemsError) as caught:
        TrainConfig.make({"data": "x", "epochs": 0, "wdith": 3})
    assert len(caught.value.problems) == 2


@pytest.mark.parametrize("text", ["a: [1", "- 1\n- 2", "3", "\x00"])
def test_unreadable_files(tmp_path: Path, text: str) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text(text)
    with pytest.raises(InputError, match=r"settings\.yaml"):
        TrainConfig.load(file)
    with pytest.raises(InputError, match="No such file"):
        TrainConfig.load(tmp_path / "none.yaml")
