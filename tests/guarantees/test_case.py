"""Cases that are counted: voxels that nobody has labelled, and many classes."""

import numpy as np
import pytest
from tests.guarantees.volumes import CLASSES, patients

import crac
from crac.errors import InputError
from crac.guarantees.case import check_case
from crac.guarantees.margin import needed

IGNORED = 255


def hidden(case: crac.Case) -> crac.Case:
    """The same case with labels in its upper half only."""
    labels = case.labels.copy()
    labels[: len(labels) // 2] = IGNORED
    return case._replace(labels=labels, ignore_index=IGNORED)


def cut(case: crac.Case) -> crac.Case:
    half = len(case.labels) // 2
    return case._replace(probabilities=case.probabilities[:, half:], labels=case.labels[half:])


@pytest.mark.parametrize("loss", ["fnr", "fdr"])
def test_thresholds_and_dice_are_those_of_the_labelled_part(loss: str) -> None:
    cases = patients(20)
    part, whole = (crac.RiskControl(CLASSES, 0.2, loss).fit(map(made, cases)) for made in (cut, hidden))
    np.testing.assert_array_equal(part.thresholds, whole.thresholds)
    for case in cases:
        assert check_case(hidden(case), CLASSES, "").counts.dice == check_case(cut(case), CLASSES, "").counts.dice


def test_margins_see_labelled_voxels_only_and_volumes_need_all() -> None:
    full, part = (check_case(make(patients(1)[0]), CLASSES, "") for make in (crac.Case._make, hidden))
    for (out, deep), (less, shallower) in zip(needed(full), needed(part), strict=True):
        assert less <= out
        assert shallower <= deep
    nothing = patients(1)[0]
    nothing = nothing._replace(labels=np.where(nothing.probabilities.argmax(0) > 0, IGNORED, 0), ignore_index=IGNORED)
    assert (
        needed(check_case(nothing, CLASSES, "")) == [(None, 0.0)] * 2
    )  # nothing that is predicted is known to be wrong
    cases = patients(20)
    interval = crac.VolumeInterval(CLASSES, 0.2).fit([*cases, *(hidden(case)._replace(patient="q") for case in cases)])
    np.testing.assert_array_equal(interval.above, crac.VolumeInterval(CLASSES, 0.2).fit(cases).above)
    assert interval.patients.tolist() == [0, 20, 20]
    unknown = crac.VolumeInterval(CLASSES, 0.2).fit(map(hidden, cases))
    assert unknown.reasons == dict.fromkeys((1, 2), "no calibration patient is labelled throughout")


def test_an_ignore_index_that_nobody_uses_changes_nothing() -> None:
    cases = patients(12)
    found = [crac.Guarantees(CLASSES, 0.2).fit(c._replace(ignore_index=index) for c in cases) for index in (None, 255)]
    np.testing.assert_equal(*([part.state() for part in one.parts.values()] for one in found))


def test_labels_that_are_no_class() -> None:
    case = patients(1)[0]
    with pytest.raises(InputError, match=r"labels must lie in 0\.\.2, or be the ignore_index of the case; got 255"):
        check_case(hidden(case)._replace(ignore_index=None), CLASSES, "")
    with pytest.raises(InputError, match="labels must hold voxels that somebody has labelled; all are 255"):
        check_case(case._replace(labels=np.full_like(case.labels, 255), ignore_index=255), CLASSES, "")


def test_many_classes() -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 300, (6, 7))
    hot = (np.arange(300)[:, None, None] == labels).astype(np.float32)
    own = check_case(crac.Case(hot, labels, (1.0, 1.0)), 300, "").own
    np.testing.assert_array_equal(own.winners, labels)
