"""The folder of a training, as those see it who use its model."""

from pathlib import Path

import pytest

from crac.errors import InputError
from crac.models.run import Run


def test_a_folder_that_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"is not a run: it has no config\.yaml \(see crac train\)"):
        Run(tmp_path).check()
    assert Run(tmp_path).card() is None


@pytest.mark.parametrize("text", ["epochs: 3", "data: [1", "- data", "data: null"])
def test_settings_that_name_no_data_are_said(text: str, tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("data: here")
    assert Run(tmp_path).data() == Path("here")
    (tmp_path / "config.yaml").write_text(text)
    with pytest.raises(InputError, match=r"config\.yaml does not name the run's data: .+") as caught:
        Run(tmp_path).data()
    assert "\n" not in str(caught.value)
