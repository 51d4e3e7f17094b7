"""Code blocks of the pages: found, and run as they are printed.

A block that is not run says why in a comment on the line before it: ``<!-- not run: it needs a GPU -->``.
"""

import os
import re
import runpy
import shlex
import subprocess
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import pytest

import crac
from common import ROOT
from crac.cli import main

FENCE = re.compile(
    r"(?:<!-- not run: (?P<reason>.+?) -->\n\s*)?^(?P<indent> *)```(?P<language>\w*)\n(?P<code>.*?)^ *```$", re.M | re.S
)
SHELL = ("bash", "sh")
PYTHON = ("python", "py")


class Block(NamedTuple):
    """A fenced block of a page, and why it is not run, if it is not."""

    page: str
    line: int
    language: str
    code: str
    reason: str | None

    @property
    def commands(self) -> list[list[str]]:
        """The words of each command of a shell block."""
        lines = self.code.replace("\\\n", " ").splitlines()
        return [words for words in (shlex.split(line, comments=True) for line in lines) if words]


def pages() -> list[str]:
    """Every page that is written by hand, from the root of the repository."""
    found = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/*.md")]
    return sorted(path.relative_to(ROOT).as_posix() for path in found)


def blocks(page: str, languages: Sequence[str] = ()) -> list[Block]:
    """The blocks of a page, from the root of the repository, that are in one of the languages."""
    text = (ROOT / page).read_text(encoding="utf-8")
    found = []
    for match in FENCE.finditer(text):
        line = text[: match.start("code")].count("\n")
        code = textwrap.dedent(match["code"])
        found.append(Block(page, line, match["language"], code, match["reason"]))
    return [block for block in found if not languages or block.language in languages]


def python_of(page: str) -> list[str]:
    """The Python of a page that is to be run."""
    return [block.code for block in blocks(page, PYTHON) if block.reason is None]


def run_page(page: str, folder: Path, monkeypatch: pytest.MonkeyPatch, **names: Any) -> None:
    """Run all blocks of a page in an empty folder, in one process; ``names`` are there for its Python."""
    monkeypatch.chdir(folder)
    (folder / "examples").symlink_to(ROOT / "examples")
    monkeypatch.syspath_prepend(ROOT / "examples")
    monkeypatch.setenv("nnUNet_extTrainer", "")  # which a page sets, and which is then as it was
    monkeypatch.setattr(os, "cpu_count", lambda: 1)  # commands then start no processes, which take longer than the work
    space = {"__name__": "__main__", **names}
    with mock.patch.dict(crac.CALIBRATORS), mock.patch.dict(crac.METHODS):  # to which a page adds its own
        for block in blocks(page):
            if block.reason is not None:
                continue
            if block.language in PYTHON:
                exec(compile(block.code, f"{page}:{block.line}", "exec"), space)
            elif block.language in SHELL:
                for words in block.commands:
                    run_command(words, monkeypatch)
            elif block.language == "yaml":
                name = re.match(r"# (\S+\.yaml)\n", block.code)
                assert name, f"{page}:{block.line}: the first line must be a comment with the name of the file"
                (folder / name[1]).write_text(block.code, encoding="utf-8")
            else:
                assert block.language in ("", "text", "json"), f"{page}:{block.line}: nobody runs {block.language}"


def run_command(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Run ``crac ...``, ``python FILE ...`` or ``python -c CODE``, in this process where that can be."""
    name, *rest = words
    if name == "crac" and "--devices" in rest:  # whose other processes start as the first one did
        environment = os.environ | {"PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
        subprocess.run([sys.executable, "-m", *words], env=environment, check=True, timeout=300)
    elif name == "crac":
        try:
            code = main(rest)
        except SystemExit as leaving:  # argparse's
            code = leaving.code
        assert not code, words
    elif name == "python" and rest[0] == "-c":
        exec(rest[1], {})
    elif name == "python":
        with monkeypatch.context() as patch:
            patch.setattr(sys, "argv", rest)
            runpy.run_path(rest[0], run_name="__main__")
    else:
        raise AssertionError(f"{shlex.join(words)}: only crac and python are run")
