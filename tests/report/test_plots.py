"""The diagram of ranks says who is meant."""

import matplotlib.pyplot as plt
import numpy as np
import pytest

from crac.errors import InputError
from crac.report import plots


def test_critical_difference_names_every_method():
    table = np.arange(3)[:, None] + np.random.default_rng(0).normal(size=(3, 12))
    figure = plots.critical_difference(table, ["first", "second", "third"], higher_is_better=False)
    words = " ".join(text.get_text() for text in figure.axes[0].texts)
    assert all(name in words for name in ("first", "second", "third"))
    plt.close(figure)
    with pytest.raises(InputError, match="3 rows"):
        plots.critical_difference(table, ["first"], higher_is_better=False)
