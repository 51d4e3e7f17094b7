"""From a trained run to one whose predictions are calibrated, on small phantoms."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import crac
from crac.calibration import build_calibrator
from crac.cli import main
from crac.data import Split, phantom, prepare
from crac.errors import InputError
from crac.evaluation.run import evaluate_run
from crac.models.model import CALIBRATION, Model
from crac.training import TrainConfig, train


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A network trained with much Dice and little data, which makes it overconfident; six patients validate."""
    folder = tmp_path_factory.mktemp("calibrate")
    phantom.abdominal(folder / "raw", patients=14, size=48, slices=6)
    store = prepare("flare", folder / "raw", folder / "store", spacing=(40.0, 8.0, 8.0), crop=(4, 48, 48))
    names = list(store.cases)
    Split(train=names[:4], validation=names[4:10], test=names[10:]).save(folder / "split.json")
    settings = {"data": store.path, "recipe": "paper", "split": folder / "split.json", "method": "ce",
                "accelerator": "cpu", "method_options": {"dice_weight": 3.0},
                "backbone": "nnunet", "width": 4, "epochs": 25,
                "batch_size": 4, "learning_rate": 1e-2, "pictures": False}  # fmt: skip
    return train(TrainConfig.make(settings), folder / "run").run


@pytest.fixture
def calibrated(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> tuple[Path, dict[str, Any]]:
    """A copy of the run after ``crac calibrate``, and what that found."""
    copy = tmp_path / "run"
    copy.mkdir()
    for file in run.iterdir():
        if file.suffix in (".safetensors", ".yaml", ".json"):
            (copy / file.name).write_bytes(file.read_bytes())
    assert main(["calibrate", str(copy), "--device", "cpu", "--json"]) == 0
    return copy, json.loads(capsys.readouterr().out)


def test_patients_left_out_and_unseen_ones_gain_and_no_label_changes(calibrated: tuple[Path, dict[str, Any]]) -> None:
    copy, found = calibrated
    assert (found["written"], found["page"]) == (str(copy / CALIBRATION), str(copy / "calibration.html"))
    assert "Does calibration help?" in (copy / "calibration.html").read_text(encoding="utf-8")
    decisive = found["gains"]["class_region"][0]
    assert decisive["measure"] == "nll[all]"
    assert decisive["after"] < decisive["before"]
    assert decisive["difference"][2] < 0  # the upper end of the interval
    model, plain = crac.load(copy, "cpu"), Model.load(copy, "cpu", calibrated=False)
    after, before = (evaluate_run(copy, one).per_volume() for one in (model, plain))  # test patients
    assert after["nll[all]"]["mean"] < before["nll[all]"]["mean"]  # of the voxels it was fitted on
    assert after["dsc"]["mean"] == before["dsc"]["mean"]
    assert after["hd95"]["mean"] == before["hd95"]["mean"]
    assert model.calibrator is not None
    assert model.calibrator.regions == "slice"


def test_evaluate_and_predict_use_it_unless_told_not_to(
    calibrated: tuple[Path, dict[str, Any]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy, _ = calibrated
    nll, sources = {}, {}
    for name, more in (("with", []), ("without", ["--no-calibration"])):
        assert main(["evaluate", str(copy), "--out", str(tmp_path / name), "--device", "cpu", *more]) == 0
        summary = json.loads((tmp_path / name / "summary.json").read_text())
        nll[name], sources[name] = summary["per_volume"]["nll[all]"]["mean"], summary["source"]
    assert nll["with"] < nll["without"]
    assert sources["with"] == sources["without"] | {"calibration": "class_region"}
    image = torch.rand(1, 4, 48, 48)
    with_, without = Model.load(copy, "cpu"), Model.load(copy, "cpu", calibrated=False)
    assert with_.calibrator is not None
    expected = with_.calibrator(without.logits(image).transpose(0, 1)).transpose(0, 1)
    torch.testing.assert_close(with_.predict_prepared(image), expected.float().cpu())
    np.testing.assert_array_equal(with_.predict_prepared(image).argmax(0), without.predict_prepared(image).argmax(0))


def test_mirrored_calibration_and_promises_are_measured_mirrored(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = shutil.copytree(run, tmp_path / "run")
    on_cpu = ["--device", "cpu"]
    assert (
        main(["calibrate", str(copy), "--mirror", "--method", "temperature", "--folds", "2", "--force", *on_cpu]) == 0
    )
    assert main(["guarantee", str(copy), "--mirror", "--alpha", "0.5", *on_cpu]) == 0
    assert main(["evaluate", str(copy), "--out", str(tmp_path / "audit"), *on_cpu]) == 2
    assert "was fitted with mirrored versions of the images (--mirror)" in capsys.readouterr().err
    assert main(["evaluate", str(copy), "--mirror", "--out", str(tmp_path / "audit"), *on_cpu]) == 0
    summary = json.loads((tmp_path / "audit" / "summary.json").read_text())
    assert (summary["source"]["mirror"], summary["source"]["calibration"]) == (True, "temperature")
    assert summary["guarantees"]["alpha"] == 0.5
    found = evaluate_run(copy, Model.load(copy, "cpu", mirror=True))
    assert summary["per_volume"]["nll[all]"]["mean"] == found.summary()["per_volume"]["nll[all]"]["mean"]


def test_all_methods_are_compared_and_nothing_is_written(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["calibrate", str(run), "--compare", "--folds", "2", "--device", "cpu"]) == 0
    said = capsys.readouterr().out
    for name in crac.CALIBRATORS:
        assert (name in said) == (name != "identity")
    assert "lowest likelihood loss" in said
    assert not (run / CALIBRATION).exists()


def test_a_calibrator_of_something_else_is_refused(calibrated: tuple[Path, dict[str, Any]]) -> None:
    copy, _ = calibrated
    with pytest.raises(InputError, match=r"was fitted without mirrored versions .* or choose --no-calibration"):
        Model.load(copy, "cpu", mirror=True)
    with pytest.raises(InputError, match=r"was fitted on other weights than last\.safetensors holds"):
        Model.load(copy, "cpu", checkpoint="last")
    content = json.loads((copy / CALIBRATION).read_text())
    build_calibrator("class_region", 3).save(copy / CALIBRATION)
    with pytest.raises(InputError, match="is for 3 classes, the model has 5"):
        crac.load(copy, "cpu")
    (copy / CALIBRATION).write_text(json.dumps(content | {"weights": [[-1.0]] * 10}))
    with pytest.raises(InputError, match="is not a calibrator"):
        crac.load(copy, "cpu")
    assert Model.load(copy, "cpu", calibrated=False).calibrator is None
