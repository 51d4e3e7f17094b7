"""What tests import by name; a ``conftest`` cannot be imported, for every folder may have one."""

from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[1]
GOLDEN = Path(__file__).parent / "golden"


def golden(name: str) -> dict[str, np.ndarray]:
    with np.load(GOLDEN / f"{name}.npz") as archive:
        return {key: archive[key] for key in archive.files}
