"""Per-volume and pooled numbers, slices and volumes, logits and probabilities."""

import numpy as np
import pytest
import torch

import crac
from crac.errors import InputError
from crac.evaluation.protocol import Prediction, Protocol, evaluate, measure
from crac.functional import region_map
from crac.report.folder import table


def prediction(name, shape=(6, 20, 24), from_logits=True, seed=0):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.zeros(shape, dtype=torch.long)
    labels[1:4, 3:12, 4:15], labels[3:, 10:18, 10:20] = 1, 2
    logits = 4 * torch.nn.functional.one_hot(labels, 3).movedim(-1, 0) + 2 * torch.randn(
        (3, *shape), generator=generator
    )
    scores = logits if from_logits else logits.softmax(0)
    return Prediction(name, scores, labels, (5.0, 1.0, 1.5), from_logits)


def test_per_volume_is_the_mean_of_volumes_and_pooled_is_the_meter_of_all():
    protocol = Protocol(["background", "a", "b"])
    volumes = [prediction("one", seed=1), prediction("two", (4, 20, 24), seed=2)]
    evaluation = evaluate(iter(volumes), protocol)
    meter = crac.CalibrationMeter(3)
    single = []
    for volume in volumes:
        own = crac.CalibrationMeter(3)
        for m in (own, meter):
            m.update(logits=volume.scores[None], labels=volume.labels[None])
        single.append(own.compute().ece)
    summary = evaluation.summary()
    assert summary["per_volume"]["ece[label_foreground]"]["mean"] == pytest.approx(np.mean(single))
    assert summary["pooled"]["label_foreground"]["ece"] == pytest.approx(meter.compute().ece)
    assert np.mean(single) != pytest.approx(meter.compute().ece, abs=1e-9)


def test_threads_measure_the_same_in_the_same_order():
    protocol = Protocol(["background", "a", "b"])
    volumes = [prediction(str(number), (3 + number % 4, 20, 24), seed=number) for number in range(20)]
    expected, found = (evaluate(iter(volumes), protocol, on_gpu) for on_gpu in (False, True))
    assert found.rows == expected.rows
    assert str(found.summary()) == str(expected.summary())  # a bin without voxels holds NaN


def test_threads_hand_an_error_on():
    volumes = [prediction("good"), prediction("bad")._replace(labels=torch.zeros(1, 2, 3))]
    with pytest.raises((InputError, ValueError, IndexError)):
        evaluate(iter(volumes), Protocol(["background", "a", "b"]), on_gpu=True)


def test_rows_hold_the_public_functions_values():
    volume = prediction("one")
    protocol = Protocol(["background", "a", "b"], hd95="directed_max", unit="voxel", empty="zero", tolerance=2)
    row = measure(volume, protocol).row
    predicted = volume.scores.argmax(0)
    assert row["dsc.a"] == pytest.approx(float(crac.dice(predicted, volume.labels, 3)[1]))
    assert row["hd95.b"] == crac.hd95(predicted == 2, volume.labels == 2, (1, 1, 1), "directed_max")
    assert row["dsc"] == pytest.approx((row["dsc.a"] + row["dsc.b"]) / 2)


def test_probabilities_and_slices():
    protocol = Protocol(["background", "a", "b"])
    logits, probabilities = (measure(prediction("v", from_logits=flag), protocol).row for flag in (True, False))
    assert probabilities == pytest.approx(logits, abs=1e-5)
    sliced = measure(prediction("v"), Protocol(["background", "a", "b"], slice_axis=0))
    assert sliced.row["ece[all]"] == pytest.approx(logits["ece[all]"])
    labels = prediction("v").labels
    for states, regions in (
        (sliced.states, region_map(labels)),
        (measure(prediction("v"), protocol).states, region_map(labels[None])),
    ):
        counts = states["all"]["counts"][0]
        assert counts[0, 1].sum() == int((regions == 1).sum())


def test_a_column_without_values_is_shown_as_a_dash():
    volume = prediction("one")
    empty = volume._replace(labels=torch.zeros_like(volume.labels))
    lines = table(evaluate([empty], Protocol(["background", "a", "b"])))
    shown = {line[0]: line[1:] for line in lines}
    assert shown["ece [label_foreground]"] == ("-", "-", "-")
    assert shown["ece [all]"][0] != "-"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"class_names": ["only"]}, "at least 2"),
        ({"class_names": ["a", "b"], "masks": ["some"]}, "label_foreground"),
        ({"class_names": ["a", "b"], "masks": []}, "masks"),
        ({"class_names": ["a", "b"], "tolerance": -1}, "tolerance must be at least 0; got -1"),
    ],
)
def test_bad_protocols_are_refused(arguments, message):
    with pytest.raises(InputError, match=message):
        Protocol(**arguments)
