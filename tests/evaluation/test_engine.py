"""Whoever measures, the numbers are the same."""

import pytest
import torch
from tests.evaluation.volumes import NAMES, volume

from crac.errors import InputError
from crac.evaluation import LoadedCases, Protocol, evaluate


def cases(number=7, on_gpu=False):
    found = LoadedCases([volume(f"case {n}", (3 + n % 4, 20, 24), seed=n) for n in range(number)])
    found.on_gpu = on_gpu
    return found


def same(first, second):
    assert first.rows == second.rows
    assert str(first.summary()) == str(second.summary())  # a bin without voxels holds NaN


@pytest.fixture(scope="module")
def expected():
    return evaluate(cases(), Protocol(NAMES))


def test_threads_beside_a_gpu(expected):
    threads = torch.get_num_threads()
    same(evaluate(cases(on_gpu=True), Protocol(NAMES)), expected)
    assert torch.get_num_threads() == threads


def test_two_processes(expected):
    same(evaluate(cases(), Protocol(NAMES), jobs=2), expected)


@pytest.mark.slow
def test_two_workers_of_a_ray_cluster(expected):
    pytest.importorskip("ray", reason="Ray is not installed (pip install 'crac[ray]')")
    same(evaluate(cases(), Protocol(NAMES), jobs=2, ray="local"), expected)
    broken = cases()
    broken.load("case 3").labels[0, 0, 0] = 9
    with pytest.raises(InputError, match=r"labels must lie in 0\.\.2"):
        evaluate(broken, Protocol(NAMES), jobs=2, ray="local")


def test_cases_are_shown_in_order_with_their_rows(expected):
    seen = []
    evaluate(cases(), Protocol(NAMES), seen=lambda case, row: seen.append((case.name, row)))
    assert seen == [(row["volume"], row) for row in expected.rows]


@pytest.mark.parametrize("on_gpu", [False, True])
def test_an_error_is_handed_on(on_gpu):
    broken = cases(on_gpu=on_gpu)
    broken.load("case 3").labels[0, 0, 0] = 9
    with pytest.raises(InputError, match=r"must lie in 0\.\.2"):
        evaluate(broken, Protocol(NAMES))
    with pytest.raises(InputError, match="cases must name at least one case; got none"):
        evaluate(LoadedCases([]), Protocol(NAMES))
    for jobs in (0, -3):
        with pytest.raises(InputError, match=f"jobs must be a whole number of at least 1; got {jobs}"):
            evaluate(broken, Protocol(NAMES), jobs=jobs)


def test_a_cluster_does_not_take_what_is_on_a_gpu():
    with pytest.raises(InputError, match=r"load the model with device cpu \(--device cpu\)"):
        evaluate(cases(on_gpu=True), Protocol(NAMES), ray="local")
