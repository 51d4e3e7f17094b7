"""What came of guarantees, counted by hand."""

import numpy as np
import pytest
import torch
from scipy.stats import binomtest
from tests.guarantees.volumes import CLASSES, patient, patients

import crac
from crac.errors import InputError
from crac.evaluation import Case, LoadedCases
from crac.evaluation.realised import exact_interval, realise
from crac.metrics.claims import LEAST_PATIENTS
from crac.report.table import realised_lines


def loaded(seeds: range, whose: str = "q{}") -> LoadedCases:
    cases = [patient(seed) for seed in seeds]
    return LoadedCases(
        Case(f"v{n}", whose.format(n), torch.from_numpy(c.probabilities), torch.from_numpy(c.labels), c.spacing)
        for n, c in zip(seeds, cases, strict=True)
    )


@pytest.mark.parametrize(("hits", "trials"), [(0, 10), (10, 10), (7, 10), (45, 50)])
def test_the_exact_interval_is_scipys(hits: int, trials: int) -> None:
    expected = binomtest(hits, trials).proportion_ci(method="exact")
    assert exact_interval(hits, trials) == pytest.approx((expected.low, expected.high))
    low, high = exact_interval(hits + 0.5 * (hits < trials), trials)
    assert low >= expected.low
    assert high >= expected.high
    assert np.isnan(exact_interval(0, 0)).all()


def test_processes_and_logits_change_nothing() -> None:
    found = crac.Guarantees(CLASSES, 0.2).fit(patients(12))
    cases = loaded(range(50, 56))
    one = realise(found, cases)
    two = realise(found, cases, jobs=2)
    assert one.rows == two.rows
    logits = LoadedCases(
        case._replace(scores=case.scores.clamp(min=1e-7).log(), from_logits=True)
        for case in map(cases.load, cases.names)
    )
    for first, second in zip(one.rows, realise(found, logits).rows, strict=True):
        assert first["argmax_ml"] == second["argmax_ml"]
        assert first["estimate_ml"] == pytest.approx(second["estimate_ml"], rel=1e-4)


@pytest.mark.slow
def test_a_ray_cluster_changes_nothing() -> None:
    pytest.importorskip("ray", reason="Ray is not installed (pip install 'crac[ray]')")
    found, cases = crac.Guarantees(CLASSES, 0.2).fit(patients(12)), loaded(range(50, 53))
    assert realise(found, cases, jobs=2, ray="local").rows == realise(found, cases).rows


def test_patients_are_the_units() -> None:
    found = crac.Guarantees(CLASSES, 0.2).fit(patients(12))
    summary = realise(found, loaded(range(50, 58), whose="same")).summary
    assert (summary["patients"], summary["volumes"]) == (1, 8)
    assert summary["by_class"]["1"]["volume"]["patients"] == 1
    with pytest.raises(InputError, match="patients they were fitted on: p3"):
        realise(found, loaded(range(3, 4), whose="p{}"))


def blocks(misses: list[tuple[int, int]]) -> list[Case]:
    """Two volumes a patient, with a cube of six voxels a side that the model finds but for so many layers."""
    labels = torch.zeros(12, 12, 12, dtype=torch.int64)
    labels[3:9, 3:9, 3:9] = 1
    cases = []
    for number, own in enumerate(misses):
        for volume, layers in enumerate(own):
            found = torch.full((12, 12, 12), 0.05)
            found[3:9, 3:9, 3 : 9 - layers] = 0.95
            both = torch.stack([1 - found, found])
            cases.append(Case(f"v{number}-{volume}", f"q{number}", both, labels, (1.0, 1.0, 1.0)))
    return cases


def test_the_worst_volume_of_a_patient_counts_where_that_was_promised() -> None:
    fitted = [case._replace(patient=f"p{case.patient}") for case in blocks([(0, 0)] * 10)]
    test = LoadedCases(blocks([(0, 3)] * 9 + [(0, 0)] * 21))
    kept = {}
    for unit in ("mean", "worst"):
        found = crac.Guarantees(2, 0.1, unit=unit).fit([case.for_guarantees for case in fitted])
        kept[unit] = realise(found, test).summary["by_class"]["1"]
    assert kept["worst"]["margin"]["realised"] == pytest.approx(21 / 30)
    assert kept["mean"]["margin"]["realised"] == pytest.approx(25.5 / 30)
    assert kept["worst"]["margin"]["interval"] == pytest.approx(exact_interval(21, 30))
    assert kept["worst"]["possible"]["argmax"] == pytest.approx(9 / 30 * 0.5)
    assert kept["mean"]["possible"]["argmax"] == pytest.approx(9 / 30 * 0.25)


def test_flags_are_counted_by_patient_so_that_a_part_is_no_more_than_the_whole() -> None:
    fitted = [case._replace(patient=f"p{case.patient}") for case in blocks([(0, 0)] * 10)]
    (bad, *_), good = blocks([(5, 5)]), blocks([(0, 0)] * 2)
    cases = [bad._replace(patient="a"), *(case._replace(name=f"g{case.name}", patient="b") for case in good)]
    found = crac.Guarantees(2, 0.1).fit([case.for_guarantees for case in fitted])
    flags = realise(found, LoadedCases(cases)).summary["referral"]
    assert flags["bad"] == pytest.approx(0.5)  # one patient of two, one volume of five
    assert flags["bad_and_not_flagged"] <= flags["bad"]


def test_few_patients_have_no_interval() -> None:
    found = crac.Guarantees(CLASSES, 0.2).fit(patients(12))
    for number, known in ((LEAST_PATIENTS - 1, False), (LEAST_PATIENTS, True)):
        own = realise(found, loaded(range(50, 50 + number))).summary
        for part in ("certain", "volume"):
            one = own["by_class"]["1"][part]
            assert one["patients"] == number
            assert np.isfinite(one["interval"]).all() == known
        assert ("[" in "".join(realised_lines(own))) == known


def test_without_a_promise_nothing_is_kept_or_broken() -> None:
    found = crac.Guarantees(CLASSES, 0.2).fit(patients(2))
    summary = realise(found, loaded(range(50, 54))).summary
    for part in ("margin", "core", "volume"):
        own = summary["by_class"]["1"][part]
        assert own["patients"] == 0
        assert np.isnan(own["realised"])
        assert "at least 4 are needed" in own["reason"]


def test_an_absent_class() -> None:
    found = crac.Guarantees(CLASSES, 0.2).fit(patients(12))
    cases = loaded(range(50, 54))
    without = LoadedCases(
        case._replace(labels=case.labels * (case.labels == 1)) for case in map(cases.load, cases.names)
    )
    realised = realise(found, without)
    own = realised.summary["by_class"]["2"]
    assert own["possible"]["patients"] == own["margin"]["patients"] == 0  # nothing to miss
    assert own["certain"]["patients"] == own["core"]["patients"] == own["volume"]["patients"] == 4
    shown = [row["certain_ml"] > 0 for row in realised.rows if row["class"] == "2"]
    assert own["certain"]["realised"] == np.mean(shown) > 0  # whatever is shown is wrong
