"""What docs/audit.md shows, run as it stands: as a script, which has no main guard."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.docs.blocks import python_of

from common import ROOT


def test_the_example_and_the_script_of_the_page(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "audit.md").read_text(encoding="utf-8")
    (block,) = python_of("docs/audit.md")
    subprocess.run([sys.executable, str(ROOT / "examples" / "audit_data.py"), str(tmp_path / "example")], check=True)
    (tmp_path / "example" / "probabilities").rename(tmp_path / "predictions")
    (tmp_path / "example" / "labels").rename(tmp_path / "labels")
    (tmp_path / "script.py").write_text(block, encoding="utf-8")
    done = subprocess.run([sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    printed = float(re.search(r"gap outer \[band\] +([\d.]+)", page)[1])
    assert float(done.stdout) == pytest.approx(printed, abs=1e-3)  # the page prints the mean over volumes
    assert (tmp_path / "report" / "summary.json").is_file()
