"""The real nnU-Net on the real Hippocampus set: plan, train, kill, continue, predict, evaluate.

Skipped where ``nnunetv2`` is not installed: pip install 'crac[nnunet]'
"""

import json
import os
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest
import torch
from PIL import Image

import crac
from common import ROOT
from crac.errors import InputError
from crac.files import PARTIAL
from crac.integrations.nnunet import TRAINERS, trainers_folder
from crac.integrations.nnunet.check import problems

pytest.importorskip("nnunetv2", reason="nnunetv2 is not installed; run: pip install 'crac[nnunet]'")
pytestmark = [pytest.mark.realdata, pytest.mark.slow]

HERE = Path(__file__).parent
SITE, OWN_TRAINERS = HERE.parent / "nnunet_site", HERE.parent / "nnunet_trainers"
DATASET = "Dataset004_Hippocampus"
CASES = 12


def environment(folder: Path, **extra: str) -> dict[str, str]:
    paths = (SITE, ROOT / "src")
    return {
        "PYTHONPATH": os.pathsep.join(map(str, paths)),
        "OMP_NUM_THREADS": "1",
        "nnUNet_compile": "0",
        "nnUNet_def_n_proc": "1",
        "nnUNet_n_proc_DA": "0",
        "nnUNet_extTrainer": os.pathsep.join(map(str, (trainers_folder(), OWN_TRAINERS))),
        "nnUNet_raw": str(folder / "raw"),
        "nnUNet_preprocessed": str(folder / "preprocessed"),
        "nnUNet_results": str(folder / "results"),
    } | extra


def call(folder: Path, command: str, **extra: str) -> subprocess.CompletedProcess[str]:
    """Run a console script of this interpreter's environment."""
    name, *arguments = command.split()
    script = Path(sys.executable).with_name(name)
    return subprocess.run(
        [sys.executable, str(script), *arguments],
        env=os.environ | environment(folder, **extra),
        capture_output=True,
        text=True,
        timeout=400,
    )


def succeed(folder: Path, command: str, **extra: str) -> str:
    done = call(folder, command, **extra)
    assert done.returncode == 0, f"{command}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done.stdout


@pytest.fixture(scope="module")
def workspace(real_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dozen cases, planned and preprocessed, with a network small enough for a CPU."""
    folder = tmp_path_factory.mktemp("nnunet")
    source, raw = real_data / DATASET, folder / "raw" / DATASET
    for name in ("imagesTr", "labelsTr"):
        (raw / name).mkdir(parents=True)
        for path in sorted((source / name).glob("*.nii.gz"))[:CASES]:
            shutil.copy(path, raw / name)
    description = json.loads((source / "dataset.json").read_text()) | {"numTraining": CASES}
    (raw / "dataset.json").write_text(json.dumps(description))
    for name in ("preprocessed", "results"):
        (folder / name).mkdir()
    succeed(folder, "nnUNetv2_plan_and_preprocess -d 4 -c 2d -np 1", nnUNet_n_proc_DA="1")
    plans_file = folder / "preprocessed" / DATASET / "nnUNetPlans.json"
    plans = json.loads(plans_file.read_text())
    for name in ("2d", "3d_fullres"):
        configuration = plans["configurations"][name]
        configuration["batch_size"] = 2
        architecture = configuration["architecture"]["arch_kwargs"]
        architecture["features_per_stage"] = [width // 8 for width in architecture["features_per_stage"]]
    plans_file.write_text(json.dumps(plans))
    # Only a folder is missing for a 3-D trainer to be built; its batches are made up below.
    shutil.copytree(plans_file.parent / "nnUNetPlans_2d", plans_file.parent / "nnUNetPlans_3d_fullres")
    return folder


@pytest.fixture
def build(workspace: Path, monkeypatch: pytest.MonkeyPatch):
    """Make an initialised trainer in this process, with changes to ``dataset.json`` if wanted."""
    for name, value in environment(workspace).items():
        monkeypatch.setenv(name, value)
    runpy.run_path(str(SITE / "sitecustomize.py"))
    from nnunetv2.run.run_training import get_trainer_from_args

    description = workspace / "preprocessed" / DATASET / "dataset.json"
    original = description.read_text()

    def make(name: str, configuration: str = "2d", **changes: object):
        description.write_text(json.dumps(json.loads(original) | changes))
        trainer = get_trainer_from_args(DATASET, configuration, 0, name, device=torch.device("cpu"))
        trainer.initialize()
        return trainer

    yield make
    description.write_text(original)


def made_up_batch(trainer, highest: int = 2) -> dict[str, object]:
    """A batch as nnU-Net's loader gives it: images, and int16 labels at each resolution."""
    patch = trainer.configuration_manager.patch_size
    labels = torch.randint(highest + 1, (2, 1, *[size // 4 for size in patch]))
    for axis in range(2, labels.ndim):
        labels = labels.repeat_interleave(4, axis)
    targets = []
    for scale in trainer._get_deep_supervision_scales():
        steps = tuple(slice(None, None, round(1 / factor)) for factor in scale)
        targets.append(labels[(slice(None), slice(None), *steps)].to(torch.int16))
    return {"data": torch.randn(2, 1, *patch), "target": targets}


@pytest.mark.parametrize("configuration", ["2d", "3d_fullres"])
@pytest.mark.parametrize("name", TRAINERS)
def test_each_trainer_takes_a_step_and_validates(build, name: str, configuration: str) -> None:
    trainer, stock = build(name, configuration), build("nnUNetTrainer", configuration)
    batch = made_up_batch(trainer)
    with torch.no_grad():
        outputs = trainer.network(batch["data"])
        value = trainer.loss(outputs, batch["target"])
        expected = stock.loss(outputs, batch["target"])
        full, weight = outputs[0], stock.loss.weight_factors[0]
        calibration, labels = trainer.loss.calibration, batch["target"][0].long()
        penalty = calibration(full, labels) - calibration.supervised(full, labels)
    if name in ("nnUNetTrainerCRaC", "nnUNetTrainerCRaCSigned", "nnUNetTrainerNACL", "nnUNetTrainerMbLS"):
        torch.testing.assert_close(value, expected + weight * penalty)
    elif name == "nnUNetTrainerCE":
        terms = zip(stock.loss.weight_factors, outputs, batch["target"], strict=True)
        only_ce = sum(w * stock.loss.loss.ce(output, target) for w, output, target in terms)
        torch.testing.assert_close(value, only_ce)
    else:
        terms = zip(stock.loss.weight_factors, outputs, batch["target"], strict=True)
        smoothed = [(w, calibration(output, target.long()), output, target) for w, output, target in terms if w]
        dice = sum(w * stock.loss.loss.dc(output, target) for w, _, output, target in smoothed)
        torch.testing.assert_close(value, dice + sum(w * fit for w, fit, _, _ in smoothed))

    before = [parameter.clone() for parameter in trainer.network.parameters()]
    trainer.train_step(batch)
    assert any(not torch.equal(a, b) for a, b in zip(before, trainer.network.parameters(), strict=True))
    trainer.on_validation_epoch_start()
    with torch.no_grad():
        trainer.on_validation_epoch_end([trainer.validation_step(made_up_batch(trainer)) for _ in range(2)])
    assert trainer.loss.training
    if name in ("nnUNetTrainerCRaC", "nnUNetTrainerCRaCSigned"):
        assert int(calibration.steps) == 1
        moved = calibration.lambda_ > 1e-6 if name == "nnUNetTrainerCRaC" else calibration.lambda_[1] != 0.02
        assert moved.all()
        logged = trainer.logger.get_value("lambda/outer/posterior", step=None)
        assert logged == [calibration.lambda_[1, 2].item()]


def test_overlapping_regions_are_refused(build) -> None:
    labels = {"background": 0, "whole": [1, 2], "posterior": 2}
    with pytest.raises(InputError, match="nnUNetTrainerCRaC needs one label per voxel"):
        build("nnUNetTrainerCRaC", labels=labels, regions_class_order=[1, 2])


@pytest.mark.parametrize("name", TRAINERS)
def test_ignored_voxels_count_for_nothing(build, name: str) -> None:
    trainer = build(name, labels={"background": 0, "anterior": 1, "posterior": 2, "ignore": 3})
    batch = made_up_batch(trainer, highest=3)
    with torch.no_grad():
        outputs = trainer.network(batch["data"])
        pairs = zip(outputs, batch["target"], strict=True)
        moved = [torch.where(target == 3, 9 * torch.randn_like(output), output) for output, target in pairs]
        torch.testing.assert_close(trainer.loss(moved, batch["target"]), trainer.loss(outputs, batch["target"]))
    trainer.on_validation_epoch_start()
    with torch.no_grad():
        trainer.on_validation_epoch_end([trainer.validation_step(batch)])


def test_checkpoint_names_the_trainer_that_can_predict(build, tmp_path: Path) -> None:
    for name, predictor in {
        "nnUNetTrainerCRaC": "nnUNetTrainer",
        "nnUNetTrainerCRaCOtherNetwork": "nnUNetTrainerCRaCOtherNetwork",
    }.items():
        build(name).save_checkpoint(str(tmp_path / "checkpoint.pth"))
        checkpoint = torch.load(tmp_path / "checkpoint.pth", weights_only=False)
        assert checkpoint["trainer_name"] == predictor
        assert checkpoint["crac"]["trainer"] == name


def test_a_foreign_checkpoint_is_refused(build, tmp_path: Path) -> None:
    build("nnUNetTrainer").save_checkpoint(str(tmp_path / "checkpoint.pth"))
    with pytest.raises(InputError, match=r"checkpoint\.pth was not written by nnUNetTrainerCRaC"):
        build("nnUNetTrainerCRaC").load_checkpoint(str(tmp_path / "checkpoint.pth"))


def test_disabled_checkpointing_writes_nothing(build, tmp_path: Path) -> None:
    trainer = build("nnUNetTrainerCRaC")
    trainer.disable_checkpointing = True
    trainer.save_checkpoint(str(tmp_path / "checkpoint.pth"))
    assert not list(tmp_path.iterdir())


def test_other_ranks_leave_the_first_one_s_file_alone(build, tmp_path: Path) -> None:
    trainer = build("nnUNetTrainerCRaC")
    trainer.local_rank = 1
    written = tmp_path / "checkpoint.pth"
    written.write_bytes(b"whole")
    trainer.save_checkpoint(str(written))
    assert list(tmp_path.iterdir()) == [written]
    assert written.read_bytes() == b"whole"


def test_two_processes_update_the_same_multipliers_as_one(workspace: Path, tmp_path: Path) -> None:
    """As under ``-num_gpus 2``: all ranks' validation batches count, and one rank writes."""
    variables = environment(workspace)
    variables["PYTHONPATH"] += os.pathsep + os.pathsep.join(map(str, (HERE, ROOT / "tests")))
    command = [sys.executable, str(HERE / "ranks.py")]
    ranks = [
        subprocess.Popen([*command, str(rank), str(tmp_path)], env=os.environ | variables, stderr=subprocess.PIPE)
        for rank in range(2)
    ]
    said = [rank.communicate(timeout=300)[1].decode() for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0], "\n".join(said)[-3000:]
    first, second = (torch.load(tmp_path / f"{rank}.pt") for rank in range(2))
    torch.testing.assert_close(first["seen"], second["seen"], rtol=0, atol=0)
    torch.testing.assert_close(first["seen"], first["expected"])
    assert (first["seen"]["lambda_"] > 1e-6).all()
    saved = torch.load(tmp_path / "checkpoint.pth", weights_only=False)["crac"]["loss"]
    assert torch.equal(saved["lambda_"], first["seen"]["lambda_"])


def test_check_approves_a_working_setup(build) -> None:
    assert problems() == []


def test_train_kill_continue_predict_evaluate(workspace: Path, real_data: Path, tmp_path: Path) -> None:
    train = "nnUNetv2_train 4 2d 0 -tr nnUNetTrainerCRaCTiny -device cpu"
    fold = workspace / "results" / DATASET / "nnUNetTrainerCRaCTiny__nnUNetPlans__2d" / "fold_0"
    killed = call(workspace, train, CRAC_TEST_KILL_AFTER="1")
    assert killed.returncode == -9, killed.stderr[-3000:]
    saved = torch.load(fold / "checkpoint_latest.pth", weights_only=False)["crac"]["loss"]
    assert int(saved["steps"]) == 1
    assert (saved["lambda_"] > 1e-6).all()

    said = succeed(workspace, f"{train} --c --npz")
    resumed = torch.load(fold / "start_1.pt")
    assert saved.keys() == resumed.keys()
    assert all(torch.equal(saved[name], resumed[name]) for name in saved)
    final = torch.load(fold / "checkpoint_final.pth", weights_only=False)
    assert int(final["crac"]["loss"]["steps"]) == 3
    assert (final["crac"]["loss"]["lambda_"] > saved["lambda_"]).all()
    assert len(final["logging"]["lambda/inner/anterior"]) == 3
    assert said.count("lambda outer") == 2
    assert not list(fold.glob(f"{PARTIAL}*"))
    with Image.open(fold / "progress.png") as picture:
        assert picture.size == (3000, 5400 + 1800)  # nnU-Net's three panels, and the multipliers

    # A colleague without crac installs the model and predicts with the stock nnU-Net.
    archive = tmp_path / "model.zip"
    succeed(workspace, f"nnUNetv2_export_model_to_zip -d 4 -o {archive} -c 2d -f 0 -tr nnUNetTrainerCRaCTiny")
    (tmp_path / "results").mkdir()
    colleague = {
        "CRAC_TEST_WITHOUT_CRAC": "1",
        "nnUNet_extTrainer": "",
        "nnUNet_results": str(tmp_path / "results"),
    }
    succeed(workspace, f"nnUNetv2_install_pretrained_model_from_zip {archive}", **colleague)
    images, labels = tmp_path / "images", tmp_path / "labels"
    for folder, name in ((images, "imagesTr"), (labels, "labelsTr")):
        folder.mkdir()
        for path in sorted((real_data / DATASET / name).glob("*.nii.gz"))[CASES : CASES + 2]:
            shutil.copy(path, folder)
    predict = f"nnUNetv2_predict -i {images} -o {tmp_path / 'out'} -d 4 -c 2d -tr nnUNetTrainerCRaCTiny -f 0"
    options = "-device cpu --save_probabilities --disable_tta -npp 1 -nps 1"
    succeed(workspace, f"{predict} {options}", **colleague)
    assert len(list((tmp_path / "out").glob("*.npz"))) == 2

    evaluate = f"crac evaluate --probabilities {tmp_path / 'out'} --labels {labels} --out {tmp_path / 'report'}"
    succeed(workspace, f"{evaluate} --jobs 1")
    assert (tmp_path / "report" / "summary.json").is_file()
    assert len((tmp_path / "report" / "per_volume.csv").read_text().splitlines()) >= 3

    # Calibrated on the fold's own validation cases; nnU-Net's ensembling takes what is written.
    succeed(workspace, f"crac nnunet calibrate {fold.parent} --method temperature --force")
    calibrator = crac.load_calibrator(fold.parent / "calibration.json")
    assert (calibrator.name, calibrator.num_classes, calibrator.regions) == ("temperature", 3, "slice")
    assert calibrator.fitted["batches"] == len(list((fold / "validation").glob("*.npz"))) >= 2
    out, applied = tmp_path / "out", tmp_path / "applied"
    succeed(workspace, f"crac nnunet apply {fold.parent / 'calibration.json'} --predictions {out} --out {applied}")
    succeed(
        workspace, f"nnUNetv2_ensemble -i {applied} {applied} -o {tmp_path / 'merged'} -np 1 --save_npz", **colleague
    )
    for path in sorted(out.glob("*.npz")):
        before, after = (np.load(folder / path.name)["probabilities"] for folder in (out, applied))
        assert (after.dtype, after.shape) == (before.dtype, before.shape)
        expected = torch.tensor(np.log(before.clip(1e-7)) / calibrator.temperature.item()).softmax(0)
        np.testing.assert_allclose(after, expected, atol=1e-5)
        np.testing.assert_array_equal(after.argmax(0), before.argmax(0))
        np.testing.assert_allclose(np.load(tmp_path / "merged" / path.name)["probabilities"], after, atol=1e-6)
        merged, own = (nib.load(folder / f"{path.stem}.nii.gz") for folder in (tmp_path / "merged", out))
        np.testing.assert_array_equal(np.asarray(merged.dataobj), np.asarray(own.dataobj))
