"""What every layout has in common."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from crac.data import prepare
from crac.data.sources import read_acdc, read_flare, read_nnunet
from crac.errors import InputError, ProblemsError


@pytest.mark.parametrize("read", [read_acdc, read_flare, read_nnunet])
def test_no_folder_and_empty_folder(read: Callable, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="does not exist"):
        read(tmp_path / "absent")
    with pytest.raises(InputError, match="is empty"):
        read(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="is a file"):
        read(tmp_path / "file")
    with pytest.raises(InputError, match="looks like no layout that is known here"):
        read(tmp_path)


def test_a_wrong_layout_is_recognised(cardiac_raw: Path, abdominal_raw: Path, nnunet_raw: Path, tmp_path: Path) -> None:
    flare22 = tmp_path / "flare22"
    (flare22 / "imagesTr").mkdir(parents=True)
    (flare22 / "labelsTr").mkdir()
    folders = {
        r"crac prepare acdc": (cardiac_raw, (read_flare, read_nnunet)),
        r"FLARE21 \(crac prepare flare": (abdominal_raw, (read_acdc, read_nnunet)),
        r"crac prepare nnunet": (nnunet_raw, (read_acdc, read_flare)),
        r"FLARE22, or nnU-Net without its dataset.json": (flare22, (read_acdc, read_nnunet)),
        r"ACDC .*, in its sub-folder 'raw'": (cardiac_raw.parent, (read_acdc,)),
    }
    for message, (folder, readers) in folders.items():
        for read in readers:
            with pytest.raises(InputError, match=message):
                read(folder)


def test_odd_names_and_empty_sets(nnunet_raw: Path, tmp_path: Path) -> None:
    image = next((nnunet_raw / "imagesTr").glob("case0*"))
    image.rename(image.with_name("a case_0000.nii.gz"))
    label = nnunet_raw / "labelsTr" / "case0.nii.gz"
    label.rename(label.with_name("a case.nii.gz"))
    assert any("'a case' may only hold letters" in problem for problem in read_nnunet(nnunet_raw).problems)
    for folder in ("imagesTr", "labelsTr"):
        shutil.rmtree(nnunet_raw / folder)
        (nnunet_raw / folder).mkdir()
    with pytest.raises(InputError, match="has no labelled case"):
        prepare("nnunet", nnunet_raw, tmp_path / "store")


def test_a_name_too_long_for_a_store_is_listed_before_anything_is_written(nnunet_raw: Path, tmp_path: Path) -> None:
    for length, problems in ((200, 0), (201, 1)):
        next((nnunet_raw / "imagesTr").glob("*0_0000*")).rename(nnunet_raw / "imagesTr" / f"{'0' * length}_0000.nii.gz")
        next((nnunet_raw / "labelsTr").glob("*0.nii.gz")).rename(nnunet_raw / "labelsTr" / f"{'0' * length}.nii.gz")
        found = read_nnunet(nnunet_raw).problems
        assert len(found) == problems
    assert found[0].endswith("may have 200 characters at most; it has 201")
    with pytest.raises(ProblemsError, match="it has 201"):
        prepare("nnunet", nnunet_raw, tmp_path / "store")
    assert not (tmp_path / "store").exists()
