"""Measure a set of cases: one after the other, in threads beside a GPU, in processes, or on a Ray cluster.

What was counted adds up exactly, so the result does not depend on who counted it.
"""

import os
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch

from crac.errors import InputError, check_number
from crac.evaluation.case import Case, CaseSource
from crac.evaluation.measure import Evaluation, Measured, Shapes, measure
from crac.evaluation.protocol import Protocol
from crac.parallel import Workers, in_threads
from crac.progress import Track, silent

MOST_THREADS = 8


def evaluate(
    cases: CaseSource,
    protocol: Protocol,
    *,
    jobs: int = 1,
    ray: str | None = None,
    track: Track = silent,
    seen: Callable[[Case, dict[str, Any]], None] | None = None,
    shapes: Shapes | None = None,
) -> Evaluation:
    """Measure cases in their order.

    Args:
        cases: What to measure; each process holds one at a time, and a few where they come from a GPU.
        protocol: How to measure, with the names of the classes.
        jobs: Processes; cases that come from a GPU are predicted by this one and measured in threads.
        ray: Address of a Ray cluster whose machines see the same files, or ``local`` to start one on this machine with
            ``jobs`` workers. Its processors do the work, so cases must not come from a GPU.
        track: Shows progress.
        seen: Called with every case and its row, in this process.
        shapes: Segmentation scores to share with other calls on the same cases, see :func:`measure`; in this process.
    """
    if not cases.names:
        raise InputError("cases must name at least one case; got none")
    check_number("jobs", jobs, least=1, whole=True)
    if ray is not None and cases.on_gpu:
        raise InputError("a Ray cluster measures on its processors: load the model with device cpu (--device cpu)")
    evaluation = Evaluation(protocol)
    here = seen is not None or shapes is not None
    if not here and not cases.on_gpu and (jobs > 1 or ray is not None):
        with Workers(min(jobs, len(cases.names)), ray) as workers:
            results = workers.map(partial(_measure, cases, protocol), cases.names)
            for measured in track(results, "measuring", len(cases.names)):
                evaluation.add(measured)
        return evaluation
    for case, measured in track(_measure_here(cases, protocol, shapes), "measuring", len(cases.names)):
        evaluation.add(measured)
        if seen is not None:
            seen(case, measured.row)
    return evaluation


def _measure(cases: CaseSource, protocol: Protocol, name: str) -> Measured:
    return measure(cases.load(name), protocol)


def _measure_here(cases: CaseSource, protocol: Protocol, shapes: Shapes | None) -> Iterator[tuple[Case, Measured]]:
    def one(case: Case) -> tuple[Case, Measured]:
        return case, measure(case, protocol, shapes)

    loaded = map(cases.load, cases.names)
    if not cases.on_gpu:
        yield from map(one, loaded)
        return
    # The CPU measures in threads while the GPU makes the next predictions.
    threads = min(os.cpu_count() or 1, MOST_THREADS)
    yield from in_threads(one, loaded, threads, cores=max(1, torch.get_num_threads() // threads))
