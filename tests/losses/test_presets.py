"""Which options a preset takes."""

import pytest

from crac.errors import InputError
from crac.losses.presets import PRESETS, choose


def test_what_is_given_stands_in_place_of_the_presets_own():
    assert choose("paper", {"gamma": None, "num_classes": 4}) == PRESETS["paper"]
    assert choose("paper", {"gamma": 2.0}) == PRESETS["paper"] | {"gamma": 2.0}
    assert PRESETS["paper"]["gamma"] == 1.2
    with pytest.raises(InputError, match=r"option of preset 'signed' must be one of border, .*; got 'gamma'"):
        choose("signed", {"gamma": 2.0})
    with pytest.raises(InputError, match="preset must be one of released, paper, signed; got 'ours'"):
        choose("ours", {})
