from typing import Any

import pytest

from crac.benchmark import Suite
from crac.benchmark.suite import SUITES
from crac.cli.benchmark import EXAMPLE
from crac.errors import InputError

PAPER_METHODS = {"fl", "ecp", "ls", "svls", "mbls", "nacl", "bwcr", "crac-released", "crac-paper"}


@pytest.mark.parametrize(
    "name", ["augmented_acdc", "hippocampus", "nacl_sensitivity", "paper_acdc", "paper_flare", "phantom_smoke"]
)
def test_suites_of_the_package_are_sound(name: str) -> None:
    suite = Suite.load(name)
    jobs = suite.jobs({data: SUITES / data for data in suite.datasets})
    names = [cell.name for job in jobs for cell in job.cells]
    assert len(names) == len(set(names)) == len(suite.rows()) * len(suite.seeds) * len(suite.backbones)
    if name in ("paper_acdc", "paper_flare", "hippocampus"):
        assert {"ce", "ce-temperature", "ml1ace", *PAPER_METHODS} == set(suite.methods)
        assert len(suite.seeds) == 3
    if name.startswith("paper"):
        assert suite.backbones == ["unet", "nnunet"]
    assert len(list(SUITES.glob("*.yaml"))) == 6


def test_runs_are_shared_between_the_table_and_the_sweep() -> None:
    table, sweep = (Suite.load(name) for name in ("paper_acdc", "nacl_sensitivity"))
    first, second = (
        {job.name: job.settings for job in suite.jobs({"acdc": SUITES}) if "sweep" not in job.name}
        for suite in (table, sweep)
    )
    assert len(second) == 9  # NACL and both CRaC
    assert all(first[name] == settings for name, settings in second.items())


def test_sweeps_and_temperature_become_rows(tiny_suite: Any) -> None:
    suite = tiny_suite(
        methods={
            "ce": {"method": "ce"},
            "cool": {"temperature_of": "ce"},
            "nacl": {"method": "nacl", "options": {"border": "background"}, "sweep": {"alpha": [0.05, 0.5]}},
        },
        seeds=[3, 4],
    )
    jobs = suite.jobs({"phantom": SUITES})
    assert [job.name.split(".", 2)[2] for job in jobs] == [
        f"{method}.{seed}" for seed in (3, 4) for method in ("ce", "nacl-alpha0_05", "nacl-alpha0_5")
    ]
    assert [cell.method for cell in jobs[0].cells] == ["ce", "cool"]
    assert [cell.tempered for cell in jobs[0].cells] == [False, True]
    assert jobs[1].config.method_options == {"border": "background", "alpha": 0.05}
    assert jobs[1].cells[0].sweep == {"alpha": 0.05}
    assert jobs[4].config.seed == 4


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"epoch": 3}, "tiny.yaml is not a suite: unknown setting .epoch."),
        ({"training": {"epoch": 3}}, "suite tiny, training: unknown setting 'epoch'; known are data, "),
        ({"training": {"seed": 3}}, "training: seed is set by the cells of the suite"),
        ({"backbones": ["unett"]}, "backbones must be one of unet, nnunet; got 'unett'"),
        ({"methods": {"a": {"method": "cee"}}}, "method must be one of ce, .*; got 'cee'"),
        ({"methods": {"a": {}}}, "must name either a method or temperature_of"),
        ({"methods": {"a": {"temperature_of": "b"}}}, "temperature_of of 'a' must name a trained method .* got 'b'"),
        ({"methods": {"a/b": {"method": "ce"}}}, "string should match pattern"),
        ({"datasets": {"x": {}}}, "must name either a store or a phantom"),
        ({"seeds": []}, "seeds: list should have at least 1 item"),
    ],
)
def test_what_is_wrong_is_said(tiny_suite: Any, changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        tiny_suite(**changes)


def test_unknown_suites_list_the_known() -> None:
    with pytest.raises(InputError, match=r"hippocampus, nacl_sensitivity, paper_acdc, .*; got 'acdc'"):
        Suite.load("acdc")


def test_the_help_names_every_suite() -> None:
    assert f"package: {', '.join(sorted(file.stem for file in SUITES.glob('*.yaml')))}." in EXAMPLE
