"""Calibrated copies from the command line."""

import json
from pathlib import Path
from typing import Any

from tests.cli.foreign import write_folders
from tests.evaluation.test_apply import apply, calibrator, store

from crac.cli import main


def test_fitted_and_applied_it_is_calibrated(tmp_path: Path, capsys: Any) -> None:
    probabilities, labels = write_folders(tmp_path)
    files = ["--probabilities", str(probabilities), "--labels", str(labels)]
    assert main(["calibrate", *files, "--out", str(tmp_path / "c.json")]) == 0
    out = str(tmp_path / "out")
    assert main(["apply", str(tmp_path / "c.json"), "--probabilities", str(probabilities), "--out", out]) == 0
    assert "6 volumes calibrated" in capsys.readouterr().out
    errors = {}
    for name, folder in (("before", str(probabilities)), ("after", out)):
        where = ["--probabilities", folder, "--labels", str(labels), "--out", str(tmp_path / name), "--jobs", "1"]
        assert main(["evaluate", *where, "--json"]) == 0
        errors[name] = json.loads(capsys.readouterr().out)["per_volume"]
    assert errors["after"]["ece[band]"]["mean"] < errors["before"]["ece[band]"]["mean"] / 2
    assert errors["after"]["dsc"] == errors["before"]["dsc"]


def test_bad_arguments(tmp_path: Path, capsys: Any) -> None:
    calibrator(tmp_path / "c.json")
    store(tmp_path / "in", "last")
    assert apply(tmp_path, "--out", str(tmp_path / "in")) == 2
    assert "--out must be a folder other than --probabilities" in capsys.readouterr().err
    assert apply(tmp_path, "--probabilities", str(tmp_path / "nowhere")) == 2
    assert "--probabilities must be a folder" in capsys.readouterr().err
    (tmp_path / "c.json").write_text("{}")
    assert apply(tmp_path) == 2
    assert "is not a calibrator" in capsys.readouterr().err
