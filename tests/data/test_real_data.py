"""The real ACDC and Hippocampus sets, from end to end."""

from pathlib import Path

import nibabel as nib
import numpy as np
import pytest

from crac.data import Batches, Store, prepare

pytestmark = [pytest.mark.realdata, pytest.mark.slow]


@pytest.fixture(scope="module")
def acdc(real_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Store:
    return prepare("acdc", real_data / "ACDC", tmp_path_factory.mktemp("acdc") / "store", jobs=2)


def test_acdc_is_whole(acdc: Store, real_data: Path) -> None:
    assert acdc.name == "ACDC"
    assert len(acdc.cases) == 200
    assert len({case.patient for case in acdc.cases.values()}) == 100
    assert sum(case.prepared_shape[0] for case in acdc.cases.values()) == 1902
    groups = [case.group for case in acdc.cases.values()]
    assert {group: groups.count(group) for group in groups} == dict.fromkeys(("DCM", "HCM", "MINF", "NOR", "RV"), 40)
    total = np.zeros(4, dtype=int)
    dices = []
    for name, case in acdc.cases.items():
        file = nib.load(real_data / "ACDC" / case.patient / f"{name}_gt.nii.gz")
        label = np.asarray(file.dataobj)
        np.testing.assert_array_equal(
            case.geometry.affine, nib.load(real_data / "ACDC" / case.patient / f"{name}.nii.gz").affine
        )
        counts = np.bincount(label.ravel(), minlength=4)
        assert case.voxels == tuple(counts)
        assert case.cropped_away == 0
        assert set(np.unique(acdc.label(name))) == set(np.unique(label))
        total += counts
        restored = acdc.restore(name, acdc.label(name))
        overlap = [((restored == value) & (label == value)).sum() for value in range(4)]
        dices.append(2 * np.array(overlap) / (counts + np.bincount(restored.ravel(), minlength=4)))
    assert total.tolist() == [98_189_937, 1_236_051, 1_328_344, 1_298_596]
    assert (np.mean(dices, axis=0) > 0.99).all()
    assert (np.min(dices, axis=0) > 0.96).all()


def test_acdc_split(acdc: Store) -> None:
    split = acdc.split()
    assert [len(part) for part in (split.train, split.validation, split.test)] == [140, 20, 40]
    for part, each in ((split.train, 28), (split.validation, 4), (split.test, 8)):
        groups = [acdc.cases[name].group for name in part]
        assert all(groups.count(group) == each for group in set(groups))
    batches = Batches(acdc, split.train)
    assert len(batches) == -(-sum(acdc.cases[name].prepared_shape[0] for name in split.train) // 16)


def test_hippocampus(real_data: Path, tmp_path: Path) -> None:
    raw = real_data / "Dataset004_Hippocampus"
    store = prepare("nnunet", raw, tmp_path / "store", jobs=2)
    assert len(store.cases) == 260
    assert store.class_names == ("background", "anterior", "posterior")
    assert store.manifest.recipe.spacing == (1, 1, 1)
    for name, case in store.cases.items():
        label = np.asarray(nib.load(raw / "labelsTr" / f"{name}.nii.gz").dataobj).astype(np.uint8)
        assert case.voxels == tuple(np.bincount(label.ravel(), minlength=3))
        # Already at the median spacing: there and back changes nothing.
        np.testing.assert_array_equal(store.restore(name, store.label(name)), label)
    batch = next(iter(Batches(store, store.split().train, batch_size=2, dims=3, patch_size=(32, 48, 32))))
    assert batch.images.shape == (2, 1, 32, 48, 32)
