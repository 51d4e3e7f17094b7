"""Every example runs as its first lines say, and does what it claims.

Those of MONAI and Lightning are run once for the gallery, and tests/docs/test_gallery.py reads what they printed.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
import torch

from common import ROOT

EXAMPLES = ROOT / "examples"
NNUNET_SITE = ROOT / "tests" / "integrations" / "nnunet_site"


def run(name: str, folder: Path, *paths: Path) -> str:
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(map(str, (*paths, ROOT / "src"))),
        "OMP_NUM_THREADS": "1",
    }
    command = [sys.executable, str(EXAMPLES / name)]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]
    return done.stdout


def test_every_example_is_tested() -> None:
    scripts = {path.name for path in EXAMPLES.glob("with_*.py")}
    assert scripts == {"with_pytorch.py", "with_lightning.py", "with_monai.py", "with_nnunet.py"}
    assert [path.name for path in EXAMPLES.glob("*.ipynb")] == ["calibration.ipynb"]


def test_pytorch(tmp_path: Path) -> None:
    last_line = run("with_pytorch.py", tmp_path).splitlines()[-1]
    assert re.fullmatch(r"Dice [\d.]+, ECE [\d.]+, confidence [\d.]+, accuracy [\d.]+", last_line)
    assert int(torch.load(tmp_path / "hearts.pt")["loss"]["steps"]) == 10


@pytest.mark.slow
def test_nnunet(tmp_path: Path) -> None:
    pytest.importorskip("nnunetv2", reason="nnunetv2 is not installed; run: pip install 'crac[nnunet]'")
    said = run("with_nnunet.py", tmp_path, NNUNET_SITE)
    assert said.count("\n$ ") == 4
    assert said.count("lambda outer") == 2


def test_notebook_is_committed_with_its_pictures() -> None:
    notebook = nbformat.read(EXAMPLES / "calibration.ipynb", as_version=4)
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    assert sum("image/png" in output.get("data", {}) for output in outputs) == 4
    assert not any(output.output_type == "error" for output in outputs)
