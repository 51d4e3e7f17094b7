"""Cells cut where they should, and equal-mass errors agree with sorting."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from crac.errors import InputError
from crac.metrics.cells import Cells, equal_mass_error, equal_width_bins, quantile_error


def cell_sums(cells: Cells, confidence: torch.Tensor, hits: torch.Tensor) -> list[torch.Tensor]:
    index = cells.index(confidence, confidence.double()).long()
    return [
        torch.zeros(cells.size, dtype=torch.float64).index_add_(0, index, values.double())
        for values in (torch.ones_like(confidence), confidence, hits)
    ]


def sorted_error(confidence: np.ndarray, hits: np.ndarray, bins: int) -> float:
    order = np.argsort(confidence, kind="stable")
    parts = np.array_split(order, bins)
    return sum(abs((confidence[part] - hits[part]).sum()) for part in parts) / len(confidence)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("bins", [1, 2, 10, 15, 20, 33, 100])
@pytest.mark.parametrize("threshold", [0.0, 1e-3, 0.3])
def test_every_probability_is_in_its_bin_and_on_its_side_of_the_threshold(dtype, bins, threshold):
    cells = Cells(bins, threshold)
    edges = torch.arange(bins + 1, dtype=dtype) / bins
    around = [edges, torch.nextafter(edges, torch.tensor(2.0, dtype=dtype)), torch.nextafter(edges, -edges[-1:])]
    spread = torch.rand(20_000, dtype=dtype)
    p = torch.cat([*around, spread, spread**12, 1 - spread**12, torch.tensor([threshold], dtype=dtype)]).clamp(0, 1)
    index = cells.index(p, p.double()).long()
    assert torch.equal(cells.bin[index], (p.double() * bins).ceil().long().clamp(min=1) - 1)
    assert torch.equal(cells.above[index], p.float() > torch.tensor(threshold, dtype=torch.float32))
    # Growing probabilities never go back a cell.
    assert bool((cells.index(p.sort().values, p.sort().values.double()).diff() >= 0).all())


@pytest.mark.parametrize("bins", [1, 15, 100, 5000])
@pytest.mark.parametrize("threshold", [0.0, 1e-3])
def test_single_and_double_precision_share_their_cells(bins, threshold):
    cells = Cells(bins, threshold)
    edges = (torch.arange(bins + 1).double() / bins).float()
    spread = torch.rand(20_000, generator=torch.Generator().manual_seed(bins))
    tiny = torch.tensor([0.0, 1e-45, 1e-38, 1e-30])
    p = torch.cat([edges, torch.nextafter(edges, torch.tensor(2.0)), tiny, spread, spread**20, 1 - spread**20])
    p = p.clamp(max=1)
    assert torch.equal(cells.index(p, p.double()), cells.index(p.double(), p.double()))


def test_zero_is_in_the_first_bin_and_one_in_the_last():
    cells = Cells(15, 1e-3)
    ends = torch.tensor([0.0, 1.0])
    assert cells.bin[cells.index(ends, ends.double()).long()].tolist() == [0, 14]


@given(seed=st.integers(0, 10_000), sharpness=st.sampled_from([0.3, 1.0, 4.0, 12.0]), bins=st.sampled_from([5, 15]))
def test_equal_mass_error_from_cells_agrees_with_sorting(seed, sharpness, bins):
    generator = torch.Generator().manual_seed(seed)
    confidence = torch.sigmoid(sharpness * torch.randn(20_000, generator=generator))
    # Over- and underconfident by turns, so that misplaced samples do not cancel.
    chance = (confidence + 0.15 * torch.sin(12 * confidence)).clamp(0, 1)
    hits = (torch.rand(20_000, generator=generator) < chance).double()
    sums = cell_sums(Cells(bins, 1e-3), confidence, hits)
    expected = sorted_error(confidence.double().numpy(), hits.numpy(), bins)
    assert float(equal_mass_error(*sums, bins)) == pytest.approx(expected, abs=2e-3)


def test_equal_mass_error_sees_structure_among_saturated_probabilities():
    """Half the voxels at 1 - 1e-5 and always right, half at 1 - 1e-4 and wrong once in 100: equal-width cells of any
    sensible number would see one lump."""
    confidence = torch.cat([torch.full((10_000,), 1 - 1e-5), torch.full((10_000,), 1 - 1e-4)])
    hits = torch.ones(20_000)
    hits[10_000::100] = 0
    expected = (1e-5 * 0.5) + (0.01 - 1e-4) * 0.5
    got = float(equal_mass_error(*cell_sums(Cells(2, 1e-3), confidence, hits), 2))
    assert got == pytest.approx(expected, abs=1e-6)


def test_equal_mass_error_of_one_shared_confidence_is_its_gap():
    confidence, hits = torch.full((1000,), 0.99), torch.ones(1000)
    hits[::4] = 0
    assert float(equal_mass_error(*cell_sums(Cells(15, 1e-3), confidence, hits), 15)) == pytest.approx(0.24, abs=1e-7)
    assert float(quantile_error(confidence, hits, 15)) == pytest.approx(0.24, abs=1e-7)


@pytest.mark.parametrize("number", [1, 2, 7, 15, 16, 1000])
def test_quantile_error_follows_the_released_definition(number):
    """Bins (a, b] between interpolated quantiles, so that the lowest confidence is in none."""
    rng = np.random.default_rng(number)
    confidence = rng.uniform(0.25, 1, number)
    hits = (rng.uniform(size=number) < 0.8).astype(float)
    edges = np.interp(np.linspace(0, number, 16), np.arange(number), np.sort(confidence))
    expected = 0.0
    for low, high in itertools.pairwise(edges):
        inside = (confidence > low) & (confidence <= high)
        expected += abs((confidence[inside] - hits[inside]).sum()) / number
    got = float(quantile_error(torch.tensor(confidence), torch.tensor(hits), 15))
    if number == 1:
        assert got == pytest.approx(abs(confidence[0] - hits[0]))  # the released code drops the only sample
    else:
        assert got == pytest.approx(expected, abs=1e-12)


def test_no_samples_give_nan():
    cells = Cells(15, 1e-3)
    nothing = torch.zeros(3, cells.size)
    assert torch.isnan(equal_mass_error(nothing, nothing, nothing, 15)).all()
    bins = equal_width_bins(nothing, nothing, nothing, cells)
    assert torch.isnan(bins.expected_error).all()
    assert torch.isnan(bins.maximum_error).all()
    assert torch.isnan(quantile_error(torch.zeros(0), torch.zeros(0), 15))


@pytest.mark.parametrize(
    ("bins", "threshold", "named"),
    [(0, 1e-3, "bins"), *((15, wrong, r"threshold must .*; got") for wrong in (1.0, -0.1, None, "0.1"))],
)
def test_bad_arguments_are_named(bins, threshold, named):
    with pytest.raises(InputError, match=named):
        Cells(bins, threshold)


@pytest.mark.parametrize("bins", [2.5, float("nan"), "15", True])
def test_bins_are_counted(bins):
    with pytest.raises(InputError, match="bins must be a whole number"):
        Cells(bins, 1e-3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("bins", [1, 15, 100])
def test_what_rounding_leaves_above_one_counts_as_one(dtype, bins):
    cells = Cells(bins, 1e-3)
    above = torch.tensor([1 + torch.finfo(dtype).eps, 1 + 2**-23, 1.0005, 1.019], dtype=dtype)
    one = torch.ones_like(above)
    assert torch.equal(cells.index(above, above.double()), cells.index(one, one.double()))
