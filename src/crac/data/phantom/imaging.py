"""What turns a drawing into an image: partial volume, bias field, noise; and an annotator's unsteady hand."""

from collections.abc import Callable, Sequence
from pathlib import Path

import nibabel as nib
import numpy as np
from numpy.typing import NDArray

from crac.data.sources.source import PHANTOM_NOTE
from crac.errors import check_number
from crac.files import replacing, write_text, writing

Array = NDArray[np.float64]
Pair = tuple[NDArray[np.int16], NDArray[np.uint8]]
"""Image and label of one volume, each ``(D, H, W)``."""
Place = Sequence[float | Array]
"""One number an axis, or one a slice ``(D, 1, 1)``."""
SUPERSAMPLING = 2
"""Sub-voxels along H and W: edges then cut through voxels, which take a mixture of both tissues."""


def smooth_noise(generator: np.random.Generator, shape: Sequence[int], scale: float | Sequence[float]) -> Array:
    """Gaussian noise smoothed over ``scale`` voxels, with mean 0 and deviation 1."""
    from scipy import ndimage

    noise: Array = ndimage.gaussian_filter(generator.standard_normal(shape), scale, mode="reflect")
    scaled: Array = (noise - noise.mean()) / max(float(noise.std()), 1e-12)
    return scaled


def bias_field(generator: np.random.Generator, shape: Sequence[int], strength: float) -> Array:
    """A slow multiplicative shading around 1, as from a receive coil."""
    axes = np.meshgrid(*(np.linspace(-1, 1, size) for size in shape), indexing="ij")
    slopes, bends = generator.uniform(-1, 1, (2, len(axes)))
    field = sum(slope * axis + bend * axis**2 for slope, bend, axis in zip(slopes, bends, axes, strict=True))
    return np.exp(strength * np.asarray(field))


def rician(generator: np.random.Generator, image: Array, deviation: float) -> Array:
    """The noise of a magnitude image: Gaussian in both parts of a complex signal."""
    real, imaginary = generator.normal(0, deviation, (2, *image.shape))
    noisy: Array = np.hypot(image + real, imaginary)
    return noisy


def waver(
    generator: np.random.Generator, shape: Sequence[int], amplitude: float, scale: Sequence[float]
) -> list[Array]:
    """How far, in voxels, an annotator misses along H and W: smooth, so that outlines stay outlines."""
    return [amplitude * smooth_noise(generator, shape, scale) for _ in range(2)]


def render(draw: Callable[[Array, Array], Array], height: int, width: int) -> Array:
    """Average a drawing, values at the coordinates ``(rows, columns)`` in voxels, over the sub-voxels of each voxel."""
    offsets = (np.arange(SUPERSAMPLING) + 0.5) / SUPERSAMPLING - 0.5
    rows, columns = np.mgrid[:height, :width]
    drawings = (draw(rows + down, columns + right) for down in offsets for right in offsets)
    return np.asarray(sum(drawings)) / SUPERSAMPLING**2


def ellipsoid(points: Sequence[Array], centre: Place, radii: Place, turn: float = 0.0) -> Array:
    """Below 1 inside, 1 on the surface; turned by ``turn`` radians in the plane of the last two axes."""
    offsets = [point - middle for point, middle in zip(points, centre, strict=True)]
    row, column = offsets[-2], offsets[-1]
    offsets[-2] = np.cos(turn) * row - np.sin(turn) * column
    offsets[-1] = np.sin(turn) * row + np.cos(turn) * column
    return np.sqrt(sum((offset / radius) ** 2 for offset, radius in zip(offsets, radii, strict=True)))


def start(folder: str | Path, seed: int, patients: int, size: int, slices: int, fewest: int) -> Path:
    """Check the numbers that a phantom is asked for, and make its folder with a note that nobody in it exists."""
    for name, value, least in (("patients", patients, 1), ("size", size, 32), ("slices", slices, fewest)):
        check_number(name, value, least=least, whole=True)
    folder = Path(folder)
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    write_text(folder / PHANTOM_NOTE, f"Made-up patients, written by crac.data.phantom with seed {seed}.\n")
    return folder


def write_volume(path: Path, array: NDArray[np.int16] | NDArray[np.uint8], spacing: Sequence[float]) -> None:
    """Write slices ``(D, H, W)``, ``spacing`` millimetres apart, as scanners orient them: left, posterior, superior."""
    depth, height, width = spacing
    affine = np.diag([-width, -height, depth, 1.0])
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as partial:
        nib.Nifti1Image(array.T, affine).to_filename(partial)
