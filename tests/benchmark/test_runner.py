"""Real runs of small suites: what is finished stays, what breaks is named, what is killed goes on."""

import json
import multiprocessing
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import nibabel as nib
import numpy as np
import pytest
import torch
from rich.console import Console
from tests.campaigns.kill import SUITE

from crac.benchmark import CellResult, Suite, run_benchmark
from crac.benchmark.job import Folder
from crac.benchmark.runner import Watch
from crac.cli import main
from crac.data import Split, Store, phantom, prepare
from crac.errors import InputError
from crac.files import PARTIAL
from crac.jobs import Outcome
from crac.training.log import Log

FORK = multiprocessing.get_context("forkserver")
FORK.set_forkserver_preload(["crac.benchmark", "lightning.fabric"])


def written(out: Path) -> dict[str, int]:
    return {path.name: path.stat().st_mtime_ns for path in (out / "results").glob("[!.]*.json")}


def children(process: int | None) -> list[int]:
    """The processes that another has started."""
    return [int(child) for child in Path(f"/proc/{process}/task/{process}/children").read_text().split()]


@pytest.mark.slow
def test_the_rehearsal_gives_everything(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["benchmark", "phantom_smoke", "--out", str(tmp_path / "bench"), "--paper", "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert len(summary["done"]) == 14
    assert not summary["broken"]
    assert not summary["left"]
    out = tmp_path / "bench"
    assert len(written(out)) == 16
    assert max(path.stat().st_size for path in (out / "results").glob("*.json")) < 60_000
    pictures = {path.stem.removesuffix("-phantom-nnunet") for path in (out / "report/images/benchmark").iterdir()}
    assert {"reliability", "logits", "multipliers", "sweep-nacl", "maps"} <= pictures
    assert "ranks-ece" not in pictures  # of two patients
    tables = {path.name for path in (out / "report/tables").iterdir()}
    for name in ("main-nnunet", "classes-phantom-nnunet", "bootstrap-crac-released-phantom-nnunet"):
        assert {f"{name}.{ending}" for ending in ("md", "tex", "csv")} <= tables
    page = (out / "report/benchmark.md").read_text()
    assert "**CRaC (released)** against NACL: DSC" in page
    assert all(
        (out / "report" / line.split("](")[1].rstrip(")")).is_file() for line in page.split("\n") if "![" in line
    )
    before = written(out)
    assert main(["benchmark", "phantom_smoke", "--out", str(tmp_path / "bench")]) == 0
    assert "14 runs done, 0 broken, 0 left" in capsys.readouterr().out
    assert written(out) == before


def test_broken_runs_are_named_and_do_not_stop_the_others(
    tiny: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    methods = {
        "diverging": {"method": "nacl", "options": {"dice_weight": 1e39}},
        "wrong": {"method": "nacl", "options": {"alfa": 1}},
        "ce": {"method": "ce"},
    }
    suite, out = tiny(methods=methods), tmp_path / "out"
    assert main(["benchmark", str(suite), "--out", str(out)]) == 1
    said = capsys.readouterr().out
    assert "1 runs done, 2 broken, 0 left" in said
    assert "phantom.unet.wrong.0: option of 'nacl' must be one of" in said
    assert "phantom.unet.diverging.0: the loss is" in said
    assert "TrainingError" in (out / "broken/phantom.unet.diverging.0.txt").read_text()
    before = written(out)
    assert set(before) == {"phantom.unet.ce.0.json"}
    del methods["diverging"]
    methods["wrong"]["options"] = {"alpha": 1}
    assert main(["benchmark", str(tiny(methods=methods)), "--out", str(out)]) == 0
    assert not (out / "broken/phantom.unet.wrong.0.txt").exists()
    assert set(written(out)) == {"phantom.unet.ce.0.json", "phantom.unet.wrong.0.json"}
    assert before.items() <= written(out).items()


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a GPU")
def test_a_suite_for_gpus_is_refused_once_where_there_is_none(tiny_suite: Any, tmp_path: Path) -> None:
    suite = tiny_suite(training={"epochs": 1, "width": 2, "batch_size": 8, "cuda_graph": True})
    with pytest.raises(InputError, match=r"suite tiny, training: cuda_graph needs one GPU .*; got 1 x cpu$"):
        run_benchmark(suite, tmp_path / "out")
    assert not (tmp_path / "out/runs").exists()


def prepared(folder: Path, patients: int, foreground: bool = True) -> Path:
    raw = phantom.abdominal(folder / "raw", patients=patients, size=48, slices=6)
    for path in [] if foreground else [path for path in raw.rglob("*.nii.gz") if "0000" not in path.name]:
        label = nib.load(path)
        nib.save(nib.Nifti1Image(np.zeros(label.shape, np.uint8), label.affine), path)
    return prepare("flare", raw, folder / "store", spacing=(40.0, 8.0, 8.0), crop=(4, 48, 48)).path


def test_data_that_cannot_be_tested_on_is_refused_before_anything_is_trained(
    tiny_suite: Any, tmp_path: Path, store: Store
) -> None:
    few, empty = prepared(tmp_path / "few", 2), prepared(tmp_path / "empty", 5, foreground=False)
    for path, sentence in (
        (few, "data set phantom: its 2 patients leave the test part of the split empty; a benchmark needs"),
        (empty, "data set phantom: no volume of the test part has a voxel labelled foreground"),
    ):
        with pytest.raises(InputError, match=sentence):
            run_benchmark(tiny_suite().changed({"phantom": path}), tmp_path / "out")
    names = list(store.cases)
    Split(train=names[2:], validation=names[:2], test=[]).save(tmp_path / "split.json")
    with pytest.raises(InputError, match="its 8 patients leave the test part"):
        run_benchmark(tiny_suite(training={"split": str(tmp_path / "split.json")}), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_part_of_a_suite(tiny_suite: Any, tmp_path: Path) -> None:
    suite, out = tiny_suite(seeds=[0, 1, 2]), tmp_path / "out"
    run_benchmark(suite.changed({}, [1]), out, only=["crac*"])
    assert set(written(out)) == {"phantom.unet.crac-released.1.json"}
    run_benchmark(suite.changed({}, [0]), out, only=["ce-*"])  # needs the training of ce
    assert set(written(out)) == {
        f"phantom.unet.{name}.json" for name in ("crac-released.1", "ce.0", "ce-temperature.0")
    }
    with pytest.raises(InputError, match=r"only must match one of ce, ce-temperature, crac-released; got nacl\*"):
        run_benchmark(suite, out, only=["nacl*"])
    summary = run_benchmark(suite, out, time_limit=0)
    assert len(summary.left) == 4
    assert len(summary.done) == 2


def test_what_a_kill_left_of_made_up_patients_is_gone(tmp_path: Path) -> None:
    left = tmp_path / "out" / "data" / "d-raw" / "patient001" / f"{PARTIAL}1-image.nii.gz"
    left.parent.mkdir(parents=True)
    left.touch()
    (tmp_path / "suite.yaml").write_text(json.dumps(SUITE))
    assert run_benchmark(Suite.load(tmp_path / "suite.yaml"), tmp_path / "out", time_limit=0).left
    assert len(Store.open(tmp_path / "out" / "data" / "d").cases) == 8
    assert not left.exists()


def test_other_settings_belong_elsewhere(tiny_suite: Any, tmp_path: Path) -> None:
    methods = {"ce": {"method": "ce"}}
    run_benchmark(tiny_suite(methods=methods), tmp_path / "out")
    changed = tiny_suite(methods=methods, training={"recipe": "paper", "epochs": 1, "width": 4, "accelerator": "cpu"})
    with pytest.raises(InputError, match=r"holds results of other settings.*\n.*ce\.0 was run with width 2.* says 4"):
        run_benchmark(changed, tmp_path / "out")
    (tmp_path / "out/results/phantom.unet.ce.0.json").unlink()
    summary = run_benchmark(changed, tmp_path / "out")
    assert "was trained with width 2, not 4: remove it" in summary.broken["phantom.unet.ce.0"]


def test_results_of_other_settings_are_not_taken_over(tiny_suite: Any, tmp_path: Path) -> None:
    """Else the folder could not be used again, with them or without."""
    methods = {"ce": {"method": "ce"}}
    run_benchmark(tiny_suite(methods=methods), tmp_path / "other")
    changed = tiny_suite(methods=methods, training={"recipe": "paper", "epochs": 1, "width": 4, "accelerator": "cpu"})
    with pytest.raises(InputError, match="was run with width 2"):
        run_benchmark(changed, tmp_path / "out", merge=[tmp_path / "other/results"])
    assert run_benchmark(changed, tmp_path / "out", time_limit=0).left
    assert run_benchmark(tiny_suite(methods=methods), tmp_path / "out", merge=[tmp_path / "other/results"]).done


def test_a_variant_that_was_measured_otherwise_belongs_elsewhere(tiny_suite: Any, tmp_path: Path) -> None:
    """Else its seeds, old and new, would be averaged in one row."""

    def suite(**variant: Any) -> Suite:
        found: Suite = tiny_suite(methods={"ce": {"method": "ce"}}, variants={"cal": variant})
        return found

    run_benchmark(suite(calibrator="temperature"), tmp_path)
    assert run_benchmark(suite(calibrator="temperature", label="T"), tmp_path).done
    for variant, problem in (
        ({"calibrator": "class"}, "calibrator 'temperature', the suite says 'class'"),
        ({"calibrator": "temperature", "fitted_on": "all"}, "fitted_on 'band', the suite says 'all'"),
        ({"calibrator": "temperature", "mirror": True}, "mirror False, the suite says True"),
    ):
        with pytest.raises(InputError, match=rf"other settings.*\n.*ce-cal\.0 was measured with {problem}"):
            run_benchmark(suite(**variant), tmp_path)


def test_ctrl_c_stops_the_whole_and_the_next_call_goes_on(
    tiny: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["benchmark", str(tiny()), "--out", str(tmp_path / "out")]
    with monkeypatch.context() as patch:
        patch.setattr(Log, "step", lambda *_: os.kill(os.getpid(), signal.SIGINT))
        assert main(arguments) == 130
    assert "give the same command again to go on" in capsys.readouterr().err
    assert not written(tmp_path / "out")
    assert main(arguments) == 0
    assert len(written(tmp_path / "out")) == 3


def run_all(path: Path, out: Path, jobs: int) -> None:
    run_benchmark(Suite.load(path), out, jobs=jobs)


@pytest.mark.slow
@pytest.mark.parametrize("jobs", [1, 2])
def test_kill_loses_at_most_the_run_in_progress(tiny: Any, tmp_path: Path, jobs: int) -> None:
    training = {"epochs": 3, "width": 2, "batch_size": 1, "accelerator": "cpu", "deterministic": True}
    suite, out = tiny(seeds=[0, 1], training=training), tmp_path / "out"
    process = FORK.Process(target=run_all, args=(suite, out, jobs))
    process.start()
    while len(written(out)) < 2 or not (out / "runs/phantom.unet.ce.1/metrics.csv").exists():
        assert process.exitcode is None
        time.sleep(0.02)
    workers = [os.pidfd_open(child) for child in children(process.pid)]
    os.kill(process.pid or 0, signal.SIGKILL)
    process.join()
    for worker in workers:  # those of a killed benchmark leave by themselves
        assert select.select([worker], [], [], 60)[0]
        os.close(worker)
    before = written(out)
    epochs = (out / "runs/phantom.unet.ce.1/metrics.csv").read_text()
    summary = run_benchmark(Suite.load(suite), out)
    assert len(summary.done) == 4
    assert not summary.broken
    assert len(written(out)) == 6
    assert before.items() <= written(out).items()
    assert (out / "runs/phantom.unet.ce.1/metrics.csv").read_text().startswith(epochs)  # went on, not begun again
    whole = tmp_path / "whole"
    run_benchmark(Suite.load(suite), whole, only=["ce"])
    name = "results/phantom.unet.ce.1.json"
    assert CellResult.load(out / name).volumes == CellResult.load(whole / name).volumes


@pytest.mark.slow
def test_processes_share_the_work_and_a_dying_one_breaks_only_its_run(tiny: Any, tmp_path: Path) -> None:
    training = {"epochs": 15, "width": 2, "batch_size": 2, "accelerator": "cpu"}
    methods = {name: {"method": name} for name in ("ce", "fl", "ls")}
    suite, out = tiny(methods=methods, training=training), tmp_path / "out"
    code = (
        "import sys\nfrom crac.cli import main\n"
        f"sys.exit(main(['benchmark', {str(suite)!r}, '--out', {str(out)!r}, '--jobs', '2']))"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    runs = [out / "runs" / f"phantom.unet.{name}.0" / "last.safetensors" for name in ("ce", "fl")]
    while not all(run.exists() for run in runs):  # at the same time
        assert process.poll() is None
        time.sleep(0.02)
    worker = next(c for c in children(process.pid) if b"spawn_main" in Path(f"/proc/{c}/cmdline").read_bytes())
    os.kill(worker, signal.SIGKILL)
    said, _ = process.communicate(timeout=120)
    assert process.returncode == 1
    assert "2 runs done, 1 broken, 0 left" in said
    assert "its process was killed" in said
    assert len(written(out)) == 2


@pytest.mark.slow
def test_ctrl_c_lets_every_process_save_its_training(tiny: Any, tmp_path: Path) -> None:
    """The signal of a terminal goes to the whole group of processes, not to the first one alone."""
    training = {"epochs": 400, "width": 2, "batch_size": 2, "accelerator": "cpu", "save_every": 400}
    suite, out = tiny(methods={name: {"method": name} for name in ("ce", "fl")}, training=training), tmp_path / "out"
    command = [sys.executable, "-m", "crac", "benchmark", str(suite), "--out", str(out), "--jobs", "2"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)
    runs = [out / "runs" / f"phantom.unet.{name}.0" for name in ("ce", "fl")]
    while not all((run / "metrics.csv").exists() for run in runs):
        assert process.poll() is None
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGINT)
    _, said = process.communicate(timeout=120)
    assert process.returncode == 130
    assert "give the same command again to go on" in said
    assert "Traceback" not in said
    assert all((run / "last.safetensors").exists() for run in runs)


def test_runs_need_neither_pictures_nor_tables(tiny: Any, tmp_path: Path) -> None:
    """On a bare machine only the numbers are made; the report follows elsewhere."""
    code = (
        "import sys, lightning.fabric\n"  # which takes matplotlib along where it is installed
        "for name in ('jinja2', 'matplotlib', 'pandas', 'tensorboard', 'scikit_posthocs'):\n"
        "    for part in [part for part in sys.modules if part.partition('.')[0] == name]: del sys.modules[part]\n"
        "    sys.modules[name] = None\n"
        "from crac.cli import main\n"
        f"sys.exit(main(['benchmark', {str(tiny())!r}, '--out', {str(tmp_path / 'out')!r}]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "2 runs done, 0 broken, 0 left" in done.stdout
    assert "is not installed; run: pip install" in done.stderr
    assert "later: crac benchmark --render" in done.stderr
    assert len(written(tmp_path / "out")) == 3
    assert main(["benchmark", "--render", str(tmp_path / "out/results"), "--out", str(tmp_path / "report")]) == 0
    assert (tmp_path / "report/benchmark.md").is_file()


class Time:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Time:
    made = Time()
    monkeypatch.setattr(time, "monotonic", made)
    return made


def test_no_run_begins_that_would_pass_the_limit(tiny_suite: Any, tmp_path: Path, clock: Time) -> None:
    jobs = tiny_suite(seeds=[0, 1, 2]).jobs({"phantom": tmp_path})
    watch = Watch(jobs, Folder(tmp_path), limit=60)
    queue = watch.admitted()
    assert next(queue).name == "phantom.unet.ce.0"
    clock.now += 20
    watch.see(Outcome("phantom.unet.ce.0", 20))
    assert next(queue).name == "phantom.unet.crac-released.0"
    clock.now += 15
    watch.see(Outcome("phantom.unet.crac-released.0", 15))
    assert next(queue).name == "phantom.unet.ce.1"  # took 20 before, 25 are left
    clock.now += 20
    assert not list(queue)


def test_the_table_shows_what_runs_what_is_done_and_the_time_left(
    tiny_suite: Any, tmp_path: Path, clock: Time, capsys: pytest.CaptureFixture[str]
) -> None:
    jobs = tiny_suite(seeds=[0, 1]).jobs({"phantom": tmp_path})
    watch = Watch(jobs, Folder(tmp_path))
    assert watch.headline() == "0 of 4 runs done"
    for job in jobs[:2]:
        watch.see(job)
        clock.now += 40
        watch.see(Outcome(job.name, 40.0))
    assert "phantom.unet.ce.0 done in 0:00:40; 1 of 4 runs done, about 0:02:00 left" in capsys.readouterr().err
    watch.see(jobs[2])
    clock.now += 10
    assert watch.headline() == "2 of 4 runs done, 1 running, about 0:01:10 left"
    folder = tmp_path / "runs" / jobs[2].name
    folder.mkdir(parents=True)
    (folder / "metrics.csv").write_text("epoch,dice\n1,0.5\n")
    watch.see(Outcome(jobs[3].name, 1.0, "no memory"))
    console = Console(width=100, record=True, file=(tmp_path / "shown").open("w"))
    console.print(watch.table())
    shown = console.export_text()
    assert "2 of 4 runs done, 1 running, 1 broken" in shown
    ce, ours = (
        next(line for line in shown.splitlines() if f" {label} " in line) for label in ("CE", "CRaC (released)")
    )
    assert "done" in ce
    assert "epoch 1/1, 0:00:10" in ce
    assert "done" in ours
    assert "broken" in ours
    assert watch.problems == {jobs[3].name: "no memory"}


def test_workers_share_the_rest(tiny_suite: Any, tmp_path: Path, clock: Time) -> None:
    jobs = tiny_suite(seeds=[0, 1]).jobs({"phantom": tmp_path})
    watch = Watch(jobs, Folder(tmp_path), workers=3)
    watch.see(Outcome(jobs[0].name, 60.0))
    assert watch.headline().endswith("about 0:01:00 left")
