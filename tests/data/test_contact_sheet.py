"""The sheet of slices that shows what was prepared."""

import nibabel as nib
import numpy as np
from tests.data.test_upright import stored

from crac.data import Store, prepare
from crac.data.contact_sheet import contact_sheet
from crac.data.upright import Upright


def test_the_contact_sheet_shows_that_picture(tmp_path, monkeypatch):
    volume, affine = stored("LPS")
    for folder, array in (("imagesTr", volume), ("labelsTr", (volume > 3).astype(np.uint8))):
        (tmp_path / "raw" / folder).mkdir(parents=True)
        name = "a_0000.nii.gz" if folder == "imagesTr" else "a.nii.gz"
        nib.Nifti1Image(array, affine).to_filename(tmp_path / "raw" / folder / name)
    (tmp_path / "raw/dataset.json").write_text(
        '{"channel_names": {"0": "MR"}, "labels": {"background": 0, "x": 1}, "numTraining": 1, '
        '"file_ending": ".nii.gz"}'
    )
    store: Store = prepare("nnunet", tmp_path / "raw", tmp_path / "store")
    from matplotlib.axes import Axes

    drawn, aspects, show = [], [], Axes.imshow

    def imshow(axis, picture, **options):
        drawn.append(np.asarray(picture))
        aspects.append(options["aspect"])
        return show(axis, picture, **options)

    monkeypatch.setattr(Axes, "imshow", imshow)
    contact_sheet(store, tmp_path / "sheet.png")
    expected = Upright.prepared(store.manifest.recipe).turn(np.array(store.image("a")[0], dtype=np.float32))
    assert any(np.array_equal(drawn[0], one) for one in expected)
    assert (drawn[0][0] > drawn[0][-1]).mean() > 0.9
    assert aspects == [2.0]
