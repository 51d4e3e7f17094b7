"""FLARE's layouts."""

from pathlib import Path

import numpy as np
from tests.data.layouts import write_nifti

from crac.data import prepare
from crac.data.sources import read_flare


def test_flare21(abdominal_raw: Path) -> None:
    source = read_flare(abdominal_raw)
    assert source.name == "FLARE21 phantom"
    assert [case.name for case in source.cases] == ["train_000", "train_001", "train_002"]
    assert source.label_values == {0: 0, 1: 1, 2: 2, 3: 3, 4: 4}


def test_flare22_s_thirteen_organs_become_four(tmp_path: Path) -> None:
    label = np.zeros((8, 8, 15), dtype=np.uint8)
    label[...] = np.arange(15) % 14
    image = np.zeros(label.shape, dtype=np.int16)
    write_nifti(tmp_path / "raw" / "imagesTr" / "FLARE22_Tr_0001_0000.nii.gz", image, spacing=(2, 2, 8))
    write_nifti(tmp_path / "raw" / "labelsTr" / "FLARE22_Tr_0001.nii.gz", label, spacing=(2, 2, 8))
    store = prepare("flare", tmp_path / "raw", tmp_path / "store")
    assert store.name == "FLARE22"
    assert store.class_names == ("background", "liver", "kidney", "spleen", "pancreas")
    plane = 64
    # 0 and the nine other organs; liver 1; kidneys 2 and 13; spleen 3; pancreas 4. Slice 14 wraps to 0.
    assert store.cases["FLARE22_Tr_0001"].voxels == (10 * plane, plane, 2 * plane, plane, plane)
    expected = np.array([0, 1, 2, 3, 4, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0])
    np.testing.assert_array_equal(store.original_label("FLARE22_Tr_0001")[0, 0], expected)
