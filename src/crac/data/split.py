"""Who trains, who validates, who tests: by patient, stratified by group, fixed by seed, in a file one can edit."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Self

import numpy as np

from crac.data.recipe import Strict
from crac.data.records import Case
from crac.errors import InputError, ProblemsError, check_number, checked
from crac.files import read_json, write_text

PARTS = ("train", "validation", "test")


class Split(Strict):
    """Case names of the three parts.

    Args:
        train: Cases that the network learns from.
        validation: Cases that choose the checkpoint and drive the multipliers.
        test: Cases that are only evaluated.
    """

    train: list[str]
    validation: list[str]
    test: list[str]

    @classmethod
    def make(cls, cases: Mapping[str, Case], seed: int = 0, shares: Sequence[float] = (0.7, 0.1, 0.2)) -> Self:
        """Divide the cases by patient, as close to ``shares`` as whole patients allow, in every group."""
        return cls.of_patients(cases, _divide(_ordered(cases, seed), shares))

    @classmethod
    def k_fold(cls, cases: Mapping[str, Case], folds: int = 5, seed: int = 0) -> list[Self]:
        """``folds`` splits whose test parts together hold every case once; an eighth of the rest validates."""
        patients = _ordered(cases, seed)
        if not 2 <= folds <= len(patients):
            raise InputError(f"folds must be between 2 and the {len(patients)} patients; got {folds}")
        splits = []
        for fold in range(folds):
            rest = [patient for index, patient in enumerate(patients) if index % folds != fold]
            train, validation, _ = _divide(rest, (7 / 8, 1 / 8, 0))
            splits.append(cls.of_patients(cases, (train, validation, patients[fold::folds])))
        return splits

    @classmethod
    def of_patients(cls, cases: Mapping[str, Case], parts: Iterable[Iterable[str]]) -> Self:
        """Return the split of the cases whose patients train, validate and test."""
        train, validation, test = ([name for name in cases if cases[name].patient in set(part)] for part in parts)
        return cls(train=train, validation=validation, test=test)

    @classmethod
    def load(cls, path: str | Path, cases: Mapping[str, Case] | None = None) -> Self:
        """Read a split file; given the cases of a store, check that it fits them."""
        path = Path(path)
        split = checked(cls, read_json(path), f"{path} is not a split file")
        if cases is not None:
            split.check(cases, str(path))
        return split

    def save(self, path: str | Path) -> None:
        """Write the split as JSON."""
        write_text(Path(path), self.model_dump_json(indent=2) + "\n")

    def check(self, cases: Mapping[str, Case], subject: str = "split") -> None:
        """Refuse unknown cases, cases named twice, and patients that appear in two parts."""
        problems = []
        part_of: dict[str, str] = {}
        seen: set[str] = set()
        for part in PARTS:
            for name in getattr(self, part):
                if name not in cases:
                    problems.append(f"{part} names {name!r}, which is not a case of the store")
                    continue
                if name in seen:
                    problems.append(f"{part} names {name!r}, which was named before")
                seen.add(name)
                patient = cases[name].patient
                if part_of.setdefault(patient, part) != part:
                    problems.append(f"patient {patient!r} is in {part_of[patient]} and in {part}")
        if problems:
            raise ProblemsError(subject, problems)


def _ordered(cases: Mapping[str, Case], seed: int) -> list[str]:
    """Patients, shuffled within their group, one group after the other."""
    groups: dict[str, set[str]] = {}
    for case in cases.values():
        groups.setdefault(case.group or "", set()).add(case.patient)
    check_number("seed", seed, least=0, whole=True)
    generator = np.random.default_rng(seed)
    ordered: dict[str, None] = {}
    for group in sorted(groups):
        ordered |= dict.fromkeys(generator.permutation(sorted(groups[group])).tolist())
    return list(ordered)


def _divide(patients: Sequence[str], shares: Sequence[float]) -> list[list[str]]:
    """Give each patient in turn to the part furthest behind its share: every stretch of the list is divided alike."""
    parts: list[list[str]] = [[] for _ in shares]
    for count, patient in enumerate(patients, start=1):
        behind = [round(share * count - len(part), 9) for share, part in zip(shares, parts, strict=True)]
        parts[behind.index(max(behind))].append(patient)
    for part, share in zip(parts, shares, strict=True):
        # With few patients rounding may leave a part empty, though everyone needs all parts.
        if share and not part and len(parts[0]) > 1:
            part.append(parts[0].pop())
    return parts
