"""Several trained networks as one: the mean of their probabilities."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from crac.calibration import Calibrator, log_probabilities
from crac.calibration.volume import calibrate_slabs
from crac.errors import InputError
from crac.models.card import ModelCard
from crac.models.folds import Folds
from crac.models.model import CALIBRATION, Model, find_calibrator, fingerprint
from crac.models.planes import Planes
from crac.models.predictor import Predictor
from crac.progress import Track, silent

FOLD = re.compile(r"fold_(\d+)")


@dataclass(frozen=True, repr=False)
class Ensemble(Predictor):
    """Models that were prepared for the same images and classes; each one's probabilities count the same.

    Args:
        members: The models, each with its own calibrator, if any.
        calibrator: Calibrates the mean; None leaves it as it is.
    """

    members: tuple[Model, ...]
    calibrator: Calibrator | None = None

    def __post_init__(self) -> None:
        if not self.members:
            raise InputError("members of an ensemble must be at least one model; got none")
        first = self.members[0]
        for other in self.members[1:]:
            for what in ("class_names", "channel_names", "recipe"):
                if getattr(first.card, what) != getattr(other.card, what):
                    word = {"class_names": "classes", "channel_names": "channels"}.get(what, "preparation of images")
                    differing = f"{other.path} has others than {first.path}"
                    raise InputError(f"members of an ensemble must share their {word}; {differing}")

    @property
    def card(self) -> ModelCard:  # type: ignore[override]
        """The card of the first member; all members share classes, channels and recipe."""
        return self.members[0].card

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        """Where the members run."""
        return self.members[0].device

    @property
    def mirror(self) -> bool:  # type: ignore[override]
        """Whether the members average over mirrored versions of each image."""
        return self.members[0].mirror

    def __repr__(self) -> str:
        """One line and one a member."""
        about = f", calibrated by {self.calibrator.name}" if self.calibrator is not None else ""
        return "\n  ".join([f"<Ensemble of {len(self.members)}{about}:", *map(repr, self.members)]) + ">"

    @property
    def checksum(self) -> list[str | None]:
        """SHA-256 of the members' checkpoints, by which a calibrator knows the ensemble it was fitted on."""
        return [member.checksum for member in self.members]

    def identity(self) -> dict[str, Any]:
        """What its answers depend on, as plain data."""
        members = [member.identity() for member in self.members]
        return {"members": members, "calibration": fingerprint(self.calibrator), "mirror": self.mirror}

    def logits(self, image: Tensor) -> Tensor:
        """Logarithms of the mean probabilities ``(K, D, H, W)``, on the device; softmax gives these back."""
        return torch.cat([log_probabilities(slab) for slab in self._means(image)], 1).to(self.device)

    @torch.inference_mode()
    def slabs(self, image: Tensor, track: Track = silent, folder: Path | None = None) -> Iterator[Tensor]:
        """Yield probabilities ``(K, d, H, W)``, on the CPU, of a prepared image ``(C, D, H, W)`` from top to bottom."""
        means = self._means(image, track, folder)
        if self.calibrator is None:
            yield from means
        else:
            logits = (log_probabilities(slab).to(self.device) for slab in means)
            yield from (slab.float().cpu() for slab in calibrate_slabs(self.calibrator, logits))

    @torch.inference_mode()
    def _means(self, image: Tensor, track: Track = silent, folder: Path | None = None) -> Iterator[Tensor]:
        shape = len(self.card.class_names), *image.shape[1:]
        total = Planes(shape, torch.float32, torch.device("cpu"), folder)
        for number, member in enumerate(self.members):
            at = 0
            for slab in member.slabs(image, track, folder):
                stop = at + slab.shape[1]
                total.write(at, total.read(at, stop) + slab if number else slab)
                at = stop
        for slab in total.slabs():
            yield slab / len(self.members)
        total.close()


def is_run(path: Path) -> bool:
    """Whether a path is what :func:`load` takes: a run, a checkpoint file, or a folder of folds."""
    return path.suffix == ".safetensors" or _holds_run(path) or bool(folds(path))


def folds(path: Path) -> list[Path]:
    """The runs of a cross-validation, all of them, or else ``fold_0``, ``fold_1``, ... in the order of numbers."""
    if not path.is_dir():
        return []
    if Folds.at(path):
        return [run.path for run in Folds(path).runs()]
    found = [entry for entry in path.iterdir() if FOLD.fullmatch(entry.name) and _holds_run(entry)]
    return sorted(found, key=lambda entry: int(entry.name.removeprefix("fold_")))


def split_runs(paths: Sequence[Path]) -> tuple[list[Path], list[Path]]:
    """Tell the runs at the beginning of a command line from the images after them; the first is always a run."""
    number = next((number for number, path in enumerate(paths) if number and not is_run(path)), len(paths))
    runs, images = list(paths[:number]), list(paths[number:])
    if not images:
        raise InputError(f"INPUT is missing: {', '.join(map(str, runs))} are runs, and no image is named after them")
    if late := next((path for path in images if is_run(path)), None):
        raise InputError(f"{late} is a run, and runs come before images; {images[0]} is none")
    return runs, images


def load(
    runs: str | Path | Sequence[str | Path],
    device: str = "auto",
    checkpoint: str = "best",
    batch_size: int = 16,
    mirror: bool = False,
    calibrated: bool = True,
) -> Predictor:
    """Load the model of a run, or those of several runs as an ensemble; no code in the files is run.

    Args:
        runs: Folder of a run, checkpoint file, folder of folds (``fold_0``, ``fold_1``, ...), or several of them.
        device: ``"auto"``, ``"cpu"``, ``"cuda"``, ...
        checkpoint: ``"best"`` or ``"last"``, of runs that are folders.
        batch_size: Slices, or windows of a volume, at a time.
        mirror: Average the probabilities over mirrored versions of each image.
        calibrated: Use the calibrators that ``crac calibrate`` left in the runs. A ``calibration.json`` in the folder
            of folds itself calibrates the mean of the members, in the place of theirs.
    """
    paths = [Path(runs)] if isinstance(runs, str | Path) else [Path(run) for run in runs]
    if not paths:
        raise InputError("runs must name at least one run; got none")
    members = [member for path in paths for member in (folds(path) or [path])]
    files = [(path / f"{checkpoint}.safetensors" if path.is_dir() else path).resolve() for path in members]
    twice = next((path for number, path in enumerate(members) if files[number] in files[:number]), None)
    if twice is not None:
        raise InputError(f"{twice} is given twice; each member of an ensemble counts once")
    own = paths[0] / CALIBRATION
    whole = calibrated and len(paths) == 1 and bool(folds(paths[0])) and own.is_file()
    models = tuple(
        Model.load(path, device, checkpoint, batch_size, mirror, calibrated and not whole) for path in members
    )
    if len(models) == 1 and not whole:
        return models[0]
    ensemble = Ensemble(models)
    return Ensemble(models, find_calibrator(own, ensemble, ensemble.checksum, str(paths[0]))) if whole else ensemble


def _holds_run(path: Path) -> bool:
    return (path / "config.yaml").is_file() or any(path.glob("*.safetensors"))
