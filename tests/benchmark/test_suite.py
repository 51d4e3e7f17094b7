from typing import Any

import pytest

from crac.benchmark import Suite
from crac.benchmark.suite import SUITES
from crac.errors import InputError
from crac.losses import build_loss

NAMES = sorted(file.stem for file in SUITES.glob("*.yaml"))
PAPER_METHODS = {"fl", "ecp", "ls", "svls", "mbls", "nacl", "bwcr", "crac-released", "crac-paper"}


@pytest.mark.parametrize("name", NAMES)
def test_suites_of_the_package_are_sound(name: str) -> None:
    suite = Suite.load(name)
    jobs = suite.jobs({data: SUITES / data for data in suite.datasets})
    names = [cell.name for job in jobs for cell in job.cells]
    runs = len(suite.seeds) * max(1, len(suite.splits)) * len(suite.backbones) * max(1, len(suite.objectives))
    assert len(names) == len(set(names)) == len(suite.rows()) * (1 + len(suite.variants)) * runs


@pytest.mark.parametrize("name", ["paper_acdc", "paper_flare", "hippocampus"])
def test_suites_of_the_paper_have_its_methods(name: str) -> None:
    suite = Suite.load(name)
    assert {"ce", "ce-temperature", "ml1ace", "crac-signed", *PAPER_METHODS} == set(suite.methods)
    assert suite.seeds == [0, 1, 2]
    assert suite.backbones == (["unet", "nnunet"] if name.startswith("paper") else ["unet"])


def test_runs_are_shared_between_the_table_and_the_sweep() -> None:
    table, sweep = (Suite.load(name) for name in ("paper_acdc", "nacl_sensitivity"))
    first, second = (
        {job.name: job.settings for job in suite.jobs({"acdc": SUITES}) if "sweep" not in job.name}
        for suite in (table, sweep)
    )
    assert len(second) == 9  # NACL and both CRaC
    assert all(first[name] == settings for name, settings in second.items())


@pytest.mark.parametrize("data", ["acdc", "hippocampus"])
def test_the_suites_of_choices_share_two_rows_with_the_practical_ones(data: str) -> None:
    choices, practical = (
        {cell.name: (cell, job.settings, job.masks) for job in suite.jobs({data: SUITES}) for cell in job.cells}
        for suite in map(Suite.load, (f"signed_{data}", f"practical_{data}"))
    )
    shared = [name for name, (cell, _, _) in choices.items() if (cell.base or cell.method) in ("ce", "crac-signed")]
    assert len(shared) == 2 * 2 * 2 * 3 * 2  # objectives, rows, splits, seeds, with and without calibration
    assert all(choices[name] == practical[name] for name in shared)
    assert not (choices.keys() - set(shared)) & practical.keys()


def test_sweeps_and_temperature_become_rows(tiny_suite: Any) -> None:
    suite = tiny_suite(
        methods={
            "cool": {"temperature_of": "ce"},
            "ce": {"method": "ce"},
            "nacl": {"method": "nacl", "options": {"border": "background"}, "sweep": {"alpha": [0.05, 0.5]}},
        },
        seeds=[3, 4],
    )
    jobs = suite.jobs({"phantom": SUITES})
    assert [job.name.split(".", 2)[2] for job in jobs] == [
        f"{method}.{seed}" for seed in (3, 4) for method in ("ce", "nacl-alpha0_05", "nacl-alpha0_5")
    ]
    assert [cell.method for cell in jobs[0].cells] == ["ce", "cool"]
    assert [(cell.calibrator, cell.fitted_on) for cell in jobs[0].cells] == [(None, "band"), ("temperature", "all")]
    assert jobs[1].config.method_options == {"border": "background", "alpha": 0.05}
    assert jobs[1].cells[0].sweep == {"alpha": 0.05}
    assert jobs[4].config.seed == 4
    assert not jobs[0].config.pictures


def test_whole_numbers_of_a_sweep_stay_whole(tiny_suite: Any) -> None:
    suite = tiny_suite(methods={"nacl": {"method": "nacl", "sweep": {"kernel_size": [3, 5]}}})
    for job, size in zip(suite.jobs({"phantom": SUITES}), (3, 5), strict=True):
        assert job.name == f"phantom.unet.nacl-kernel_size{size}.0"
        build_loss(job.config.method, 4, **job.config.method_options)


def test_stores_and_seeds_can_be_replaced(tiny_suite: Any) -> None:
    suite = tiny_suite()
    changed = suite.changed({"phantom": SUITES}, [5])
    assert changed.datasets["phantom"].store == SUITES
    assert changed.datasets["phantom"].label == "Phantom"
    assert changed.seeds == [5]
    assert suite.changed({}) == suite
    with pytest.raises(InputError, match="data must be one of phantom; got 'acdc'"):
        suite.changed({"acdc": SUITES})


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"epoch": 3}, "tiny.yaml is not a suite: unknown setting 'epoch'"),
        ({"training": {"epoch": 3}}, r"tiny.yaml is not a suite: unknown setting 'training\.epoch'"),
        ({"training": {"epochs": 0}}, r"training\.epochs: input should be greater than or equal to 1; got 0"),
        ({"training": {"seed": 3}}, "training: seed must not be set here"),
        ({"backbones": ["unett"]}, "backbones must be one of unet, nnunet; got 'unett'"),
        ({"methods": {"a": {"method": "cee"}}}, "method must be one of ce, .*; got 'cee'"),
        ({"methods": {"a": {}}}, "must name either a method or temperature_of"),
        ({"methods": {"a": {"temperature_of": "b"}}}, "temperature_of of 'a' must name a trained method .* got 'b'"),
        (
            {"methods": {"a": {"method": "ls", "sweep": {"alpha": [1, 2]}}, "b": {"temperature_of": "a"}}},
            "temperature_of of 'b' must name a single row; got the sweep 'a'",
        ),
        ({"methods": {"a": {"method": "ce"}, "b": {"temperature_of": "a", "options": {"x": 1}}}}, "takes no options"),
        ({"methods": {"a/b": {"method": "ce"}}}, "string should match pattern"),
        ({"datasets": {"x": {}}}, "must name either a store or a phantom"),
        (
            {"datasets": {"a": {"store": "x"}, "b": {"store": "y", "label": "a"}}},
            "datasets must have labels of their own, .*; got 'a' twice",
        ),
        ({"seeds": []}, "seeds: list should have at least 1 item"),
        ({"variants": {"a": {"calibrator": "platt"}}}, "calibrator must be one of identity, .*; got 'platt'"),
        ({"variants": {"a": {"label": "x"}}}, "must name a calibrator or set mirror"),
        ({"splits": [0], "training": {"split_seed": 1}}, "splits and a split or split_seed of the training exclude"),
        ({"masks": ["heart"]}, r"masks\.0: input should be"),
        ({"masks": ["band"]}, "masks must hold label_foreground, and band or union_foreground; got band$"),
        ({"masks": ["label_foreground", "all"]}, "and band or union_foreground; got label_foreground, all$"),
        (
            {
                "methods": {"ce": {"method": "ce"}, "ce-t": {"temperature_of": "ce"}, "ce-a": {"method": "fl"}},
                "variants": {"t": {"calibrator": "class"}, "a-b": {"mirror": True}, "b": {"calibrator": "region"}},
            },
            "methods, values of sweeps and variants give two rows the name ce-a-b, ce-t$",
        ),
        ({"methods": {"a": {"method": "ls", "sweep": {"alpha": [0.1, 0.1]}}}}, "two rows the name a-alpha0_1"),
    ],
)
def test_what_is_wrong_is_said(tiny_suite: Any, changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        tiny_suite(**changes)


def test_everything_that_is_wrong_is_said_at_once(tiny_suite: Any) -> None:
    wrong = {
        "epoch": 3,
        "seeds": [-1],
        "backbones": ["unett"],
        "training": {"epochs": 0, "widht": 2},
        "methods": {"a": {"method": "cee"}, "b": {"temperature_of": "c"}},
        "datasets": {"x": {}},
    }
    with pytest.raises(InputError) as error:
        tiny_suite(**wrong)
    for part in ("'epoch'", "seeds.0", "'unett'", "training.epochs", "'training.widht'", "'cee'", "datasets.x"):
        assert part in str(error.value)
    assert "tiny.yaml is not a suite: 7 problems" in str(error.value)


def test_unknown_suites_list_the_known() -> None:
    with pytest.raises(InputError, match=f"one of {', '.join(NAMES)}; got 'acdc'"):
        Suite.load("acdc")


PRACTICAL = {"ce", "fl", "ls", "svls", "mbls", "nacl-005", "nacl", "bwcr", "ml1ace", "ml1ace-soft"}


@pytest.mark.parametrize("name", ["practical_acdc", "practical_hippocampus"])
def test_practical_suites_have_every_axis(name: str) -> None:
    suite = Suite.load(name)
    assert set(suite.methods) == PRACTICAL | {"crac-released", "crac-paper", "crac-signed"}
    assert (suite.backbones, suite.seeds, suite.splits) == (["unet", "nnunet"], [0, 1, 2], [0, 1])
    jobs = suite.jobs(dict.fromkeys(suite.datasets, SUITES))
    assert len(jobs) == 13 * 2 * 2 * 3 * 2
    first = jobs[0]
    ways = [(cell.calibrator, cell.mirror) for cell in first.cells]
    assert ways == [(None, False), ("temperature", False), ("class_region", False), ("class_region", True)]
    assert [cell.label for cell in first.cells][1:] == ["Plain + T", "Plain + CxR", "Plain + CxR, mirrored"]
    assert first.masks == ("label_foreground", "band")
    assert {(job.config.augment, job.config.mirror, job.config.dice_weight) for job in jobs} == {("light", True, 0.0)}
    data = next(iter(suite.datasets))
    assert first.name == f"{data}.unet.CE.ce.0-0"
    dice = next(job for job in jobs if job.cells[0].objective == "Dice-CE" and job.cells[0].method == "nacl")
    assert dice.config.method_options == {"alpha": 0.1, "dice_weight": 1.0}
    last = jobs[-1]
    assert (last.cells[0].name, last.config.split_seed) == (f"{data}.nnunet.Dice-CE.crac-signed.1-2", 1)


def test_a_part_of_a_suite() -> None:
    suite = Suite.load("practical_acdc")
    part = suite.changed({}, [1], [0], ["unet"], ["Dice-CE"])
    assert {job.name.split(".", 2)[0:2][1] for job in part.jobs({"acdc": SUITES})} == {"unet"}
    assert len(part.jobs({"acdc": SUITES})) == 13
    with pytest.raises(InputError, match="splits must be one of 0, 1; got 2"):
        suite.changed({}, splits=[2])
    with pytest.raises(InputError, match="objectives must be one of CE, Dice-CE; got 'Dice'"):
        suite.changed({}, objectives=["Dice"])
