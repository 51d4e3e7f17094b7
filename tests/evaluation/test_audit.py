"""Cases from files, and whose they are."""

import re
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest

from crac.errors import InputError, ProblemsError
from crac.evaluation import Protocol, audit


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    rng = np.random.default_rng(0)
    for name in ("a_1", "a_2", "b_1"):
        p = rng.dirichlet(np.ones(3), size=(6, 6, 4)).astype(np.float32)
        for folder, array in (("maps", p), ("labels", p.argmax(-1).astype(np.uint8))):
            (tmp_path / folder).mkdir(exist_ok=True)
            nib.Nifti1Image(array, np.eye(4)).to_filename(tmp_path / folder / f"{name}.nii.gz")
    return tmp_path / "maps", tmp_path / "labels"


def test_names_tell_patients_apart(folders: tuple[Path, Path]) -> None:
    evaluation = audit(*folders)
    assert [row["patient"] for row in evaluation.rows] == ["a_1", "a_2", "b_1"]
    assert evaluation.protocol.class_names == ["0", "1", "2"]
    assert (evaluation.protocol.name, evaluation.protocol.grid) == ("clinical", "native")
    evaluation = audit(*folders, Protocol.named("paper", ["x", "y", "z"]), patient="^[a-z]")
    assert [row["patient"] for row in evaluation.rows] == ["a", "a", "b"]
    assert evaluation.by_patient("dsc") == {"a": 1, "b": 1}  # labels are the most probable classes
    with pytest.raises(InputError, match=r"patient must match the name of every volume; '\^a' does not match 'b_1'"):
        audit(*folders, patient="^a")
    for empty in ("", "[0-9]*"):  # the first match in "a_1" is the nothing before it
        with pytest.raises(
            InputError, match=rf"patient must match a part .*; '{re.escape(empty)}' matches nothing of 'a_1'"
        ):
            audit(*folders, patient=empty)
    with pytest.raises(InputError, match=r"patient must be a regular expression; got '\('"):
        audit(*folders, patient="(")
    with pytest.raises(InputError, match="class_names must be 3 names, background first; got 2: x, y"):
        audit(*folders, Protocol(["x", "y"]))


def test_a_volume_with_other_classes_than_the_rest_is_named(folders: tuple[Path, Path]) -> None:
    maps = np.full((6, 6, 4, 4), 0.25, np.float32)
    nib.Nifti1Image(maps, np.eye(4)).to_filename(folders[0] / "b_1.nii.gz")
    with pytest.raises(ProblemsError, match=r"b_1\.nii\.gz: 4 classes, where most volumes have 3"):
        audit(*folders)
