"""Several runs as one: the mean of their probabilities, to the last bit."""

import dataclasses
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import crac
from conftest_training import small  # noqa: F401
from crac.calibration import build_calibrator, log_probabilities
from crac.calibration.volume import calibrate_volume
from crac.cli import main
from crac.data import Store
from crac.errors import InputError
from crac.models import planes
from crac.models.ensemble import Ensemble, folds, load, split_runs
from crac.models.model import CALIBRATION, Model
from crac.training import train


@pytest.fixture(scope="module")
def fold_folder(run: Path, store: Store, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs of one store, the second a 3-D network with a window."""
    from crac.training import TrainConfig

    folder = tmp_path_factory.mktemp("folds")
    shutil.copytree(run, folder / "fold_0")
    settings = {"data": store.path, "recipe": "paper", "width": 2, "epochs": 1, "accelerator": "cpu", "dims": 3}
    train(TrainConfig.make(settings | {"patch_size": (4, 32, 32), "batch_size": 2}), folder / "fold_10")
    return folder


@pytest.fixture
def image(store: Store) -> torch.Tensor:
    return torch.from_numpy(np.array(store.image(next(iter(store.cases))), dtype=np.float32))


def images(store: Store, number: int = 1) -> list[Path]:
    return sorted((store.path.parent / "raw" / "TrainingImg").glob("*.nii.gz"))[:number]


@pytest.mark.parametrize("mirror", [False, True])
def test_an_ensemble_is_the_mean_of_its_members(fold_folder: Path, store: Store, image: Any, mirror: bool) -> None:
    runs = [fold_folder / "fold_0", fold_folder / "fold_10"]
    members = [crac.load(run, "cpu", mirror=mirror) for run in runs]
    first, second = (member.predict_prepared(image) for member in members)
    assert not torch.equal(first, second)
    for given in (runs, fold_folder, [str(run) for run in runs]):
        ensemble = crac.load(given, "cpu", mirror=mirror)
        assert torch.equal(ensemble.predict_prepared(image), (first + second) / 2)
    whole = ensemble.predict(images(store)[0])
    mean = sum(member.predict(images(store)[0]).probabilities for member in members) / 2
    np.testing.assert_allclose(whole.probabilities, mean, atol=1e-6)
    torch.testing.assert_close(ensemble.logits(image).softmax(0), (first + second) / 2, atol=1e-6, rtol=0)


def test_members_are_calibrated_each_by_its_own(fold_folder: Path, image: torch.Tensor, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(fold_folder, tmp_path / "folds"))
    calibrator = build_calibrator("temperature", 5)
    calibrator.weights.fill_(0.25)
    plain = [Model.load(path, "cpu") for path in folds(copy)]
    calibrator.fitted = {"checkpoint_sha256": plain[1].checksum, "mirror": False}
    calibrator.save(copy / "fold_10" / CALIBRATION)
    ensemble = load(copy, "cpu")
    expected = plain[0].predict_prepared(image) + calibrate_volume(calibrator, plain[1].logits(image))
    assert torch.equal(ensemble.predict_prepared(image), expected / 2)
    assert torch.equal(
        load(copy, "cpu", calibrated=False).predict_prepared(image), load(fold_folder, "cpu").predict_prepared(image)
    )

    # One for the ensemble takes the place of its members'.
    own = build_calibrator("class_region", 5, radii=(1, 2))
    own.weights.copy_(torch.linspace(0.5, 2, own.weights.numel()).view_as(own.weights))
    own.fitted = {"checkpoint_sha256": [model.checksum for model in plain], "mirror": False}
    own.save(copy / CALIBRATION)
    mean = sum(model.predict_prepared(image) for model in plain) / 2
    expected = calibrate_volume(own, log_probabilities(mean))
    assert torch.equal(load(copy, "cpu").predict_prepared(image), expected)
    assert "calibrated by class_region" in repr(load(copy, "cpu"))
    own.fitted["checkpoint_sha256"] = own.fitted["checkpoint_sha256"][::-1]
    own.save(copy / CALIBRATION)
    with pytest.raises(InputError, match="was fitted on other weights"):
        load(copy, "cpu")


def test_sums_that_do_not_fit_into_memory_are_the_same(
    fold_folder: Path, store: Store, image: torch.Tensor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ensemble = crac.load(fold_folder, "cpu", mirror=True)
    expected = ensemble.predict(images(store)[0]).probabilities
    monkeypatch.setattr(planes, "CPU_MOST", 0)
    monkeypatch.setattr(planes, "SLAB", 1)
    prepared = torch.cat(list(ensemble.slabs(image, folder=tmp_path)), 1)
    assert prepared.shape[1] > 1
    np.testing.assert_allclose(ensemble.predict(images(store)[0]).probabilities, expected, atol=1e-6)
    assert not list(tmp_path.iterdir())  # the files have no name


def test_runs_and_images_are_told_apart(fold_folder: Path, store: Store, tmp_path: Path) -> None:
    runs, (first, second) = [fold_folder / "fold_0", fold_folder / "fold_10"], images(store, 2)
    assert folds(fold_folder) == runs
    assert split_runs([fold_folder, first, second]) == ([fold_folder], [first, second])
    assert split_runs([*runs, first.parent]) == (runs, [first.parent])
    assert split_runs([runs[0] / "best.safetensors", runs[1], first]) == (
        [runs[0] / "best.safetensors", runs[1]],
        [first],
    )
    with pytest.raises(InputError, match="INPUT is missing"):
        split_runs(runs)
    with pytest.raises(InputError, match="fold_10 is a run, and runs come before images"):
        split_runs([runs[0], first, runs[1]])
    with pytest.raises(InputError, match="is given twice"):
        load([runs[0], runs[0]], "cpu")
    (again := tmp_path / "again").symlink_to(runs[0])
    for path in (again, runs[0] / "best.safetensors", runs[1] / ".." / "fold_0"):
        with pytest.raises(InputError, match="is given twice"):
            load([runs[0], path], "cpu")
    with pytest.raises(InputError, match="runs must name at least one run"):
        load([], "cpu")
    for number, arguments in enumerate(([*runs, first], [fold_folder, first])):
        assert main(["predict", *map(str, arguments), "--out", str(tmp_path / str(number)), "--device", "cpu"]) == 0
    for path in (tmp_path / "0").iterdir():
        assert path.read_bytes() == (tmp_path / "1" / path.name).read_bytes()


def test_members_must_agree(fold_folder: Path) -> None:
    first, second = (Model.load(path, "cpu") for path in folds(fold_folder))
    card = second.card.model_copy(update={"class_names": ("background", "a", "b", "c", "d")})
    with pytest.raises(InputError, match=r"members of an ensemble must share their classes; .*fold_10"):
        Ensemble((first, dataclasses.replace(second, card=card)))
    card = second.card.model_copy(update={"recipe": second.card.recipe.model_copy(update={"name": "other"})})
    with pytest.raises(InputError, match="must be at least one model"):
        Ensemble(())
    with pytest.raises(InputError, match="must share their preparation of images"):
        Ensemble((first, dataclasses.replace(second, card=card)))


def test_models_print_in_a_line_each(fold_folder: Path) -> None:
    model, ensemble = crac.load(fold_folder / "fold_0", "cpu", mirror=True), crac.load(fold_folder, "cpu")
    assert repr(model).startswith(
        f"<Model from {fold_folder}/fold_0/best.safetensors: nnunet, 2-D, classes background, "
    )
    assert repr(model).endswith("on cpu, mirror>")
    assert len(repr(model)) < 300
    assert repr(ensemble).splitlines()[0] == "<Ensemble of 2:"
    assert len(repr(ensemble).splitlines()) == 3
