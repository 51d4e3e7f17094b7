"""A trained network, ready to be used on images as they come."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from crac.calibration import Calibrator, load_calibrator
from crac.calibration.volume import calibrate_volume
from crac.data import Geometry, read_image
from crac.errors import InputError, out_of_memory
from crac.files import sha256
from crac.models.card import ModelCard
from crac.models.checkpoint import Checkpoint, load_tensors
from crac.models.window import sliding_window, volume_logits

CALIBRATION = "calibration.json"
"""File in the folder of a run, written by ``crac calibrate``."""


@dataclass(frozen=True)
class Prediction:
    """What a network says about one image, on the image's own grid. Unpacks to ``labels, probabilities``.

    Args:
        probabilities: ``(K, X, Y, Z)`` float32, summing to 1.
    """

    probabilities: NDArray[np.float32]

    def __iter__(self) -> Iterator[NDArray[np.generic]]:
        return iter((self.labels, self.probabilities))

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


@dataclass(frozen=True)
class Model:
    """A network with everything it needs: its preparation of images, its classes.

    Args:
        network: On its device, in evaluation mode.
        card: What it is.
        device: Where it runs.
        batch_size: Slices, or windows of a volume, at a time.
        flips: Average over mirrored versions of each image.
        calibrator: Turns logits into calibrated probabilities; plain softmax without one.
    """

    network: nn.Module
    card: ModelCard
    device: torch.device
    batch_size: int = 16
    flips: bool = False
    calibrator: Calibrator | None = None

    @classmethod
    def load(
        cls,
        run: str | Path,
        device: str = "auto",
        checkpoint: str = "best",
        batch_size: int = 16,
        flips: bool = False,
        calibrated: bool = True,
    ) -> Self:
        """Load a model from a run; no code in the file is run.

        Args:
            run: Folder of a run, or a checkpoint file.
            device: ``"auto"``, ``"cpu"``, ``"cuda"``, ...
            checkpoint: ``"best"`` or ``"last"``, where ``run`` is a folder.
            batch_size: Slices, or windows of a volume, at a time.
            flips: Average over mirrored versions of each image.
            calibrated: Use the calibrator that ``crac calibrate`` left in the run, if there is one.
        """
        if batch_size < 1:
            raise InputError(f"batch_size must be a whole number of at least 1; got {batch_size!r}")
        path = Path(run)
        if not path.exists():
            raise InputError(f"{path}: no such run")
        calibration = path / CALIBRATION
        path = path / f"{checkpoint}.safetensors" if path.is_dir() else path
        saved = Checkpoint.load(path)
        card = ModelCard.read(saved.info, path)
        network = card.build()
        load_tensors(network, saved.part("network"), path)
        where = _device(device)
        calibrator = None
        if calibrated and calibration.is_file():
            calibrator = _calibrator(calibration, path, len(card.class_names), flips).to(where)
        return cls(network.eval().requires_grad_(False).to(where), card, where, batch_size, flips, calibrator)

    def predict(self, image: str | Path | NDArray[np.generic], spacing: Sequence[float] | None = None) -> Prediction:
        """Segment one image.

        Args:
            image: NIfTI file, or an array ``(X, Y, Z)`` or ``(C, X, Y, Z)``.
            spacing: Millimetres between voxels along ``(X, Y, Z)``; needed with an array.

        Returns:
            ``labels, probabilities``: ``(X, Y, Z)`` and ``(K, X, Y, Z)``, on the image's own grid.
        """
        if isinstance(image, str | Path):
            if spacing is not None:
                raise InputError(f"spacing is read from the file {image}; it can only be given with an array")
            volume = read_image(Path(image))
            return self.predict_volume(volume.array, volume.affine, str(image))
        if spacing is None or len(spacing) != 3 or not all(0 < side < np.inf for side in spacing):
            raise InputError(f"spacing must be three positive numbers, in millimetres along X, Y, Z; got {spacing!r}")
        array = np.asarray(image, dtype=np.float32)
        array = array[None] if array.ndim == 3 else array
        if not np.isfinite(array).all():
            raise InputError("image must hold finite numbers; got NaN or infinity")
        return self.predict_volume(array, np.diag([*map(float, spacing), 1.0]), "image")

    def predict_volume(
        self, array: NDArray[np.float32], affine: NDArray[np.float64], name: str = "image"
    ) -> Prediction:
        """Segment an array ``(C, X, Y, Z)`` with its voxel to millimetre matrix."""
        channels = len(self.card.channel_names)
        if array.ndim != 4 or len(array) != channels:
            wanted = f"{channels} channel{'s' * (channels > 1)} ({', '.join(self.card.channel_names)})"
            raise InputError(f"{name} must have {wanted}; got an array of shape {array.shape}")
        prepared, geometry = self.card.recipe.apply(array, affine)
        probabilities = self.predict_prepared(torch.from_numpy(prepared))
        if not probabilities.isfinite().all():
            raise InputError(f"{name}: the network answers with NaN; its weights are damaged or its training diverged")
        return Prediction(self.restore(probabilities, geometry))

    def logits(self, image: Tensor) -> Tensor:
        """Logits ``(K, D, H, W)``, on the model's device, of an image ``(C, D, H, W)`` prepared with its recipe."""
        network = (
            sliding_window(self.network, self.card.patch_size, self.batch_size) if self.card.dims == 3 else self.network
        )
        try:
            return volume_logits(network, image.to(self.device), self.card.dims, self.batch_size, self.flips)
        except (MemoryError, RuntimeError) as error:
            if not out_of_memory(error):
                raise
            elsewhere = "" if self.device.type == "cpu" else ", or use device cpu"
            raise InputError(f"out of memory: lower batch_size (now {self.batch_size}){elsewhere}") from error

    @torch.inference_mode()
    def predict_prepared(self, image: Tensor) -> Tensor:
        """Probabilities ``(K, D, H, W)``, on the CPU, of an image ``(C, D, H, W)`` prepared with the model's recipe."""
        logits = self.logits(image)
        return (logits.softmax(0) if self.calibrator is None else calibrate_volume(self.calibrator, logits)).cpu()

    def restore(self, probabilities: Tensor, geometry: Geometry) -> NDArray[np.float32]:
        """Bring probabilities ``(K, D, H, W)`` back to the grid of the image that was prepared."""
        restored: NDArray[np.float32] = self.card.recipe.invert(probabilities.cpu().numpy(), geometry)
        # Interpolation keeps sums only up to rounding, and argmax and maps should agree to the last bit.
        return np.asarray(restored / restored.sum(0, keepdims=True), dtype=np.float32)


def _calibrator(path: Path, checkpoint: Path, classes: int, flips: bool) -> Calibrator:
    """Read the calibrator of a run; one that was fitted on something else is refused."""
    calibrator = load_calibrator(path)
    problem = ""
    if calibrator.num_classes != classes:
        problem = f"is for {calibrator.num_classes} classes, the model has {classes}"
    elif calibrator.fitted.get("checkpoint_sha256") != sha256(checkpoint):
        problem = f"was fitted on other weights than {checkpoint.name} holds"
    elif calibrator.fitted.get("flips") != flips:
        problem = f"was fitted {'without' if flips else 'with'} mirrored versions of the images (--tta)"
    if problem:
        raise InputError(f"{path} {problem}: run crac calibrate again, or choose --no-calibration")
    return calibrator


def _device(name: str) -> torch.device:
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(
            f"device must be auto, cpu or an available device such as cuda:0; got {name!r} ({reason})"
        ) from error
    return device
