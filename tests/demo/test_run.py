"""The demo in small: every step runs, the page stands alone and says what was measured."""

import html
import json
import os
from pathlib import Path

import pytest

from crac.benchmark import Suite
from crac.cli import main
from crac.data import Split, Store
from crac.demo import DemoSettings, run_demo
from crac.demo.page import COLUMNS, LABELS, PARTS, story
from crac.errors import InputError
from crac.report.result import Result
from crac.training import TrainConfig


def worst_and_middle_of(folder: Path) -> list[str]:
    rows = sorted(Result.read(folder).rows, key=lambda row: row["dsc"])
    return [rows[0]["volume"], rows[len(rows) // 2]["volume"]]


EXAMPLE = Path(__file__).parents[2] / "examples/hearts.yaml"


def test_the_page_holds_what_was_measured_and_needs_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines: list[str] = []
    settings = DemoSettings(train=2, validation=2, test=2, size=32, slices=2, width=2, epochs=2)
    found = run_demo(tmp_path / "demo", settings, lines.append)
    assert [line.split("] ")[1][:3] for line in lines[:7]] == [f"{number}/7" for number in range(1, 8)]
    page = (tmp_path / "demo" / "index.html").read_text(encoding="utf-8")
    assert "http:" not in page
    assert "https:" not in page
    assert "too few patients to compare" in found["verdict"]
    for sentence in found["verdict"].split(". "):
        assert html.escape(sentence) in page
    for name in ("ce", "ce-calibrated", "crac", "crac-calibrated"):
        summary = json.loads((tmp_path / "demo" / f"{name}-audit" / "summary.json").read_text())
        assert summary["volumes"] == 4
        for column in COLUMNS:
            assert found[name][column] == summary["per_volume"][column]["mean"]
        assert f">{summary['over_patients']['dsc']['mean']:.3f}</span>" in page
        views = Result.read(tmp_path / "demo" / f"{name}-audit").views
        assert {view.name for view in views} == set(worst_and_middle_of(tmp_path / "demo" / "ce-audit"))
    assert found["crac-calibrated"]["dsc"] == found["crac"]["dsc"]
    assert found["verdict"].endswith("Nothing was promised, for that needs more validation patients.")
    assert page.count("nothing is promised: ") >= 3 * 4  # 90 % need nine patients
    assert page.count("data:image/png;base64") >= 3  # curves of both trainings, and the multipliers
    for name, _ in PARTS:
        assert html.escape(name) in page
    settings_of = [TrainConfig.load(tmp_path / "demo" / name / "config.yaml") for name in ("ce", "crac")]
    assert {config.recipe for config in settings_of} == {"practical"}
    assert {config.method for config in settings_of} == {"ce", "crac"}
    assert (
        page.count("class_region was tried and not taken, the calibrator is identity") == 2
    )  # two patients show nothing
    assert page.count("CRaC, calibrated (no change)") > 3
    split = json.loads((tmp_path / "demo" / "split.json").read_text())
    patients = [{name.split("_")[0] for name in split[part]} for part in ("train", "validation", "test")]
    assert [len(part) for part in patients] == [2, 2, 2]
    assert not patients[0] & patients[2]
    assert len(list((tmp_path / "demo" / "maps").glob("*.nii.gz"))) == 4
    with pytest.raises(InputError, match="--out must be an empty folder"):
        run_demo(tmp_path / "demo", settings)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os, "cpu_count", lambda: 1)  # no processes, which take longer than the work
    told = {name: Result.read(Path("demo") / f"{name}-audit", label) for name, label in LABELS.items()}
    for step in story(settings, told)[3:]:  # by hand, as the page says, the same comes out
        for line in step.command.replace("RUN-CE", "demo/ce").replace("RUN", "demo/crac").splitlines():
            assert main(line.split()[1:]) == 0, line
    for name, one in told.items():
        assert Result.read(Path(name)).summary["over_patients"] == one.summary["over_patients"]
    # What it leaves is what the example suite compares methods on.
    suite = Suite.load(EXAMPLE)
    assert suite.datasets["hearts"].store is not None
    assert suite.training.split is not None
    cases = Store.open(suite.datasets["hearts"].store).cases
    assert set(Split.load(suite.training.split).test) < set(cases)
