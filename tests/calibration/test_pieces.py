"""Slabs of volumes: neither their size nor where the numbers lie changes what is fitted."""

from pathlib import Path

import numpy as np
import pytest
import torch
from tests.calibration.volumes import smooth
from torch import Tensor

import crac
from crac.calibration import Calibrator, fitting, pieces, sample, sums
from crac.errors import InputError


def fit(name: str, regions: str, *batches: tuple[Tensor, Tensor], **options: object) -> Calibrator:
    return crac.build_calibrator(name, 3, regions=regions).fit(lambda: batches, **options)


@pytest.mark.parametrize("mask", ["band", "all", "union_foreground"])
@pytest.mark.parametrize("regions", ["volume", "slice"])
@pytest.mark.parametrize("name", ["temperature", "class_region", "class_region_affine"])
def test_slabs_change_nothing(name: str, regions: str, mask: str, monkeypatch: pytest.MonkeyPatch) -> None:
    batches = [smooth((2, 3, 23, 17, 15), seed=0), smooth((1, 3, 30, 12, 11), seed=1)]
    options = {"mask": mask, "weight": "volume", "ignore_index": 7}
    batches[0][1][:, 5:8, :4] = 7
    whole = fit(name, regions, *batches, **options)
    for slab in (17 * 15 * 4, 17 * 15 * 9):
        monkeypatch.setattr(pieces, "SLAB", slab)
        found = fit(name, regions, *batches, **options)
        torch.testing.assert_close(found.weights, whole.weights, rtol=1e-9, atol=1e-9)
        assert found.fitted["voxels_by_cell"] == whole.fitted["voxels_by_cell"]
        assert found.fitted["batches"] == 2


@pytest.mark.parametrize("regions", ["volume", "slice"])
def test_the_cells_of_slabs_are_those_of_the_volume(regions: str, monkeypatch: pytest.MonkeyPatch) -> None:
    logits, labels = smooth((1, 3, 21, 16, 13), seed=3)
    calibrator = crac.build_calibrator("class_region_affine", 3, regions=regions)
    monkeypatch.setattr(pieces, "SLAB", 16 * 13 * 2)
    slabs = pieces.slabs(calibrator, logits, labels, pieces.Choice("all", None, False))
    assert len(slabs) == 11
    found = [piece for slab in slabs for piece in slab.voxels()]
    assert torch.equal(torch.cat([piece.cell for piece in found]), calibrator.cells(logits).flatten())
    assert torch.equal(torch.cat([piece.labels for piece in found]), labels.flatten())
    assert torch.equal(torch.cat([piece.logits for piece in found], 1), logits[0].flatten(1))
    for number in (0.0, 0.5, 0.999):
        few = pieces.slabs(calibrator, logits, labels, pieces.Choice("all", None, False), few=number)
        assert len(few) == pieces.FEW


def test_mapped_half_precision(tmp_path: Path) -> None:
    logits, labels = smooth((1, 3, 12, 14, 15), seed=4)
    np.save(tmp_path / "logits.npy", logits[0].half().numpy())
    mapped = torch.from_numpy(np.load(tmp_path / "logits.npy", mmap_mode="c")).unsqueeze(0)
    found = fit("class_region", "volume", (mapped, labels.to(torch.uint8)))
    expected = fit("class_region", "volume", (logits.half().float(), labels))
    torch.testing.assert_close(found.weights, expected.weights, rtol=1e-9, atol=1e-9)


def test_threads_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    batches = [smooth((1, 3, 30, 17, 15), seed=seed) for seed in range(2)]
    monkeypatch.setattr(pieces, "SLAB", 17 * 15 * 4)
    found = []
    for threads in (1, 3):
        monkeypatch.setattr(fitting, "_threads", lambda slabs, threads=threads: threads)
        found.append(fit("class_region", "volume", *batches, weight="volume"))
    assert torch.equal(found[0].weights, found[1].weights)
    wrong = batches[0][1].clone()
    wrong[0, 25, 8, 8] = 3
    with pytest.raises(InputError, match=r"labels must lie in 0\.\.2; got 3"):
        fit("class_region", "volume", (batches[0][0], wrong))


def test_two_passes_usually_suffice(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sample is a small part, and one pass over all of it goes to the minimum."""
    batches = [smooth((1, 3, 40, 40, 40), seed=seed) for seed in range(4)]
    monkeypatch.setattr(pieces, "SLAB", 40 * 40 * 8)
    exact = fit("class_region", "volume", *batches, mask="all")
    monkeypatch.setattr(sample, "EACH", 25)
    found = fit("class_region", "volume", *batches, mask="all")
    assert found.fitted["passes"] <= 3
    torch.testing.assert_close(found.weights, exact.weights, rtol=1e-9, atol=1e-9)


def test_a_far_start_still_arrives(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sampled planes that are unlike the others: the steps on all voxels find the minimum all the same."""
    logits, labels = smooth((1, 3, 64, 12, 12), seed=5)
    monkeypatch.setattr(pieces, "SLAB", 12 * 12 * 8)
    sampled = [plane for n in range(4) for plane in [(2 * n + 1) * 64 // 8]]
    far = logits.clone()
    far[:, :, sampled] *= 30
    found = fit("class_region", "volume", (far, labels), mask="all")
    monkeypatch.setattr(pieces, "SLAB", 2**23)
    expected = fit("class_region", "volume", (far, labels), mask="all")
    torch.testing.assert_close(found.weights, expected.weights, rtol=1e-9, atol=1e-9)
    assert not [note for note in found.fitted["notes"] if "still changed" in note]


def test_derivatives_are_those_of_automatic_differentiation() -> None:
    torch.manual_seed(0)
    values = torch.randn(4, 5, dtype=torch.float64)
    scale = torch.tensor(0.7, dtype=torch.float64, requires_grad=True)
    found = sums.cumulants(values, (scale.detach() * values).softmax(0))
    for voxel in range(5):
        value = (scale * values[:, voxel]).logsumexp(0)
        for order in range(sums.ORDER):
            (value,) = torch.autograd.grad(value, scale, create_graph=True)
            assert found[order][voxel].item() == pytest.approx(value.item(), rel=1e-9, abs=1e-12)
