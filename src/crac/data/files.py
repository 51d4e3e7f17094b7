"""Small files, whole or not at all, and what was wrong with one."""

from __future__ import annotations

import contextlib
import hashlib
import os
from pathlib import Path

from pydantic import ValidationError

from crac.errors import InputError

__all__ = ["describe", "sha256", "write_text"]


def write_text(path: Path, text: str) -> None:
    """Write a text file through a temporary sibling."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        partial.write_text(text, encoding="utf-8")
        partial.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)
        raise InputError(f"{path} cannot be written: {error.strerror or error}") from error


def sha256(path: Path) -> str:
    """Checksum of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def describe(error: ValidationError) -> str:
    """The first defect pydantic found, and how many more there are."""
    first, *more = error.errors(include_url=False)
    place = ".".join(map(str, first["loc"])) or "top level"
    return f"{place}: {first['msg']}" + (f" (and {len(more)} more)" if more else "")
