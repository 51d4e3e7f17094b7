"""Cases, and those that memory keeps."""

from typing import Any

from tests.evaluation.volumes import volume

from crac.evaluation import LoadedCases
from crac.evaluation.case import RememberedCases


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
