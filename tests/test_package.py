"""The package as a whole: what importing it costs, what it says when something is missing."""

import json
import subprocess
import sys

import pytest

import crac
from crac import errors
from crac.cli import main


def test_import_brings_only_what_every_user_needs():
    code = "import sys, torch; before = set(sys.modules); import crac; print(*sorted(set(sys.modules) - before))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    heavy = {"scipy", "monai", "lightning", "nnunetv2", "nibabel", "pandas", "matplotlib", "pydantic", "triton", "rich"}
    assert "crac" in loaded
    assert not heavy & {name.partition(".")[0] for name in loaded}


def test_public_names_exist():
    assert all(hasattr(crac, name) for name in crac.__all__)


def test_missing_extra_is_one_sentence(monkeypatch):
    monkeypatch.setitem(sys.modules, "nibabel", None)
    with pytest.raises(errors.MissingExtraError, match=r"nibabel is not installed; run: pip install 'crac\[audit\]'"):
        errors.require("nibabel")


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


def test_doctor(capsys):
    assert main(["doctor", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["crac"] == crac.__version__
    assert report["packages"]["torch"]
    assert main(["doctor"]) == 0
    assert "device" in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [["--help"], ["doctor", "--help"]])
def test_help(arguments, capsys):
    with pytest.raises(SystemExit) as leaving:
        main(arguments)
    assert leaving.value.code == 0
    assert "crac" in capsys.readouterr().out


def test_unknown_command_leaves_with_2(capsys):
    with pytest.raises(SystemExit) as leaving:
        main(["trian"])
    assert leaving.value.code == 2
    assert "trian" in capsys.readouterr().err
