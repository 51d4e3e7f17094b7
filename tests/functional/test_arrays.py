"""Arrays and integers as libraries of images hand them out: flipped, of another byte order, unsigned."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import crac
from crac.functional import neighbourhood_proportions, region_map
from crac.functional.arrays import as_tensor, in_steps
from crac.guarantees.case import check_case

UNSIGNED = [torch.uint16, torch.uint32, torch.uint64]


@pytest.mark.parametrize(
    "change",
    [
        lambda array: array[:, ::-1, ::-1],
        lambda array: array.astype(array.dtype.newbyteorder(">")),
        lambda array: array.astype(array.dtype.newbyteorder(">"))[::-1].swapaxes(0, 2),
        lambda array: array.copy(order="F"),
    ],
)
@pytest.mark.parametrize("dtype", [np.int16, np.uint16, np.uint32, np.uint64, np.float32, np.float64, np.bool_])
def test_values_are_those_of_the_array(change: Callable[[Any], Any], dtype: Any) -> None:
    array = change(np.arange(24).reshape(2, 3, 4).astype(dtype))
    found = as_tensor(array)
    assert found.shape == array.shape
    assert found.tolist() == array.tolist()
    assert (found + found).dtype == found.dtype  # a type to compute with


def test_what_can_be_shared_is_not_copied() -> None:
    array, tensor = np.zeros((3, 4)), torch.zeros(3, 4, requires_grad=True)
    array_found, found = as_tensor(array), as_tensor(tensor)
    array[0, 0] = 7
    assert array_found[0, 0] == 7
    assert found.data_ptr() == tensor.data_ptr()
    assert not found.requires_grad


def metered(labels: Any, logits: Tensor) -> str:
    meter = crac.CalibrationMeter(3, mask="band")
    meter.update(logits=logits, labels=labels)
    return str(meter.compute().to_dict())


LOSSES: dict[str, Callable[[Any, Tensor], Any]] = {
    name: lambda labels, logits, name=name: crac.build_loss(name, 3)(logits, labels).item() for name in crac.METHODS
}
MEASURES: dict[str, Callable[[Any, Tensor], Any]] = {
    "proportions": lambda labels, logits: neighbourhood_proportions(labels, 3).tolist(),
    "regions": lambda labels, logits: region_map(labels).tolist(),
    "meter": metered,
    "dice": lambda labels, logits: crac.dice(labels, logits.argmax(1), 3).tolist(),
    "calibrator": lambda labels, logits: (
        crac.build_calibrator("class_region", 3).fit(lambda: [(logits, labels)]).weights.tolist()
    ),
    "guarantee": lambda labels, logits: (
        check_case(crac.Case(logits.softmax(1)[0], labels[0], (1.0, 1.0)), 3, "p").counts.dice
    ),
}


@pytest.mark.parametrize("dtype", UNSIGNED, ids=str)
@pytest.mark.parametrize("use", [*LOSSES, *MEASURES])
def test_unsigned_labels_mean_what_signed_ones_do(use: str, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    logits, labels = 2 * torch.randn(1, 3, 9, 10), torch.randint(3, (1, 9, 10))
    call = (LOSSES | MEASURES)[use]
    assert call(labels.to(dtype), logits) == call(labels, logits)


@pytest.mark.parametrize("use", ["meter", "dice", "guarantee"])
def test_flipped_and_foreign_arrays_mean_what_their_copies_do(use: str) -> None:
    torch.manual_seed(0)
    logits = 2 * torch.randn(1, 3, 9, 10)
    array = np.random.default_rng(0).integers(3, size=(1, 9, 10)).astype(">u2")[:, ::-1]
    assert MEASURES[use](array, logits) == MEASURES[use](torch.tensor(array.tolist()), logits)


@given(
    seed=st.integers(0, 1000),
    classes=st.integers(2, 200),
    sharp=st.floats(0, 10),
    steps=st.sampled_from([100, 255, 32767, 65535]),
)
def test_whole_steps_sum_to_one_behind_the_same_winner(seed: int, classes: int, sharp: float, steps: int) -> None:
    generator = np.random.default_rng(seed)
    scores = np.exp(sharp * generator.normal(size=(classes, 5, 6, 1)))
    probabilities = (scores / scores.sum(0)).astype(np.float32)
    winner = probabilities.argmax(0)
    winner[0] = generator.integers(0, classes, winner[0].shape)  # level with others, as far as anybody knows
    np.put_along_axis(probabilities, winner[None], probabilities.max(0, keepdims=True), 0)
    probabilities /= probabilities.sum(0)
    found = in_steps(probabilities, steps, winner)
    assert (found.sum(0) == steps).all()
    assert found.min() >= 0
    np.testing.assert_array_equal(found.argmax(0), winner)
    error = np.abs(found / steps - probabilities)
    others = np.arange(classes).reshape(-1, 1, 1, 1) != winner
    assert error[others].max() <= 2 / steps
    assert error.max() <= classes / steps + 1e-6
