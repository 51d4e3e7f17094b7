"""Fitting against independent optimisers, planted temperatures, and every way of dividing the data."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize, minimize_scalar
from sklearn.linear_model import LogisticRegression
from torch import Tensor

import crac
from crac.calibration import Calibrator, pieces, sample, sums
from crac.errors import InputError

Pair = tuple[Tensor, Tensor]


NAMES = tuple(crac.CALIBRATORS)


FITTED = tuple(name for name in NAMES if name != "identity")


def case(
    shape: tuple[int, ...] = (3, 4, 9, 7), seed: int = 0, scale: float = 1.0, share: float = 1.0, blocks: int = 1
) -> Pair:
    """Logits, ``scale`` times too large, of labels that follow them in a ``share`` of the voxels and are 1 elsewhere.

    ``blocks`` is the side of the squares in which logits are alike: from 3 on there are inner voxels.
    """
    generator = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(shape, generator=generator, dtype=torch.float64)
    coarse = 3 * torch.randn(shape[:2] + tuple(-(-side // blocks) for side in shape[2:]), generator=generator).double()
    for dim in range(2, len(shape)):
        coarse = coarse.repeat_interleave(blocks, dim).narrow(dim, 0, shape[dim])
    logits = logits if blocks == 1 else logits / 2 + coarse
    p = logits.softmax(1).movedim(1, -1)
    drawn = torch.multinomial(p.reshape(-1, shape[1]), 1, generator=generator).view(p.shape[:-1])
    return scale * logits, torch.where(torch.rand(drawn.shape, generator=generator) < share, drawn, 1)


def fit(name: str, *batches: Pair, **options: object) -> Calibrator:
    logits = batches[0][0]
    return crac.build_calibrator(name, logits.shape[1]).fit(lambda: batches, **{"mask": "all", **options})


@pytest.mark.parametrize("shape", [(2, 3, 7, 8), (1, 3, 4, 5, 6)])
@pytest.mark.parametrize("name", NAMES)
def test_before_fitting_every_calibrator_is_softmax(name: str, shape: tuple[int, ...]) -> None:
    logits = case(shape)[0]
    torch.testing.assert_close(crac.build_calibrator(name, 3)(logits), logits.softmax(1), rtol=1e-12, atol=1e-15)


@given(st.integers(0, 1000), st.floats(0.2, 8), st.floats(0.3, 1))
def test_temperature_agrees_with_scipy(seed: int, scale: float, share: float) -> None:
    logits, labels = case(seed=seed, scale=scale, share=share)

    def nll(logarithm: float) -> float:
        return F.cross_entropy(logits / np.exp(logarithm), labels).item()

    best = minimize_scalar(nll, bounds=(np.log(0.05), np.log(20)), method="bounded", options={"xatol": 1e-9})
    calibrator = fit("temperature", (logits, labels))
    assert calibrator.temperature.shape == ()
    assert calibrator.temperature.item() == pytest.approx(np.exp(best.x), rel=1e-4)
    assert bool(calibrator.fitted["notes"]) == (calibrator.temperature.item() == 20)
    assert calibrator.fitted["passes"] == 2


def penalised(features: np.ndarray, labels: np.ndarray, scales: int) -> np.ndarray:
    """Scales and biases by scipy: negative log-likelihood plus half the squared distance from the identity."""
    classes = features.shape[1]
    identity = np.concatenate([np.ones(scales), np.zeros(classes)])
    x, y = torch.tensor(features), torch.tensor(labels)

    def objective(values: np.ndarray) -> tuple[float, np.ndarray]:
        own = torch.tensor(values, requires_grad=True)
        loss = F.cross_entropy(x * own[:scales] + own[scales:], y, reduction="sum")
        loss = loss + (own - torch.tensor(identity)).square().sum() / 2
        loss.backward()
        return loss.item(), own.grad.numpy()

    bounds = [(0.05, 20) if scales == 1 and number == 0 else (None, None) for number in range(scales + classes)]
    options = {"ftol": 1e-15, "gtol": 1e-10, "maxiter": 2000}
    return minimize(objective, identity, jac=True, method="L-BFGS-B", bounds=bounds, options=options).x


@settings(max_examples=15)
@given(st.integers(0, 1000), st.floats(0.3, 4), st.floats(0.3, 1))
def test_vector_agrees_with_scipy(seed: int, scale: float, share: float) -> None:
    logits, labels = case(seed=seed, scale=scale, share=share)
    calibrator = fit("vector", (logits, labels))
    expected = penalised(logits.log_softmax(1).movedim(1, -1).reshape(-1, 4).numpy(), labels.flatten().numpy(), 4)
    np.testing.assert_allclose(calibrator.weights[0], expected, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(1 / calibrator.temperature, expected[:4], rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(calibrator.bias, expected[4:], rtol=1e-4, atol=1e-4)


@settings(max_examples=8)
@given(st.integers(0, 1000), st.floats(0.3, 4), st.floats(-1, 1))
def test_affine_agrees_with_scipy_in_every_cell(seed: int, scale: float, share: float) -> None:
    # A negative share turns the logits around: the best scale is then at its bound, and biases must suit it.
    logits, labels = case((4, 3, 14, 15), seed=seed, scale=scale if share > 0 else -scale, share=abs(share), blocks=7)
    calibrator = crac.build_calibrator("class_region_affine", 3, radii=(1,)).fit(lambda: [(logits, labels)], mask="all")
    cells = calibrator.cells(logits).flatten().numpy()
    assert calibrator.bias.shape == (3, 2, 3)
    for cell in np.unique(cells):
        expected = penalised(
            logits.movedim(1, -1).reshape(-1, 3).numpy()[cells == cell], labels.flatten().numpy()[cells == cell], 1
        )
        np.testing.assert_allclose(calibrator.weights[cell], expected, rtol=2e-4, atol=2e-4)


def test_vector_of_two_classes_is_logistic_regression() -> None:
    logits, labels = case((30, 2, 20, 20), scale=2.5)
    calibrator = fit("vector", (logits, labels))
    # With much data the ridge is negligible, and two classes leave one slope per feature.
    features = logits.log_softmax(1).movedim(1, -1).reshape(-1, 2).numpy()
    model = LogisticRegression(C=1e6, tol=1e-10, max_iter=1000).fit(features, labels.flatten().numpy())
    ours = calibrator(logits)[:, 1].flatten().numpy()
    np.testing.assert_allclose(ours, model.predict_proba(features)[:, 1], atol=2e-3)


def test_class_region_recovers_planted_temperatures() -> None:
    torch.manual_seed(3)
    planted = torch.tensor([[0.7, 1.4], [1.1, 3.0], [2.0, 0.9]], dtype=torch.float64)
    coarse = 3 * torch.randn(12, 3, 10, 10, dtype=torch.float64)
    logits = F.interpolate(coarse, size=(240, 240), mode="bilinear") + 0.1 * torch.randn(12, 3, 240, 240)
    calibrator = crac.build_calibrator("class_region", 3)
    predicted = logits.argmax(1)
    region = calibrator.cells(logits) - 2 * predicted
    temperatures = planted[predicted, region].unsqueeze(1)
    labels = torch.distributions.Categorical(logits=(logits / temperatures).movedim(1, -1)).sample()
    calibrator.fit(lambda: zip(logits.split(3), labels.split(3), strict=True), mask="all")
    assert calibrator.temperature.shape == (3, 2)
    torch.testing.assert_close(calibrator.temperature, planted, rtol=0.02, atol=0)
    near = crac.metrics.masks.select_voxels("band", logits, labels, band=3)
    lattice = torch.zeros_like(near)
    lattice[:, 3::7, 3::7] = True  # 240 voxels a side: every seventh row and column
    assert calibrator.fitted["voxels"] == (near | lattice).sum() == sum(calibrator.fitted["voxels_by_cell"])
    assert calibrator.fitted["batches"] == 4


@pytest.mark.parametrize(
    ("name", "shape"),
    [("identity", ()), ("temperature", ()), ("class", (4,)), ("region", (2,)), ("class_region", (4, 2)),
     ("class_region_affine", (4, 4)), ("vector", (4,))],
)  # fmt: skip
def test_shapes_of_temperatures_and_default_radii(name: str, shape: tuple[int, ...]) -> None:
    calibrator = crac.build_calibrator(name, 4)
    assert calibrator.temperature.shape == shape
    assert calibrator.radii == ((1, 2, 4) if name == "class_region_affine" else (1,))
    assert calibrator.weights.dtype == torch.float64
    if calibrator.by_region:
        assert crac.build_calibrator(name, 4, radii=[1, 3]).temperature.shape[-1] == 3


def test_column_0_is_inner_and_rows_are_predicted_classes() -> None:
    logits = torch.zeros(1, 2, 6, 6)
    logits[:, 1, :, 3:] = 1
    calibrator = crac.build_calibrator("class_region", 2)
    calibrator.weights.copy_(1 / torch.tensor([[1.0], [2], [4], [8]]))
    torch.testing.assert_close(calibrator.temperature, torch.tensor([[1, 2], [4, 8.0]]).double())
    expected = torch.tensor([1.0, 1, 2, 8, 4, 4]).expand(6, 6)
    torch.testing.assert_close(calibrator(logits)[0], (logits[0] / expected).softmax(0))
    assert [calibrator.cell_name(number) for number in range(4)] == [
        "class 0, inner", "class 0, outer", "class 1, inner", "class 1, outer",
    ]  # fmt: skip


@pytest.mark.parametrize("name", FITTED)
def test_logits_and_probabilities_give_the_same(name: str) -> None:
    logits, labels = case((2, 3, 20, 20), scale=1.5, blocks=8)
    ours = fit(name, (logits + 5 * torch.randn(2, 1, 20, 20), labels))  # softmax does not see what all classes share
    theirs = fit(name, (logits.softmax(1), labels), from_probabilities=True)
    torch.testing.assert_close(ours.weights, theirs.weights, rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(theirs.from_probabilities(logits.softmax(1)), ours(logits), rtol=0, atol=1e-3)
    moderate = (logits / 4, labels)  # no probability is below the smallest
    exact = fit(name, (moderate[0].softmax(1), labels), from_probabilities=True)
    torch.testing.assert_close(fit(name, moderate).weights, exact.weights, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("each", [sample.EACH, 5])
@pytest.mark.parametrize("name", FITTED)
def test_batches_change_nothing(name: str, each: int, monkeypatch: pytest.MonkeyPatch) -> None:
    logits, labels = case((6, 3, 24, 24), scale=2, share=0.9, blocks=8)
    whole = fit(name, (logits, labels), mask="band")
    monkeypatch.setattr(sample, "EACH", each)
    monkeypatch.setattr(sums, "PART", 1000)
    for sizes in ([1] * 6, [2, 4], [5, 1]):
        parts = zip(logits.split(sizes), labels.split(sizes), strict=True)
        found = fit(name, *parts, mask="band")
        torch.testing.assert_close(found.weights, whole.weights, rtol=1e-9, atol=1e-9)
        assert found.fitted["voxels_by_cell"] == whole.fitted["voxels_by_cell"]
        assert found.fitted["batches"] == len(sizes)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("name", FITTED)
def test_other_floating_point_types(name: str, dtype: torch.dtype) -> None:
    logits, labels = case((2, 3, 20, 20), blocks=8)
    rounded = logits.to(dtype)
    found, expected = fit(name, (rounded, labels.byte())), fit(name, (rounded.double(), labels.unsqueeze(1)))
    torch.testing.assert_close(found.weights, expected.weights, rtol=1e-5, atol=1e-5)
    assert found(rounded).dtype == torch.float32
    torch.testing.assert_close(found(rounded).double(), expected(rounded.double()), rtol=1e-4, atol=1e-5)


def test_each_volume_weighs_the_same() -> None:
    small, large = case((1, 3, 5, 5), seed=1, scale=2), case((1, 3, 50, 40), seed=2, scale=0.5)
    found = fit("temperature", small, large, weight="volume").temperature.item()

    def nll(logarithm: float) -> float:
        return sum(F.cross_entropy(logits / np.exp(logarithm), labels).item() for logits, labels in (small, large))

    best = minimize_scalar(nll, bounds=(-3, 3), method="bounded", options={"xatol": 1e-9})
    assert found == pytest.approx(np.exp(best.x), rel=1e-4)
    assert abs(found - fit("temperature", small, large).temperature.item()) > 0.01
    repeated = tuple(torch.cat([part] * 3, -1) for part in small)
    tripled = fit("temperature", repeated, large, weight="volume").temperature.item()
    assert tripled == pytest.approx(found, rel=1e-9)
    with pytest.raises(InputError, match="weight must be one of voxel, volume; got 'batch'"):
        fit("temperature", small, weight="batch")


def test_data_is_read_once_a_pass_and_never_kept() -> None:
    logits, labels = case((8, 3, 16, 16), scale=3)
    passes = 0

    def batches() -> Iterator[Pair]:
        nonlocal passes
        passes += 1
        yield from zip(logits.split(1), labels.split(1), strict=True)

    calibrator = crac.build_calibrator("class_region", 3).fit(batches)
    assert calibrator.fitted["passes"] == passes <= 4
    assert calibrator.fitted["mask"] == "all"
    assert crac.build_calibrator("temperature", 3).fit(batches).fitted["mask"] == "band"


def organ(side: int, planes: int | None = None) -> Pair:
    """A small organ, of whose background the network says too little near it, and too much far away."""
    generator = torch.Generator().manual_seed(side)
    axes = [torch.arange(length) for length in ((side, side) if planes is None else (planes, side, side))]
    grid = torch.stack(torch.meshgrid(*axes, indexing="ij")).double()
    away = (grid[-2:] - side / 2).norm(dim=0) - 12
    noise = 0.3 * torch.randn(away.shape, generator=generator, dtype=torch.float64)
    logits = torch.stack([away.clamp(-8, 6) + noise, torch.zeros_like(noise)])
    drawn = torch.rand(away.shape, generator=generator) < (-logits[0] / 2.5).sigmoid() * (away < 9)
    return logits.unsqueeze(0), drawn.long().unsqueeze(0)


@pytest.mark.parametrize("weight", ["voxel", "volume"])
@pytest.mark.parametrize("name", ["class_region", "class_region_affine"])
def test_far_background_counts_by_some_of_it(name: str, weight: str, monkeypatch: pytest.MonkeyPatch) -> None:
    volumes = organ(320), organ(200)
    found = crac.build_calibrator(name, 2).fit(lambda: volumes, weight=weight)  # type: ignore[arg-type]
    banded = fit(name, *volumes, mask="band", weight=weight)
    monkeypatch.setattr(pieces, "LARGE", 10**6)
    exact = fit(name, *volumes, weight=weight)
    assert exact.fitted["voxels"] == 320**2 + 200**2 > 3 * found.fitted["voxels"]

    def expected(calibrator: Calibrator) -> float:
        return sum(float(calibrator(logits)[:, 1].sum()) for logits, _ in volumes)

    true = sum(int(labels.sum()) for _, labels in volumes)
    assert expected(found) == pytest.approx(expected(exact), rel=0.02)
    assert abs(expected(found) - true) < 0.1 * true < 0.5 * abs(expected(banded) - true)


def test_thinned_background_does_not_depend_on_the_division(monkeypatch: pytest.MonkeyPatch) -> None:
    logits, labels = organ(130, planes=20)
    labels[:, :, :30] = 255  # nobody has looked there
    whole = fit("class_region", (logits, labels), ignore_index=255)
    assert whole.fitted["voxels"] < 20 * 100 * 130 / 2
    monkeypatch.setattr(pieces, "SLAB", 3 * 130**2)
    slabs = fit("class_region", (logits, labels), ignore_index=255)
    torch.testing.assert_close(slabs.weights, whole.weights, rtol=1e-9, atol=1e-9)
    assert slabs.fitted["voxels_by_cell"] == whole.fitted["voxels_by_cell"]


def test_errors_that_are_rare_are_not_missed() -> None:
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(2, (1, 900, 900), generator=generator)
    logits = F.one_hot(labels, 2).movedim(-1, 1) * (6 + torch.rand(1, 1, 900, 900, generator=generator))
    labels[0, 450, ::300] = 1 - labels[0, 450, ::300]  # three of 810 000, which no even sample would hold

    def nll(scale: float) -> float:
        return F.cross_entropy(logits.double() * scale, labels, reduction="sum").item()

    best = minimize_scalar(nll, bounds=(0.05, 20), method="bounded", options={"xatol": 1e-9})
    calibrator = fit("temperature", (logits, labels))
    assert calibrator.temperature.item() == pytest.approx(1 / best.x, rel=1e-4)
    assert calibrator.fitted["passes"] <= 6
    assert calibrator.fitted["notes"] == []


def _rank(rank: int, port: int, folder: Path) -> None:
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
    logits, labels = case((6, 3, 24, 24), scale=2, blocks=8)
    part = slice(0, 2) if rank == 0 else slice(2, 6)
    for name in FITTED:
        fit(name, (logits[part], labels[part])).save(folder / f"{name}-{rank}.json")
    nothing = [] if rank else [(logits, labels)]  # a process may have no share at all
    lonely = crac.build_calibrator("class", 3).fit(lambda: nothing, mask="all")
    lonely.save(folder / f"lonely-{rank}.json")
    dist.destroy_process_group()


def test_two_processes_find_what_one_finds(tmp_path: Path) -> None:
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    mp.spawn(_rank, args=(port, tmp_path), nprocs=2)
    pair = case((6, 3, 24, 24), scale=2, blocks=8)
    for name in (*FITTED, "lonely"):
        one = fit("class" if name == "lonely" else name, pair)
        first, second = (crac.load_calibrator(tmp_path / f"{name}-{rank}.json") for rank in (0, 1))
        torch.testing.assert_close(first.weights, one.weights, rtol=1e-9, atol=1e-9)
        assert torch.equal(first.weights, second.weights)
        assert first.fitted["voxels_by_cell"] == second.fitted["voxels_by_cell"] == one.fitted["voxels_by_cell"]
        assert first.fitted["batches"] == (1 if name == "lonely" else 2)


def test_temperature_agrees_with_netcal() -> None:
    scaling = pytest.importorskip("netcal.scaling", reason="netcal is not installed")
    logits, labels = case((8, 4, 30, 30), scale=2.3, share=0.95)
    p = logits.softmax(1).movedim(1, -1).reshape(-1, 4).numpy()
    expected = scaling.TemperatureScaling().fit(p, labels.flatten().numpy()).transform(p)
    ours = fit("temperature", (logits, labels))(logits).movedim(1, -1).reshape(-1, 4)
    np.testing.assert_allclose(ours, expected, atol=1e-4)


def test_batches_that_cannot_be_read_again_are_refused() -> None:
    for batches, kind in (([case()], "list"), ((one for one in [case()]), "generator")):
        with pytest.raises(InputError, match=f"batches must be a function, which is called once a pass; got {kind}"):
            crac.build_calibrator("class", 4).fit(batches)
