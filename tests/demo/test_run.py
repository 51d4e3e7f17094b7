"""The demo in small: every step runs, the page stands alone and says what was measured."""

import json
import re
from pathlib import Path

import pytest

from crac.benchmark import Suite
from crac.data import Split, Store
from crac.demo import DemoSettings, run_demo
from crac.demo.page import COLUMNS
from crac.errors import InputError

EXAMPLE = Path(__file__).parents[2] / "examples/hearts.yaml"


def test_the_page_holds_what_was_measured_and_needs_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines: list[str] = []
    settings = DemoSettings(train=2, validation=1, test=2, size=32, slices=2, width=2, epochs=2)
    found = run_demo(tmp_path / "demo", settings, lines.append)
    assert [line.split("] ")[1][:3] for line in lines[:5]] == ["1/5", "2/5", "3/5", "4/5", "5/5"]
    page = (tmp_path / "demo" / "index.html").read_text()
    assert "http" not in page
    assert len(re.findall(r'src="data:image/png;base64,', page)) == 6
    for method in ("ce", "crac"):
        summary = json.loads((tmp_path / "demo" / f"{method}-audit" / "summary.json").read_text())
        assert summary["volumes"] == 4
        for name in COLUMNS:
            assert found[method][name] == summary["per_volume"][name]["mean"]
            assert f"<td>{found[method][name]:.4f}</td>" in page
    split = json.loads((tmp_path / "demo" / "split.json").read_text())
    patients = [{name.split("_")[0] for name in split[part]} for part in ("train", "validation", "test")]
    assert [len(part) for part in patients] == [2, 1, 2]
    assert not patients[0] & patients[2]
    assert len(list((tmp_path / "demo" / "maps").glob("*.nii.gz"))) == 4
    with pytest.raises(InputError, match="--out must be an empty folder"):
        run_demo(tmp_path / "demo", settings)
    monkeypatch.chdir(tmp_path)  # what it leaves is what the example suite compares methods on
    suite = Suite.load(EXAMPLE)
    assert suite.datasets["hearts"].store is not None
    assert suite.training.split is not None
    cases = Store.open(suite.datasets["hearts"].store).cases
    assert set(Split.load(suite.training.split).test) < set(cases)
