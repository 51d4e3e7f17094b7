"""The same runs on a Ray cluster, here one of two workers on this machine."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("ray", reason="Ray is not installed (pip install 'crac[ray]')")

from crac.benchmark import load_results, run_benchmark


@pytest.fixture
def _one_thread() -> Iterator[None]:
    """As many as Ray gives each of its workers: two round sums in another way."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.slow
@pytest.mark.usefixtures("_one_thread")
def test_two_workers_do_what_one_process_does(tiny_suite: Any, tmp_path: Path) -> None:
    training = {"epochs": 1, "width": 2, "batch_size": 8, "accelerator": "cpu", "deterministic": True}
    methods = {
        "ce": {"method": "ce"},
        "wrong": {"method": "nacl", "options": {"alfa": 1}},
        "fl": {"method": "fl"},
        "crac": {"method": "crac"},
    }
    suite = tiny_suite(training=training, methods=methods)
    alone = run_benchmark(suite, tmp_path / "alone")
    cluster = run_benchmark(suite, tmp_path / "cluster", ray="local", jobs=2)
    assert cluster == alone
    assert list(cluster.broken) == ["phantom.unet.wrong.0"]
    one, two = (
        {result.cell.name: result.volumes for result in load_results([tmp_path / name / "results"])}
        for name in ("alone", "cluster")
    )
    assert one == two
    assert len(one) == 3


@pytest.mark.slow
def test_a_running_cluster_is_used_and_a_dying_worker_breaks_only_its_run(
    tiny_suite: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import ray

    from crac.benchmark import runner

    def do_job_or_die(job: Any, folder: Any) -> Any:
        import os

        from crac.benchmark.job import do_job

        if job.config.method == "fl":
            os._exit(1)
        return do_job(job, folder)

    monkeypatch.setattr(runner, "do_job", do_job_or_die)
    methods = {name: {"method": name} for name in ("ce", "fl", "ls")}
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    try:
        summary = run_benchmark(tiny_suite(methods=methods), tmp_path / "out", ray="auto")
        assert ray.is_initialized()  # it is not ours to stop
    finally:
        ray.shutdown()
    assert summary.done == ["phantom.unet.ce.0", "phantom.unet.ls.0"]
    assert "its worker ended" in summary.broken["phantom.unet.fl.0"]
