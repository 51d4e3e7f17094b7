"""All guarantees of a model together: fitted in one pass over the cases, and kept in one file."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Self

from crac._version import __version__
from crac.errors import InputError
from crac.files import remove_partials, versioned, write_json
from crac.guarantees.base import Guarantee
from crac.guarantees.case import Case, UnlabelledError, check_case
from crac.guarantees.margin import Margin
from crac.guarantees.referral import Referral, Score
from crac.guarantees.risk import RiskControl
from crac.guarantees.units import Unit
from crac.guarantees.volume import Scale, VolumeInterval

FORMAT = 1


class Guarantees:
    """Every guarantee at one level.

    Args:
        num_classes: ``K``, the background included.
        alpha: The risk that each of them accepts.
        class_names: One per class, the background first; numbers if not given.
        unit: What several volumes of a patient count as, see :class:`~crac.guarantees.base.Guarantee`.
        scale: As for :class:`VolumeInterval`.
        score: As for :class:`Referral`.
        acceptable: As for :class:`Referral`.

    Attributes:
        possible: :class:`RiskControl` of the voxels missed: its sets hold all that cannot be excluded.
        certain: :class:`RiskControl` of the wrong ones: its sets are cores.
        margin: :class:`Margin`.
        volume: :class:`VolumeInterval`.
        referral: :class:`Referral`.
        patients: Patients they were fitted on.
        fitted: What else there is to say about that, plain data.
    """

    def __init__(
        self,
        num_classes: int,
        alpha: float = 0.1,
        *,
        class_names: Iterable[str] = (),
        unit: Unit = "mean",
        scale: Scale = "uncertainty",
        score: Score = "expected_dice",
        acceptable: float = 0.7,
    ) -> None:
        self.possible = RiskControl(num_classes, alpha, "fnr", unit=unit)
        self.certain = RiskControl(num_classes, alpha, "fdr", unit=unit)
        self.margin = Margin(num_classes, alpha, unit=unit)
        self.volume = VolumeInterval(num_classes, alpha, scale=scale, unit=unit)
        self.referral = Referral(num_classes, alpha, score=score, acceptable=acceptable, unit=unit)
        self.num_classes, self.alpha, self.unit = self.possible.num_classes, self.possible.alpha, unit
        self.class_names = list(class_names) or [str(number) for number in range(num_classes)]
        if len(self.class_names) != num_classes:
            raise InputError(f"class_names must be {num_classes} names, background first; got {self.class_names!r}")
        if len(set(self.class_names)) != num_classes:
            raise InputError(f"class_names must be different names; got {self.class_names!r}")
        self.patients: list[str] = []
        self.fitted: dict[str, Any] = {}

    @property
    def parts(self) -> dict[str, Guarantee]:
        """The guarantees by name."""
        names = ("possible", "certain", "margin", "volume", "referral")
        return {name: getattr(self, name) for name in names}

    def fit(self, cases: Iterable[Case]) -> Self:
        """Fit all of them on cases, any iterable, which is read once; one volume is in memory at a time.

        A case without a labelled voxel does not count.
        """
        parts = list(self.parts.values())
        for part in parts:
            part.reset()
        patients: dict[str, int] = {}
        for number, case in enumerate(cases):
            try:
                checked = check_case(case, self.num_classes, f"case {number} without a patient")
            except UnlabelledError:
                continue
            for part in parts:
                part.observe(checked)
            patients[checked.patient] = patients.get(checked.patient, 0) + 1
            del case, checked  # forgotten before the next one is made
        for part in parts:
            part.solve()
        self.patients = list(patients)
        self.fitted = {"volumes": sum(patients.values())}
        return self

    def save(self, path: str | Path) -> None:
        """Write a JSON file, which :func:`load_guarantees` reads."""
        if not self.patients:
            raise InputError("guarantees must be fitted on at least one patient before they are saved; got none")
        remove_partials(Path(path).parent)
        options = {
            "unit": self.unit,
            "scale": self.volume.scale,
            "score": self.referral.score,
            "acceptable": self.referral.acceptable,
        }
        write_json(
            Path(path),
            {"format": FORMAT, "crac": __version__, "num_classes": self.num_classes, "alpha": self.alpha,
             "class_names": self.class_names, "options": options, "patients": self.patients, "fitted": self.fitted,
             **{name: part.state() for name, part in self.parts.items()}},
        )  # fmt: skip


def load_guarantees(path: str | Path) -> Guarantees:
    """Read what :meth:`Guarantees.save` wrote; no code in the file is run."""
    with versioned(Path(path), FORMAT, "holds no guarantees") as content:
        names, options = content["class_names"], content["options"]
        if len(names) != content["num_classes"]:  # before memory is asked for that many
            raise InputError(f"class_names must be {content['num_classes']} names, background first; got {names!r}")
        found = Guarantees(content["num_classes"], content["alpha"], class_names=names, **options)
        for name, part in found.parts.items():
            part.load_state(content[name])
        found.patients, found.fitted = [str(patient) for patient in content["patients"]], dict(content["fitted"])
    return found
