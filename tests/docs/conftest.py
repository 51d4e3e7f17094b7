"""The site, built once for all workers."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from filelock import FileLock

from common import ROOT


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that ``make docs`` would fill; a warning of the build fails it."""
    shared = tmp_path_factory.getbasetemp()
    shared = shared.parent if os.environ.get("PYTEST_XDIST_WORKER") else shared
    folder = shared / "site"
    with FileLock(shared / "site.lock"):
        if not folder.exists():
            command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
            environment = os.environ | {"NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": str(ROOT / "src")}
            done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stderr[-3000:]
            assert not done.stderr, done.stderr[-3000:]
    return folder
