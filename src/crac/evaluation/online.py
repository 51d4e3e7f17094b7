"""Scores of volumes whose slices come in batches, as a training validates: on the device, over all processes."""

from collections.abc import Sequence
from dataclasses import replace

import torch
import torch.distributed as dist
from torch import Tensor

from crac.evaluation.protocol import Protocol


class OnlineScores:
    """Dice of every volume and calibration of all voxels labelled foreground, without waiting for the device.

    Calibration is measured as the protocol ``paper`` has it. Regions are those of the images given: of slices for
    batches of slices, of volumes for volumes.

    Args:
        names: Names of the volumes.
        class_names: The background first.
        device: Device of the batches.
        ignore_index: Label of voxels that do not count.
    """

    def __init__(
        self,
        names: Sequence[str],
        class_names: Sequence[str],
        device: torch.device,
        ignore_index: int | None = None,
    ) -> None:
        self.class_names = list(class_names)
        protocol = replace(Protocol.named("paper", self.class_names), ignore_index=ignore_index)
        self.meter = protocol.meters()["label_foreground"]
        self._row = {name: row for row, name in enumerate(names)}
        self._overlap = torch.zeros(len(self._row), 2, len(self.class_names), dtype=torch.int64, device=device)

    def update(self, logits: Tensor, labels: Tensor, names: Sequence[str]) -> None:
        """Count a batch: logits ``(B, K, *S)``, labels ``(B, *S)``, and the volume each image belongs to."""
        self.meter.update(logits=logits, labels=labels)
        rows = torch.tensor([self._row[name] for name in names], device=self._overlap.device)
        predicted, ignored = logits.argmax(1), self.meter.ignore_index
        if ignored is not None:  # as if neither showed anything there
            predicted = predicted.masked_fill(labels == ignored, 0)
        self._overlap.index_add_(0, rows, _overlap(predicted, labels, len(self.class_names)))

    def compute(self) -> dict[str, float]:
        """The scores of all processes together; every process must call this.

        Returns:
            ``dice``, the mean over volumes of the mean over foreground classes, and each class's own; ``ece`` over all
            voxels labelled foreground, and that of the ``inner`` and the ``outer`` ones.
        """
        if dist.is_available() and dist.is_initialized():
            dist.all_reduce(self._overlap)
        both, either = self._overlap[:, :, 1:].double().unbind(1)
        dice = 2 * both / either  # NaN where a volume neither has nor shows the class: it then does not count
        scores = {"dice": dice.nanmean(1).nanmean().nan_to_num(0).item()}
        classes = zip(self.class_names[1:], dice.nanmean(0).tolist(), strict=True)
        scores |= {f"dice_{name}": value for name, value in classes}
        calibration = self.meter.compute(sync=True)
        return scores | {"ece": calibration.ece} | {f"ece_{n}": part.ece for n, part in calibration.by_region.items()}


def _overlap(prediction: Tensor, labels: Tensor, classes: int) -> Tensor:
    """``(B, 2, K)``: voxels of each class in both maps, and the sum of its voxels in either."""
    axes = tuple(range(1, labels.ndim))
    counts = []
    for number in range(classes):
        predicted, labelled = prediction == number, labels == number
        counts.append(torch.stack([(predicted & labelled).sum(axes), predicted.sum(axes) + labelled.sum(axes)], -1))
    return torch.stack(counts, -1)
