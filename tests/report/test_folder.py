"""The folder of an evaluation."""

import json

import numpy as np
import pytest
from tests.report.evaluations import evaluation

from crac.metrics import paired_bootstrap
from crac.report.folder import page_of, write_report
from crac.report.result import Result


def test_a_page_without_names_does_not_name_its_folder(tmp_path, folders):
    write_report(evaluation(2), tmp_path / "smith", anonymous=True)
    page = (tmp_path / "smith" / "report.html").read_text()
    assert "model 1: accuracy against confidence" in page
    assert "smith" not in page
    (tmp_path / "jones").symlink_to(folders())
    both = page_of([tmp_path / "smith", tmp_path / "jones"], ["", "ours"], anonymous=True)
    assert "<h1>model 1 and ours, compared</h1>" in both
    for name in ("smith", folders().name, "jones"):
        assert name not in both


def test_a_folder_holds_what_was_measured(folders):
    read = Result.read(folders())
    made = Result.of(evaluation(), "x")
    for key in ("settings", "patients", "volumes", "over_patients", "per_volume", "pooled"):
        assert json.loads(json.dumps(made.summary[key])) == read.summary[key]
    assert [row["patient"] for row in read.rows] == [row["patient"] for row in made.rows]
    assert read.by_patient("hd95") == pytest.approx(made.by_patient("hd95"))
    assert read.label == "of-8-at-6"
    assert [view.name for view in read.views] == [view.name for view in made.views]
    mean, low, high = read.over_patients("dsc")
    values = list(read.by_patient("dsc").values())
    assert (mean, low, high) == pytest.approx(tuple(paired_bootstrap(values, np.zeros(8))))
