"""The validation pass: what the outer step observes, and the scores of an epoch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from crac.data import Batch, Store
from crac.losses import SegmentationLoss
from crac.metrics import CalibrationMeter, CalibrationResult

if TYPE_CHECKING:
    from lightning.fabric import Fabric

__all__ = ["Volumes", "validate"]


class Volumes:
    """Whole volumes of a store, one a batch: what 3-D networks are validated on.

    Args:
        store: Where they are.
        cases: Their names.
        device: Where they end up.
        rank: Which share is taken, of ``world_size``.
        world_size: Number of shares.
    """

    def __init__(self, store: Store, cases: Sequence[str], device: torch.device, rank: int, world_size: int) -> None:
        self.store = store
        self.cases = list(cases)[rank::world_size]
        self.device = device

    def __iter__(self) -> Iterator[Batch]:
        for name in self.cases:
            image, label = (np.array(array)[None] for array in (self.store.image(name), self.store.label(name)))
            images, labels = torch.from_numpy(image).to(self.device), torch.from_numpy(label).to(self.device)
            yield Batch(images.float(), labels.long(), [name])


@torch.no_grad()
def validate(
    fabric: Fabric,
    network: Callable[[Tensor], Tensor],
    loss: SegmentationLoss,
    batches: Iterable[Batch],
    cases: Sequence[str],
    class_names: Sequence[str],
) -> dict[str, float]:
    """Let the loss observe the validation set, and score it.

    Args:
        fabric: To add up over processes.
        network: Maps images to logits, in evaluation mode.
        loss: Its multipliers learn from what it sees here.
        batches: Every validation image once, over all processes together.
        cases: Names of the volumes.
        class_names: The background first.

    Returns:
        ``validation_loss``; ``dice``, the mean over volumes of the mean over foreground classes, and each class's
        own; ``ece`` over all voxels labelled foreground, and that of the ``inner`` and the ``outer`` ones.
    """
    classes, row_of = len(class_names), {name: row for row, name in enumerate(cases)}
    meter = CalibrationMeter(classes)
    overlap = torch.zeros(len(cases), 2, classes, dtype=torch.int64, device=fabric.device)
    total = torch.zeros(2, dtype=torch.float64, device=fabric.device)
    for batch in batches:
        logits = network(batch.images)
        loss.observe(logits, batch.labels)
        meter.update(logits=logits, labels=batch.labels)
        total += torch.stack([loss(logits, batch.labels).double(), total.new_ones(())]) * len(batch.names)
        rows = torch.tensor([row_of[name] for name in batch.names], device=fabric.device)
        overlap.index_add_(0, rows, _overlap(logits.argmax(1), batch.labels, classes))
    if fabric.world_size > 1:
        for tensor in (total, overlap):
            torch.distributed.all_reduce(tensor)
    return _scores((total[0] / total[1]).item(), overlap, meter.compute(sync=True), class_names)


def _overlap(prediction: Tensor, labels: Tensor, classes: int) -> Tensor:
    """``(B, 2, K)``: voxels of each class in both maps, and the sum of its voxels in either."""
    axes = tuple(range(1, labels.ndim))
    counts = []
    for number in range(classes):
        predicted, labelled = prediction == number, labels == number
        counts.append(torch.stack([(predicted & labelled).sum(axes), predicted.sum(axes) + labelled.sum(axes)], -1))
    return torch.stack(counts, -1)


def _scores(
    loss: float, overlap: Tensor, calibration: CalibrationResult, class_names: Sequence[str]
) -> dict[str, float]:
    both, either = overlap[:, :, 1:].double().unbind(1)
    dice = 2 * both / either  # NaN where a volume neither has nor shows the class: it then does not count
    scores = {"validation_loss": loss, "dice": dice.nanmean(1).nanmean().nan_to_num(0).item()}
    scores |= {f"dice_{name}": value for name, value in zip(class_names[1:], dice.nanmean(0).tolist(), strict=True)}
    regions = {f"ece_{name}": value.ece for name, value in calibration.by_region.items()}
    return {**scores, "ece": calibration.ece, **regions}
