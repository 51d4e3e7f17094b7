"""One epoch on real hearts: train, validate, outer step, evaluate, predict."""

import json
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest

from crac.cli import main
from crac.models.checkpoint import Checkpoint


@pytest.mark.realdata
@pytest.mark.slow
def test_an_epoch_on_ten_patients_of_acdc(real_data: Path, tmp_path: Path) -> None:
    """The paper's network, a quarter as wide so that a CPU does the epoch in seconds."""
    (tmp_path / "raw").mkdir()
    for group in range(5):  # two of each pathology
        for number in range(20 * group + 1, 20 * group + 3):
            (tmp_path / "raw" / f"patient{number:03d}").symlink_to(real_data / "ACDC" / f"patient{number:03d}")
    store, run = str(tmp_path / "store"), tmp_path / "run"
    assert main(["prepare", "acdc", str(tmp_path / "raw"), store]) == 0
    settings = ["--recipe", "paper", "--width", "8", "--epochs", "1", "--accelerator", "cpu"]
    assert main(["train", "--data", store, "--method", "crac", "--out", str(run), *settings]) == 0
    last = Checkpoint.load(run / "last.safetensors")
    (row,) = last.info["history"]
    assert 0 < row["train_loss"] < 1.5
    assert last.part("loss")["steps"] == 1
    # One outer step with released constants: lambda = 1e-6 + 0.1 * mean |tau - logit|, in every class and region.
    assert (last.part("loss")["lambda_"] > 1e-6).all()

    assert main(["evaluate", str(run), "--split", "test", "--out", str(tmp_path / "audit"), "--device", "cpu"]) == 0
    summary = json.loads((tmp_path / "audit" / "summary.json").read_text())
    split = json.loads((run / "split.json").read_text())
    assert summary["volumes"] == len(split["test"]) == 4
    image = tmp_path / "raw" / "patient001" / "patient001_frame01.nii.gz"
    assert main(["predict", str(run), str(image), "--out", str(tmp_path / "maps"), "--device", "cpu"]) == 0
    before = nib.load(image)
    for kind in ("label", "confidence", "entropy"):
        after = nib.load(tmp_path / "maps" / f"patient001_frame01_{kind}.nii.gz")
        assert after.shape == before.shape
        assert np.array_equal(after.affine, before.affine)
    probabilities = nib.load(tmp_path / "maps" / "patient001_frame01_probabilities.nii.gz").get_fdata()
    np.testing.assert_allclose(probabilities.sum(-1), 1, atol=1e-5)
