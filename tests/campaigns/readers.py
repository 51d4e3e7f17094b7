"""A small sound file of every kind that the package reads, with the function such a file of a user goes through."""

import io
import json
import pickle
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

import nibabel as nib
import numpy as np
import SimpleITK
import torch
import yaml
from tests.cli.foreign import overconfident
from tests.common import ROOT
from tests.guarantees.volumes import patients
from tests.report.evaluations import evaluation

import crac
from crac.benchmark import Suite
from crac.benchmark.results import CellResult
from crac.calibration import build_calibrator, load_calibrator
from crac.data import Split, Store, phantom, prepare, read_image, read_label
from crac.data.sources import read_acdc, read_nnunet
from crac.errors import InputError
from crac.evaluation.pairing import FilePair
from crac.evaluation.reading import inspect
from crac.guarantees import load_guarantees
from crac.integrations.nnunet.calibrate import of_model
from crac.models.checkpoint import Checkpoint, state_of
from crac.models.folds import Folds
from crac.models.model import Model
from crac.report.folder import check_folder, page_of, write_report
from crac.training import TrainConfig
from crac.training.folds import _written
from crac.training.run import RunFolder

Sound = tuple[str, bytes, Callable[[Path], object], dict[str, bytes]]
AFFINE = np.array([[-1.0, 0, 0, 9], [0, -1.5, 0, 8], [0, 0, 3.0, -7], [0, 0, 0, 1]])
FIXTURE = ROOT / "tests" / "benchmark" / "fixture" / "results"


def sound_files() -> list[Sound]:
    """Name, content, reader, and what lies beside it."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        parts = (_images, _tables, _models, _results, _nnunet)
        return [entry for part in parts for entry in part(Path(folder))]


def _audit(path: Path) -> None:
    """Read probabilities against the label beside them, as ``crac evaluate`` does."""
    pair = FilePair("case", path.parent / "label.nii.gz", (path.parent / "case.npz",))
    _raise(inspect(pair).problems)


def _raise(problems: Iterable[str]) -> None:
    """Commands gather what is wrong and then refuse it all."""
    if found := list(problems):
        raise InputError("; ".join(found))


def _images(folder: Path) -> list[Sound]:
    draw = np.random.default_rng(0)
    shape = (4, 5, 3)
    image = draw.integers(0, 900, shape).astype(np.int16)
    label = draw.integers(0, 3, shape).astype(np.uint8)
    found: list[Sound] = []
    for name in ("image.nii", "image.nii.gz"):
        nib.Nifti1Image(image, AFFINE).to_filename(folder / name)
        found.append((name, (folder / name).read_bytes(), read_image, {}))
    nib.Nifti2Image(image.astype(np.float32), AFFINE).to_filename(folder / "two.nii.gz")
    found.append(("two.nii.gz", (folder / "two.nii.gz").read_bytes(), read_image, {}))
    nib.MGHImage(image.astype(np.float32), AFFINE).to_filename(folder / "image.mgz")
    found.append(("image.mgz", (folder / "image.mgz").read_bytes(), read_image, {}))
    for compressed, name in ((False, "raw.nrrd"), (True, "packed.nrrd")):
        SimpleITK.WriteImage(SimpleITK.GetImageFromArray(image.T.copy()), str(folder / name), compressed)
        found.append((name, (folder / name).read_bytes(), read_image, {}))
    nib.Nifti1Image(label, AFFINE).to_filename(folder / "label.nii.gz")
    labels = (folder / "label.nii.gz").read_bytes()
    found.append(("label.nii.gz", labels, read_label, {}))
    archive = io.BytesIO()
    probabilities = draw.dirichlet(np.ones(3), shape).astype(np.float32).transpose(3, 2, 1, 0)
    np.savez_compressed(archive, probabilities=probabilities)
    stuff = {"original_affine": AFFINE}
    properties = pickle.dumps({"nibabel_stuff": stuff, "spacing": [3.0, 1.5, 1.0]})
    found.append(("case.npz", archive.getvalue(), _audit, {"label.nii.gz": labels, "case.pkl": properties}))
    found.append(("case.pkl", properties, _audit, {"label.nii.gz": labels, "case.npz": archive.getvalue()}))
    return found


def _tables(folder: Path) -> list[Sound]:
    dataset = {
        "channel_names": {"0": "MRI"}, "labels": {"background": 0, "a": 1, "b": 2}, "file_ending": ".nii.gz",
        "numTraining": 1, "training": [{"image": "./imagesTr/c.nii.gz", "label": "./labelsTr/c.nii.gz"}],
    }  # fmt: skip
    split = {"train": ["a"], "validation": ["b"], "test": ["c"]}
    build_calibrator("class_region", 3).save(folder / "calibration.json")
    suite = {
        "title": "t", "datasets": {"d": {"phantom": {"kind": "cardiac", "patients": 5}}}, "backbones": ["unet"],
        "methods": {"ce": {"method": "ce"}, "ts": {"temperature_of": "ce"}}, "seeds": [0], "training": {"epochs": 1},
    }  # fmt: skip
    crac.Guarantees(3, alpha=0.5).fit(patients(12)).save(folder / "guarantees.json")
    folds = {
        "settings": TrainConfig(data=Path("x")).model_dump(mode="json"),
        "test": {"fold_0": ["a"], "fold_1": ["b"]},
    }
    pair = {name: (folder / "label.nii.gz").read_bytes() for name in ("imagesTr/c.nii.gz", "labelsTr/c.nii.gz")}
    frames = {f"patient001/patient001_frame0{name}.nii.gz": b"" for name in ("1", "1_gt", "9", "9_gt")}
    cell = next(FIXTURE.rglob("*.json"))
    summary = {"crac": "0.2.0", "files": ["per_volume.csv"], "settings": {}}
    return [
        ("dataset.json", json.dumps(dataset).encode(), lambda path: _raise(read_nnunet(path.parent).problems), pair),
        ("split.json", json.dumps(split).encode(), Split.load, {}),
        ("calibration.json", (folder / "calibration.json").read_bytes(), load_calibrator, {}),
        ("suite.yaml", yaml.safe_dump(suite).encode(), lambda path: Suite.load(path).jobs({"d": Path("x")}), {}),
        ("config.yaml", TrainConfig(data=Path("x")).dump().encode(), TrainConfig.load, {}),
        ("cell.json", cell.read_bytes(), CellResult.load, {}),
        (
            "patient001/Info.cfg",
            b"ED: 1\nES: 9\nGroup: DCM\n",
            lambda path: _raise(read_acdc(path.parent.parent).problems),
            frames,
        ),
        ("guarantees.json", (folder / "guarantees.json").read_bytes(), load_guarantees, {}),
        ("folds.json", json.dumps(folds).encode(), _read_folds, {}),
        ("summary.json", json.dumps(summary).encode(), lambda path: check_folder(path.parent), {}),
    ]


def _read_folds(path: Path) -> None:
    Folds(path.parent).names()
    TrainConfig.written(_written(path)["settings"], str(path))


def _results(folder: Path) -> list[Sound]:
    """The folder of an evaluation, of which ``crac report`` makes a page."""
    write_report(evaluation(2), folder / "evaluated")
    kept = {
        name: (folder / "evaluated" / name).read_bytes() for name in ("summary.json", "per_volume.csv", "cases.npz")
    }
    return [
        (f"evaluated/{name}", content, lambda path: page_of([path.parent], [""]),
         {f"evaluated/{other}": part for other, part in kept.items() if other != name})
        for name, content in kept.items()
    ]  # fmt: skip


def _nnunet(folder: Path) -> list[Sound]:
    """The folder of a model that nnU-Net has trained, of which ``crac nnunet calibrate`` reads the descriptions."""
    probabilities, truth = overconfident(0)
    array = io.BytesIO()
    np.savez_compressed(array, probabilities=probabilities[:, :8, :8, :4].transpose(0, 3, 2, 1))
    nib.Nifti1Image(truth[:8, :8, :4], np.eye(4)).to_filename(folder / "case_000.nii.gz")
    dataset = {"labels": {"background": 0, "a": 1, "b": 2}, "file_ending": ".nii.gz"}
    plans = {"dataset_name": "Dataset004_X", "configurations": {"2d": {"patch_size": [56, 40]}}}
    kept = {
        "t__p__2d/dataset.json": json.dumps(dataset).encode(),
        "t__p__2d/plans.json": json.dumps(plans).encode(),
        "t__p__2d/fold_0/validation/case_000.npz": array.getvalue(),
        "labels/case_000.nii.gz": (folder / "case_000.nii.gz").read_bytes(),
    }
    return [
        (name, kept[name], lambda path: of_model(path.parent, path.parent.parent / "labels"),
         {other: part for other, part in kept.items() if other != name})
        for name in ("t__p__2d/dataset.json", "t__p__2d/plans.json")
    ]  # fmt: skip


def _read_store(path: Path) -> None:
    store = Store.open(next(folder for folder in path.parents if (folder / "cases").is_dir()))
    for name in store.cases:
        store.image(name)[...].sum()
        store.label(name)[...].sum()
        store.original_label(name)
    store.split()


def _read_run(path: Path) -> None:
    run = RunFolder.open(path.parent)
    run.config()
    run.split()
    run.card()
    Model.load(path.parent, "cpu", "last")


def _models(folder: Path) -> list[Sound]:
    phantom.cardiac(folder / "raw", patients=1, size=32, slices=2)
    prepare("acdc", folder / "raw", folder / "store")
    small = {
        str(path.relative_to(folder)): path.read_bytes() for path in (folder / "store").rglob("*") if path.is_file()
    }
    stored = ("manifest.json", "image.npy", "label.npy", "original_label.nii.gz")
    kept = {name: content for name, content in small.items() if name.endswith(stored)}
    found: list[Sound] = []
    for ending in stored:
        name = next(name for name in kept if name.endswith(ending))
        found.append((name, kept[name], _read_store, {other: part for other, part in kept.items() if other != name}))
    store = Store.open(folder / "store")
    config = TrainConfig(data=folder / "store", width=1, backbone="unet")
    from crac.training.task import model_card

    card = model_card(config, store)
    network = card.build()
    tensors = {f"network.{name}": tensor for name, tensor in state_of(network).items()}
    about = {
        "crac": "0.2.0",
        "method": "ce",
        "model": card.model_dump(mode="json"),
        "epoch": 1,
        "step": 0,
        "history": [],
    }
    Checkpoint(tensors, about).save(folder / "last.safetensors")
    checkpoint = (folder / "last.safetensors").read_bytes()
    run = {"config.yaml": config.dump().encode(), "split.json": store.split().model_dump_json().encode()}
    found.append(("last.safetensors", checkpoint, _read_run, run))
    return found
