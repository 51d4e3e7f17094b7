"""Input on which nothing can be estimated, or too much: the result is defined, and the notes say why."""

import math

import pytest
import torch
import torch.nn.functional as F
from scipy.optimize import minimize_scalar
from torch import Tensor

import crac
from crac.calibration import Calibrator, fitting
from crac.errors import InputError

SCALES = [name for name, kind in crac.CALIBRATORS.items() if kind.coefficients == "scale" and name != "identity"]


def fit(name: str, logits: Tensor, labels: Tensor, **options: object) -> Calibrator:
    calibrator = crac.build_calibrator(name, logits.shape[1])
    return calibrator.fit(lambda: [(logits, labels)], **{"mask": "all", **options})


def two_of_three() -> tuple[Tensor, Tensor]:
    """Class 2 is never predicted; T = 3 suits the others."""
    logits = F.interpolate(torch.randn(4, 3, 8, 8), scale_factor=6, mode="bilinear") * 2
    logits[:, 2] = logits[:, :2].amin(1) - 1
    labels = torch.distributions.Categorical(logits=logits.movedim(1, -1)).sample()
    return 3 * logits, labels


@pytest.mark.parametrize("name", ["class", "class_region", "class_region_affine"])
def test_a_class_never_predicted_takes_the_common_temperature(name: str) -> None:
    logits, labels = two_of_three()
    calibrator = fit(name, logits, labels)
    unseen = calibrator.temperature[2].flatten()
    torch.testing.assert_close(unseen, unseen[:1].expand_as(unseen))
    low, high = calibrator.temperature[:2].aminmax()
    assert low < unseen[0] < high
    if name != "class_region_affine":
        assert 2 < unseen[0] < 4
    else:
        assert (calibrator.bias[2] == 0).all()
    notes = [note for note in calibrator.fitted["notes"] if note.startswith("class 2")]
    assert len(notes) == unseen.numel()
    ending = f"no voxel was seen, so it takes the common temperature {unseen[0]:.3g}"
    assert all(note.endswith(ending) for note in notes)


@pytest.mark.parametrize("name", SCALES)
@pytest.mark.parametrize("margin", [0.5, 8.0, 40.0])
def test_a_perfect_model(name: str, margin: float) -> None:
    labels = torch.randint(3, (1, 5, 5)).repeat_interleave(4, 1).repeat_interleave(4, 2)
    right = F.one_hot(labels, 3).movedim(-1, 1).float()
    calibrator = fit(name, margin * right, labels)
    torch.testing.assert_close(calibrator.temperature, torch.full_like(calibrator.temperature, 0.05))
    assert len(calibrator.fitted["notes"]) == calibrator.num_cells
    assert "the temperature is at its bound, 0.05" in calibrator.fitted["notes"][0]
    assert calibrator.fitted["passes"] == 2


@pytest.mark.parametrize("name", SCALES)
def test_a_certain_and_a_constant_model_stay_as_they_are(name: str) -> None:
    labels = torch.randint(3, (1, 9, 9))
    certain = 1e4 * F.one_hot(labels, 3).movedim(-1, 1).float()
    for logits in (certain, torch.zeros(1, 3, 9, 9), torch.full((1, 3, 9, 9), 7.5)):
        calibrator = fit(name, logits, labels)
        assert (calibrator.temperature == 1).all()
        assert len(calibrator.fitted["notes"]) == calibrator.num_cells
        assert any("every temperature fits its predictions equally well" in note for note in calibrator.fitted["notes"])


def test_a_constant_model_learns_the_frequencies_where_there_are_biases() -> None:
    labels = torch.tensor([0] * 700 + [1] * 300).view(1, 20, 50)
    for name in ("vector", "class_region_affine"):
        p = fit(name, torch.zeros(1, 2, 20, 50), labels)(torch.zeros(1, 2, 4, 4))
        assert p[0, 0, 0, 0].item() == pytest.approx(0.7, abs=0.01)
    affine = fit("class_region_affine", torch.zeros(1, 2, 20, 50), 1 - labels)
    p = affine(torch.zeros(1, 2, 4, 4))  # class 0 won: it stays ahead although class 1 is the likelier
    assert (p.argmax(1) == 0).all()
    assert p[0, 0, 0, 0].item() == pytest.approx(0.5)


def test_a_model_that_is_always_wrong() -> None:
    labels = torch.randint(3, (1, 9, 9))
    calibrator = fit("temperature", -F.one_hot(labels, 3).movedim(-1, 1).float(), labels)
    assert calibrator.temperature.item() == pytest.approx(20)
    assert calibrator.fitted["notes"] == [
        "all voxels: the temperature is at its bound, 20; the likelihood wants it beyond"
    ]


@pytest.mark.parametrize("name", crac.CALIBRATORS)
@pytest.mark.parametrize("label", [0, 1])
def test_a_single_voxel(name: str, label: int) -> None:
    logits = torch.tensor([0.0, 2, -1]).view(1, 3, 1, 1)
    calibrator = fit(name, logits, torch.full((1, 1, 1), label))
    assert calibrator.weights.isfinite().all()
    assert calibrator(logits).isfinite().all()
    if name != "identity":
        assert calibrator.fitted["voxels"] == 1
    if calibrator.by_class:
        assert len(calibrator.fitted["notes"]) >= calibrator.num_cells - 1


def test_small_cells_are_drawn_towards_the_common_temperature() -> None:
    torch.manual_seed(1)
    logits = torch.randn(1, 2, 100, 100) * 2
    labels = torch.distributions.Categorical(logits=logits.movedim(1, -1)).sample()
    rare = torch.tensor([0.0, 3, 1]).view(1, 3, 1, 1).expand(1, 3, 1, 100).clone()
    rare[..., 50:] = torch.tensor([0.0, 1, 3]).view(1, 3, 1, 1)  # fifty voxels of class 2, all wrong
    logits = torch.cat([F.pad(logits, (0, 0, 0, 0, 0, 1), value=-9), rare], 2)
    labels = torch.cat([labels, torch.ones(1, 1, 100, dtype=torch.int64)], 1)
    temperature = fit("class", logits, labels).temperature
    alone = fit("temperature", logits[..., -1:, 50:], labels[..., -1:, 50:]).temperature
    assert alone == pytest.approx(20)
    assert temperature[0] < temperature[2] < 15


@pytest.mark.parametrize("unsure", [0.1, 0.3, 1e-3])
def test_a_cell_that_is_never_wrong_is_as_sure_as_its_voxels_ask_for(unsure: float) -> None:
    """Its likelihood grows up to the bound, where it is flat, yet thousands of voxels outweigh what draws it back."""
    torch.manual_seed(0)
    logits = 2 * torch.randn(1, 2, 60, 60, dtype=torch.float64)
    labels = torch.distributions.Categorical(logits=logits.movedim(1, -1)).sample()
    logits, right = F.pad(3 * logits, (0, 0, 0, 0, 1, 0), value=-30), torch.zeros(1, 3, 60, 60, dtype=torch.float64)
    right[:, 0] = math.log(1 / unsure - 1)
    right[:, 2] = -30
    scores, truth = torch.cat([logits, right], 2), torch.cat([labels + 1, torch.zeros_like(labels)], 1)
    found = 1 / fit("class", scores, truth).temperature

    def loss(k: int, scale: float) -> Tensor:
        here = scores.argmax(1) == k
        own = torch.tensor(scale, dtype=torch.float64, requires_grad=True)
        value = F.cross_entropy(own * scores.movedim(1, -1)[here], truth[here], reduction="sum")
        (slope,) = torch.autograd.grad(value, own, create_graph=True)
        return torch.stack([value, slope, torch.autograd.grad(slope, own)[0]]).detach()

    best = [minimize_scalar(lambda a, k=k: loss(k, a)[0].item(), bounds=(0.05, 20), method="bounded").x for k in (1, 2)]
    information = torch.stack([loss(k, a)[2] for k, a in zip((1, 2), best, strict=True)])
    common = (information * torch.tensor(best)).sum() / information.sum()
    strength = 100 * information.sum() / truth.numel()
    pulled = minimize_scalar(
        lambda a: (loss(0, a)[0] + strength / 2 * (a - common) ** 2).item(), bounds=(0.05, 20), method="bounded"
    )
    assert found[0] == pytest.approx(pulled.x, rel=1e-3)
    if unsure >= 0.1:  # else they are sure already
        assert found[0] > 2 * common


@pytest.mark.parametrize("seed", range(6))
def test_a_cell_that_is_never_wrong_may_be_missing_in_the_sample(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(seed)
    logits = 2 * torch.randn(1, 2, 60, 60, dtype=torch.float64)
    labels = torch.distributions.Categorical(logits=logits.movedim(1, -1)).sample() + 1
    scores = torch.cat([F.pad(3 * logits, (0, 0, 0, 0, 1, 0), value=-30), torch.zeros(1, 3, 60, 60)], 2)
    scores[:, 0, 60:] = 2
    truth = torch.cat([labels, torch.zeros_like(labels)], 1)
    whole, draw = fit("class", scores, truth), fitting._sample

    def without_background(*given: object) -> object:
        return [tuple(one[..., cell > 0] for one in (x, y, cell, w)) for x, y, cell, w in draw(*given)]

    monkeypatch.setattr(fitting, "_sample", without_background)
    part = fit("class", scores, truth)
    assert whole.temperature[0] < 0.5 * whole.temperature[1]
    torch.testing.assert_close(part.temperature, whole.temperature, rtol=1e-6, atol=0)
    assert part.fitted["passes"] <= whole.fitted["passes"] + 4


@pytest.mark.parametrize("name", [name for name in crac.CALIBRATORS if name != "identity"])
def test_no_voxel(name: str) -> None:
    message = "batches must hold at least one labelled voxel of the mask; got none"
    background = torch.tensor([1.0, 0, 0]).view(1, 3, 1, 1).expand(1, 3, 4, 4)
    with pytest.raises(InputError, match=message):
        crac.build_calibrator(name, 3).fit(list)
    with pytest.raises(InputError, match=message):
        fit(name, background, torch.zeros(1, 4, 4, dtype=torch.int64), mask="band")
    with pytest.raises(InputError, match=message):
        fit(name, background, torch.full((1, 4, 4), 9), ignore_index=9)


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("mask", ["all", "band", "label_foreground"])
def test_logits_that_are_not_finite(bad: float, mask: str) -> None:
    logits, labels = torch.randn(1, 3, 20, 20), torch.zeros(1, 20, 20, dtype=torch.int64)
    labels[0, 0, 0] = 1
    logits[0, 1, 19, 19] = bad  # outside most masks, but regions depend on it
    for name in ("temperature", "vector", "class_region_affine"):
        with pytest.raises(InputError, match="logits must be finite; got NaN or infinite values"):
            fit(name, logits, labels, mask=mask)


@pytest.mark.parametrize("mask", ["all", "band", "label_foreground"])
@pytest.mark.parametrize("name", ["temperature", "vector", "class_region_affine"])
def test_logits_that_are_said_to_be_probabilities(name: str, mask: str) -> None:
    logits, labels = 2 * torch.randn(1, 3, 20, 20), torch.ones(1, 20, 20, dtype=torch.int64)
    with pytest.raises(InputError, match=r"probabilities must lie between 0 and 1; got values from -.* to [2-9]"):
        fit(name, logits, labels, mask=mask, from_probabilities=True)
    rounded = logits.softmax(1).half() + 1e-3 * torch.rand(1, 3, 20, 20)
    assert fit(name, rounded - 5e-4, labels, mask=mask, from_probabilities=True).fitted["voxels"] == 400


@pytest.mark.parametrize("index", [-1, 300])
def test_bytes_are_not_taken_for_an_ignored_label_that_no_byte_can_be(index: int) -> None:
    labels = torch.full((1, 4, 4), index % 256, dtype=torch.uint8)
    labels[0, 0] = 1
    with pytest.raises(InputError, match=rf"labels must lie in 0\.\.2; got {index % 256}"):
        fit("temperature", torch.randn(1, 3, 4, 4), labels, ignore_index=index)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (torch.full((1, 4, 4), 3), r"labels must lie in 0\.\.2; got 3"),
        (torch.full((1, 4, 4), -1), r"labels must lie in 0\.\.2; got -1"),
        (torch.zeros(1, 4, 5, dtype=torch.int64), r"labels must have shape \(1, 4, 4\) on cpu"),
        (torch.zeros(1, 4, 4), "labels must hold integers"),
    ],
)
def test_labels_that_do_not_match(labels: Tensor, message: str) -> None:
    with pytest.raises(InputError, match=message):
        fit("temperature", torch.randn(1, 3, 4, 4), labels)


def test_ignored_voxels_change_nothing() -> None:
    logits, labels = two_of_three()
    labels[:, :, :20] = 255
    scrambled = logits.clone()
    scrambled[:, :2, :, :20] = torch.randn(4, 2, 48, 20) + logits[:, :2, :, :20].mean()
    one = fit("class", logits, labels.byte(), ignore_index=255)
    two = fit("class", scrambled, labels.byte(), ignore_index=255)
    cut = fit("class", logits[..., 20:], labels[..., 20:])
    assert torch.equal(one.weights, two.weights)
    torch.testing.assert_close(one.weights, cut.weights, rtol=1e-9, atol=0)
    assert one.fitted["voxels"] == 4 * 48 * 28


@pytest.mark.parametrize("mask", ["label_foreground", "predicted_foreground", "union_foreground", "band", "all"])
def test_masks(mask: str) -> None:
    logits, labels = two_of_three()
    logits[:, 0, :20] += 90
    labels[:, :20] = 0
    keep = crac.metrics.masks.select_voxels(mask, logits, labels)
    expected = labels.numel() if keep is None else int(keep.sum())
    assert fit("region", logits, labels, mask=mask).fitted["voxels"] == expected
    with pytest.raises(InputError, match=r"mask must be one of label_foreground, .*; got 'foreground'"):
        fit("region", logits, labels, mask="foreground")


def test_steps_that_never_vanish_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    logits, labels = two_of_three()
    monkeypatch.setattr(fitting, "STEPS", 1)
    monkeypatch.setattr(fitting, "PASSES", 1)
    notes = fit("temperature", logits, labels).fitted["notes"]
    assert notes == ["after 2 passes the coefficients still changed; more data may settle them"]
