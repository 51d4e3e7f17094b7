"""Splits: by patient, in proportion, reproducible, editable, checked."""

import json
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crac.data import Split, Store
from crac.errors import InputError, ProblemsError

PARTS = ("train", "validation", "test")


@dataclass(frozen=True)
class Someone:
    patient: str
    group: str | None


def people(count: int, groups: int = 1, frames: int = 2) -> dict[str, Someone]:
    return {
        f"p{number}_f{frame}": Someone(f"p{number}", f"g{number % groups}" if groups > 1 else None)
        for number in range(count)
        for frame in range(frames)
    }


def patients(split: Split, part: str) -> set[str]:
    return {name.split("_")[0] for name in getattr(split, part)}


@given(count=st.integers(3, 120), groups=st.integers(1, 6), seed=st.integers(0, 2**40))
def test_every_patient_is_in_exactly_one_part(count: int, groups: int, seed: int) -> None:
    cases = people(count, groups)
    split = Split.make(cases, seed)
    split.check(cases)
    assert sorted(split.train + split.validation + split.test) == sorted(cases)
    sizes = [len(patients(split, part)) for part in PARTS]
    assert sum(sizes) == count
    assert min(sizes) >= 1
    for size, share in zip(sizes, (0.7, 0.1, 0.2), strict=True):
        assert abs(size - share * count) <= 1.3
    # Who is where does not depend on the order in which cases are listed.
    assert patients(split, "test") == patients(Split.make(dict(reversed(cases.items())), seed), "test")


def test_groups_are_divided_alike() -> None:
    cases = people(100, groups=5)
    split = Split.make(cases, seed=3)
    for part, expected in zip(PARTS, (14, 2, 4), strict=True):
        for group in range(5):
            assert sum(int(name[1:]) % 5 == group for name in patients(split, part)) == expected
    assert split != Split.make(cases, seed=4)


@given(count=st.integers(5, 60), folds=st.integers(2, 5), groups=st.integers(1, 4))
def test_folds_test_everyone_once(count: int, folds: int, groups: int) -> None:
    cases = people(count, groups)
    splits = Split.k_fold(cases, folds)
    tested = [name for split in splits for name in split.test]
    assert sorted(tested) == sorted(cases)
    sizes = [len(split.test) for split in splits]
    assert max(sizes) - min(sizes) <= 2
    for split in splits:
        split.check(cases)
        assert len(split.train + split.validation + split.test) == len(cases)
        assert split.validation


def test_impossible_folds_are_refused() -> None:
    with pytest.raises(InputError, match="folds must be between 2 and the 4 patients; got 9"):
        Split.k_fold(people(4), 9)
    with pytest.raises(InputError, match="seed must be a whole number of at least 0; got -1"):
        Split.make(people(4), seed=-1)


def test_a_file_can_be_edited(tmp_path: Path) -> None:
    cases = people(10)
    split = Split.make(cases)
    split.save(tmp_path / "split.json")
    content = json.loads((tmp_path / "split.json").read_text())
    assert list(content) == list(PARTS)
    content["train"], content["test"] = content["test"], content["train"]
    (tmp_path / "split.json").write_text(json.dumps(content))
    edited = Split.load(tmp_path / "split.json", cases)
    assert (edited.train, edited.test) == (split.test, split.train)


def test_defects_are_listed_together(tmp_path: Path) -> None:
    cases = people(4)
    path = tmp_path / "split.json"
    path.write_text(
        json.dumps({"train": ["p0_f0", "p1_f0", "nobody"], "validation": ["p0_f1"], "test": ["p1_f0", "p9_f9"]})
    )
    with pytest.raises(ProblemsError) as caught:
        Split.load(path, cases)
    assert caught.value.problems == [
        "train names 'nobody', which is not a case of the store",
        "patient 'p0' is in train and in validation",
        "test names 'p1_f0', which was named before",
        "patient 'p1' is in train and in test",
        "test names 'p9_f9', which is not a case of the store",
    ]


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        "null",
        '{"train": []}',
        '{"train": [1], "validation": [], "test": []}',
        "[" * 100_000,
        '{"train": [], "validation": [], "test": [], "more": []}',
    ],
)
def test_other_files_are_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "split.json").write_text(content)
    with pytest.raises(InputError, match=r"split\.json"):
        Split.load(tmp_path / "split.json")
    with pytest.raises(InputError, match=r"absent\.json"):
        Split.load(tmp_path / "absent.json")


def test_the_store_ships_seed_0(cardiac_store: Store) -> None:
    assert Split.load(cardiac_store.path / "split.json", cardiac_store.cases) == cardiac_store.split(seed=0)
