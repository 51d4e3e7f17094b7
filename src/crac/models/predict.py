"""Images in, maps on the same grid out, one image at a time and no volume of probabilities in memory."""

import contextlib
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from crac._version import __version__
from crac.data import Volume, read_image
from crac.data.formats import IMAGES, is_image, is_series
from crac.data.nifti import same_grid, stem
from crac.errors import InputError, ProblemsError
from crac.files import read_json, remove_partials, write_json, writing
from crac.models.maps import MAPS, Map, Output, Target
from crac.models.predictor import Predictor
from crac.progress import Track, silent

CHANNEL = re.compile(r"(?P<name>.+)_(?P<number>\d{4})")
RECORD = "prediction.json"
"""File in the folder of maps that says what they were made with."""


@dataclass(frozen=True)
class Image:
    """An image to segment.

    Args:
        name: What its results are called.
        files: One, or one a channel.
    """

    name: str
    files: tuple[Path, ...]


class Predicted(NamedTuple):
    """What came of it.

    Attributes:
        written: Files written now.
        finished: Files that were there from before.
    """

    written: list[Path]
    finished: list[Path]


def find_images(inputs: Sequence[Path], channels: int) -> list[Image]:
    """The images in files and folders; ``NAME_0000``, ``NAME_0001``, ... are the channels of one.

    A number belongs to the name where there is no ``NAME_0000``.

    Raises:
        ProblemsError: Everything that is wrong with the list.
    """
    problems: list[str] = []
    files: list[Path] = []
    for path in inputs:
        if path.is_dir() and not is_series(path):
            found = sorted(entry for entry in path.iterdir() if is_image(entry))
            problems += [] if found else [f"{path} holds no image ({', '.join(IMAGES)})"]
            files += found
        elif path.exists() and is_image(path):
            files.append(path)
        else:
            problems.append(f"{path} is " + (f"no image ({', '.join(IMAGES)})" if path.exists() else "missing"))
    parts: dict[str, dict[int, Path]] = {}
    files = list(dict.fromkeys(files))
    first = {stem(path).removesuffix("_0000") for path in files if stem(path).endswith("_0000")}
    for path in files:
        name, number = _channel(stem(path), first)
        if number in parts.setdefault(name, {}):
            problems.append(f"{path} and {parts[name][number]} would both be written as {name}")
        parts[name][number] = path
    images = []
    for name, numbered in parts.items():
        if sorted(numbered) not in ([0], list(range(channels))):
            wanted = "the channel _0000 alone" if channels == 1 else f"the channels _0000 to _{channels - 1:04d}"
            found_numbers = ", ".join(f"_{number:04d}" for number in sorted(numbered))
            problems.append(f"{name} must have {wanted}, as the model has {channels}; found {found_numbers}")
        images.append(Image(name, tuple(numbered[number] for number in sorted(numbered))))
    if problems:
        raise ProblemsError("input", problems)
    return images


def predict_images(
    model: Predictor,
    images: Sequence[Image],
    out: Path,
    track: Track = silent,
    outputs: Sequence[Output] | None = None,
    force: bool = False,
) -> Predicted:
    """Segment images and write maps of each, by default all of :data:`~crac.models.maps.MAPS`.

    An image that cannot be read does not stop the others. One whose files are all there, and newer than itself, is
    finished and left alone.

    Args:
        model: What to segment with.
        images: What to segment.
        out: Folder to write to; made if needed.
        track: Shows progress.
        outputs: What to write about each image.
        force: Segment finished images again, and replace what another model or other settings have left in ``out``.

    Raises:
        InputError: ``out`` holds the maps of another model or of other settings.
        ProblemsError: The images that could not be segmented, when all others are done.
    """
    outputs = [Map(name) for name in MAPS] if outputs is None else list(outputs)
    made = not out.exists()
    with writing(out):
        out.mkdir(parents=True, exist_ok=True)
    if folders := {path.parent.resolve() for image in images for path in image.files} & {out.resolve()}:
        raise InputError(
            f"--out must not be the folder of an input, {folders.pop()}: results would be taken for images"
        )
    remove_partials(out)
    since = _record(model, outputs, out, force)
    result = Predicted([], [])
    problems, done = [], 0
    # The bar counts images; where there is one, it counts its slices or windows.
    each, inside = (track, silent) if len(images) > 1 else (silent, track)
    for image in each(images, "predicting", len(images)):
        files = [out / file for output in outputs for file in output.files(image.name)]
        if not force and _finished(image, files, since):
            result.finished.extend(files)
            done += 1
            continue
        try:
            _predict_image(model, image, out, outputs, inside)  # in a function, to forget it before the next is read
            result.written.extend(files)
            done += 1
        except InputError as error:
            problems.append(str(error))
    if problems:
        if made and not done:
            with contextlib.suppress(OSError):
                (out / RECORD).unlink()
                out.rmdir()
        raise ProblemsError(f"{done} of {len(images)} images were segmented", problems)
    return result


def _channel(name: str, first: set[str]) -> tuple[str, int]:
    """Name and channel; a number without a first channel beside it belongs to the name."""
    match = CHANNEL.fullmatch(name)
    if match is None or match["name"] not in first:
        return name, 0
    return match["name"], int(match["number"])


def _record(model: Predictor, outputs: Sequence[Output], out: Path, force: bool) -> int:
    """Note what the maps in ``out`` are made with; return the time from which on files are made so.

    Raises:
        InputError: Those that are there were made with something else, which they would be mixed up with.
    """
    path = out / RECORD
    settings = {output.name: output.settings() for output in outputs}
    record: dict[str, Any] = {"crac": __version__, "model": repr(model), **model.identity(), "outputs": settings}
    if path.exists():
        before = read_json(path)
        kept = before.get("outputs", {}) if isinstance(before, dict) else None
        if not isinstance(kept, dict):
            raise InputError(f"{path} is damaged: remove it, and the maps are made again")
        other = [name for name in model.identity() if before.get(name) != record[name]]
        different = other + [name for name, value in settings.items() if kept.get(name, value) != value]
        if not different:
            time = path.stat()
            if not settings.keys() <= kept.keys():
                write_json(path, record | {"outputs": kept | settings})
                os.utime(path, ns=(time.st_atime_ns, time.st_mtime_ns))  # what is finished stays so
            return time.st_mtime_ns
        if not force:
            raise InputError(
                f"{out} holds maps of another model or other settings ({', '.join(different)}), see {RECORD} there: "
                "choose another folder, or --force to replace them"
            )
        if other and (left := sorted(kept.keys() - settings.keys())):
            raise InputError(f"{out} would keep the {', '.join(left)} of another model: choose another folder")
    write_json(path, record)
    return path.stat().st_mtime_ns


def _finished(image: Image, files: Sequence[Path], since: int) -> bool:
    try:
        newest = max([since, *(path.stat().st_mtime_ns for path in image.files)])
        return all(path.stat().st_mtime_ns >= newest for path in files)
    except OSError:  # a file is missing, or its name is too long to be one
        return False


def _read(image: Image) -> Volume:
    volumes = [read_image(path) for path in image.files]
    for path, volume in zip(image.files[1:], volumes[1:], strict=True):
        if difference := same_grid(volumes[0], volume):
            raise InputError(f"{path} has {difference}, unlike {image.files[0].name}")
    if len(volumes) == 1:
        return volumes[0]
    return Volume(np.concatenate([volume.array for volume in volumes]), volumes[0].affine, volumes[0].header)


def _predict_image(model: Predictor, image: Image, out: Path, outputs: Sequence[Output], track: Track) -> None:
    volume, name = _read(image), str(image.files[0])
    prepared, geometry = model.prepare(volume.array, volume.affine, name)
    volume = replace(volume, array=np.empty((0, 0, 0, 0)))  # only its grid is needed from here on
    axis = model.card.recipe.slice_axis_of(geometry)
    target = Target(image.name, out, volume, geometry, axis, model.card.class_names)
    writings = [output.begin(target) for output in outputs]
    for piece in model.pieces(prepared, geometry, name, track, out):
        for writing_ in writings:
            writing_.add(piece)
    for writing_ in writings:
        writing_.finish()
