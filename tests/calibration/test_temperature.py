import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar

from crac.calibration import fit_temperature
from crac.errors import InputError


def sample(seed: int, scale: float, share: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits that are right for ``share`` of the pixels, ``scale`` times too large or too small."""
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(3, 4, 9, 7, generator=generator) * 2
    drawn = torch.distributions.Categorical(logits=logits.movedim(1, -1))
    torch.manual_seed(seed)
    labels = torch.where(torch.rand(3, 9, 7, generator=generator) < share, drawn.sample(), 1)
    return logits * scale, labels


@given(st.integers(0, 1000), st.floats(0.2, 8), st.floats(0.3, 1))
def test_the_lowest_likelihood_is_found(seed: int, scale: float, share: float) -> None:
    logits, labels = sample(seed, scale, share)
    wide = logits.double()

    def nll(logarithm: float) -> float:
        return F.cross_entropy(wide / np.exp(logarithm), labels).item()

    best = minimize_scalar(nll, bounds=(np.log(0.05), np.log(20)), method="bounded", options={"xatol": 1e-9})
    found = fit_temperature(lambda: [(logits, labels)])
    assert nll(np.log(found)) <= best.fun + 1e-9
    assert found == pytest.approx(np.exp(best.x), rel=2e-4)


def test_data_may_come_in_any_portions_and_is_read_a_few_times() -> None:
    logits, labels = sample(0, 3, 0.9)
    passes = 0

    def one_by_one():  # type: ignore[no-untyped-def]
        nonlocal passes
        passes += 1
        for image, target in zip(logits, labels, strict=True):
            yield image[None], target[None]

    assert fit_temperature(one_by_one) == pytest.approx(fit_temperature(lambda: [(logits, labels)]), rel=1e-6)
    assert passes == 4
    assert fit_temperature(lambda: [(logits.half(), labels.byte())]) == pytest.approx(
        fit_temperature(lambda: [(logits, labels)]), rel=1e-2
    )


def test_it_stays_within_bounds_where_no_temperature_is_best() -> None:
    labels = torch.randint(3, (1, 5, 5))
    right = F.one_hot(labels, 3).movedim(-1, 1).float()
    assert fit_temperature(lambda: [(right, labels)]) == pytest.approx(0.05)
    assert fit_temperature(lambda: [(-right, labels)]) == pytest.approx(20)
    assert fit_temperature(lambda: [(1e4 * right, labels)]) == 1
    with pytest.raises(InputError, match="at least one batch"):
        fit_temperature(list)
