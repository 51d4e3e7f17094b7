"""The package as a whole: what importing it costs, what it says when something is missing."""

import os
import re
import subprocess
import sys
import tomllib

import pytest

import crac
from common import ROOT
from crac.cli import COMMANDS, main


def test_import_brings_only_what_every_user_needs():
    code = "import sys, torch; before = set(sys.modules); import crac; print(*sorted(set(sys.modules) - before))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    heavy = {"scipy", "monai", "lightning", "nnunetv2", "nibabel", "pandas", "matplotlib", "pydantic", "triton", "rich"}
    assert "crac" in loaded
    assert not heavy & {name.partition(".")[0] for name in loaded}


def test_public_names_exist():
    assert all(hasattr(crac, name) for name in crac.__all__)


@pytest.mark.parametrize(
    ("command", "package"),
    [("predict", "safetensors"), ("train", "yaml"), ("calibrate", "safetensors"), ("prepare", "pydantic")],
)
def test_commands_name_the_extra_they_lack(command, package, tmp_path):
    (tmp_path / "sitecustomize.py").write_text(f"import sys; sys.modules[{package!r}] = None")
    run = str(ROOT / "tests" / "legacy" / "0.1.0" / "run")
    given = {
        "train": ["--data", "x", "--out", "y"],
        "prepare": ["acdc", "x", "y"],
        "predict": [run, "y", "--out", str(tmp_path / "z")],
        "calibrate": [run],
    }
    arguments = [sys.executable, "-m", "crac", command, *given[command]]
    path = os.pathsep.join([str(tmp_path), str(ROOT / "src")])
    done = subprocess.run(arguments, capture_output=True, text=True, env=os.environ | {"PYTHONPATH": path}, check=False)
    assert done.returncode == 2
    assert re.fullmatch(rf"crac {command}: {package} is not installed; run: pip install 'crac\[\w+\]'\n", done.stderr)


def test_unknown_command_leaves_with_2(capsys):
    with pytest.raises(SystemExit) as leaving:
        main(["trian"])
    assert leaving.value.code == 2
    assert "trian" in capsys.readouterr().err


@pytest.mark.parametrize("given", ["train --option x", "evaluate run --out y --probs x", "nnunet path --all"])
def test_an_option_that_a_command_lacks_is_answered_with_its_own_usage(given, capsys):
    with pytest.raises(SystemExit) as leaving:
        main(given.split())
    assert leaving.value.code == 2
    said, name = capsys.readouterr().err, given.split()[0]
    assert said.startswith(f"usage: crac {name} ")
    assert f"crac {name}: error: unrecognized arguments: --" in said


TRAINING_ONLY = ("filelock", "lightning", "monai", "safetensors", "scikit_posthocs", "tensorboard", "yaml")


def test_who_has_a_model_and_a_doubt_needs_no_training_package(tmp_path):
    """Measuring, calibrating, promising and the page about it, from files."""
    import nibabel
    import numpy as np

    noise = np.random.default_rng(0)
    for folder in ("labels", "maps"):
        (tmp_path / folder).mkdir()
    for number in range(8):
        labels = np.zeros((8, 8, 4), np.uint8)
        labels[2:6, 2 : 5 + number % 3] = 1
        foreground = np.where(labels == 1, 0.8, 0.1) + noise.uniform(-0.1, 0.1, labels.shape)
        maps = np.stack([1 - foreground, foreground], -1).astype(np.float32)
        for folder, array in (("labels", labels), ("maps", maps)):
            nibabel.Nifti1Image(array, np.eye(4)).to_filename(tmp_path / folder / f"{number}.nii.gz")
    files = "--probabilities maps --labels labels"
    commands = [
        f"evaluate {files} --jobs 1 --out audit",
        f"calibrate {files} --force --out calibration.json",
        "apply calibration.json --probabilities maps --out calibrated",
        f"guarantee {files} --jobs 1 --alpha 0.2 --out guarantees.json",
        "report audit --out page.html",
    ]
    code = (
        f"import sys; sys.modules.update(dict.fromkeys({TRAINING_ONLY!r})); from crac.cli import main;"
        f"sys.exit(any([main(command.split()) for command in {commands!r}]))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    made = ("audit/summary.json", "calibration.json", "calibrated/0.nii.gz", "guarantees.json", "page.html")
    assert all((tmp_path / name).is_file() for name in made)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself_with_an_example(command, capsys):
    with pytest.raises(SystemExit) as leaving:
        main([command, "--help"])
    assert leaving.value.code == 0
    shown = capsys.readouterr().out
    assert f"  crac {command}" in shown
    assert "(default: None)" not in shown


def test_help_is_quick_and_needs_no_extra():
    code = (
        "import sys; sys.modules.update(dict.fromkeys(('pydantic', 'yaml', 'nibabel', 'rich')));"
        "from crac.cli import COMMANDS, main; main(['doctor']); main(['--help'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "train a network" in done.stdout


def test_every_dependency_has_its_licence_listed():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    asked = [*project["dependencies"], *(name for extra in project["optional-dependencies"].values() for name in extra)]
    listed = (ROOT / "THIRD_PARTY.md").read_text(encoding="utf-8").lower()
    names = {re.match(r"[\w-]+", requirement).group().lower() for requirement in asked} - {"crac"}
    assert [name for name in sorted(names) if not re.search(rf"\b{name}\b", listed)] == []


def test_the_benchmark_stays_small():
    """Suite, runner, results and report; what is not about a matrix of trainings has its place in a layer below."""
    modules = {path.stem for path in (ROOT / "src/crac/benchmark").glob("*.py")} - {"__init__"}
    assert modules == {"suite", "runner", "job", "results", "tables", "figures", "reading", "report"}
