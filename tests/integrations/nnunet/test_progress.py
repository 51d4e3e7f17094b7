"""The picture that the nnU-Net trainers extend."""

from pathlib import Path

import numpy as np
from PIL import Image

from crac.integrations.nnunet.progress import add_panel


def test_the_panel_is_appended_below(tmp_path: Path) -> None:
    path = tmp_path / "progress.png"
    before = np.random.default_rng(0).integers(0, 255, (50, 600, 3), dtype=np.uint8)
    Image.fromarray(before).save(path)
    curves = {(region, name): [0.1, 0.2, 0.4] for region in ("inner", "outer") for name in ("background", "liver")}
    add_panel(path, curves)
    after = np.asarray(Image.open(path))
    assert np.array_equal(after[:50], before)
    assert after.shape == (50 + 1800, 600, 3)
    assert len(np.unique(after[50:].reshape(-1, 3), axis=0)) > 10  # lines, not an empty sheet
    assert [found.name for found in tmp_path.iterdir()] == ["progress.png"]
