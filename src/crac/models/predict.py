"""NIfTI files in, maps on the same grid out, one volume in memory at a time."""

import contextlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crac.data import Volume, read_image, write
from crac.data.nifti import ENDINGS, same_grid, stem
from crac.errors import InputError, ProblemsError
from crac.files import writing
from crac.models.model import Model
from crac.progress import Track, silent

CHANNEL = re.compile(r"(?P<name>.+)_(?P<number>\d{4})")


@dataclass(frozen=True)
class Image:
    """An image to segment.

    Args:
        name: What its results are called.
        files: One, or one a channel.
    """

    name: str
    files: tuple[Path, ...]


def find_images(inputs: Sequence[Path], channels: int) -> list[Image]:
    """The images in files and folders; ``NAME_0000``, ``NAME_0001``, ... are the channels of one.

    Raises:
        ProblemsError: Everything that is wrong with the list.
    """
    problems: list[str] = []
    files: list[Path] = []
    for path in inputs:
        if path.is_dir():
            found = sorted(entry for entry in path.iterdir() if _is_nifti(entry))
            problems += [] if found else [f"{path} holds no .nii or .nii.gz file"]
            files += found
        elif path.is_file() and _is_nifti(path):
            files.append(path)
        else:
            problems.append(f"{path} is " + ("not a .nii or .nii.gz file" if path.exists() else "missing"))
    parts: dict[str, dict[int, Path]] = {}
    for path in dict.fromkeys(files):
        name, number = _channel(stem(path), channels)
        if number in parts.setdefault(name, {}):
            problems.append(f"{path} and {parts[name][number]} would both be written as {name}")
        parts[name][number] = path
    images = []
    for name, numbered in parts.items():
        if sorted(numbered) not in ([0], list(range(channels))):
            problems.append(f"{name} must have the channels _0000 to _{channels - 1:04d}; found {sorted(numbered)}")
        images.append(Image(name, tuple(numbered[number] for number in sorted(numbered))))
    if problems:
        raise ProblemsError("input", problems)
    return images


def predict_images(model: Model, images: Sequence[Image], out: Path, track: Track = silent) -> list[Path]:
    """Segment images and write, for each, ``_label``, ``_probabilities``, ``_confidence`` and ``_entropy``.

    An image that cannot be read does not stop the others.

    Args:
        model: What to segment with.
        images: What to segment.
        out: Folder to write to; made if needed.
        track: Shows progress.

    Returns:
        The files written.

    Raises:
        ProblemsError: The images that could not be segmented, when all others are done.
    """
    made = not out.exists()
    with writing(out):
        out.mkdir(parents=True, exist_ok=True)
    if folders := {path.parent.resolve() for image in images for path in image.files} & {out.resolve()}:
        raise InputError(
            f"--out must not be the folder of an input, {folders.pop()}: results would be taken for images"
        )
    written: list[Path] = []
    problems = []
    for image in track(images, "predicting", len(images)):
        try:
            written += _predict_image(model, image, out)  # in a function, to forget it before the next is read
        except InputError as error:
            problems.append(str(error))
    if problems:
        if made and not written:
            with contextlib.suppress(OSError):
                out.rmdir()
        raise ProblemsError(f"{len(written) // 4} of {len(images)} images were segmented", problems)
    return written


def _is_nifti(path: Path) -> bool:
    return path.name.endswith(ENDINGS) and not path.name.startswith(".")


def _channel(name: str, channels: int) -> tuple[str, int]:
    """Name and channel; a number that cannot be a channel belongs to the name."""
    match = CHANNEL.fullmatch(name)
    if match is None or int(match["number"]) >= channels:
        return name, 0
    return match["name"], int(match["number"])


def _read(image: Image) -> Volume:
    volumes = [read_image(path) for path in image.files]
    for path, volume in zip(image.files[1:], volumes[1:], strict=True):
        if difference := same_grid(volumes[0], volume):
            raise InputError(f"{path} has {difference}, unlike {image.files[0].name}")
    return Volume(np.concatenate([volume.array for volume in volumes]), volumes[0].affine, volumes[0].header)


def _predict_image(model: Model, image: Image, out: Path) -> list[Path]:
    like, name = _read(image), image.name
    prediction = model.predict_volume(like.array, like.affine, str(image.files[0]))
    flat = len(like.header.get_data_shape()) == 2  # a single slice without a third axis stays one
    maps: dict[str, NDArray[Any]] = {
        "label": prediction.labels,
        "confidence": prediction.confidence,
        "entropy": prediction.entropy,
    }
    maps = {kind: array[..., 0] if flat else array for kind, array in maps.items()}
    maps["probabilities"] = np.moveaxis(prediction.probabilities, 0, -1)
    paths = []
    for kind, array in maps.items():
        paths.append(out / f"{name}_{kind}.nii.gz")
        write(paths[-1], array, like)
    return paths
