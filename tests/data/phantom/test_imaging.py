"""What a scanner adds: partial volumes and noise."""

import numpy as np
import pytest

from crac.data.phantom import imaging


def test_partial_volume() -> None:
    edge = imaging.render(lambda rows, columns: (columns > 2.5).astype(float), 2, 6)
    np.testing.assert_array_equal(edge[0], [0, 0, 0, 1, 1, 1])
    edge = imaging.render(lambda rows, columns: (columns > 3).astype(float), 2, 6)
    np.testing.assert_array_equal(edge[0], [0, 0, 0, 0.5, 1, 1])


def test_rician_noise_lifts_the_dark() -> None:
    generator = np.random.default_rng(0)
    # A Rayleigh distribution where there is no signal, Gaussian where there is much.
    assert imaging.rician(generator, np.zeros(100_000), 1.0).mean() == pytest.approx(np.sqrt(np.pi / 2), rel=0.01)
    assert imaging.rician(generator, np.full(100_000, 50.0), 1.0).std() == pytest.approx(1, rel=0.02)
