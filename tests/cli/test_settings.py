"""Options of a command line that a pydantic model describes."""

import argparse
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field

from crac.cli import build_parser
from crac.cli.settings import add_settings, given_settings
from crac.errors import InputError
from crac.training import TrainConfig


class Model(BaseModel):
    data: Path = Field(description="where from")
    rate: Annotated[float, Field(gt=0)] = Field(0.5, description="how fast, 100%")
    dims: Literal[2, 3] | None = Field(None, description="two or three")
    sizes: tuple[int, ...] | None = Field(None, description="sides")
    more: dict[str, Any] = Field(default_factory=dict, description="anything else")
    loud: bool = Field(True, description="whether to shout")


def parse(*arguments: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--json", action="store_true")
    add_settings(parser, Model)
    return parser.parse_args(arguments)


def test_what_is_not_given_is_left_to_others() -> None:
    assert given_settings(parse("--json"), Model) == {}


def test_each_type_has_its_form() -> None:
    args = parse(
        "--data", "here", "--rate", "1e-3", "--dims", "3", "--sizes", "64", "32", "--no-loud",
        "--more", "alpha=0.2", "border=replicate", "sides=[1, 2]", "empty=",
    )  # fmt: skip
    given = Model.model_validate(given_settings(args, Model))
    assert (given.data, given.rate, given.dims, given.sizes) == (Path("here"), 1e-3, 3, (64, 32))
    assert given.more == {"alpha": 0.2, "border": "replicate", "sides": [1, 2], "empty": None}
    assert given.loud is False


@pytest.mark.parametrize(("text", "message"), [("alpha", "must be NAME=VALUE; got 'alpha'"), ("a=[", "value of a")])
def test_pairs_that_cannot_be_read(text: str, message: str) -> None:
    with pytest.raises(InputError, match=f"^--more.*{message}"):
        given_settings(parse("--more", text), Model)


def test_help_ends_in_the_default(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse("--help")
    shown = " ".join(capsys.readouterr().out.split())
    assert "--rate X how fast, 100% (default: 0.5)" in shown
    assert "whether to shout (default: yes)" in shown
    assert "where from --rate" in shown
    assert "--more NAME=VALUE [NAME=VALUE ...] anything else --loud" in shown
    parser = argparse.ArgumentParser()
    add_settings(parser, Model, {"other": {"rate": 2, "loud": False}})
    shown = " ".join(parser.format_help().split())
    assert "100% (default: 0.5; other: 2)" in shown
    assert "whether to shout (default: yes; other: no)" in shown


def test_every_setting_of_a_training_is_an_option_with_a_help_text() -> None:
    parser = argparse.ArgumentParser()
    add_settings(parser, TrainConfig)
    options = {action.dest: action for action in parser._actions}
    assert [name for name in options if name != "help"] == list(TrainConfig.model_fields)
    assert all(f"--{name.replace('_', '-')}" in options[name].option_strings for name in TrainConfig.model_fields)
    assert all(field.description for field in TrainConfig.model_fields.values())
    build_parser("train").parse_args(
        ["train", "--out", "x", "--patch-size", "64", "64", "--augment", "strong", "--no-mirror"]
    )
