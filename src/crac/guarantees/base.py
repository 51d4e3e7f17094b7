"""What every guarantee shares: calibration cases, read once, and the reason where nothing can be promised."""

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from crac.errors import InputError, check_number
from crac.guarantees.case import Case, LabelledVolume, UnlabelledError, check_case
from crac.guarantees.units import Unit, check_alpha, check_unit, too_few


class Guarantee(ABC):
    """A promise about new patients, fitted on calibration cases that the model was not trained on.

    Args:
        num_classes: ``K``, the background included.
        alpha: The risk that is accepted, between 0 and 1.
        unit: What several volumes of a patient count as: their ``"mean"`` loss, or their ``"worst"``.
    """

    def __init__(self, num_classes: int, alpha: float = 0.1, *, unit: Unit = "mean") -> None:
        check_number("num_classes", num_classes, least=2, whole=True)
        check_unit(unit)
        self.num_classes, self.alpha, self.unit = int(num_classes), check_alpha(alpha), unit
        self.reset()

    def fit(self, cases: Iterable[Case]) -> Self:
        """Fit on cases, any iterable, which is read once; one volume is in memory at a time.

        A case without a labelled voxel does not count.
        """
        self.reset()
        for case in cases:
            with contextlib.suppress(UnlabelledError):
                self.update(case)
            del case  # forgotten before the next one is made
        return self.solve()

    def update(self, case: Case) -> None:
        """Take in one case."""
        self.observe(check_case(case, self.num_classes, f"case {self._seen} without a patient"))

    def observe(self, case: LabelledVolume) -> None:
        """Take in one case that was checked."""
        self._observe(case)
        self._seen += 1

    def solve(self) -> Self:
        """Find what can be promised after all cases that were taken in."""
        if not self._seen:
            raise InputError("cases must hold at least one case; got none")
        self._solve()
        return self

    def reset(self) -> None:
        """Forget all cases and what was found on them."""
        self._seen = 0
        self._reset()

    @abstractmethod
    def state(self) -> dict[str, Any]:
        """What was fitted, as plain data."""

    @abstractmethod
    def load_state(self, state: dict[str, Any]) -> None:
        """Take over what :meth:`state` gave, with ``None`` for what JSON does not know."""

    @abstractmethod
    def _observe(self, case: LabelledVolume) -> None: ...

    @abstractmethod
    def _solve(self) -> None: ...

    @abstractmethod
    def _reset(self) -> None: ...


class ClassGuarantee(Guarantee):
    """A promise for each class by itself.

    Attributes:
        patients: ``(K,)`` how many patients each class was fitted on.
        reasons: Class -> why nothing is promised for it, a sentence each.
    """

    values: ClassVar[tuple[str, ...]]
    """Names of the attributes, ``(K,)`` each, that are fitted; NaN for the background and where nothing is promised."""

    patients: Tensor
    reasons: dict[int, str]

    def state(self) -> dict[str, Any]:
        """What was fitted, as plain data."""
        values = {name: getattr(self, name).tolist() for name in self.values}
        return values | {"patients": self.patients.tolist(), "reasons": {str(k): v for k, v in self.reasons.items()}}

    def load_state(self, state: dict[str, Any]) -> None:
        """Take over what :meth:`state` gave; None is NaN for a class with a reason and for the background, else inf."""
        self.reasons = {int(number): str(sentence) for number, sentence in state["reasons"].items()}
        for name in (*self.values, "patients"):
            given = state[name]
            if len(given) != self.num_classes:
                raise InputError(f"{name} must hold {self.num_classes} numbers; got {len(given)}")
            nothing = [torch.nan if k == 0 or k in self.reasons else torch.inf for k in range(self.num_classes)]
            row = [missing if value is None else float(value) for value, missing in zip(given, nothing, strict=True)]
            setattr(self, name, torch.tensor(row, dtype=torch.float64))
        self.patients = self.patients.long()

    def _solve(self) -> None:
        self.reasons = {}
        for number in range(1, self.num_classes):
            patients = self._count(number)
            self.patients[number] = patients
            reason = too_few(patients, self.alpha) or self._solve_class(number, patients)
            if reason is not None:
                self.reasons[number] = reason

    def _reset(self) -> None:
        for name in self.values:
            setattr(self, name, torch.full((self.num_classes,), torch.nan, dtype=torch.float64))
        self.patients = torch.zeros(self.num_classes, dtype=torch.int64)
        self.reasons = {}

    @abstractmethod
    def _count(self, number: int) -> int:
        """How many patients count for a class, none if no patient has it."""

    @abstractmethod
    def _solve_class(self, number: int, patients: int) -> str | None:
        """Fit one class, or return why nothing can be promised."""
