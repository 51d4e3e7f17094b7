"""The meter against goldens, and itself under every kind of splitting."""

import copy

import numpy as np
import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from hypothesis import given
from hypothesis import strategies as st
from scipy.ndimage import distance_transform_edt
from tests.metrics.meters import MASKS, assert_same, measure, random_case

import crac
from common import golden
from crac.errors import InputError
from crac.metrics import CalibrationMeter
from crac.metrics import calibration as calibration_module


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
def test_gpu_reports_bad_values_when_computing():
    logits, labels = random_case((1, 3, 8, 8))
    meter = CalibrationMeter(num_classes=3, mask="all")
    meter.update(logits=logits.cuda(), labels=labels.cuda() + 7)
    with pytest.raises(InputError, match=r"0\.\.2"):
        meter.compute()


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
    with pytest.raises(InputError, match="band must be a number of at least 0 and of at most 1000000; got -1"):
        CalibrationMeter(2, band=-1)


@pytest.mark.parametrize("mask", ["all", "band"])
@pytest.mark.parametrize("size", [(0, 8, 8), (1, 0, 8), (2, 8, 0), (1, 4, 0, 8)])
def test_an_empty_batch_adds_nothing(size, mask):
    logits, labels = random_case((1, 3, 8, 8))
    meter = CalibrationMeter(num_classes=3, mask=mask)
    meter.update(logits=logits, labels=labels)
    before = meter.compute()
    meter.update(logits=torch.zeros(size[0], 3, *size[1:]), labels=torch.zeros(size, dtype=torch.int64))
    assert_same(before, meter.compute())


@pytest.mark.parametrize("index", [-1, 300])
def test_bytes_are_not_taken_for_an_ignored_label_that_no_byte_can_be(index):
    logits, labels = random_case((1, 3, 8, 8))
    labels[0, :4] = index % 256
    meter = CalibrationMeter(num_classes=3, mask="all", ignore_index=index)
    with pytest.raises(InputError, match=r"labels must lie in 0\.\.2; 32 voxels of the mask do not"):
        meter.update(logits=logits, labels=labels.to(torch.uint8))
    labels[0, :4] = index
    meter.update(logits=logits, labels=labels)
    assert meter.compute().count == 32


def test_the_spacing_of_the_band_is_one_number_per_axis():
    logits, labels = random_case((1, 3, 8, 8))
    with pytest.raises(InputError, match=r"spacing must be 2 positive numbers, one per axis; got 2\.0"):
        CalibrationMeter(num_classes=3, mask="band").update(logits=logits, labels=labels, spacing=2.0)
