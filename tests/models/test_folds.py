"""The folder of a cross-validation, as those see it who use its models."""

from pathlib import Path

import pytest

from crac.errors import InputError
from crac.training import resume_folds


@pytest.mark.parametrize("damaged", ["[]", "{}", '{"settings": {}, "test": 3}', '{"settings": null, "test": {}}'])
def test_a_damaged_description_of_folds_is_said(damaged: str, tmp_path: Path) -> None:
    (tmp_path / "folds.json").write_text(damaged)
    with pytest.raises(InputError, match=r"folds\.json is damaged"):
        resume_folds(tmp_path)
