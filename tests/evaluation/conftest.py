from pathlib import Path

import nibabel as nib
import numpy as np
import pytest
from tests.evaluation.stored import AFFINES, SHAPE

from conftest_training import small, store  # noqa: F401
from crac.data import Store
from crac.training import train


@pytest.fixture(params=AFFINES)
def scene(tmp_path, request):
    """A folder of labels, an empty one for probabilities, and what is to be found in it."""
    rng = np.random.default_rng(0)
    probabilities = rng.dirichlet(np.ones(3), size=SHAPE).astype(np.float32)  # (X, Y, Z, K)
    affine = AFFINES[request.param]
    labels, folder = tmp_path / "labels", tmp_path / "probabilities"
    labels.mkdir()
    folder.mkdir()
    nib.Nifti1Image(probabilities.argmax(-1).astype(np.uint8), affine).to_filename(labels / "case.nii.gz")
    return folder, labels, probabilities, affine


@pytest.fixture(scope="session")
def run(store: Store, tmp_path_factory: pytest.TempPathFactory) -> Path:  # noqa: F811
    from crac.training import TrainConfig

    settings = {"data": store.path, "recipe": "paper", "width": 4, "epochs": 2, "batch_size": 8, "accelerator": "cpu"}
    return train(TrainConfig.make(settings), tmp_path_factory.mktemp("runs") / "run").run
