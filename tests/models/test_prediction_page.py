"""The page about prediction: its Python runs as printed, its options exist, its figures are those measured."""

import argparse
import json
import re
import shutil
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest

from common import ROOT
from crac.cli import predict
from crac.data import Store

PAGE = (ROOT / "docs" / "prediction.md").read_text()


def test_python_of_the_page_runs(
    run: Path, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    blocks = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
    assert len(blocks) == 1
    shutil.copytree(run, tmp_path / "runs" / "crac")
    raw = sorted((store.path.parent / "raw" / "TrainingImg").glob("*.nii.gz"))[0]
    shutil.copy(raw, tmp_path / "patient101_frame01.nii.gz")
    monkeypatch.chdir(tmp_path)
    image = nib.load(raw)
    space: dict[str, object] = {"image": image, "array": np.asarray(image.dataobj), "affine": image.affine}
    exec(blocks[0], space)
    assert capsys.readouterr().out.endswith("> RAS\n")


def test_every_option_is_on_the_page() -> None:
    parser = argparse.ArgumentParser()
    predict.add_arguments(parser)
    said = set(re.findall(r"--[a-z][a-z-]*", PAGE.partition("# Measuring a run")[0]))
    known = {option for action in parser._actions for option in action.option_strings if option.startswith("--")}
    assert said <= known | {"--tta"}
    assert known - said <= {"--help"}


def test_figures_are_those_measured() -> None:
    rows = json.loads((ROOT / "speed" / "results" / "predict_cpu.json").read_text())["rows"]
    large = max(rows, key=lambda row: row["shape"][2])
    assert large["shape"] == [512, 512, 1000]
    assert large["peak_gib"] < 8
    for row in rows:
        assert f"{row['peak_gib']:.1f} GiB" in PAGE, row
