"""Files that are written whole or not at all."""

import contextlib
import csv
import hashlib
import io
import json
import math
import os
import platform
import secrets
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from crac.errors import InputError, check_number

PARTIAL = ".partial-"
"""How the names of unfinished files begin."""


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Say in one sentence why ``path``, a file or a folder, cannot be written if the system refuses."""
    try:
        yield
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror or error}") from error


def check_writable(path: Path) -> None:
    """Say no before long work to a file or folder that could not be written after it."""
    nearest = next(place for place in (path.absolute(), *path.absolute().parents) if os.path.lexists(place))
    folder = nearest.parent if nearest == path.absolute() and not nearest.is_dir() else nearest
    if not folder.is_dir():
        raise InputError(f"{path} cannot be written: {folder} is not a folder")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise InputError(f"{path} cannot be written: no permission to write in {folder}")


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary sibling to write to, which takes the place of ``path`` once it is safely on the disk.

    Every file that must be whole is written this way. A link is followed, so that the file lands where it points to.

    Raises:
        InputError: The file cannot be written; what was at ``path`` before is still there.
    """
    with writing(path):
        final = path.resolve() if path.is_symlink() else path
    # The ending stays: some writers choose the format by it. What is before goes, lest a long name get too long.
    partial = final.with_name(f"{PARTIAL}{_here()}-{os.getpid()}-{secrets.token_hex(4)}-{final.name[-40:]}")
    try:
        with writing(path):
            yield partial
            _sync(partial)
            partial.replace(final)
            if os.name == "posix":
                _sync(final.parent)  # else a power cut may forget the new name
    finally:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)


def remove_partials(folder: Path) -> None:
    """Remove what processes of this computer that were killed have left unfinished in a folder.

    What others are writing stays, on whichever computer they run: many may write to one folder.
    """
    with contextlib.suppress(OSError):
        for left in folder.glob(f"{PARTIAL}{_here()}-*"):
            process = left.name.removeprefix(f"{PARTIAL}{_here()}-").partition("-")[0]
            if process.isdigit() and not _alive(int(process)):
                left.unlink(missing_ok=True)


def _here() -> str:
    """The name of this computer, as a few letters that any file may have in its name."""
    return hashlib.sha256(platform.node().encode()).hexdigest()[:6]


def _alive(process: int) -> bool:
    if os.name != "posix":
        return True  # elsewhere one cannot ask without ending it
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True
    return True


def _sync(path: Path) -> None:
    """Wait until a file, or the list of names in a folder, is on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def remove_folder(path: Path) -> None:
    """Remove all that a folder holds, and the folder too unless it is a mount point or a link, which stay empty."""
    with contextlib.suppress(OSError):
        for entry in path.iterdir():
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry, ignore_errors=True)
            else:
                entry.unlink(missing_ok=True)
        path.rmdir()


def write_text(path: Path, text: str) -> None:
    """Write a text file, in UTF-8."""
    with replacing(path) as partial:
        partial.write_text(text, encoding="utf-8")


def write_rows(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write a CSV file whose columns are the keys of the first row."""
    text = io.StringIO()
    table = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    table.writeheader()
    table.writerows(rows)
    write_text(path, text.getvalue())


def write_json(path: Path, content: object) -> None:
    """Write plain data; numbers that JSON does not know become null."""
    write_text(path, json.dumps(finite(content), indent=2) + "\n")


def finite(value: Any) -> Any:
    """Plain data with None in the place of NaN and infinity."""
    if isinstance(value, dict):
        return {key: finite(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def read_json(path: Path) -> Any:
    """Return the plain data of a JSON file; one that is missing or damaged is an :class:`InputError`."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{path} cannot be read as JSON: {error}") from error


@contextlib.contextmanager
def versioned(path: Path, newest: int, complaint: str) -> Iterator[dict[str, Any]]:
    """Yield the JSON object of a file that says its ``format``.

    Args:
        path: File.
        newest: The latest format that can be read.
        complaint: What the file then is not, as in ``"is not a calibrator"``; it begins the sentence that says what is
            wrong with the content, whether that is found here or by those who use it.
    """
    content = read_json(path)
    try:
        if not isinstance(content, dict):
            raise InputError(f"it must hold a JSON object; got {type(content).__name__}")
        version = check_number("format", content["format"], least=1, whole=True)
        if version > newest:
            raise InputError(f"it has format {version}, this crac reads up to {newest}: upgrade crac")
        yield content
    except (InputError, LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RuntimeError) as error:
        reason = f"{error.args[0]} is missing" if isinstance(error, KeyError) else error
        raise InputError(f"{path} {complaint}: {reason}") from error


def sha256(path: Path) -> str:
    """Return the checksum of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
