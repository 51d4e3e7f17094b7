"""What is said of results: claims from six patients on, and the leader is the best."""

import re
from dataclasses import replace

from tests.benchmark.committed import many_patients
from tests.report.test_page import Reader

from crac.benchmark import CellResult, reading
from crac.benchmark.report import compose
from crac.benchmark.results import Group, group_results


def top(groups: list[Group]) -> str:
    """What the page says before its tables."""
    content = compose(groups)
    shown = Reader(content.html(dict.fromkeys(content.drawn, "<svg/>")))
    return str(shown.text.partition("Every method in numbers")[0])


def test_claims_need_six_patients(results: list[CellResult]) -> None:
    few, many = (top(group_results(own)) for own in (results, [many_patients(result) for result in results]))
    assert "of 2 patients, too few to compare" in few
    assert "No interval is given of Phantom, nnunet: 2 patients are too few" in few
    assert not re.search("significantly|95 %", few)
    assert re.search(r"significantly higher than (all 3|none of the 3|[12] of the 3) others", many)
    assert many.count("95 % interval") == 3


def test_the_leader_is_the_best(results: list[CellResult]) -> None:
    groups = group_results([many_patients(result) for result in results])
    means = {method: groups[0].by_patient("dsc", [method])[method].mean() for method in groups[0].methods}
    best = max(means, key=means.__getitem__)
    assert f"The highest Dice is that of {groups[0].labels[best]} on Phantom, nnunet, {means[best]:.3f}" in top(groups)


def test_methods_that_print_the_same_lead_together(results: list[CellResult]) -> None:
    plain = [result for result in results if result.cell.method == "ce"]
    nacl = [result for result in results if result.cell.method == "nacl"]
    same = [replace(other, volumes=own.volumes) for own, other in zip(plain, nacl, strict=True)]
    assert reading.verdict(group_results([*plain, *same]))[1].startswith(
        "The highest Dice is that of CE and NACL on Phantom"
    )


def test_rows_with_fewer_trainings_are_counted(results: list[CellResult]) -> None:
    lacking = [result for result in results if (result.cell.method, result.cell.run) != ("nacl", 1)]
    assert "Not every row has every training" not in compose(group_results(results)).markdown()
    said = "Not every row has every training: 3 of 4 have seed 1. A mean is over those that a row has"
    assert said in compose(group_results(lacking)).markdown()
