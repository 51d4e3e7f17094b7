"""Cases, and those that memory keeps."""

from typing import Any

import pytest
from tests.evaluation.volumes import volume

from crac.evaluation import LoadedCases
from crac.evaluation.case import RememberedCases, slice_axis


def test_remembered_cases_are_loaded_once_as_far_as_memory_goes() -> None:
    loaded: list[str] = []

    class Counting(LoadedCases):
        def load(self, name: str) -> Any:
            loaded.append(name)
            return super().load(name)

    source = Counting([volume("one"), volume("two")])
    size = source.load("one").scores.nbytes + source.load("one").labels.nbytes
    loaded.clear()
    cases = RememberedCases(source, most=size)
    for _ in range(3):
        for name in cases.names:
            assert cases.load(name).name == name
    assert loaded == ["one", "two", "two", "two"]


@pytest.mark.parametrize(
    ("spacing", "axis"),
    [
        ((1.0, 1.0, 1.0), 2),
        ((5.0, 1.0, 1.0), 0),
        ((1.5, 1.5, 1.0), 1),
        ((1.0, 1.0000001, 0.9999999), 2),  # isotropic but for the rounding of a header
        ((3.0000002, 1.0, 3.0), 2),
        ((1.0, 1.01, 1.0), 1),
    ],
)
def test_slices_follow_the_largest_spacing_and_not_its_rounding(spacing: tuple[float, ...], axis: int) -> None:
    assert slice_axis(spacing, (4, 5, 6)) == axis
    assert slice_axis(spacing, (1, 5, 1)) == axis
    assert [slice_axis(spacing, shape) for shape in ((1, 5, 6), (4, 1, 6), (4, 5, 1))] == [0, 1, 2]  # a single slice
    case = volume("one")
    assert case._replace(spacing=spacing, slice_axis=None).axis == axis
    assert case._replace(spacing=spacing, slice_axis=1).axis == 1
