import math

import pytest

from crac.errors import InputError
from crac.evaluation import PROTOCOLS, Protocol


def test_the_two_protocols():
    paper, clinical = (Protocol.named(name, ["a", "b"]) for name in PROTOCOLS)
    assert (paper.unit, paper.grid, paper.hd95, paper.empty) == ("voxel", "prepared", "pooled", "diagonal")
    assert (clinical.unit, clinical.grid, clinical.hd95, clinical.empty) == ("mm", "native", "pooled", "diagonal")
    assert paper.masks[0] == "label_foreground"
    assert set(clinical.masks) == {"band", "label_foreground"}
    assert paper.name == "paper"


def test_a_changed_protocol_says_so():
    assert Protocol.named("paper", ["a", "b"], unit="mm", bins=15).name == "paper, but for unit"
    assert Protocol.named("paper", ["a", "b"], regions="slice").name == "paper"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"class_names": ["only"]}, "at least 2"),
        ({"class_names": ["a", "b"], "masks": ["some"]}, "label_foreground"),
        ({"class_names": ["a", "b"], "masks": []}, "masks"),
        (
            {"class_names": ["a", "b"], "tolerance": -1},
            "tolerance must be a number of at least 0 and of at most 1000000; got -1",
        ),
        ({"class_names": ["a", "b"], "empty": math.inf}, "empty must be a number .* of at most 1000000; got inf"),
        (
            {"class_names": ["a", "b"], "empty": -1.0},
            "empty must be a number of at least 0 and of at most 1000000; got -1",
        ),
        ({"class_names": ["a", "b"], "unit": "cm"}, "unit must be one of mm, voxel; got 'cm'"),
        ({"class_names": ["a", "b"], "regions": "3d"}, "regions must be one of volume, slice; got '3d'"),
    ],
)
def test_bad_protocols_are_refused(arguments, message):
    with pytest.raises(InputError, match=message):
        Protocol(**arguments)
    with pytest.raises(InputError, match="protocol must be one of paper, clinical; got 'ours'"):
        Protocol.named("ours")
