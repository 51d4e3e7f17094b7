"""Settings: one name everywhere, and a sentence for everything that is wrong."""

from pathlib import Path

import pytest

from crac.errors import InputError, ProblemsError
from crac.training import TrainConfig
from crac.training.config import PAPER


def test_the_papers_recipe_is_one_word_away() -> None:
    config = TrainConfig.make({"data": "store", "recipe": "paper"})
    assert (config.epochs, config.batch_size, config.method, config.backbone) == (100, 16, "crac", "unet")
    assert (config.augment, config.mirror, config.dice_weight, config.foreground) == ("none", False, 0, 0)
    assert [config.rate(epoch) for epoch in (0, 49.9, 50, 99)] == [1e-3, 1e-3, 1e-4, 1e-4]
    odd = TrainConfig.make({"data": "store", "recipe": "paper", "epochs": 3})
    assert [odd.rate(epoch) for epoch in (1, 1.9, 2)] == [1e-3, 1e-3, 1e-4]  # never within an epoch


def test_the_practical_recipe_is_the_default_and_every_setting_overrides_it() -> None:
    assert TrainConfig.make({"data": "store"}) == TrainConfig.make({"data": "store", "recipe": "practical"})
    paper = TrainConfig.make({"data": "store", "recipe": "paper"})
    practical = TrainConfig.make({"data": "store"})
    differing = {name for name in TrainConfig.model_fields if getattr(paper, name) != getattr(practical, name)}
    assert differing == {"recipe", *PAPER}
    for name in PAPER:  # also where the value is the other recipe's
        given = TrainConfig.make({"data": "store", "recipe": "paper", name: getattr(practical, name)})
        assert getattr(given, name) == getattr(practical, name)
    assert "backbone" not in paper.model_fields_set  # filled in, not given


def test_the_learning_rate_rises_then_falls_to_nothing() -> None:
    config = TrainConfig.make({"data": "store", "epochs": 50, "warm_up": 0.1, "learning_rate": 0.01})
    rates = [config.rate(step / 10) for step in range(501)]
    assert 0 < rates[0] < 2e-4
    assert max(rates) == rates[50] == pytest.approx(0.01 * 0.9**0.9)
    assert rates[:50] == sorted(rates[:50])
    assert rates[50:] == sorted(rates[50:], reverse=True)
    assert rates[-1] == 0
    assert TrainConfig.make({"data": "store", "warm_up": 0}).rate(0) == 3e-3


def test_settings_of_0_1_0_keep_their_meaning() -> None:
    old = {"data": "store", "method": "crac", "backbone": "unet"}
    assert TrainConfig.written(old) == TrainConfig.make({"data": "store", "recipe": "paper"})
    plain, flipped = (TrainConfig.written({**old, "augment": augment}) for augment in (False, True))
    assert (plain.augment, plain.mirror) == ("none", False)
    assert (flipped.augment, flipped.mirror) == ("light", True)
    new = TrainConfig.make({"data": "store", "augment": "strong"})
    assert TrainConfig.written(new.model_dump(mode="json")) == new


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
        ({"data": "x", "epoch": 3}, "unknown setting 'epoch'; known are data, recipe"),
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
