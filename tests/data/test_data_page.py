"""The page about data: its Python runs as printed."""

from pathlib import Path

import numpy as np
import pytest
from tests.docs.blocks import python_of

from crac.data import Store


def test_python_of_the_page_runs(
    cardiac_raw: Path, cardiac_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocks = python_of("docs/data.md")
    assert len(blocks) == 5
    monkeypatch.chdir(tmp_path)
    (tmp_path / "acdc-store").symlink_to(cardiac_store.path)
    image = next(cardiac_raw.glob("patient001/*_frame01.nii.gz"))
    (tmp_path / "new_patient.nii.gz").symlink_to(image)
    space: dict[str, object] = {"network_of_yours": lambda prepared: (prepared[0] > 0.5).astype(np.uint8)}
    for block in blocks:
        # As printed but for the sizes: twenty patients and a hundred epochs would take a while.
        exec(block.replace("patients=20", "patients=3, size=32, slices=2").replace("range(100)", "range(2)"), space)
        if "labels" in space:
            space["labels"] = cardiac_store.label("patient001_frame01")
    assert {path.name for path in tmp_path.iterdir()} >= {"labels.nii.gz", "split-1.json", "phantom-store"}
