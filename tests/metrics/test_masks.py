"""Which voxels count, against brute force with scipy's distances."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.ndimage import distance_transform_edt
from torch import Tensor

from crac.errors import InputError
from crac.metrics.masks import MASKS, select_voxels


def brute_force(
    mask: str, scores: Tensor, labels: Tensor, band: float, spacing: tuple[float, ...], ignore: int
) -> np.ndarray:
    known = labels.numpy() != ignore
    labelled, predicted = (labels.numpy() != 0) & known, scores.argmax(1).numpy() != 0
    if mask == "all":
        return known
    if mask == "band":
        seeds = (labelled | predicted) & known
        far = np.full(seeds.shape[1:], np.inf)
        near = [(distance_transform_edt(~one, spacing) if one.any() else far) <= band + 1e-6 for one in seeds]
        return np.stack(near) & known
    parts = {"label_foreground": labelled, "predicted_foreground": predicted, "union_foreground": labelled | predicted}
    return parts[mask] & known


@given(st.data())
def test_every_mask_against_brute_force(data: st.DataObject) -> None:
    dims = data.draw(st.sampled_from([2, 3]))
    shape = data.draw(st.tuples(*[st.integers(1, 9)] * dims))
    spacing = data.draw(st.tuples(*[st.sampled_from([0.5, 1.0, 1.7])] * dims))
    rare = data.draw(st.sampled_from([0.0, 0.02, 0.3]))
    torch.manual_seed(data.draw(st.integers(0, 2**16)))
    scores = torch.randn(2, 3, *shape)
    scores[:, 0] += torch.where(torch.rand(2, *shape) < rare, 0, 20)
    labels = torch.where(torch.rand(2, *shape) < rare, torch.randint(1, 3, (2, *shape)), 0)
    labels = torch.where(torch.rand(2, *shape) < 0.2, 9, labels)
    band = data.draw(st.sampled_from([0.0, 1.0, 2.5, 5.0]))
    for mask in MASKS:
        for ignore in (9, None):
            target = labels if ignore is not None else torch.where(labels == 9, 0, labels)
            keep = select_voxels(mask, scores, target, band=band, spacing=spacing, ignore_index=ignore)
            expected = brute_force(mask, scores, target, band, spacing, 9)
            found = np.ones(labels.shape, bool) if keep is None else keep.numpy()
            np.testing.assert_array_equal(found, expected, err_msg=mask)


def test_all_voxels_need_no_mask() -> None:
    scores, labels = torch.randn(1, 2, 3, 3), torch.zeros(1, 3, 3, dtype=torch.int64)
    assert select_voxels("all", scores, labels) is None


@pytest.mark.parametrize("source", ["label", "prediction"])
def test_an_ignored_voxel_neither_counts_nor_seeds_the_band(source: str) -> None:
    scores = torch.tensor([1.0, 0]).view(1, 2, 1, 1).expand(1, 2, 9, 9).clone()
    labels = torch.zeros(1, 9, 9, dtype=torch.int64)
    if source == "prediction":
        scores[0, 1, 4, 4] = 2
    labels[0, 4, 4] = 1
    assert select_voxels("band", scores, labels, band=1).sum() == 5
    labels[0, 4, 4] = 9
    assert select_voxels("band", scores, labels, band=1, ignore_index=9).sum() == 0


def test_slices_do_not_see_their_neighbours() -> None:
    scores = torch.tensor([1.0, 0]).view(1, 2, 1, 1, 1).expand(1, 2, 5, 7, 7)
    labels = torch.zeros(1, 5, 7, 7, dtype=torch.int64)
    labels[0, 2, 3, 3] = 1
    volume = select_voxels("band", scores, labels, band=1)
    slices = select_voxels("band", scores[0].transpose(0, 1), labels[0], band=1)
    assert volume[0].sum((1, 2)).tolist() == [0, 1, 5, 1, 0]
    assert slices.sum((1, 2)).tolist() == [0, 0, 5, 0, 0]


def test_arguments_are_checked() -> None:
    scores, labels = torch.randn(1, 2, 3, 3), torch.zeros(1, 3, 3, dtype=torch.int64)
    with pytest.raises(InputError, match=r"mask must be one of label_foreground, .*, all; got 'foreground'"):
        select_voxels("foreground", scores, labels)
    for spacing in ((1.0,), (1.0, 0.0), (1.0, float("nan"))):
        with pytest.raises(InputError, match="spacing must be 2 positive numbers, one per axis"):
            select_voxels("band", scores, labels, spacing=spacing)
