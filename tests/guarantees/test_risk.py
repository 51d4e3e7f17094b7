"""Thresholds: closed forms, MAPIE's, brute force, and every edge."""

import math

import numpy as np
import pytest
import torch
from tests.guarantees.volumes import CLASSES, patients

import crac
from crac.errors import InputError
from crac.guarantees.levels import THRESHOLDS


def two_classes(probability: list[float], labels: list[int], patient: str | None = None) -> crac.Case:
    second = torch.tensor([probability], dtype=torch.float32)
    return crac.Case(torch.stack([1 - second, second]), torch.tensor([labels]), (1.0, 1.0), patient)


def fnr(case: crac.Case, number: int, threshold: float) -> float:
    own = case.probabilities[number][case.labels == number]
    return float((own < np.float32(threshold)).mean())


def fdr(case: crac.Case, number: int, threshold: float) -> float:
    chosen = case.probabilities[number] >= np.float32(threshold)
    return float((case.labels[chosen] != number).mean()) if chosen.any() else 0.0


def test_closed_form() -> None:
    """The voxels of the class have 0.1 ... 1.0: a tenth is missed just above 0.1, two tenths just above 0.2."""
    steps = [number / 10 for number in range(1, 11)]
    cases = [two_classes(steps, [1] * 10) for _ in range(19)]
    # 19 losses of m and one of 1 must stay within 0.2 of 20: m up to 3 / 19, so one voxel in ten may be missed.
    control = crac.RiskControl(num_classes=2, alpha=0.2).fit(cases)
    assert math.isnan(control.thresholds[0])
    assert control.thresholds[1] == pytest.approx(0.2, abs=1e-4)
    assert control.thresholds[1] <= 0.2
    assert crac.RiskControl(2, alpha=0.1).fit(cases).thresholds[1] == pytest.approx(0.1, abs=1e-4)
    assert control.patients.tolist() == [0, 19]
    assert control.reasons == {}


def test_closed_form_of_the_wrong_share() -> None:
    """Right from 0.9 on, all wrong at 0.8, right again below, where the risk has already been broken."""
    cases = [two_classes([0.95, 0.9, 0.8, 0.5, 0.4, 0.3], [1, 1, 0, 1, 1, 1]) for _ in range(99)]
    # Wrong shares from 0.3 on: 1/6, 1/5, 1/4, 1/3, 0, 0; allowed are (0.2 * 100 - 1) / 99 = 0.192.
    assert crac.RiskControl(2, 0.2, "fdr").fit(cases).thresholds[1] == pytest.approx(0.8, abs=1e-4)
    assert crac.RiskControl(2, 0.2, "fdr").fit(cases).thresholds[1] > 0.8
    assert crac.RiskControl(2, 0.5, "fdr").fit(cases).thresholds[1] == 0  # the whole image has only one wrong in six


@pytest.mark.parametrize("loss", ["fnr", "fdr"])
@pytest.mark.parametrize("shape", [(10, 14, 12), (16, 18)])
def test_brute_force(loss: str, shape: tuple[int, ...]) -> None:
    cases = patients(24, shape=shape, spacing=(1.0,) * len(shape))
    control = crac.RiskControl(CLASSES, 0.2, loss).fit(cases)
    measure = fnr if loss == "fnr" else fdr
    for number in (1, 2):

        def bound(threshold: float, number: int = number) -> float:
            counted = [case for case in cases if loss == "fdr" or (case.labels == number).any()]
            mean = np.mean([measure(case, number, threshold) for case in counted])
            return len(counted) / (len(counted) + 1) * mean + 1 / (len(counted) + 1)

        found = float(control.thresholds[number])
        assert bound(found) <= 0.2
        level = int(np.flatnonzero(found == THRESHOLDS)[0])
        if loss == "fnr":
            assert bound(THRESHOLDS[level + 1]) > 0.2
        else:
            assert bound(THRESHOLDS[level - 1]) > 0.2
            assert all(bound(threshold) <= 0.2 for threshold in THRESHOLDS[level::97])


def test_mapie_finds_the_same_threshold() -> None:
    from mapie.risk_control import SemanticSegmentationController

    cases = patients(30, shape=(16, 18), spacing=(1.0, 1.0))
    own = [
        crac.Case(np.stack([1 - c.probabilities[1], c.probabilities[1]]), (c.labels == 1) * 1, (1, 1)) for c in cases
    ]
    maps = np.stack([case.probabilities[1:] for case in own])
    for alpha in (0.1, 0.25):
        theirs = SemanticSegmentationController(
            predict_function=lambda chosen: maps[chosen], risk="recall", method="crc", target_level=1 - alpha,
            predict_params=THRESHOLDS[::29],
        )  # fmt: skip
        theirs.calibrate(np.arange(len(own)), np.stack([case.labels[None] for case in own]))
        ours = float(crac.RiskControl(2, alpha).fit(own).thresholds[1])
        grid = THRESHOLDS[::29]
        assert float(theirs.best_predict_param[0]) == grid[grid <= ours].max()


def test_the_set_is_what_was_counted_whatever_the_type() -> None:
    cases = patients(12)
    control = crac.RiskControl(CLASSES, 0.2).fit(cases)
    given = cases[0].probabilities
    expected = given >= control.thresholds.numpy().astype(np.float32)[:, None, None, None]
    found = control(given)
    assert isinstance(found, np.ndarray)
    assert found.dtype == bool
    np.testing.assert_array_equal(found, expected)
    assert not found[0].any()
    torch.testing.assert_close(control(torch.from_numpy(given)), torch.from_numpy(expected))
    half = torch.from_numpy(given).bfloat16()
    torch.testing.assert_close(control(half), control(half.float()))
    turned = np.asfortranarray(given)
    np.testing.assert_array_equal(control(turned), expected)
    again = [
        crac.Case(np.asfortranarray(c.probabilities), torch.from_numpy(c.labels), c.spacing, c.patient) for c in cases
    ]
    torch.testing.assert_close(
        crac.RiskControl(CLASSES, 0.2).fit(iter(again)).thresholds, control.thresholds, equal_nan=True
    )


def test_too_few_patients_get_a_sentence_and_no_number() -> None:
    for count in (1, 8):
        control = crac.RiskControl(CLASSES, 0.1).fit(patients(count))
        assert control.thresholds.isnan().all()
        assert "at least 9 are needed" in control.reasons[1]
        assert f"{count} calibration patient" in control.reasons[1]
        assert control(patients(1)[0].probabilities)[1:].all()  # all that is safe is the whole image
    assert crac.RiskControl(CLASSES, 0.9).fit(patients(1)).thresholds.isnan().all()
    assert not crac.RiskControl(CLASSES, 0.1, "fdr").fit(patients(8))(patients(1)[0].probabilities).any()
    assert not crac.RiskControl(CLASSES, 0.1).fit(patients(9)).thresholds[1:].isnan().any()


def test_a_class_absent_from_some_patients_and_from_all() -> None:
    cases = patients(12)
    without = [case._replace(labels=np.where(case.labels == 2, 0, case.labels)) for case in cases]
    mixed = crac.RiskControl(CLASSES, 0.1).fit([*cases, *(c._replace(patient=f"{c.patient}b") for c in without)])
    assert mixed.patients.tolist() == [0, 24, 12]
    alone = crac.RiskControl(CLASSES, 0.1).fit(cases)
    assert mixed.thresholds[2] == alone.thresholds[2]  # patients without it do not count
    for loss in ("fnr", "fdr"):
        absent = crac.RiskControl(CLASSES, 0.1, loss).fit(without)
        assert math.isnan(absent.thresholds[2])
        assert "no calibration patient has it" in absent.reasons[2]
        assert not math.isnan(absent.thresholds[1]) or loss == "fdr"
    counted = crac.RiskControl(CLASSES, 0.1, "fdr").fit(
        [*cases, *(c._replace(patient=f"{c.patient}b") for c in without)]
    )
    assert counted.patients.tolist() == [0, 24, 24]  # voxels that are wrong there are wrong


def test_nothing_is_certain_enough() -> None:
    cases = [two_classes([1.0, 1.0, 0.2], [0, 1, 0]) for _ in range(20)]  # half of the surest voxels are wrong
    control = crac.RiskControl(2, 0.2, "fdr").fit(cases)
    assert math.isnan(control.thresholds[1])
    assert control.reasons[1] == "even where the model is surest, more than 0.2 would be wrong"


def test_volumes_of_a_patient_are_one_unit() -> None:
    good = [two_classes([0.9, 0.8], [1, 1], f"p{i}") for i in range(19)]
    bad = [two_classes([0.1, 0.1], [1, 1], "p0") for _ in range(3)]
    mean, worst = (crac.RiskControl(2, 0.1, unit=unit).fit([*good, *bad]) for unit in ("mean", "worst"))
    assert mean.patients[1] == worst.patients[1] == 19
    # Above 0.1 patient 0 misses three of four volumes; 0.75 + 1 stay within 0.1 of 20, and so does 1 + 1.
    assert mean.thresholds[1] == pytest.approx(0.8, abs=1e-4)
    assert worst.thresholds[1] == pytest.approx(0.8, abs=1e-4)
    tighter = crac.RiskControl(2, 0.0999, unit="worst").fit([*good, *bad])
    assert tighter.thresholds[1] == pytest.approx(0.1, abs=1e-4)
    assert crac.RiskControl(2, 0.0999, unit="mean").fit([*good, *bad]).thresholds[1] == mean.thresholds[1]
    apart = crac.RiskControl(2, 0.1).fit([*good, *(case._replace(patient=None) for case in bad)])
    assert apart.patients[1] == 22
    assert apart.thresholds[1] == pytest.approx(0.1, abs=1e-4)


def test_one_case_is_in_memory_at_a_time() -> None:
    import weakref

    alive: list[weakref.ref[np.ndarray]] = []

    def stream():
        for seed in range(9):
            assert all(reference() is None for reference in alive)
            case = patients(seed + 1)[-1]
            alive.append(weakref.ref(case.probabilities))
            yield case
            del case

    assert crac.RiskControl(CLASSES, 0.1).fit(stream()).patients[1] == 9


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"probabilities": np.zeros((2, 3, 3))}, r"probabilities must be floating point of shape \(3, \*S\)"),
        ({"probabilities": np.zeros((3, 10, 14, 12), dtype=int)}, "got int64 of shape"),
        ({"probabilities": np.zeros((3, 10, 14, 12))}, "sum to 1 over the classes; got sums from 0"),
        ({"probabilities": np.full((3, 10, 14, 12), np.nan)}, "must be finite"),
        ({"labels": np.full((10, 14, 12), 3)}, "labels must lie in 0..2, .*; got 3"),
        ({"labels": np.full((10, 14, 12), -1)}, "labels must lie in 0..2, .*; got -1"),
        ({"labels": np.zeros((10, 14))}, "labels must"),
        ({"labels": np.zeros((10, 14), dtype=int)}, r"labels must have shape \(10, 14, 12\)"),
        ({"spacing": (1.0, 1.0)}, "spacing must be 3 positive numbers"),
        ({"spacing": (1.0, 1.0, 0.0)}, "spacing must be 3 positive numbers"),
        ({"spacing": 1.0}, "spacing must be 3 positive numbers, in millimetres; got 1.0"),
    ],
)
def test_bad_cases(change: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        crac.RiskControl(CLASSES).fit([patients(1)[0]._replace(**change)])


def test_bad_arguments() -> None:
    with pytest.raises(InputError, match="loss must be one of fnr, fdr; got 'dice'"):
        crac.RiskControl(CLASSES, loss="dice")
    with pytest.raises(InputError, match="num_classes"):
        crac.RiskControl(1)
    with pytest.raises(InputError, match="cases must hold at least one case"):
        crac.RiskControl(CLASSES).fit([])


def test_the_whole_image_holds_what_rounding_left_below_0() -> None:
    """A model that misses every voxel can promise nothing but the whole image, voxels of -1e-7 included."""
    case = two_classes([1.0, 1.0, 0.0], [0, 1, 1])
    below = case.probabilities.clone()
    below[1, 0, 2], below[0, 0, 2] = -1e-7, 1 + 1e-7
    control = crac.RiskControl(2, alpha=0.05).fit([case._replace(probabilities=below) for _ in range(40)])
    assert control.thresholds[1] == 0
    assert control(below)[1].all()
    assert not control(below)[0].any()


@pytest.mark.parametrize("wrong", [math.nan, -0.5, 1.5])
def test_what_are_no_probabilities_get_no_set(wrong: float) -> None:
    control = crac.RiskControl(CLASSES, 0.2).fit(patients(20))
    probabilities = patients(1)[0].probabilities.copy()
    probabilities[1, 0, 0, 0] = wrong
    with pytest.raises(InputError, match="probabilities must be finite, not negative, and sum to 1"):
        control(probabilities)
