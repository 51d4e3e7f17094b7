"""NRRD, MGZ and DICOM beside NIfTI: the same voxels at the same places, there and back."""

import json
import locale
from collections.abc import Iterator
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest
import SimpleITK as itk  # noqa: N813
from tests.data.layouts import write_nnunet

from crac.data import read_image, read_label, write
from crac.data.formats import is_image, is_series
from crac.data.nifti import same_grid, stem
from crac.data.preparation import prepare
from crac.errors import InputError, ProblemsError

SHAPE = (6, 7, 5)


def rotation(degrees: float) -> np.ndarray:
    angle = np.deg2rad(degrees)
    turn = np.eye(4)
    turn[:2, :2] = [[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]]
    return turn


AFFINES = {
    "straight": np.diag([0.8, 1.2, 3.0, 1.0]),
    "LPS": np.array([[-0.8, 0, 0, 30], [0, -1.2, 0, 40], [0, 0, 3.0, -50], [0, 0, 0, 1.0]]),
    "oblique": rotation(20) @ np.array([[0, 0, 3.0, 5], [-0.8, 0, 0, 6], [0, 1.2, 0, 7], [0, 0, 0, 1.0]]),
}


def as_itk(array: np.ndarray, affine: np.ndarray) -> itk.Image:
    """The image as SimpleITK has it, by way of its own NIfTI reader's conventions written out."""
    image = itk.GetImageFromArray(np.ascontiguousarray(array.T))
    world = np.diag([-1.0, -1.0, 1.0, 1.0]) @ affine
    spacing = np.linalg.norm(world[:3, :3], axis=0)
    image.SetSpacing(spacing.tolist())
    image.SetOrigin(world[:3, 3].tolist())
    image.SetDirection((world[:3, :3] / spacing).ravel().tolist())
    return image


def write_series(
    folder: Path, array: np.ndarray, affine: np.ndarray, skip: int | None = None, uid: str = "1.2.3"
) -> None:
    """A DICOM series, one file a slice, as a scanner would write it."""
    folder.mkdir(exist_ok=True)
    image = as_itk(array, affine)
    direction = image.GetDirection()
    writer = itk.ImageFileWriter()
    writer.KeepOriginalImageUIDOn()
    for index in range(image.GetDepth()):
        if index == skip:
            continue
        part = image[:, :, index]
        place = image.TransformIndexToPhysicalPoint((0, 0, index))
        tags = {
            "0008|0008": "DERIVED\\SECONDARY", "0008|0060": "MR", "0020|000e": uid, "0020|000d": "1.2.9",
            "0008|0018": f"{uid}.{index + 1}", "0020|0013": str(index + 1),
            "0020|0032": "\\".join(map(str, place)),
            "0020|0037": "\\".join(str(direction[k]) for k in (0, 3, 6, 1, 4, 7)),
            "0018|0050": str(image.GetSpacing()[2]),
        }  # fmt: skip
        for key, value in tags.items():
            part.SetMetaData(key, value)
        writer.SetFileName(str(folder / f"{index:03d}.dcm"))
        writer.Execute(part)


@pytest.fixture(autouse=True)
def _same_locale() -> Iterator[None]:
    """What writes a series here leaves another one."""
    before = locale.setlocale(locale.LC_ALL)
    yield
    locale.setlocale(locale.LC_ALL, before)


def test_a_series_leaves_the_locale_as_it_was(tmp_path: Path) -> None:
    write_series(tmp_path / "case", np.zeros(SHAPE, np.int16), next(iter(AFFINES.values())))
    locale.setlocale(locale.LC_ALL, "C.UTF-8")
    read_image(tmp_path / "case")
    assert locale.nl_langinfo(locale.CODESET) == "UTF-8"


@pytest.mark.parametrize("affine", AFFINES.values(), ids=AFFINES)
@pytest.mark.parametrize("kind", ["nrrd", "mgz", "mgh", "series"])
def test_every_format_has_the_same_voxels_at_the_same_places(kind: str, affine: np.ndarray, tmp_path: Path) -> None:
    array = np.random.default_rng(0).integers(0, 900, SHAPE).astype(np.int16)
    nib.Nifti1Image(array, affine).to_filename(tmp_path / "case.nii.gz")
    expected = read_image(tmp_path / "case.nii.gz")
    path = tmp_path / ("case" if kind == "series" else f"case.{kind}")
    if kind == "series":
        write_series(path, array, affine)
    elif kind == "nrrd":
        itk.WriteImage(as_itk(array, affine), str(path), useCompression=True)
    else:
        nib.MGHImage(array.astype(np.int32), affine).to_filename(path)
    found = read_image(path)
    assert is_image(path)
    assert stem(path) == "case"
    if kind == "series" and np.linalg.det(affine) < 0:  # slices are sorted along their normal, so the axis turns round
        found = type(found)(found.array[..., ::-1], found.affine @ np.array(
            [[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, -1, SHAPE[2] - 1], [0, 0, 0, 1.0]]), found.header)  # fmt: skip
    assert same_grid(expected, found) is None
    np.testing.assert_array_equal(found.array, expected.array)
    # What is written for it, another program finds at the same place.
    like = read_image(path)
    write(tmp_path / "out.nii.gz", like.array[0].astype(np.uint8), like)
    again = itk.ReadImage(str(tmp_path / "out.nii.gz"))
    corner = again.TransformIndexToPhysicalPoint(tuple(size - 1 for size in SHAPE))
    np.testing.assert_allclose(
        np.array(corner) * [-1, -1, 1], (like.affine @ [*(np.array(SHAPE) - 1), 1])[:3], atol=1e-3
    )
    assert read_label(tmp_path / "out.nii.gz").shape == SHAPE


def test_channels_of_an_nrrd_file(tmp_path: Path) -> None:
    both = np.random.default_rng(0).random((2, *SHAPE)).astype(np.float32)
    image = itk.Compose([as_itk(one, AFFINES["LPS"]) for one in both])
    itk.WriteImage(image, str(tmp_path / "two.nrrd"))
    np.testing.assert_array_equal(read_image(tmp_path / "two.nrrd").array, both)


def test_defects_are_sentences(tmp_path: Path) -> None:
    array, affine = np.zeros(SHAPE, dtype=np.int16), AFFINES["straight"]
    write_series(tmp_path / "gap", array, affine, skip=2)
    with pytest.raises(InputError, match="slices must lie at equal distances; they are 3 to 6 mm apart"):
        read_image(tmp_path / "gap")
    write_series(tmp_path / "two", array, affine)
    for path in (tmp_path / "two").iterdir():
        path.rename(path.with_name(f"first-{path.name}"))
    write_series(tmp_path / "two", array, affine, uid="1.2.4")
    with pytest.raises(InputError, match="must hold one DICOM series; it holds 2"):
        read_image(tmp_path / "two")
    (tmp_path / "empty").mkdir()
    assert not is_series(tmp_path / "empty")
    header = b"NRRD0004\ntype: short\ndimension: 3\nsizes: 6 7 5\nencoding: raw\nendian: little\n"
    (tmp_path / "detached.nrrd").write_bytes(header + b"data file: /etc/passwd\n\n")
    with pytest.raises(InputError, match="the header names another"):
        read_image(tmp_path / "detached.nrrd")
    huge = header.replace(b"6 7 5", b"40000 40000 40000")
    (tmp_path / "huge.nrrd").write_bytes(huge + b"\n" + bytes(420))
    with pytest.raises(InputError, match=r"huge\.nrrd is damaged"):
        read_image(tmp_path / "huge.nrrd")
    (tmp_path / "text.nrrd").write_text("no image")
    with pytest.raises(InputError, match=r"text\.nrrd is damaged or not an image"):
        read_image(tmp_path / "text.nrrd")
    nib.Nifti1Image(array, affine).to_filename(tmp_path / "x.nii")
    (tmp_path / "x.nii").rename(tmp_path / "x.mgh")
    with pytest.raises(InputError, match=r"x\.mgh"):
        read_image(tmp_path / "x.mgh")


def test_prepare_reads_them_and_gives_the_same_store(tmp_path: Path) -> None:
    raw = write_nnunet(tmp_path / "raw", [(8, 9, 7)] * 3, codes="LPS", spacing=(1, 1, 2))
    expected = prepare("nnunet", raw, tmp_path / "expected")
    images = sorted((raw / "imagesTr").iterdir())
    for path, kind in zip(images, ("nrrd", "mgz", "series"), strict=True):
        image = nib.load(path)
        array, name = np.asarray(image.dataobj), path.name.removesuffix(".nii.gz")
        if kind == "nrrd":
            itk.WriteImage(as_itk(array, image.affine), str(path.with_name(f"{name}.nrrd")))
        elif kind == "mgz":
            nib.MGHImage(array, image.affine).to_filename(path.with_name(f"{name}.mgz"))
        else:
            array = np.rint(array).astype(np.int16)
            write_series(path.with_name(name), array, image.affine)
        path.unlink()
    label = raw / "labelsTr" / "case0.nii.gz"
    itk.WriteImage(itk.ReadImage(str(label)), str(label.with_name("case0.nrrd")))
    label.unlink()
    store = prepare("nnunet", raw, tmp_path / "store")
    for name in store.cases:
        np.testing.assert_array_equal(store.label(name), expected.label(name))
        np.testing.assert_allclose(store.image(name), expected.image(name), atol=0.02 if name == "case2" else 0)
    content = json.loads((raw / "dataset.json").read_text())
    (raw / "dataset.json").write_text(json.dumps(content | {"file_ending": ".nrrd"}))
    assert len(prepare("nnunet", raw, tmp_path / "again").cases) == 3
    (raw / "labelsTr" / "case1.nii.gz").unlink()
    with pytest.raises(ProblemsError, match="missing label"):
        prepare("nnunet", raw, tmp_path / "last")
