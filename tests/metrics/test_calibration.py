"""The meter against goldens, an independent reference, scikit-learn, and itself under every kind of splitting."""

import copy

import numpy as np
import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from hypothesis import given
from hypothesis import strategies as st
from scipy.ndimage import distance_transform_edt
from sklearn.metrics import brier_score_loss, log_loss

import crac
from common import golden
from crac.errors import InputError
from crac.functional import region_map
from crac.metrics import CalibrationMeter, CalibrationResult
from crac.metrics import calibration as calibration_module
from crac.metrics import counts as counts_module

MASKS = ("label_foreground", "predicted_foreground", "union_foreground", "all")


def random_case(shape=(2, 4, 24, 20), seed=0, sharpness=3.0, dtype=torch.float32):
    generator = torch.Generator().manual_seed(seed)
    logits = sharpness * torch.randn(shape, generator=generator)
    labels = (logits + 2 * torch.randn(shape, generator=generator)).argmax(1)
    return logits.to(dtype), labels


def measure(logits, labels, **arguments) -> CalibrationResult:
    meter = CalibrationMeter(num_classes=logits.shape[1], **arguments)
    meter.update(logits=logits, labels=labels)
    return meter.compute()


def binned_error(confidence: np.ndarray, hits: np.ndarray, bins: int) -> tuple[float, float]:
    """Mean and maximum calibration error over equal-width bins (a, b], in float64."""
    part = np.clip(np.ceil(confidence * bins) - 1, 0, bins - 1)
    errors = [
        (np.sum(part == b), abs(np.mean(confidence[part == b]) - np.mean(hits[part == b]))) for b in np.unique(part)
    ]
    return sum(n * e for n, e in errors) / len(confidence), max(e for _, e in errors)


def assert_same(first: CalibrationResult, second: CalibrationResult, tolerance=1e-12) -> None:
    assert first.count == second.count
    for name, value in first.scalars().items():
        assert second.scalars()[name] == pytest.approx(value, abs=tolerance, nan_ok=True), name
    for one, two in zip(first.by_class, second.by_class, strict=True):
        for name, value in one.scalars().items():
            assert two.scalars()[name] == pytest.approx(value, abs=tolerance, nan_ok=True), name
        torch.testing.assert_close(one.bins.counts, two.bins.counts)
    for region in first.by_region:
        assert_same(first.by_region[region], second.by_region[region], tolerance)


@pytest.mark.parametrize("name", ["metrics_a", "metrics_b"])
def test_golden_numbers(name):
    numbers = golden(name)
    logits, labels = torch.tensor(numbers["logits"]), torch.tensor(numbers["labels"])
    for shaped, target in ((logits, labels), (logits.movedim(0, 1)[None], labels[None])):  # slices, and one volume
        meter = crac.CalibrationMeter(num_classes=logits.shape[1], bins=15, mask="label_foreground", threshold=1e-3)
        meter.update(logits=shaped, labels=target)
        result = meter.compute()
        for ours, theirs in {"ece": "ece", "cece": "cece", "ace": "aece", "tace": "tace", "nll": "nll"}.items():
            assert getattr(result, ours) == pytest.approx(float(numbers[theirs]), abs=1e-6), ours


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("shape", [(3, 4, 31, 17), (1, 5, 9, 14, 11), (2, 2, 16, 16)])
def test_every_statistic_against_an_independent_reference(mask, shape):
    logits, labels = random_case(shape, seed=sum(shape))
    result = measure(logits, labels, mask=mask)
    s = torch.softmax(logits, 1).double().movedim(1, -1)
    predicted = s.argmax(-1)
    keep = {
        "label_foreground": labels > 0,
        "predicted_foreground": predicted > 0,
        "union_foreground": (labels > 0) | (predicted > 0),
        "all": labels > -1,
    }[mask]
    regions = region_map(labels)
    for chosen, got in (
        (keep, result),
        (keep & (regions == 0), result.by_region["inner"]),
        (keep & (regions == 1), result.by_region["outer"]),
    ):
        p, y, top = s[chosen].numpy(), labels[chosen].numpy(), predicted[chosen].numpy()
        assert got.count == len(y)
        if not len(y):
            continue
        confidence, correct = p.max(1), (top == y).astype(float)
        ece, mce = binned_error(confidence, correct, 15)
        assert got.ece == pytest.approx(ece, abs=1e-7)
        assert got.mce == pytest.approx(mce, abs=1e-6)
        assert got.gap == pytest.approx(confidence.mean() - correct.mean(), abs=1e-7)
        assert got.accuracy == pytest.approx(correct.mean())
        classes = range(logits.shape[1])
        class_errors = [binned_error(p[:, k], y == k, 15)[0] for k in classes]
        assert got.cece == pytest.approx(np.mean(class_errors), abs=1e-7)
        above = [p[:, k] > 1e-3 for k in classes]
        taces = [binned_error(p[a, k], y[a] == k, 15)[0] if a.any() else 0 for k, a in zip(classes, above, strict=True)]
        assert got.tace == pytest.approx(np.mean(taces), abs=1e-7)
        assert got.nll == pytest.approx(log_loss(y, p, labels=list(classes)), abs=1e-6)
        briers = [brier_score_loss((y == k).astype(int), p[:, k], pos_label=1) for k in classes]
        assert got.brier == pytest.approx(sum(briers), abs=1e-7)
        for k in classes:
            one = got.by_class[k]
            assert (one.labelled, one.predicted) == (np.sum(y == k), np.sum(top == k))
            assert one.ece == pytest.approx(class_errors[k], abs=1e-7)
            assert one.brier == pytest.approx(briers[k], abs=1e-7)
            assert one.gap == pytest.approx(p[:, k].mean() - np.mean(y == k), abs=1e-7)
            chosen_k = top == k
            gap = (confidence - correct)[chosen_k].mean() if chosen_k.any() else np.nan
            assert one.predicted_gap == pytest.approx(gap, abs=1e-7, nan_ok=True)


def test_tace_adaptive_against_sorting():
    logits, labels = random_case((4, 3, 96, 96), sharpness=5.0)
    p = torch.softmax(logits, 1).double().movedim(1, -1).reshape(-1, 3).numpy()
    y = labels.reshape(-1).numpy()
    expected = []
    for k in range(3):
        confidence, hits = p[p[:, k] > 1e-3, k], (y == k)[p[:, k] > 1e-3]
        parts = np.array_split(np.argsort(confidence, kind="stable"), 15)
        expected.append(sum(abs((confidence[i] - hits[i]).sum()) for i in parts) / len(confidence))
    assert measure(logits, labels, mask="all").tace_adaptive == pytest.approx(np.mean(expected), abs=5e-4)


def test_forty_million_voxels_are_all_counted():
    """Where float32 counters stop at 2^24: confidence 0.99, accuracy 0.75."""
    voxels = 2000 * 2000
    probabilities = torch.tensor([0.01, 0.99], dtype=torch.float64).view(1, 2, 1, 1).expand(1, 2, 2000, 2000)
    labels = torch.ones(voxels, dtype=torch.uint8)
    labels[::4] = 0
    meter = CalibrationMeter(num_classes=2, mask="all")
    for _ in range(10):
        meter.update(probabilities=probabilities, labels=labels.view(1, 2000, 2000))
    result = meter.compute()
    assert result.count == 40_000_000
    assert int(result.bins.counts.sum()) == 40_000_000
    assert result.ece == pytest.approx(0.24, abs=1e-9)
    assert result.mce == pytest.approx(0.24, abs=1e-9)
    assert result.ace == pytest.approx(0.24, abs=1e-9)
    assert not result.ace_exact


def test_confidences_of_exactly_0_and_1_are_in_the_end_bins():
    probabilities = torch.tensor([[0.0, 1.0], [1.0, 0.0]]).view(1, 2, 1, 2)
    meter = CalibrationMeter(num_classes=2, mask="all")
    meter.update(probabilities=probabilities, labels=torch.tensor([[[1, 0]]]))
    result = meter.compute()
    assert result.by_class[1].bins.counts.tolist() == [1, *[0] * 13, 1]
    assert result.bins.counts.tolist() == [*[0] * 14, 2]
    assert result.ece == result.brier == 0


@given(cuts=st.lists(st.integers(1, 11), max_size=4), seed=st.integers(0, 100), mask=st.sampled_from(MASKS))
def test_splitting_into_batches_changes_nothing(cuts, seed, mask):
    logits, labels = random_case((12, 3, 8, 9), seed)
    meter = CalibrationMeter(num_classes=3, mask=mask)
    for part, target in zip(logits.tensor_split(sorted(cuts)), labels.tensor_split(sorted(cuts)), strict=True):
        if len(part):
            meter.update(logits=part, labels=target)
    assert_same(measure(logits, labels, mask=mask), meter.compute())


def test_merging_changes_nothing_on_either_side_of_exactness(monkeypatch):
    logits, labels = random_case((6, 3, 16, 16))
    for limit in (2**20, 4 * 256):
        monkeypatch.setattr(calibration_module, "EXACT_VOXELS", limit)
        whole = measure(logits, labels)
        assert whole.ace_exact == (limit > labels.numel())
        parts = [CalibrationMeter(num_classes=3) for _ in range(3)]
        for part, chunk, target in zip(parts, logits.split([1, 3, 2]), labels.split([1, 3, 2]), strict=True):
            part.update(logits=chunk, labels=target)
        total = CalibrationMeter(num_classes=3)
        for part in parts:
            total.merge(part)
        assert_same(whole, total.compute())


def test_updates_inside_and_outside_inference_mode_add_up():
    logits, labels = random_case()
    meter, other = CalibrationMeter(num_classes=4), CalibrationMeter(num_classes=4)
    with torch.inference_mode():
        meter.update(logits=logits, labels=labels)
    meter.update(logits=logits.requires_grad_(), labels=labels)
    with torch.inference_mode():
        other.update(logits=logits * 1, labels=labels)
    meter.merge(other)
    assert meter.compute().count == 3 * measure(logits, labels).count
    assert meter.compute().ece == pytest.approx(measure(logits, labels).ece, abs=1e-12)


def test_many_threads_count_the_same():
    logits, labels = random_case((1, 3, 30, 150, 150))
    threads = torch.get_num_threads()
    results = []
    try:
        for number in (1, 3):
            torch.set_num_threads(number)
            results.append(measure(logits, labels, mask="all"))
            assert torch.get_num_threads() == number
    finally:
        torch.set_num_threads(threads)
    assert_same(*results)


def _rank(rank: int, world: int, port: int, queue: mp.SimpleQueue) -> None:
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=world)
    logits, labels = random_case((6, 3, 16, 16))
    meter = CalibrationMeter(num_classes=3)
    part = slice(0, 2) if rank == 0 else slice(2, 6)
    meter.update(logits=logits[part], labels=labels[part])
    own = meter.compute().count
    result = meter.compute(sync=True)
    assert meter.compute().count == own  # looking at the sum does not change the part
    queue.put((rank, result.scalars()))
    dist.destroy_process_group()


def test_two_ranks_count_what_one_does(unused_port):
    context = mp.get_context("spawn")
    queue = context.SimpleQueue()
    mp.spawn(_rank, args=(2, unused_port, queue), nprocs=2)
    whole = measure(*random_case((6, 3, 16, 16))).scalars()
    for _, scalars in (queue.get(), queue.get()):
        assert scalars == pytest.approx(whole, abs=1e-12)


@pytest.fixture
def unused_port() -> int:
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_logits_and_their_softmax_give_the_same():
    logits, labels = random_case()
    meter = CalibrationMeter(num_classes=4)
    meter.update(probabilities=torch.softmax(logits, 1), labels=labels)
    assert_same(measure(logits, labels), meter.compute(), tolerance=1e-6)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_other_floating_point_types(dtype):
    logits, labels = random_case()
    rounded = logits.to(dtype)
    assert_same(measure(rounded.float(), labels), measure(rounded, labels), tolerance=1e-6)


def test_label_layouts_and_types():
    logits, labels = random_case()
    expected = measure(logits, labels)
    for other in (labels.unsqueeze(1), labels.to(torch.uint8), labels.to(torch.int16)):
        assert_same(expected, measure(logits, other))
    assert_same(expected, measure(logits.to(memory_format=torch.channels_last), labels))


def test_boolean_masks():
    logits, labels = random_case()
    chosen = torch.zeros(labels.shape, dtype=torch.bool)
    chosen[:, 5:15] = True
    expected = measure(logits[:, :, 5:15], labels[:, 5:15], mask="all")
    given_once = measure(logits, labels, mask=chosen[0])
    assert given_once.mask == "custom"
    meter = CalibrationMeter(num_classes=4)
    meter.update(logits=logits, labels=labels, mask=chosen)
    for result in (given_once, meter.compute()):
        assert result.count == expected.count
        assert result.ece == pytest.approx(expected.ece, abs=1e-12)


@pytest.mark.parametrize("index", [255, -100, 3])
def test_ignored_voxels_count_nowhere(index):
    logits, labels = random_case((2, 3, 24, 20))
    labels = labels.clone()
    hidden = torch.zeros(labels.shape, dtype=torch.bool)
    hidden[:, 3:9, 4:12] = True
    expected = CalibrationMeter(num_classes=3, mask="all")
    expected.update(logits=logits, labels=labels, mask=~hidden)
    labels[hidden] = index
    result = measure(logits, labels, mask="all", ignore_index=index)
    assert result.count == expected.compute().count
    assert result.ece == pytest.approx(expected.compute().ece, abs=1e-12)
    assert result.nll == pytest.approx(expected.compute().nll, abs=1e-12)


def test_of_tied_classes_the_first_is_predicted():
    probabilities = torch.full((1, 4, 2, 2), 0.25)
    meter = CalibrationMeter(num_classes=4, mask="all")
    meter.update(probabilities=probabilities, labels=torch.tensor([[[0, 0], [0, 3]]]))
    result = meter.compute()
    assert result.accuracy == 0.75
    assert [one.predicted for one in result.by_class] == [4, 0, 0, 0]
    assert int(result.bins.counts.sum()) == 4


def test_a_class_ruled_out_by_minus_infinity_is_fine():
    logits, labels = random_case((1, 3, 8, 8))
    logits[:, 2] = -torch.inf
    result = measure(logits, labels.clamp(max=1), mask="all")
    assert result.by_class[2].ece == 0
    assert np.isfinite(result.nll)


def test_nothing_counted_is_nan_and_not_an_error():
    result = CalibrationMeter(num_classes=3).compute()
    assert result.count == 0
    assert np.isnan([value for name, value in result.scalars().items() if name != "count"]).all()
    only_background = measure(random_case((1, 3, 8, 8))[0], torch.zeros(1, 8, 8, dtype=torch.long))
    assert np.isnan(only_background.ece)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda s, y: (s, y + 9), r"0\.\.2"),
        (lambda s, y: (s, y - 1), r"0\.\.2"),
        (lambda s, y: (s * torch.nan, y), "finite"),
        (lambda s, y: (s * 0.9, y), "sum to 1"),
        (lambda s, y: (s - s.mean() * torch.tensor([3.0, -3.0, 0.0]).view(1, 3, 1, 1), y), "negative"),
        (lambda s, y: (s, y.float()), "integers"),
        (lambda s, y: (s, y[:, 1:]), "shape"),
        (lambda s, y: (s[:, 1:], y), "shape"),
        (lambda s, y: (s.long(), y), "floating"),
    ],
)
def test_bad_input_is_refused_and_leaves_the_meter_as_it_was(change, message):
    logits, labels = random_case((1, 3, 8, 8))
    good = torch.softmax(logits, 1)
    meter = CalibrationMeter(num_classes=3, mask="all")
    meter.update(probabilities=good, labels=labels)
    before = meter.compute()
    scores, target = change(good, labels)
    with pytest.raises(InputError, match=message):
        meter.update(probabilities=scores, labels=target)
    assert_same(before, meter.compute())


def test_bad_arguments_are_refused():
    logits, labels = random_case((1, 3, 8, 8))
    with pytest.raises(InputError, match="label_foreground"):
        CalibrationMeter(num_classes=3, mask="foreground")
    with pytest.raises(InputError, match="boolean"):
        CalibrationMeter(num_classes=3, mask=torch.ones(8, 8))
    with pytest.raises(InputError, match="either"):
        CalibrationMeter(num_classes=3).update(labels=labels)
    with pytest.raises(InputError, match="broadcast"):
        CalibrationMeter(num_classes=3).update(logits=logits, labels=labels, mask=torch.ones(3, 3, dtype=torch.bool))
    with pytest.raises(InputError, match="merged"):
        CalibrationMeter(num_classes=3).merge(CalibrationMeter(num_classes=3, bins=10))


def test_memory_does_not_grow_with_the_number_of_updates():
    logits, labels = random_case((4, 2, 512, 512))
    meter = CalibrationMeter(num_classes=2)
    sizes = []
    for _ in range(3):
        meter.update(logits=logits, labels=labels)
        state = copy.deepcopy(meter.state())
        sizes.append(
            sum(part.size for part in state["counts"]) + sum(p.size for top in state["tops"] or [] for p in top)
        )
    assert sizes[1] == sizes[2] <= sizes[0]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("mask", MASKS)
def test_gpu_counts_the_same_without_waiting(mask):
    logits, labels = random_case((4, 4, 64, 64))
    meter = CalibrationMeter(num_classes=4, mask=mask)
    device = torch.device("cuda")
    on_device = logits.to(device), labels.to(device)
    meter.update(logits=on_device[0], labels=on_device[1])
    torch.cuda.set_sync_debug_mode("error")
    try:
        meter.update(logits=on_device[0], labels=on_device[1])
    finally:
        torch.cuda.set_sync_debug_mode("default")
    expected = CalibrationMeter(num_classes=4, mask=mask)
    expected.update(logits=logits, labels=labels)
    expected.update(logits=logits, labels=labels)
    assert_same(expected.compute(), meter.compute(), tolerance=1e-6)


@pytest.mark.parametrize("from_logits", [True, False])
@pytest.mark.parametrize("mask", MASKS)
def test_counting_without_looking_at_values_gives_the_same(mask, from_logits, monkeypatch):
    """The way a GPU counts, on the CPU: no voxel is left out, ties and faults are always looked for."""
    logits, labels = random_case((2, 4, 40, 40))
    logits = logits.round()  # many ties
    results = []
    for look in (True, False):
        monkeypatch.setattr(counts_module, "may_look", lambda _, look=look: look)
        meter = CalibrationMeter(num_classes=4, mask=mask)
        scores = {"logits": logits} if from_logits else {"probabilities": torch.softmax(logits, 1)}
        meter.update(labels=labels, **scores)
        results.append(meter.compute())
    assert_same(*results)


@pytest.mark.parametrize("look", [True, False])
@pytest.mark.parametrize("from_logits", [True, False])
def test_faulty_voxels_are_all_counted_and_only_those_of_the_mask(look, from_logits, monkeypatch):
    monkeypatch.setattr(counts_module, "may_look", lambda _: look)
    logits, labels = random_case((1, 3, 16, 16))
    scores = logits if from_logits else torch.softmax(logits, 1)
    scores[:, :, 3, 4:11] = torch.nan
    name = "logits" if from_logits else "probabilities"
    meter = CalibrationMeter(num_classes=3, mask="all")
    with pytest.raises(InputError, match=r"^7 voxels"):
        meter.update(labels=labels, **{name: scores})
    inside = torch.ones_like(labels, dtype=torch.bool)
    inside[:, 3, 4:11] = False
    meter.update(labels=labels, mask=inside, **{name: scores})
    result = meter.compute()
    assert result.count == 256 - 7
    assert np.isfinite([result.ece, result.nll, result.brier]).all()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_gpu_reports_bad_values_when_computing():
    logits, labels = random_case((1, 3, 8, 8))
    meter = CalibrationMeter(num_classes=3, mask="all")
    meter.update(logits=logits.cuda(), labels=labels.cuda() + 7)
    with pytest.raises(InputError, match=r"0\.\.2"):
        meter.compute()


def test_regions_do_not_depend_on_how_a_volume_is_cut(monkeypatch):
    from crac.metrics import slabs

    logits, labels = random_case((2, 3, 9, 12, 14))
    whole = measure(logits, labels, mask="all")
    monkeypatch.setattr(slabs, "CPU_SLAB", 2 * 12 * 14)
    assert_same(whole, measure(logits, labels, mask="all"))
    assert whole.by_region["outer"].count == int(region_map(labels).sum())
    flat = measure(logits[:, :, 0], labels[:, 0], mask="all")
    assert flat.by_region["outer"].count == int(region_map(labels[:, 0]).sum())


def test_numpy_arrays_are_taken_and_booleans_refused():
    logits, labels = 3 * torch.randn(1, 3, 6, 7), torch.randint(3, (1, 6, 7))
    meters = [CalibrationMeter(3, mask="all") for _ in range(2)]
    meters[0].update(logits=logits, labels=labels)
    meters[1].update(logits=logits.numpy(), labels=labels.numpy())
    assert str(meters[0].compute().to_dict()) == str(meters[1].compute().to_dict())  # empty bins hold NaN
    with pytest.raises(InputError, match=r"labels must hold integers; got dtype torch.bool"):
        meters[0].update(logits=logits, labels=labels > 0)


@pytest.mark.parametrize("spacing", [None, (4.0, 1.0, 0.5)])
def test_the_band_holds_what_is_near_labelled_or_predicted_foreground(spacing):
    """Against scipy's distances, for a volume; as slices only distances within them count."""
    labels = torch.zeros(1, 7, 24, 25, dtype=torch.int64)
    labels[0, 2, 4:8, 5:9] = 1
    logits = torch.zeros(1, 2, 7, 24, 25)
    logits[:, 0], logits[:, 1] = 2, torch.randn(1, 7, 24, 25)
    logits[0, 1, 5, 18:20, 18:20] = 9  # a false positive, far from the label
    foreground = (labels[0] > 0) | (logits[0].argmax(0) > 0)
    near = distance_transform_edt(~foreground.numpy(), sampling=spacing) <= 2.5
    meter = CalibrationMeter(2, mask="band", band=2.5)
    meter.update(logits=logits, labels=labels, spacing=spacing)
    chosen = CalibrationMeter(2, mask=torch.from_numpy(near))
    chosen.update(logits=logits, labels=labels)
    found, expected = meter.compute(), chosen.compute()
    assert found.mask == "band"
    assert foreground.sum() < found.count < foreground.numel()
    assert found.scalars() == expected.scalars()

    slices = CalibrationMeter(2, mask="band", band=2.5)
    slices.update(logits=logits[0].transpose(0, 1), labels=labels[0])
    planes = [distance_transform_edt(~plane.numpy()) <= 2.5 if plane.any() else plane.numpy() for plane in foreground]
    assert slices.compute().count == np.sum(planes)
    with pytest.raises(InputError, match=r"spacing must be 3 positive numbers, one per axis; got \(1, 2\)"):
        meter.update(logits=logits, labels=labels, spacing=(1, 2))
    with pytest.raises(InputError, match="band must be a number of at least 0; got -1"):
        CalibrationMeter(2, band=-1)
