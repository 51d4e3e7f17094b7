"""The validation pass: what the outer step observes, and the scores of an epoch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from crac.data import Batch, Store
from crac.errors import InputError
from crac.evaluation.online import OnlineScores
from crac.losses import SegmentationLoss

if TYPE_CHECKING:
    from lightning.fabric import Fabric


class Volumes:
    """Whole volumes of a store, one a batch, on ``device``: what 3-D networks are validated on.

    Of the ``cases`` named, every process takes the share of its ``rank`` among ``world_size``.
    """

    def __init__(self, store: Store, cases: Sequence[str], device: torch.device, rank: int, world_size: int) -> None:
        self.store, self.cases, self.device = store, cases[rank::world_size], device

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
    ignore_index: int | None = None,
) -> dict[str, float]:
    """Let the loss observe the validation set, and score it.

    Args:
        fabric: Adds up over processes.
        network: Maps images to logits, in evaluation mode.
        loss: Its multipliers learn from what it sees here.
        batches: Every validation image once, over all processes together.
        cases: Names of the volumes.
        class_names: The background first.
        ignore_index: Label of voxels that do not count.

    Returns:
        ``validation_loss``, and the scores of :class:`~crac.evaluation.online.OnlineScores`.

    Raises:
        InputError: The network does not answer with numbers, on this process or on another one.
    """
    scores = OnlineScores(cases, class_names, fabric.device, ignore_index)
    total = torch.zeros(3, dtype=torch.float64, device=fabric.device)
    problem: InputError | None = None
    try:
        for batch in batches:
            logits = network(batch.images)
            loss.observe(logits, batch.labels)
            scores.update(logits, batch.labels, batch.names)
            total[:2] += torch.stack([loss(logits, batch.labels).double(), total.new_ones(())]) * len(batch.names)
    except InputError as error:  # the other processes wait for this one below
        problem = error
        total[2] = 1
    if fabric.world_size > 1:
        torch.distributed.all_reduce(total)
        if problem is None and total[2] > 0:
            problem = InputError("another process observed logits that are not finite")
    if problem is not None:
        raise problem
    return {"validation_loss": (total[0] / total[1]).item(), **scores.compute()}
