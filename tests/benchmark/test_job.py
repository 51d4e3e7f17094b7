"""One real training, its test, and the files that come out."""

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from crac.benchmark import load_results
from crac.benchmark.job import LOGIT_BINS, Folder, Views, do_job
from crac.cli import main
from crac.data import Store
from crac.evaluation import Case
from crac.training.run import RunFolder


def test_a_result_holds_what_the_network_of_its_run_does(tiny_suite: Any, tmp_path: Path, store: Store) -> None:
    folder = Folder(tmp_path)
    job, ours = tiny_suite().jobs({"phantom": store.path})
    assert not folder.finished(job)
    for one in (job, ours):
        outcome = do_job(one, folder)
        assert outcome.problem is None
        assert not outcome.stopped
    assert folder.finished(job)
    results = {result.cell.method: result for result in load_results([tmp_path / "results"])}
    assert set(results) == {"ce", "ce-temperature", "crac-released"}
    ce, cool = results["ce"], results["ce-temperature"]
    assert ce.calibrator is None
    assert cool.calibrator["name"] == "temperature"
    assert cool.temperature == cool.calibrator["temperature"][0] != 1
    assert cool.cell.base == "ce"
    assert ce.frame()["dsc"].tolist() == cool.frame()["dsc"].tolist()
    assert (ce.frame()["nll[label_foreground]"] != cool.frame()["nll[label_foreground]"]).all()
    assert "lambda_outer_liver" in results["crac-released"].history
    assert sum(ce.logits["other"]) == 4 * sum(ce.logits["winning"])
    assert not {"data", "machine", "command"} & {*ce.settings, *ce.environment}

    names = RunFolder(folder.run(job)).split().test
    assert set(ce.volumes) == set(names)
    assert ce.patients == {name: store.cases[name].patient for name in names}
    assert main(["evaluate", str(folder.run(job)), "--out", str(tmp_path / "audit"), "--device", "cpu"]) == 0
    with (tmp_path / "audit" / "per_volume.csv").open() as file:
        rows = {row["volume"]: row for row in csv.DictReader(file)}
    assert rows.keys() == ce.volumes.keys()
    for name, values in ce.volumes.items():  # crac evaluate and crac benchmark give the same numbers
        shown = dict(zip(ce.columns, values, strict=True))
        assert shown == pytest.approx({c: float(rows[name][c]) for c in ce.columns}, rel=1e-5, nan_ok=True)
    assert json.loads((tmp_path / "audit" / "summary.json").read_text())["settings"] == ce.protocol
    with np.load(tmp_path / "maps" / f"{ce.cell.name}.npz") as slices:
        scores = ce.frame()["dsc"]
        assert str(slices["best_name"]) == scores.idxmax()
        assert float(slices["worst_dsc"]) == pytest.approx(scores.min(), rel=1e-6)
        label = np.array(store.label(scores.idxmax()))
        upright = label[(label > 0).sum((1, 2)).argmax()][::-1, ::-1]  # of canonical axes, as contact sheets show it
        np.testing.assert_array_equal(slices["best_label"], upright)
        _, height, width = store.cases[scores.idxmax()].prepared_spacing
        assert float(slices["best_aspect"]) == height / width


def test_what_goes_wrong_is_written_down(tiny_suite: Any, tmp_path: Path, store: Store) -> None:
    folder = Folder(tmp_path)
    methods = {"wrong": {"method": "nacl", "options": {"alfa": 1}}}
    (job,) = tiny_suite(methods=methods).jobs({"phantom": store.path})
    outcome = do_job(job, folder)
    assert outcome.job == "phantom.unet.wrong.0"
    assert outcome.problem is not None
    assert outcome.problem.startswith("option of 'nacl' must be one of")
    assert "Traceback" in (tmp_path / "broken/phantom.unet.wrong.0.txt").read_text()
    assert not folder.finished(job)


def test_histograms_count_every_logit_and_slices_come_from_the_best_and_the_worst(store: Store) -> None:
    views = Views(store)
    generator = torch.Generator().manual_seed(0)
    for name, score in zip(list(store.cases)[:4], (0.5, float("nan"), 0.9, 0.1), strict=True):
        labels = torch.from_numpy(np.array(store.label(name)))
        logits = 30 * torch.randn(5, *labels.shape, generator=generator)  # some lie outside the range
        views(Case(name, name, logits, labels, (1, 1, 1), from_logits=True), {"dsc": score})
    voxels = sum(int((np.array(store.label(name)) > 0).sum()) for name in list(store.cases)[:4])
    assert views.winning.shape == (LOGIT_BINS,)
    assert views.winning.sum() == voxels
    assert views.other.sum() == 4 * voxels
    assert views.winning[-1] > views.winning[-2]
    names = list(store.cases)
    assert (str(views.slices["best_name"]), str(views.slices["worst_name"])) == (names[2], names[3])
    assert (float(views.slices["best_dsc"]), float(views.slices["worst_dsc"])) == (0.9, 0.1)
