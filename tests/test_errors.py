"""Errors are one sentence that says what to do."""

import re
import sys
import tomllib

import pytest

from common import ROOT
from crac import errors
from crac.cli.doctor import DISTRIBUTION


def test_missing_extra_is_one_sentence(monkeypatch):
    monkeypatch.setitem(sys.modules, "nibabel", None)
    with pytest.raises(errors.MissingExtraError, match=r"nibabel is not installed; run: pip install 'crac\[audit\]'"):
        errors.require("nibabel")


def test_extras_are_those_of_the_package():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for extra, packages in errors.EXTRAS.items():
        asked = {re.match(r"[\w-]+", requirement).group() for requirement in extras[extra]}
        assert {DISTRIBUTION.get(package, package) for package in packages} <= asked


def test_a_broken_dependency_is_not_called_missing(tmp_path, monkeypatch):
    (tmp_path / "half_installed.py").write_text("import no_such_module_at_all\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="no_such_module_at_all") as caught:
        errors.require("half_installed")
    assert not isinstance(caught.value, errors.MissingExtraError)


def test_problems_are_listed_together():
    error = errors.ProblemsError("the folder x: y", ["a is missing", "b is broken"])
    assert str(error) == "the folder x: y: 2 problems\n  - a is missing\n  - b is broken"
    import pickle

    assert str(pickle.loads(pickle.dumps(error))) == str(error)
