"""From a data set as published to a store: inspect everything, then prepare every case, then write the manifest.

Nothing is written before the whole data set has been found sound. Finished cases gather in the target, so that an
interrupted run continues where it stopped; the manifest, without which it is no store, comes last.
"""

import contextlib
import hashlib
import os
from functools import partial
from pathlib import Path

import numpy as np

from crac._version import __version__
from crac.data.contact_sheet import contact_sheet
from crac.data.recipe import Dims, Intensity, Recipe
from crac.data.recipes import ACDC, FLARE, MR_INTENSITY, change_recipe, spacing_recipe
from crac.data.records import FORMAT, Case, Manifest
from crac.data.sources import SOURCES, Source
from crac.data.sources.source import IGNORE
from crac.data.store import Store
from crac.data.work import FINGERPRINT, RECORDS, Inspection, inspect_case, prepare_case
from crac.errors import InputError, ProblemsError, one_of
from crac.files import PARTIAL, check_writable, remove_folder, write_text, writing
from crac.parallel import Workers
from crac.progress import Track, silent


def prepare(
    layout: str,
    raw: str | Path,
    target: str | Path,
    *,
    dims: Dims | None = None,
    spacing: tuple[float, float, float] | None = None,
    crop: tuple[int, int, int] | None = None,
    recipe: Recipe | None = None,
    jobs: int = 1,
    track: Track = silent,
) -> Store:
    """Prepare a data set.

    Args:
        layout: ``acdc``, ``flare`` or ``nnunet``.
        raw: Its folder, which is only read.
        target: Where the store will be; must not exist, or be an empty folder.
        dims: 2 for slices, 3 for volumes; by default what the paper does, and 3 for ``nnunet``.
        spacing: Millimetres along ``(D, H, W)`` instead of the recipe's; not for ``acdc``.
        crop: Voxels along ``(D, H, W)`` instead of the recipe's; not for ``acdc``.
        recipe: Another recipe than the layout's own.
        jobs: Processes.
        track: Shows progress.

    Raises:
        ProblemsError: The data set has defects; all of them are listed.
        InputError: The folders or options do not fit, or nothing can be written.
    """
    raw, target = Path(raw), Path(target).absolute()
    if layout not in SOURCES:
        raise one_of("layout", layout, SOURCES)
    if layout == "acdc" and (spacing or crop):
        raise InputError("spacing and crop cannot be set for acdc, whose recipe has fixed sizes")
    changes = {key: value for key, value in (("spacing", spacing), ("crop", crop)) if value is not None}
    change_recipe(FLARE, changes)  # says no to bad values before the long work
    _check_target(target)
    source = SOURCES[layout](raw)
    with Workers(jobs) as workers:
        found = _inspect(source, workers, track)
        dims = dims or (3 if layout == "nnunet" else 2)
        recipe = change_recipe(recipe or _choose_recipe(layout, source, found, dims), changes)
        return _write(source, found, recipe, dims, target, workers, track)


def _write(
    source: Source, found: list[Inspection], recipe: Recipe, dims: Dims, target: Path, workers: Workers, track: Track
) -> Store:
    """Prepare every case, and write the manifest when all are done."""
    try:
        with writing(target):
            if _open_target(target, source, recipe):
                _close_target(target)
                return Store.open(target)
            tasks = list(zip(source.cases, found, strict=True))
            do = partial(prepare_case, target, recipe, dict(source.label_values), len(source.class_names))
            cases: list[Case] = list(track(workers.map(do, tasks), "preparing", len(tasks)))
            manifest = Manifest(
                version=FORMAT,
                crac=__version__,
                name=source.name,
                dims=dims,
                class_names=source.class_names,
                channel_names=source.channel_names,
                recipe=recipe,
                ignore_index=IGNORE if IGNORE in source.label_values.values() else None,
                cases={case.name: case for case in cases},
            )
            store = Store(target, manifest)
            store.split(seed=0).save(target / "split.json")
            contact_sheet(store, target / "contact_sheet.png")
            # Where nothing is ignored, 0.1.0 can read the store too.
            unknown = {"ignore_index"} if manifest.ignore_index is None else None
            write_text(target / "manifest.json", manifest.model_dump_json(indent=1, exclude=unknown) + "\n")
            _close_target(target)
    except InputError:
        # A full disk is not helped by what we leave on it. An interrupted run, by contrast, can be continued.
        workers.close()
        if not (target / "manifest.json").exists():
            remove_folder(target)
        raise
    return Store.open(target)


def _inspect(source: Source, workers: Workers, track: Track) -> list[Inspection]:
    """Read every file once; refuse the data set with the list of all its defects."""
    problems = list(source.problems)
    if not source.cases and not problems:
        raise InputError(f"RAW must hold a data set; {str(source.folder)!r} has no labelled case")
    do = partial(inspect_case, dict(source.label_values), len(source.class_names), len(source.channel_names))
    found: list[Inspection] = list(track(workers.map(do, source.cases), "checking", len(source.cases)))
    problems += [problem for inspection in found for problem in inspection.problems]
    names = [case.name for case in source.cases]
    problems += [f"the case {name!r} appears more than once" for name in sorted(set(names)) if names.count(name) > 1]
    if problems:
        raise ProblemsError(str(source.folder), problems)
    return found


def _choose_recipe(layout: str, source: Source, found: list[Inspection], dims: Dims) -> Recipe:
    if layout in ("acdc", "flare"):
        return ACDC if layout == "acdc" else FLARE
    intensity = [MR_INTENSITY] * len(source.channel_names)
    for channel, name in enumerate(source.channel_names):
        if name.upper() == "CT":
            # The organs' own range, as far as it is common to the patients.
            low, high = np.median([inspection.foreground_range[channel] for inspection in found], axis=0)
            intensity[channel] = Intensity(method="window", low=float(low), high=float(max(high, low + 1)))
    spacings = np.array([inspection.canonical_spacing for inspection in found])
    shapes = np.array([inspection.canonical_shape for inspection in found])
    return spacing_recipe(spacings, shapes, tuple(intensity), dims)


def _check_target(target: Path) -> None:
    """Say no before the long work if the target is taken or cannot be made."""
    interrupted = (target / RECORDS / FINGERPRINT).is_file()
    empty = target.is_dir() and {entry.name for entry in target.iterdir()} <= {RECORDS}
    if os.path.lexists(target) and not interrupted and not empty:
        if (target / "manifest.json").exists():
            raise _finished(target)
        raise InputError(f"{target} exists already; choose another path")
    check_writable(target)


def _finished(target: Path) -> InputError:
    return InputError(f"{target} is a finished store, which is never changed; choose another path")


def _open_target(target: Path, source: Source, recipe: Recipe) -> bool:
    """Make the folder, or take up what an interrupted run with the same input and recipe has left in it.

    Returns whether that run had come to its end but for the removal of its records.
    """

    def stamp(path: Path) -> tuple[str, int, int]:
        return str(path.resolve()), path.stat().st_size, path.stat().st_mtime_ns

    cases = [(case.name, [stamp(path) for path in (*case.images, case.label)]) for case in source.cases]
    content = (FORMAT, recipe.model_dump_json(), source.class_names, cases)
    fingerprint = hashlib.sha256(repr(content).encode()).hexdigest()
    with contextlib.suppress(OSError):
        if (target / RECORDS / FINGERPRINT).read_text(encoding="utf-8") == fingerprint:
            for left in target.rglob(f"{PARTIAL}*"):  # by a process that was killed while it wrote
                left.unlink(missing_ok=True)
            return (target / "manifest.json").exists()
    if (target / "manifest.json").exists():
        raise _finished(target)
    remove_folder(target)
    (target / RECORDS).mkdir(parents=True)
    write_text(target / RECORDS / FINGERPRINT, fingerprint)
    (target / "cases").mkdir()
    return False


def _close_target(target: Path) -> None:
    """Remove the records of the cases; the fingerprint goes last, for without it they belong to nobody."""
    for path in sorted((target / RECORDS).iterdir(), key=lambda path: path.name == FINGERPRINT):
        path.unlink()
    (target / RECORDS).rmdir()
