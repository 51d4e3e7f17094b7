"""Ranks of the paper's two tables, tests against scipy, bootstrap against theory."""

import numpy as np
import pytest
import yaml
from scipy import stats

import crac
from common import ROOT
from crac.errors import InputError
from crac.metrics import friedman_test, nemenyi, paired_bootstrap, ranks

PAPER = yaml.safe_load((ROOT / "src/crac/benchmark/paper.yaml").read_text())["tables"]
HIGHER = [True, False, False, False] * 2


@pytest.mark.parametrize("backbone", ["unet", "nnunet"])
def test_the_papers_columns_to_the_printed_digits(backbone):
    numbers = np.array(list(PAPER[backbone].values()))
    got = crac.friedman_rank(numbers[:, :-1], HIGHER)
    half_up = np.floor(got * 100 + 0.5) / 100
    np.testing.assert_allclose(half_up, numbers[:, -1], atol=1e-9)


def test_ties():
    table = [[1.0], [2.0], [2.0], [3.0]]
    assert ranks(table, False, ties="min").ravel().tolist() == [1, 2, 2, 4]
    assert ranks(table, False, ties="average").ravel().tolist() == [1, 2.5, 2.5, 4]
    assert ranks(table, True).ravel().tolist() == [4, 2, 2, 1]


def test_friedman_and_nemenyi_see_a_difference_that_is_there():
    rng = np.random.default_rng(0)
    base = rng.normal(size=(1, 30))
    table = base + np.array([[0.0], [0.0], [2.0]]) + 0.1 * rng.normal(size=(3, 30))
    test = friedman_test(table)
    reference = stats.friedmanchisquare(*table)
    assert test == pytest.approx((reference.statistic, reference.pvalue))
    p = nemenyi(table)
    assert p.shape == (3, 3)
    np.testing.assert_allclose(p, p.T)
    # The studentised range by hand: q = |mean rank difference| / sqrt(k (k + 1) / (6 n)), times sqrt(2).
    mean = ranks(table, False, ties="average").mean(axis=1)
    q = abs(mean[0] - mean[2]) / np.sqrt(3 * 4 / (6 * 30)) * np.sqrt(2)
    assert p[0, 2] == pytest.approx(stats.studentized_range.sf(q, 3, np.inf), rel=1e-3, abs=1e-9)
    assert p[0, 2] < 0.001 < 0.05 < p[0, 1]


def test_paired_bootstrap_agrees_with_the_normal_interval_and_uses_the_pairing():
    rng = np.random.default_rng(1)
    hard = rng.normal(size=200)  # volumes differ far more than methods do
    first, second = hard + 0.1 + 0.05 * rng.normal(size=200), hard + 0.05 * rng.normal(size=200)
    interval = paired_bootstrap(first, second)
    difference = first - second
    error = difference.std(ddof=1) / np.sqrt(200)
    assert interval.estimate == pytest.approx(difference.mean())
    assert interval.low == pytest.approx(difference.mean() - 1.96 * error, abs=0.15 * error)
    assert interval.high == pytest.approx(difference.mean() + 1.96 * error, abs=0.15 * error)
    assert interval == paired_bootstrap(first, second)
    assert interval != paired_bootstrap(first, second, seed=1)
    assert paired_bootstrap([0.5], [0.25]) == (0.25, 0.25, 0.25)  # nothing to draw from
    with_gap = np.append(first, np.nan), np.append(second, 1.0)
    assert paired_bootstrap(*with_gap) == interval
    median = paired_bootstrap(first, second, statistic=lambda values: np.median(values, axis=-1))
    assert median.estimate == pytest.approx(np.median(difference))


@pytest.mark.parametrize("size", [2, 6, 12, 40])
def test_the_interval_of_few_volumes_is_about_as_wide_as_student_s(size):
    values = stats.norm.ppf((np.arange(size) + 0.5) / size)
    found = paired_bootstrap(values, np.zeros(size))
    expected = stats.t.interval(0.95, size - 1, 0, values.std(ddof=1) / np.sqrt(size))
    most = abs(values[0])  # no mean of drawn values lies further out
    assert (found.low, found.high) == pytest.approx(np.clip(expected, -most, most), rel=0.08)


@pytest.mark.parametrize("size", [6, 10, 20])
def test_chance_is_seldom_taken_for_a_difference(size):
    rng = np.random.default_rng(size)
    found = [paired_bootstrap(rng.normal(size=size), np.zeros(size), resamples=2000) for _ in range(600)]
    claimed = np.mean([low > 0 or high < 0 for _, low, high in found])
    assert 0.02 < claimed < 0.08  # plain percentiles: 0.14, 0.09 and 0.08


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: crac.friedman_rank([1.0, 2.0], True), "methods, settings"),
        (lambda: crac.friedman_rank([[1.0, np.nan]], True), "NaN"),
        (lambda: crac.friedman_rank([[1.0, 2.0]], [True]), "one per column"),
        (lambda: crac.friedman_rank([[1.0, 2.0]], True, ties="max"), "min, average"),
        (lambda: friedman_test([[1.0, 2.0], [2.0, 3.0]]), "at least 3"),
        (lambda: paired_bootstrap([1.0], [1.0, 2.0]), "one value per volume"),
        (lambda: paired_bootstrap([np.nan], [1.0]), "no volume"),
        (lambda: paired_bootstrap([1.0], [1.0], confidence=95), "confidence"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(InputError, match=message):
        call()
