"""Training from the command line."""

import pytest

from crac.cli import main


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--data", "x", "--out", "y", "--jobs", "2"], "--jobs goes with --folds"),
        (["--data", "x", "--out", "y", "--fold", "0", "--ray"], "--fold, --ray go with --folds"),
    ],
)
def test_options_of_folds_need_folds(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", *arguments]) == 2
    assert message in capsys.readouterr().err
