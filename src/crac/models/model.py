"""A trained network, ready to be used on images as they come."""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor, nn

from crac.calibration import Calibrator, load_calibrator
from crac.calibration.volume import calibrate_slabs
from crac.errors import InputError, check_number, out_of_memory
from crac.files import sha256
from crac.models.card import ModelCard
from crac.models.checkpoint import Checkpoint, load_tensors
from crac.models.folds import Folds
from crac.models.predictor import Predictor
from crac.models.window import logit_slabs
from crac.progress import Track, silent

CALIBRATION = "calibration.json"
"""File in the folder of a run, written by ``crac calibrate``."""


@dataclass(frozen=True, repr=False)
class Model(Predictor):
    """A network with everything it needs: its preparation of images, its classes.

    Args:
        network: On its device, in evaluation mode.
        card: What it is.
        device: Where it runs.
        batch_size: Slices, or windows of a volume, at a time.
        mirror: Average the probabilities over mirrored versions of each image.
        calibrator: Turns logits into calibrated probabilities; plain softmax without one.
        path: The checkpoint it was loaded from.
    """

    network: nn.Module
    card: ModelCard
    device: torch.device
    batch_size: int = 16
    mirror: bool = False
    calibrator: Calibrator | None = None
    path: Path | None = field(default=None, compare=False)

    @classmethod
    def load(
        cls,
        run: str | Path,
        device: str = "auto",
        checkpoint: str = "best",
        batch_size: int = 16,
        mirror: bool = False,
        calibrated: bool = True,
    ) -> Self:
        """Load a model from a run; no code in the file is run.

        Args:
            run: Folder of a run, or a checkpoint file.
            device: ``"auto"``, ``"cpu"``, ``"cuda"``, ...
            checkpoint: ``"best"`` or ``"last"``, where ``run`` is a folder.
            batch_size: Slices, or windows of a volume, at a time.
            mirror: Average the probabilities over mirrored versions of each image.
            calibrated: Use the calibrator that ``crac calibrate`` left in the run, if there is one.
        """
        check_number("batch_size", batch_size, least=1, whole=True)
        path = Path(run)
        if not path.exists():
            raise InputError(f"{path}: no such run")
        if Folds.at(path):
            raise InputError(f"{path} is a cross-validation: name one of its runs, e.g. {path / 'fold_0'}")
        calibration = path / CALIBRATION
        path = path / f"{checkpoint}.safetensors" if path.is_dir() else path
        saved = Checkpoint.load(path)
        card = ModelCard.read(saved.info, path)
        network = card.build()
        load_tensors(network, saved.part("network"), path)
        where = _device(device)
        network = network.eval().requires_grad_(False).to(where)
        model = cls(network, card, where, batch_size, mirror, path=path)
        if not (calibrated and calibration.is_file()):
            return model
        calibrator = find_calibrator(calibration, model, model.checksum, path.name)
        return cls(network, card, where, batch_size, mirror, calibrator, path)

    @cached_property
    def checksum(self) -> str | None:
        """SHA-256 of the checkpoint, by which a calibrator knows the weights it was fitted on."""
        return None if self.path is None else sha256(self.path)

    def __repr__(self) -> str:
        """One line; ``model.network`` prints the layers."""
        about, card = "", self.card
        about += ", mirror" * self.mirror
        about += f", calibrated by {self.calibrator.name}" if self.calibrator is not None else ""
        where = f" from {self.path}" if self.path is not None else ""
        classes = ", ".join(card.class_names)
        return f"<Model{where}: {card.backbone}, {card.dims}-D, classes {classes}, on {self.device}{about}>"

    def identity(self) -> dict[str, Any]:
        """What its answers depend on, as plain data."""
        own = {"checkpoint_sha256": self.checksum, "calibration": fingerprint(self.calibrator)}
        return {**own, "mirror": self.mirror}

    def logits(self, image: Tensor) -> Tensor:
        """Logits ``(K, D, H, W)``, on the model's device, of an image ``(C, D, H, W)`` prepared with its recipe."""
        return torch.cat(list(self._logit_slabs(image)), 1)

    @torch.inference_mode()
    def slabs(self, image: Tensor, track: Track = silent, folder: Path | None = None) -> Iterator[Tensor]:
        """Yield probabilities ``(K, d, H, W)``, on the CPU, of a prepared image ``(C, D, H, W)`` from top to bottom."""
        logits = self._logit_slabs(image, track, folder)
        if self.calibrator is None:
            yield from (slab.softmax(0).cpu() for slab in logits)
        else:
            yield from (slab.float().cpu() for slab in calibrate_slabs(self.calibrator, logits))

    def _logit_slabs(self, image: Tensor, track: Track = silent, folder: Path | None = None) -> Iterator[Tensor]:
        card = self.card
        patch = card.patch_size if card.dims == 3 else None
        try:
            yield from logit_slabs(
                self.network, image.to(self.device), card.dims, patch, self.batch_size, self.mirror,
                track=track, folder=folder,
            )  # fmt: skip
        except (MemoryError, RuntimeError) as error:
            if not out_of_memory(error):
                raise
            elsewhere = "" if self.device.type == "cpu" else ", or use device cpu"
            raise InputError(f"out of memory: lower batch_size (now {self.batch_size}){elsewhere}") from error


def fingerprint(calibrator: Calibrator | None) -> str | None:
    """A checksum of a calibrator's kind and coefficients; None where there is none."""
    if calibrator is None:
        return None
    content = [calibrator.name, calibrator.radii, calibrator.regions, calibrator.weights.double().tolist()]
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()


def find_calibrator(path: Path, model: Predictor, weights: object, of: str) -> Calibrator:
    """Read a calibrator; one that was fitted on something else is refused.

    Args:
        path: Its file.
        model: The model whose probabilities it is to calibrate.
        weights: What ``checkpoint_sha256`` of the fit must be.
        of: What holds these weights, in words.
    """
    calibrator = load_calibrator(path)
    classes = len(model.card.class_names)
    problem = ""
    if calibrator.num_classes != classes:
        problem = f"is for {calibrator.num_classes} classes, the model has {classes}"
    elif calibrator.fitted.get("checkpoint_sha256") != weights:
        problem = f"was fitted on other weights than {of} holds"
    elif calibrator.fitted.get("mirror") != model.mirror:
        problem = f"was fitted {'without' if model.mirror else 'with'} mirrored versions of the images (--mirror)"
    if problem:
        raise InputError(f"{path} {problem}: run crac calibrate again, or choose --no-calibration")
    return calibrator.to(model.device)


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
