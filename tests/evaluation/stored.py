"""The only case of a folder of probabilities, read, for the tests of this folder."""

import nibabel as nib
import numpy as np

from crac.evaluation.pairing import find_pairs
from crac.evaluation.reading import inspect, load

SHAPE = (5, 6, 7)
AFFINES = {
    "straight": np.diag([0.8, 1.2, 3.0, 1.0]),
    "flipped": np.array([[0, -1.2, 0, 20], [0.8, 0, 0, -5], [0, 0, -3.0, 9], [0, 0, 0, 1]], dtype=float),
}


def read_only_case(folder, labels):
    cases, problems = find_pairs(folder, labels)
    assert problems == []
    (case,) = cases
    assert inspect(case).problems == []
    loaded = load(case)
    np.testing.assert_allclose(loaded.spacing, sorted_spacing(labels), rtol=1e-6)
    return loaded.probabilities


def sorted_spacing(labels):
    return nib.affines.voxel_sizes(nib.load(labels / "case.nii.gz").affine)
