"""Patches and batches that suit volumes and memory."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from tests.training.atria import atria_store

import crac
from crac.cli import main
from crac.data import Store
from crac.errors import InputError
from crac.networks import build_network, halvings
from crac.training import TrainConfig, train_folds
from crac.training import plan as planning
from crac.training.plan import GIB, Cost, Plan, choose, planned

HIPPOCAMPUS = {"median": (36, 50, 35), "spacing": (1.0, 1.0, 1.0), "volumes": 260}
HEART = {"median": (10, 256, 216), "spacing": (10.0, 1.56, 1.56), "volumes": 200}
CT = {"median": (300, 512, 512), "spacing": (1.5, 0.8, 0.8), "volumes": 100}


def like_width_32(strides: Any) -> Cost:
    stride = (32, 32, 32) if strides is None else tuple(math.prod(axis) for axis in zip(*strides, strict=True))
    return Cost(stride, 2500, 0.5 * GIB)


def chosen(budget: float, median: Any, spacing: Any, volumes: int, shaped: bool = True, **given: Any) -> Plan:
    def strides_for(size: tuple[int, ...]) -> Any:
        return tuple(halvings(size, spacing)) if shaped else None

    return choose(median, volumes, budget * GIB, strides_for, like_width_32, **given)


def fitting(budget: float, **data: Any) -> Plan:
    plan = chosen(budget, **data)
    assert plan.strides is not None
    stride = like_width_32(plan.strides).stride
    assert all(side % by == 0 for side, by in zip(plan.patch_size, stride, strict=True))
    assert plan.needed <= budget * GIB
    assert plan.batch_size >= 2
    return plan


def test_small_volumes_are_seen_whole_as_nnunet_does() -> None:
    plan = fitting(16, **HIPPOCAMPUS)
    assert (plan.patch_size, plan.batch_size, plan.patches) == ((40, 56, 40), 9, 1)
    assert plan.strides == ((2, 2, 2),) * 3
    assert fitting(2, **HIPPOCAMPUS).batch_size < 9  # the memory decides, no longer the number of volumes


def test_slices_far_apart_are_halved_late() -> None:
    plan = fitting(16, **HEART)
    assert plan.patch_size == (10, 256, 224)
    assert plan.strides == ((1, 2, 2), (1, 2, 2), (2, 2, 2), (1, 2, 2), (1, 2, 2))


@pytest.mark.parametrize("budget", [2, 4, 8, 16, 40, 140])
def test_patches_of_large_volumes_keep_their_shape_and_fill_the_memory(budget: float) -> None:
    plan = fitting(budget, **CT)
    shares = [side / whole for side, whole in zip(plan.patch_size, CT["median"], strict=True)]
    assert max(shares) < 2 * min(shares)
    assert plan.batch_size == 2 or budget == 140
    assert plan.needed > 0.7 * budget * GIB
    assert plan.patches == max(1, round(1 / math.prod(shares)))


def test_more_memory_never_gives_smaller_patches() -> None:
    voxels = [math.prod(fitting(budget, **CT).patch_size) for budget in (2, 3, 5, 8, 12, 20, 30, 60, 140)]
    assert voxels == sorted(voxels)


def test_given_sizes_stay_and_devices_share_a_batch() -> None:
    plan = chosen(8, **CT, patch_size=(64, 64, 64))
    assert plan.patch_size == (64, 64, 64)
    assert plan.batch_size == int(7.5 * GIB / (2500 * 64**3))
    assert chosen(8, **CT, batch_size=6).batch_size == 6
    four = chosen(8, **CT, devices=4)
    assert four.batch_size == 4
    assert math.prod(four.patch_size) > math.prod(fitting(8, **CT).patch_size)
    fixed = chosen(8, **CT, shaped=False)
    assert fixed.strides is None
    assert all(side % 32 == 0 for side in fixed.patch_size)
    assert chosen(0.6, **CT).batch_size == 2  # does not fit, and is tried


@pytest.mark.parametrize(
    ("size", "spacing", "expected"),
    [
        ((6, 64, 64), (1, 1, 1), [(1, 2, 2)] * 4),
        (
            (20, 256, 224),
            (5, 1.56, 1.56),
            [(1, 2, 2), (2, 2, 2), (2, 2, 2), (1, 2, 2), (1, 2, 2)],
        ),  # nnU-Net's for ACDC
        ((5, 5, 5), (1, 1, 1), [(1, 1, 1)] * 2),
    ],
)
def test_halvings(size: tuple[int, ...], spacing: tuple[float, ...], expected: list[tuple[int, ...]]) -> None:
    assert halvings(size, spacing) == expected


def test_a_network_of_other_strides_answers_on_every_level() -> None:
    strides = [(1, 2, 2), (2, 2, 2), (2, 2, 2), (1, 2, 2)]
    network = build_network("nnunet", 1, 3, 3, width=2, deep_supervision=True, strides=strides)
    assert (network.stride, network.coarse) == ((4, 16, 16), (4, 8, 8))
    images = torch.randn(1, 1, 12, 24, 32)  # padded along one axis
    outputs = network.train()(images)
    assert [tuple(output.shape[2:]) for output in outputs] == [(12, 24, 32), (12, 12, 16), (6, 6, 8), (3, 3, 4)]
    sum(output.square().mean() for output in outputs).backward()
    assert all(parameter.grad is not None and parameter.grad.any() for parameter in network.parameters())
    with pytest.raises(InputError, match="multiples of 4 8 8 for deep supervision; got \\(6, 24, 32\\)"):
        network(images[:, :, :6])
    with pytest.raises(InputError, match="strides can be chosen for nnunet only; got unet"):
        build_network("unet", 1, 3, 3, strides=strides)
    with pytest.raises(InputError, match="strides must be at least 2 times 3 numbers, each 1 or 2; got"):
        build_network("nnunet", 1, 3, 3, strides=[(2, 2)])


def test_activations_are_counted_without_memory(store: Store) -> None:
    """Against what torch keeps in a step that is really taken."""
    card = planning.ModelCard.of(store, "nnunet", 4, 3, (32, 32, 32), True, tuple(halvings((32,) * 3, (1,) * 3)))
    config = TrainConfig.make({"data": store.path})
    cost = planning.step_cost(card, config)
    kept: dict[int, int] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        kept[tensor.data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    network = card.build().train()
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        outputs = network(torch.rand(2, 1, 32, 32, 32))
    own = {parameter.data_ptr() for parameter in network.parameters()}
    saved = sum(size for place, size in kept.items() if place not in own)
    assert len(outputs) == len(network.network.coarse_heads) + 1
    expected = saved + 2 * 32**3 * (planning.SCRATCH * 4 + planning.PER_CLASS * store.num_classes)
    assert cost.bytes(2, (32, 32, 32)) - cost.fixed == pytest.approx(expected, rel=0.02)
    assert cost.bytes(2, (30, 31, 32)) == cost.bytes(2, (32, 32, 32))
    assert cost.fixed == 16 * sum(parameter.numel() for parameter in network.parameters())
    half = planning.step_cost(card, config.model_copy(update={"precision": "bf16"}))
    assert cost.voxel / 2 < half.voxel < cost.voxel
    assert planning.step_cost(card, config.model_copy(update={"method": "bwcr"})).voxel == 2 * cost.voxel
    whole = planning.ModelCard.of(store, "nnunet", 4, 3, None, True, card.strides)  # pads small volumes to large ones
    assert planning.step_cost(whole, config) == cost


def test_an_epoch_of_few_volumes_has_steps_enough(store: Store) -> None:
    config = TrainConfig.make({"data": store.path, "accelerator": "cpu", "dims": 3, "width": 2, "memory": 0.1})
    for volumes in (3, 5, 8):
        filled, _ = planned(config, store, volumes)
        assert filled.patches is not None
        assert filled.batch_size is not None
        assert filled.patches * volumes // filled.batch_size >= planning.LEAST_STEPS


def test_slices_are_planned_only_where_memory_is_short(store: Store) -> None:
    config = TrainConfig.make({"data": store.path, "accelerator": "cpu"})
    filled, reason = planned(config, store)
    assert (filled.batch_size, filled.patch_size, reason) == (16, None, "")
    filled, reason = planned(config.model_copy(update={"memory": 0.45}), store)
    assert filled.batch_size is not None
    assert 2 <= filled.batch_size < 16
    assert reason == f"{filled.batch_size} slices a step, which is what fits into 0.45 GiB"
    paper = TrainConfig.make({"data": store.path, "recipe": "paper", "dims": 3})
    assert planned(paper, store) == (paper, "")


@pytest.mark.parametrize(("has_bf16", "expected"), [(True, "bf16"), (False, "fp32")])
def test_a_gpu_that_has_bf16_trains_in_it_unless_told_otherwise(
    store: Store, monkeypatch: pytest.MonkeyPatch, has_bf16: bool, expected: str
) -> None:
    config = TrainConfig.make({"data": store.path})
    assert planned(config.model_copy(update={"accelerator": "cpu"}), store)[0].precision == "fp32"
    monkeypatch.setattr(planning, "check_devices", lambda _: "cuda")
    monkeypatch.setattr(planning, "free_memory", lambda _: 80 * planning.GIB)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: has_bf16)
    assert planned(config, store)[0].precision == expected
    assert planned(config.model_copy(update={"precision": "tf32"}), store)[0].precision == "tf32"
    paper = TrainConfig.make({"data": store.path, "recipe": "paper"})
    assert planned(paper, store)[0].precision == "fp32"


def test_a_practical_3d_run_is_planned_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    store, run = atria_store(tmp_path, dims=3), tmp_path / "run"
    command = ["train", "--data", str(store.path), "--width", "2", "--epochs", "1", "--memory", "0.03", "--json"]
    assert main([*command, "--accelerator", "cpu", "--out", str(run)]) == 0
    out, err = capsys.readouterr()
    result, settings = json.loads(out), yaml.safe_load((run / "config.yaml").read_text())
    patch, strides = settings["patch_size"], settings["strides"]
    sides = " x ".join(map(str, patch))
    assert f"note: planned patches of {sides} voxels, {settings['batch_size']} a step" in err
    assert "the median volume has 20 x 64 x 64 voxels of 2.5 x 1.25 x 1.25 mm" in result["plan"]
    assert "of 0.03 GiB allowed" in result["plan"]
    assert strides == [list(way) for way in halvings(patch, (2.5, 1.25, 1.25))]
    assert settings["patches"] == max(
        math.ceil(16 * settings["batch_size"] / len(store.split(0).train)), round(20 * 64 * 64 / math.prod(patch))
    )
    assert 0 <= result["best"]["dice"] <= 1
    model = crac.load(run)
    assert model.card.strides == tuple(map(tuple, strides))
    monkeypatch.setattr(planning, "choose", None)  # nothing is planned again
    assert main(["train", "--resume", str(run), "--epochs", "2"]) == 0
    assert yaml.safe_load((run / "config.yaml").read_text()) == settings | {"epochs": 2}
    shaped = ["--strides", "1,2,2", "2,2,2", "--patch-size", "16", "32", "32", "--batch-size", "3"]
    monkeypatch.undo()
    assert main([*command, *shaped, "--accelerator", "cpu", "--out", str(tmp_path / "shaped")]) == 0
    own = yaml.safe_load((tmp_path / "shaped" / "config.yaml").read_text())
    assert (own["strides"], own["patch_size"], own["batch_size"]) == ([[1, 2, 2], [2, 2, 2]], [16, 32, 32], 3)


def test_folds_share_one_plan(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {"data": store.path, "dims": 3, "width": 2, "epochs": 1, "accelerator": "cpu", "memory": 0.03}
    config = TrainConfig.make(settings)
    assert train_folds(config, tmp_path / "folds", 2, [0]).left == ["fold_1"]
    written = json.loads((tmp_path / "folds" / "folds.json").read_text())["settings"]
    monkeypatch.setattr(planning, "choose", None)
    assert not train_folds(config, tmp_path / "folds", 2).left
    for fold in ("fold_0", "fold_1"):
        own = yaml.safe_load((tmp_path / "folds" / fold / "config.yaml").read_text())
        assert all(own[name] == written[name] is not None for name in ("patch_size", "batch_size", "strides"))
