"""Files of every make read back right; broken ones say so in one sentence."""

import struct
from collections.abc import Iterator
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from crac.data import nifti
from crac.data.nifti import image_volume, read_image, read_label, same_grid, write, write_channels
from crac.errors import InputError

AXES = [(first, second, third) for first in "RL" for second in "AP" for third in "SI"]
ORIENTATIONS = [
    codes[i] + codes[j] + codes[k]
    for codes in map("".join, AXES)
    for i in range(3)
    for j in range(3)
    for k in range(3)
    if {i, j, k} == {0, 1, 2}
]
every_file = settings(
    max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


@st.composite
def volumes(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, float, float, bool, str]:
    """Stored values, affine, slope, intercept, NIfTI-2, ending."""
    dtype = draw(st.sampled_from(["u1", "i1", "u2", "i2", "i4", "u4", "f4", "f8"]))
    shape = draw(st.lists(st.integers(1, 6), min_size=2, max_size=4))
    generator = np.random.default_rng(draw(st.integers(0, 2**16)))
    low = 0 if dtype[0] == "u" else -120
    stored = generator.integers(low, 121, shape).astype(dtype)
    if dtype[0] == "f":
        stored = (stored / 7).astype(dtype)
    spacing = draw(st.lists(st.floats(0.05, 20), min_size=3, max_size=3))
    orientation = nib.orientations.axcodes2ornt(draw(st.sampled_from(ORIENTATIONS)))
    affine = nib.orientations.inv_ornt_aff(orientation, (5, 5, 5)) @ np.diag([*spacing, 1])
    angle = draw(st.floats(-0.5, 0.5))
    turn = np.eye(4)
    turn[:2, :2] = [[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]]
    affine = turn @ affine
    affine[:3, 3] = draw(st.lists(st.floats(-300, 300), min_size=3, max_size=3))
    slope = draw(st.sampled_from([1.0, 0.5, 2.0, -1.5]))
    return (
        stored,
        affine,
        slope,
        draw(st.sampled_from([0.0, -1024.0, 3.5])),
        draw(st.booleans()),
        draw(st.sampled_from([".nii", ".nii.gz"])),
    )


@every_file
@given(volume=volumes(), code=st.sampled_from(["sform", "qform"]))
def test_reads_back_what_was_written(tmp_path: Path, volume: tuple, code: str) -> None:
    stored, affine, slope, intercept, two, ending = volume
    path = tmp_path / f"volume{ending}"
    image = (nib.Nifti2Image if two else nib.Nifti1Image)(stored, None)
    image.header.set_data_dtype(stored.dtype)
    if code == "sform":
        image.header.set_sform(affine, 2)
    else:
        image.header.set_qform(affine, 1)
    image.to_filename(path)
    # The scaling goes in by hand: a reader should not be tested with its own writer.
    with nib.openers.Opener(str(path), "rb") as file:
        content = bytearray(file.read())
    place, kind = (176, "<d") if two else (112, "<f")
    for number in (slope, intercept):
        struct.pack_into(kind, content, place, number)
        place += struct.calcsize(kind)
    with nib.openers.Opener(str(path), "wb") as file:
        file.write(bytes(content))
    values = stored.astype(np.float64) * slope + intercept

    volume_ = read_image(path)
    assert volume_.array.shape == (stored.shape[3] if stored.ndim == 4 else 1, *(*stored.shape, 1)[:3])
    assert volume_.array.dtype == np.float32
    expected = np.moveaxis(values.reshape((*stored.shape, 1, 1)[:4]), 3, 0)
    np.testing.assert_allclose(volume_.array, expected, rtol=1e-6, atol=1e-3)
    np.testing.assert_array_equal(volume_.affine, nib.load(path).affine)
    np.testing.assert_allclose(volume_.affine, affine, rtol=1e-4, atol=1e-3)

    write(tmp_path / "out.nii.gz", np.ones(volume_.shape, dtype=np.uint8), volume_)
    out = nib.load(tmp_path / "out.nii.gz")
    np.testing.assert_array_equal(out.affine, volume_.affine)
    assert out.get_data_dtype() == np.uint8
    np.testing.assert_array_equal(np.asarray(out.dataobj), 1)


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("sound") / "sound.nii"
    nib.Nifti1Image(np.arange(60, dtype=np.int16).reshape(3, 4, 5), np.diag([1.0, 2, 3, 1])).to_filename(path)
    return path.read_bytes()


@every_file
@given(
    changes=st.lists(st.tuples(st.integers(0, 351), st.integers(0, 255)), min_size=1, max_size=6),
    ending=st.sampled_from([".nii", ".nii.gz"]),
)
def test_a_mutated_header_is_read_or_refused(
    tmp_path: Path, sound: bytes, changes: list[tuple[int, int]], ending: str
) -> None:
    content = bytearray(sound)
    for place, value in changes:
        content[place] = value
    path = tmp_path / f"mutated{ending}"
    with nib.openers.Opener(str(path), "wb") as file:
        file.write(bytes(content))
    for read in (read_image, read_label):
        refused = None
        try:
            volume = read(path)
        except InputError as error:
            refused = str(error)
        if refused:
            assert str(path) in refused
            assert "\n" not in refused
        else:
            assert np.isfinite(volume.array).all()
            assert np.isfinite(volume.affine).all()
            assert volume.array.ndim == (4 if read is read_image else 3)


@every_file
@given(cut=st.integers(0, 400))
def test_a_truncated_file_is_refused(tmp_path: Path, sound: bytes, cut: int) -> None:
    for ending in (".nii", ".nii.gz"):
        path = tmp_path / f"cut{ending}"
        with nib.openers.Opener(str(path), "wb") as file:
            file.write(sound)
        path.write_bytes(path.read_bytes()[: min(cut, path.stat().st_size - 9)])
        with pytest.raises(InputError, match=f"cut{ending}"):
            read_image(path)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (np.float32([[[0, 1.5, 2]]]), "must be integers; 1 voxels are not, e.g. 1.5"),
        (np.float32([[[0, np.nan, 2]]]), "must be integers"),
    ],
)
def test_labels_must_be_integers(tmp_path: Path, values: np.ndarray, message: str) -> None:
    nib.Nifti1Image(values, np.eye(4)).to_filename(tmp_path / "label.nii.gz")
    with pytest.raises(InputError, match=message):
        read_label(tmp_path / "label.nii.gz")


def test_float_labels_are_read(tmp_path: Path) -> None:
    nib.Nifti1Image(np.float32([[[0, 0.9999999, 2]]]), np.eye(4)).to_filename(tmp_path / "label.nii.gz")
    np.testing.assert_array_equal(read_label(tmp_path / "label.nii.gz").array, [[[0, 1, 2]]])


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_images_must_be_finite(tmp_path: Path, bad: float) -> None:
    nib.Nifti1Image(np.float32([[[0, bad, 2]]]), np.eye(4)).to_filename(tmp_path / "image.nii.gz")
    with pytest.raises(InputError, match="1 of 3 voxels are NaN or infinite"):
        read_image(tmp_path / "image.nii.gz")


def test_other_formats_are_refused(tmp_path: Path) -> None:
    nib.MGHImage(np.zeros((2, 2, 2), dtype=np.float32), np.eye(4)).to_filename(tmp_path / "image.mgz")
    (tmp_path / "image.mgz").rename(tmp_path / "image.nii.gz")
    with pytest.raises(InputError, match="is damaged or not an image"):
        read_image(tmp_path / "image.nii.gz")
    colours = np.zeros((2, 2, 2), dtype=[("R", "u1"), ("G", "u1"), ("B", "u1")])
    nib.Nifti1Image(colours, np.eye(4)).to_filename(tmp_path / "colour.nii.gz")
    with pytest.raises(InputError, match="must be integers or floats"):
        read_image(tmp_path / "colour.nii.gz")
    with pytest.raises(InputError, match="no such file"):
        read_image(tmp_path / "absent.nii.gz")


def test_lengths_that_are_no_millimetres_are_refused(tmp_path: Path) -> None:
    image = nib.Nifti1Image(np.zeros((2, 2, 2), dtype=np.uint8), np.eye(4))
    for unit in ("mm", "unknown", "micron"):
        image.header.set_xyzt_units(unit, "sec")
        image.to_filename(tmp_path / f"{unit}.nii.gz")
    for unit in ("mm", "unknown"):
        assert read_image(tmp_path / f"{unit}.nii.gz").shape == (2, 2, 2)
    for read in (read_image, read_label):
        with pytest.raises(InputError, match="it gives micrometres"):
            read(tmp_path / "micron.nii.gz")


def test_same_grid_names_the_difference(tmp_path: Path) -> None:
    def volume(shape: tuple[int, ...], affine: np.ndarray):
        nib.Nifti1Image(np.zeros(shape, dtype=np.uint8), affine).to_filename(tmp_path / "grid.nii")
        return read_label(tmp_path / "grid.nii")

    first = volume((4, 5, 6), np.diag([1.0, 1, 2, 1]))
    assert same_grid(first, first) is None
    assert same_grid(first, volume((4, 5, 6), np.diag([1.0, 1, 2.001, 1]))) is None
    assert "shape (5, 4, 6), not (4, 5, 6)" in str(same_grid(first, volume((5, 4, 6), np.diag([1.0, 1, 2, 1]))))
    assert "5 mm elsewhere" in str(same_grid(first, volume((4, 5, 6), np.diag([1.0, 1, 3, 1]))))


def test_an_interrupted_write_leaves_nothing(tmp_path: Path, sound: bytes) -> None:
    (tmp_path / "sound.nii").write_bytes(sound)
    volume = read_image(tmp_path / "sound.nii")

    def interrupted() -> Iterator[np.ndarray]:
        yield volume.array[0]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_channels(tmp_path / "out.nii.gz", interrupted(), (*volume.shape, 2), np.float32, volume)
    assert [path.name for path in tmp_path.iterdir()] == ["sound.nii"]


def test_writing_fails_whole(tmp_path: Path, sound: bytes) -> None:
    (tmp_path / "sound.nii").write_bytes(sound)
    volume = read_image(tmp_path / "sound.nii")
    (tmp_path / "taken.nii.gz").mkdir()
    with pytest.raises(InputError, match="cannot be written"):
        write(tmp_path / "taken.nii.gz", volume.array[0], volume)
    assert {path.name for path in tmp_path.iterdir()} == {"sound.nii", "taken.nii.gz"}


@pytest.mark.parametrize("kind", [nib.Nifti1Image, nib.Nifti2Image])
@pytest.mark.parametrize("shape", [(5, 6, 7), (5, 6), (5, 6, 7, 3)])
@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_files_are_to_the_byte_those_nibabel_writes(
    kind: type[nib.Nifti1Image], shape: tuple[int, ...], dtype: type, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nifti, "PART", 17)  # in several parts
    generator = np.random.default_rng(0)
    image = kind(generator.random((5, 6, 7), dtype=np.float32), np.diag([-1.0, 2, 3, 1]))
    image.header.set_xyzt_units("mm", "sec")
    image.header["cal_max"] = 3
    nib.save(image, tmp_path / "in.nii.gz")
    like, array = read_image(tmp_path / "in.nii.gz"), (9 * generator.random(shape)).astype(dtype)
    write(tmp_path / "ours.nii.gz", array, like)
    header = like.header.copy()
    header.set_data_dtype(dtype)
    header["cal_max"] = 0
    kind(array, like.affine, header).to_filename(tmp_path / "nibabel.nii.gz")
    assert (tmp_path / "ours.nii.gz").read_bytes() == (tmp_path / "nibabel.nii.gz").read_bytes()


def test_an_image_of_nibabel_is_read_as_its_file(tmp_path: Path) -> None:
    image = nib.Nifti1Image(np.arange(24, dtype=np.int16).reshape(2, 3, 4), np.diag([-1.0, 2, 3, 1]))
    image.to_filename(tmp_path / "image.nii.gz")
    from_file = read_image(tmp_path / "image.nii.gz")
    for other in (image, nib.MGHImage.from_image(image)):
        volume = image_volume(other, "image")
        np.testing.assert_array_equal(volume.array, from_file.array)
        np.testing.assert_allclose(volume.affine, from_file.affine)
        write(tmp_path / "again.nii.gz", volume.array[0], volume)
    with pytest.raises(InputError, match="mine: the image must have an affine, which says where its voxels lie"):
        image_volume(nib.Nifti1Image(np.zeros((2, 2, 2), np.float32), None), "mine")
    with pytest.raises(InputError, match="mine: voxels must be integers or floats"):
        image_volume(nib.Nifti1Image(np.zeros((2, 2, 2), np.complex64), np.eye(4)), "mine")
