"""What a model and an ensemble have in common: from an image as it comes to probabilities on its own grid."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import nibabel as nib
import numpy as np
import torch
from nibabel.spatialimages import SpatialImage
from numpy.typing import NDArray
from torch import Tensor

from crac.data import Geometry, read_image
from crac.data.nifti import image_volume
from crac.data.restore import Where
from crac.errors import InputError
from crac.models.card import ModelCard
from crac.progress import Track, silent


@dataclass(frozen=True)
class Prediction:
    """What a network says about one image, on the image's own grid. Unpacks to ``labels, probabilities``.

    Args:
        probabilities: ``(K, X, Y, Z)`` float32, summing to 1.
        affine: The image's voxel to millimetre matrix, given or assumed.
    """

    probabilities: NDArray[np.float32]
    affine: NDArray[np.float64] = field(default_factory=lambda: np.eye(4))

    def __iter__(self) -> Iterator[NDArray[np.generic]]:
        return iter((self.labels, self.probabilities))

    @property
    def orientation(self) -> str:
        """Where the axes of the arrays point: ``"RAS"`` is to the right, to the front and up."""
        return "".join(nib.aff2axcodes(self.affine))

    @property
    def labels(self) -> NDArray[np.uint8]:
        """Most probable class, ``(X, Y, Z)``."""
        return np.asarray(self.probabilities.argmax(0), dtype=np.uint8)

    @property
    def confidence(self) -> NDArray[np.float32]:
        """Probability of that class."""
        return np.asarray(self.probabilities.max(0), dtype=np.float32)

    @property
    def entropy(self) -> NDArray[np.float32]:
        """Uncertainty between 0 (sure) and 1 (all classes equally likely)."""
        total = np.zeros(self.probabilities.shape[1:], dtype=np.float32)
        for share in self.probabilities:  # one class at a time: whole volumes are large
            total -= share * np.log(np.maximum(share, np.finfo(np.float32).tiny))
        return total / np.float32(np.log(len(self.probabilities)))


class Piece(NamedTuple):
    """Part of a prediction: one plane, so that no volume of probabilities has to be in memory.

    Attributes:
        where: Which voxels ``[x, y, z]`` of the image it holds; the pieces of an image hold each voxel once.
        prediction: Prediction of these voxels.
    """

    where: Where
    prediction: Prediction


class Predictor(ABC):
    """Something that segments images: a network, or several.

    Attributes:
        card: What it is, and how it wants its images.
        device: Where it runs.
        mirror: Whether it averages over mirrored versions of each image.
    """

    card: ModelCard
    device: torch.device
    mirror: bool

    @abstractmethod
    def slabs(self, image: Tensor, track: Track = silent, folder: Path | None = None) -> Iterator[Tensor]:
        """Yield probabilities ``(K, d, H, W)``, on the CPU, of a prepared image ``(C, D, H, W)`` from top to bottom.

        ``track`` shows progress; ``folder`` is where sums too large for memory may be put for a while.
        """

    @abstractmethod
    def logits(self, image: Tensor) -> Tensor:
        """Logits ``(K, D, H, W)``, on the device, of an image ``(C, D, H, W)`` prepared with the model's recipe."""

    @abstractmethod
    def identity(self) -> dict[str, Any]:
        """What its answers depend on, as plain data: checksums of weights and calibration, and settings."""

    def predict(
        self,
        image: str | Path | NDArray[np.generic] | SpatialImage,
        spacing: Sequence[float] | None = None,
        affine: NDArray[np.generic] | Sequence[Sequence[float]] | None = None,
    ) -> Prediction:
        """Segment one image.

        The network was trained on images of one orientation, and an array does not say its own: it needs an affine, or
        axes that point to the right, to the front and up (RAS) and a ``spacing``.

        Args:
            image: File, nibabel image, or an array ``(X, Y, Z)`` or ``(C, X, Y, Z)``.
            spacing: Millimetres between voxels along ``(X, Y, Z)`` of an array whose axes are taken as RAS.
            affine: Voxel to millimetre matrix ``(4, 4)`` of an array, as NIfTI has it.

        Returns:
            ``labels, probabilities``: ``(X, Y, Z)`` and ``(K, X, Y, Z)``, on the image's own grid; its ``orientation``
            says what was read or assumed.
        """
        given = [name for name, value in (("spacing", spacing), ("affine", affine)) if value is not None]
        if isinstance(image, str | Path | SpatialImage):
            what = f"the file {image}" if isinstance(image, str | Path) else "the nibabel image"
            if given:
                raise InputError(f"{given[0]} is read from {what}; it can only be given with an array")
            named = isinstance(image, str | Path)
            volume = read_image(image) if isinstance(image, str | Path) else image_volume(image, "image")
            return self.predict_volume(volume.array, volume.affine, str(image) if named else "image")
        if len(given) == 2:
            raise InputError("an array needs its affine or its spacing, not both")
        matrix = _ras(spacing) if affine is None else _checked(affine)
        array = np.asarray(image, dtype=np.float32)
        array = array[None] if array.ndim == 3 else array
        if not np.isfinite(array).all():
            raise InputError("image must hold finite numbers; got NaN or infinity")
        return self.predict_volume(array, matrix, "image")

    def predict_volume(
        self, array: NDArray[np.float32], affine: NDArray[np.float64], name: str = "image"
    ) -> Prediction:
        """Segment an array ``(C, X, Y, Z)`` with its voxel to millimetre matrix."""
        prepared, geometry = self.prepare(array, affine, name)
        probabilities = np.empty((len(self.card.class_names), *geometry.shape), dtype=np.float32)
        for where, piece in self.pieces(prepared, geometry, name):
            probabilities[:, *where] = piece.probabilities
        return Prediction(probabilities, np.asarray(affine, dtype=np.float64))

    def prepare(
        self, array: NDArray[np.float32], affine: NDArray[np.float64], name: str = "image"
    ) -> tuple[Tensor, Geometry]:
        """Return an array ``(C, X, Y, Z)`` as the network wants it, ``(C, D, H, W)``, and what it needs to get back."""
        channels = len(self.card.channel_names)
        if array.ndim != 4 or len(array) != channels:
            wanted = f"{channels} channel{'s' * (channels > 1)} ({', '.join(self.card.channel_names)})"
            raise InputError(f"{name} must have {wanted}; got an array of shape {array.shape}")
        prepared, geometry = self.card.recipe.apply(array, affine)
        return torch.from_numpy(prepared), geometry

    def pieces(
        self, image: Tensor, geometry: Geometry, name: str = "image", track: Track = silent, folder: Path | None = None
    ) -> Iterator[Piece]:
        """Yield what is said about a prepared image, plane by plane on its own grid; see :meth:`slabs`."""
        restoration = self.card.recipe.restoration(geometry)
        affine = np.array(geometry.affine)
        for where, plane in restoration.planes(_sound(self.slabs(image, track, folder), name)):
            yield Piece(where, Prediction(_normalised(plane).numpy(), affine))

    def predict_prepared(self, image: Tensor) -> Tensor:
        """Probabilities ``(K, D, H, W)``, on the CPU, of an image ``(C, D, H, W)`` prepared with the model's recipe."""
        return torch.cat(list(self.slabs(image)), 1)

    def restore(self, probabilities: Tensor, geometry: Geometry) -> NDArray[np.float32]:
        """Bring probabilities ``(K, D, H, W)`` back to the grid of the image that was prepared."""
        return _normalised(self.card.recipe.restoration(geometry).whole(probabilities.cpu().float())).numpy()


def _normalised(probabilities: Tensor) -> Tensor:
    # Interpolation keeps sums only up to rounding, and argmax and maps should agree to the last bit.
    return probabilities / probabilities.sum(0)


def _sound(slabs: Iterator[Tensor], name: str) -> Iterator[Tensor]:
    for slab in slabs:
        if not slab.isfinite().all():
            raise InputError(f"{name}: the network answers with NaN; its weights are damaged or its training diverged")
        yield slab


def _ras(spacing: Sequence[float] | None) -> NDArray[np.float64]:
    try:
        sides = np.asarray(spacing, dtype=np.float64)
    except (TypeError, ValueError):
        sides = np.empty(0)
    if sides.shape != (3,) or not all(0 < side < np.inf for side in sides):
        raise InputError(
            "spacing must be three positive numbers, in millimetres along X, Y, Z, "
            f"or the affine of the array be given; got {spacing!r}"
        )
    return np.diag([*sides, 1.0])


def _checked(affine: NDArray[np.generic] | Sequence[Sequence[float]]) -> NDArray[np.float64]:
    try:
        matrix = np.asarray(affine, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"affine must be a matrix of 4 x 4 numbers; got {affine!r}") from error
    usable = matrix.shape == (4, 4) and np.isfinite(matrix).all() and abs(np.linalg.det(matrix[:3, :3])) > 1e-12
    if not usable:
        raise InputError(f"affine must be a 4 x 4 matrix from voxels to millimetres; got {matrix.tolist()}")
    return matrix
