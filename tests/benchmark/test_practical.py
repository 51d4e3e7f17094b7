"""The practical suites from training to page, on phantoms: every axis that they have."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crac.benchmark import CellResult, Suite, load_results, merge_results, run_benchmark
from crac.benchmark.reading import regions
from crac.benchmark.report import compose
from crac.benchmark.results import group_results
from crac.benchmark.suite import SUITES, Training
from crac.data import Store
from crac.errors import InputError
from crac.losses import build_loss

NAMES = ["practical_acdc", "practical_hippocampus"]
FAST = {"recipe": "paper", "epochs": 1, "width": 2, "batch_size": 8, "accelerator": "cpu", "augment": True}


def small(name: str, store: Store, backbone: str, objectives: list[str], **changes: Any) -> Suite:
    """A suite on a phantom, with one short training of each method on the CPU."""
    suite = Suite.load(name)
    stores = dict.fromkeys(suite.datasets, store.path)
    part = suite.changed(stores, [0], [1], [backbone], objectives)
    return part.model_copy(update={"training": Training(**FAST), **changes})


@pytest.mark.parametrize("name", [*NAMES, "signed_acdc", "signed_hippocampus"])
def test_every_method_of_the_suites_can_be_built(name: str) -> None:
    suite = Suite.load(name)
    for job in suite.jobs(dict.fromkeys(suite.datasets, SUITES)):
        build_loss(job.config.method, 4, **job.config.method_options)


@pytest.fixture(scope="module")
def practical(store: Store, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a small benchmark: two methods, both objectives, all variants."""
    out = tmp_path_factory.mktemp("practical")
    suite = small("practical_acdc", store, "unet", ["CE", "Dice-CE"])
    summary = run_benchmark(suite, out, only=["ce", "crac-signed"])
    assert not summary.broken
    assert len(summary.done) == 4
    return out


def cells(folder: Path) -> dict[tuple[str, str], CellResult]:
    return {(one.cell.objective, one.cell.method): one for one in load_results([folder / "results"])}


def test_one_training_gives_every_variant(practical: Path) -> None:
    found = cells(practical)
    assert len(found) == 2 * 2 * 4
    plain, cool, finer, mirrored = (
        found["Dice-CE", f"ce{ending}"] for ending in ("", "-temperature", "-class_region", "-mirrored")
    )
    shape = ["dsc", "hd95", "dsc.liver", "surface_dice"]
    np.testing.assert_array_equal(plain.frame()[shape], cool.frame()[shape])  # calibration changes no label
    np.testing.assert_array_equal(plain.frame()[shape], finer.frame()[shape])
    assert not np.array_equal(plain.frame()["nll[band]"], cool.frame()["nll[band]"])
    assert not np.array_equal(finer.frame()["nll[band]"], mirrored.frame()["nll[band]"])
    assert plain.calibrator is None
    assert cool.calibrator is not None
    assert (cool.calibrator["name"], cool.calibrator["mask"]) == ("temperature", "band")
    assert finer.calibrator is not None
    assert len(finer.calibrator["temperature"]) == 2 * len(plain.classes)
    assert np.isnan(finer.temperature)
    assert (mirrored.cell.mirror, mirrored.cell.base, mirrored.cell.split) == (True, "ce", 1)
    assert plain.settings["split_seed"] == 1
    assert plain.settings["method_options"] == {"dice_weight": 1.0}
    assert found["CE", "ce"].settings["method_options"] == {}
    assert plain.protocol["masks"] == ["label_foreground", "band"]
    assert plain.history
    assert plain.logits
    assert not cool.history
    assert not cool.logits
    assert all(0 < one["counted"] <= 1 for one in plain.pooled["band"]["by_class"].values())
    assert "lambda_outer_liver" in found["CE", "crac-signed"].history


def test_a_finished_benchmark_needs_its_results_only(practical: Path, store: Store, tmp_path: Path) -> None:
    """Cells go on across machines: the results are carried over, the runs are not."""
    taken = merge_results([practical / "results"], tmp_path / "results")
    assert len(taken) == 16
    assert merge_results([practical / "results"], tmp_path / "results") == []
    suite = small("practical_acdc", store, "unet", ["CE", "Dice-CE"])
    summary = run_benchmark(suite, tmp_path, only=["ce", "crac-signed"])
    assert len(summary.done) == 4
    assert not (tmp_path / "runs").exists()
    other = next((tmp_path / "results").glob("*.json"))
    other.write_text(other.read_text().replace('"best_epoch": 1', '"best_epoch": 2'))
    with pytest.raises(InputError, match="differs from the result of the same cell"):
        merge_results([practical / "results"], tmp_path / "results")


def test_the_page_has_a_table_for_each_objective_and_what_the_threshold_counts(practical: Path) -> None:
    content = compose(group_results(load_results([practical / "results"])))
    texts, figures, page = content.tables(), content.drawn, content.markdown()
    for objective in ("CE", "Dice-CE"):
        table = texts[f"tables/main-{objective}-unet.md"]
        assert [line.split("|")[1].strip() for line in table.splitlines()[4:]] == [
            f"{label}{way}"
            for label in ("Plain", "CRaC (signed)")
            for way in ("", " + T", " + CxR", " + CxR, mirrored")
        ]
        assert f"tables/fair-acdc-{objective}-unet.md" in texts
        harm = texts[f"tables/harm-acdc-{objective}-unet.csv"].splitlines()
        assert [line.split(",")[0].strip('"') for line in harm[1:3]] == ["CRaC (signed)", "CRaC (signed) + T"]
        assert f"images/benchmark/threshold-acdc-{objective}-unet.svg" in figures
    assert "tables/objectives-acdc-Dice-CE-unet.md" in texts
    assert list(content.glance) == ["images/benchmark/glance-acdc-unet.svg"]
    assert page.index("(images/benchmark/glance-acdc-unet.svg)") < page.index("## Every method in numbers")
    assert "What the threshold of TACE counts" in page
    assert "First by Friedman rank" not in page  # one test patient shows nothing
    assert "every volume weighing the same; they change no label" in page
    assert "by seed 1, stratified" in page
    for draw in figures.values():
        draw()


def test_the_reading_of_a_long_table_names_ours_as_trained(practical: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (group, _) = group_results(load_results([practical / "results"]))
    assert [len(one["ours"]) for one in regions(group)] == [4, 4]
    monkeypatch.setattr("crac.benchmark.results.MOST_SHOWN", 2)
    assert all(own.startswith("CRaC (signed) ") and "+ " not in own for one in regions(group) for own in one["ours"])
    assert [len(one["ours"]) for one in regions(group)] == [1, 1]


@pytest.mark.slow
def test_the_other_suite_with_the_other_network(store: Store, tmp_path: Path) -> None:
    suite = small("practical_hippocampus", store, "nnunet", ["Dice-CE"])
    summary = run_benchmark(suite, tmp_path, only=["ml1ace-soft"])
    assert not summary.broken
    assert len(list((tmp_path / "results").glob("hippocampus.nnunet.Dice-CE.ml1ace-soft*.1-0.json"))) == 4
