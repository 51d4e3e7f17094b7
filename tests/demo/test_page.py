"""What the page of the demo says of its numbers."""

import pytest

from crac.demo.page import verdict


@pytest.mark.parametrize(("ece", "word"), [(0.03, "is lower: 0.0300"), (0.07, "is not lower: 0.0700")])
def test_the_verdict_is_honest_whoever_wins(ece: float, word: str) -> None:
    scores = {
        method: {"ece[label_foreground]": value, "gap.outer[label_foreground]": 0.1}
        for method, value in (("ce", 0.05), ("crac", ece))
    }
    assert word in verdict(scores)
