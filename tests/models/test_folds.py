"""The folder of a cross-validation, as those see it who use its models."""

from pathlib import Path

import pytest

from crac.cli import main
from crac.errors import InputError
from crac.training import resume_folds


@pytest.mark.parametrize("damaged", ["[]", "{}", '{"settings": {}, "test": 3}', '{"settings": null, "test": {}}'])
def test_a_damaged_description_of_folds_is_said(damaged: str, tmp_path: Path) -> None:
    (tmp_path / "folds.json").write_text(damaged)
    with pytest.raises(InputError, match=r"folds\.json is damaged"):
        resume_folds(tmp_path)


def test_folds_in_the_place_of_a_run_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "folds.json").write_text('{"test": {"fold_0": []}}')
    assert main(["evaluate", str(tmp_path), "--out", str(tmp_path / "audit")]) == 2
    assert f"is a cross-validation: name one of its runs, e.g. {tmp_path / 'fold_0'}" in capsys.readouterr().err
