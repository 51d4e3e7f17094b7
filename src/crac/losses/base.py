"""What every loss shares: checked input, cross-entropy, an optional Dice term, room for a penalty."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from crac import kernels
from crac.errors import InputError
from crac.functional.patches import check_integers, one_hot

__all__ = ["SegmentationLoss", "check_batch", "masked_mean", "widen"]


def check_batch(logits: Tensor, labels: Tensor, num_classes: int, ignore_index: int | None = None) -> Tensor:
    """Check one batch and return the labels with shape ``(B, *S)``, in the dtype they have.

    Label *values* are looked at on the CPU only: on a GPU that would wait for the device. There, a label out of range
    makes the loss NaN, or the indexing kernels of CUDA stop the program.
    """
    if not logits.is_floating_point():
        raise InputError(f"logits must be floating point; got dtype {logits.dtype}")
    if logits.ndim not in (4, 5):
        raise InputError(f"logits must have shape (B, K, H, W) or (B, K, D, H, W); got {tuple(logits.shape)}")
    if logits.shape[1] != num_classes:
        raise InputError(f"logits must have num_classes={num_classes} channels; got {tuple(logits.shape)}")
    check_integers(labels)
    if labels.ndim == logits.ndim and labels.shape[1] == 1:
        labels = labels.squeeze(1)
    batch, _, *size = logits.shape
    if labels.shape != (batch, *size):
        wanted = (batch, *size)
        raise InputError(
            f"labels must have shape {wanted} or {(batch, 1, *size)} to fit logits of shape {tuple(logits.shape)}; "
            f"got {tuple(labels.shape)}"
        )
    if labels.device.type == "cpu" and labels.numel() and not torch.compiler.is_compiling():
        _check_values(labels, num_classes, ignore_index)
    return labels


def _check_values(labels: Tensor, num_classes: int, ignore_index: int | None) -> None:
    low, high = labels.aminmax()
    if low >= 0 and high < num_classes:
        return
    known = (labels >= 0) & (labels < num_classes)
    if ignore_index is not None:
        known |= labels == ignore_index
    if not known.all():
        accepted = f"0..{num_classes - 1}" + ("" if ignore_index is None else f" or ignore_index={ignore_index}")
        raise InputError(f"labels must lie in {accepted}; got {labels[~known][0].item()}")


def widen(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Logits in at least ``float32`` and labels in ``int64``, as the eager path computes."""
    return (logits if logits.dtype == torch.float64 else logits.float()), labels.long()


def masked_mean(values: Tensor, valid: Tensor | None) -> Tensor:
    """Mean over the valid pixels (and over the classes, where ``values`` has them); 0 where none is valid.

    Args:
        values: ``(B, *S)`` or ``(B, K, *S)``.
        valid: Boolean ``(B, *S)``, or ``None`` for every pixel.
    """
    if valid is None:
        return values.mean()
    classes = values.numel() // max(valid.numel(), 1)
    if values.ndim > valid.ndim:
        valid = valid.unsqueeze(1)
    # `where` rather than a product: a masked pixel may hold an infinity.
    return torch.where(valid, values, 0).sum() / (valid.sum() * classes).clamp(min=1)


class SegmentationLoss(nn.Module):
    """Mean cross-entropy, the base of every method: subclasses replace :meth:`fit` or add :meth:`penalty`.

    Everything is computed in ``float32`` (``float64`` for ``float64`` logits), also under autocast.

    Args:
        num_classes: ``K``, the background included.
        ignore_index: Label of pixels that take no part in the loss, ``None`` for no such label.
        class_weights: ``K`` weights of the cross-entropy, which then is the weighted mean, as in PyTorch.
        dice_weight: Weight of a soft Dice loss over the foreground classes, added to the cross-entropy.

    Shape:
        - logits: ``(B, K, *S)`` with 2 or 3 spatial dimensions, any floating dtype.
        - labels: integers, ``(B, *S)`` or ``(B, 1, *S)``.
        - output: scalar.
    """

    class_weights: Tensor | None

    def __init__(
        self,
        num_classes: int,
        *,
        ignore_index: int | None = None,
        class_weights: Sequence[float] | Tensor | None = None,
        dice_weight: float = 0.0,
    ) -> None:
        super().__init__()
        if num_classes < 2:
            raise InputError(f"num_classes must be at least 2, the background included; got {num_classes!r}")
        if dice_weight < 0:
            raise InputError(f"dice_weight must not be negative; got {dice_weight!r}")
        self.num_classes = num_classes
        self.ignore_index = ignore_index
        self.dice_weight = dice_weight
        weights = None if class_weights is None else torch.as_tensor(class_weights, dtype=torch.float32)
        if weights is not None and (weights.shape != (num_classes,) or bool((weights < 0).any())):
            raise InputError(f"class_weights must be {num_classes} numbers, none negative; got {class_weights!r}")
        self.register_buffer("class_weights", weights, persistent=False)
        kernels.load()

    def forward(self, logits: Tensor, labels: Tensor) -> Tensor:
        """The loss of one batch."""
        labels = check_batch(logits, labels, self.num_classes, self.ignore_index)
        setting = self.setting(logits, labels)
        if setting is None:
            logits, labels = widen(logits, labels)
            return self.supervised(logits, labels) + self.penalty(logits, labels)
        loss = kernels.fused_loss(logits, labels, setting)
        return loss + self.dice_weight * self._dice(*widen(logits, labels)) if self.dice_weight else loss

    def setting(self, logits: Tensor, labels: Tensor) -> kernels.Setting | None:
        """How a fused kernel computes cross-entropy and penalty of this batch; ``None`` for the eager path."""
        return None

    def prepare(self, logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Checked input: logits in at least ``float32``, labels ``int64`` without a channel axis."""
        return widen(logits, check_batch(logits, labels, self.num_classes, self.ignore_index))

    def valid(self, labels: Tensor) -> Tensor | None:
        """Which pixels count, ``None`` for all of them."""
        return None if self.ignore_index is None else labels != self.ignore_index

    def supervised(self, logits: Tensor, labels: Tensor) -> Tensor:
        """The loss without its calibration penalty."""
        loss = self.fit(logits, labels)
        return loss + self.dice_weight * self._dice(logits, labels) if self.dice_weight else loss

    def fit(self, logits: Tensor, labels: Tensor) -> Tensor:
        """The term that fits the labels: cross-entropy, unless a subclass puts another in its place."""
        if self.ignore_index is None and self.class_weights is None:
            return F.cross_entropy(logits, labels)
        weights = None if self.class_weights is None else self.class_weights.to(logits.dtype)
        ignore = -100 if self.ignore_index is None else self.ignore_index
        total = F.cross_entropy(logits, labels, weights, ignore_index=ignore, reduction="sum")
        valid = self.valid(labels)
        if weights is None:
            assert valid is not None
            return total / valid.sum().clamp(min=1)
        share = weights[labels if valid is None else torch.where(valid, labels, 0)]
        mass = share.sum() if valid is None else torch.where(valid, share, 0).sum()
        return total / mass.clamp(min=torch.finfo(mass.dtype).tiny)

    def penalty(self, logits: Tensor, labels: Tensor) -> Tensor:
        """What the method adds for calibration; nothing here."""
        return logits.new_zeros(())

    def observe(self, logits: Tensor, labels: Tensor) -> None:
        """Take in one validation batch; only methods with multipliers learn from it."""

    def update_multipliers(self) -> None:
        """Take the outer step; only methods with multipliers have one."""

    def _dice(self, logits: Tensor, labels: Tensor) -> Tensor:
        """One minus the soft Dice of the foreground classes, pooled over the batch."""
        probabilities = logits.softmax(1)
        truth = one_hot(labels, self.num_classes, self.ignore_index)
        valid = self.valid(labels)
        if valid is not None:
            probabilities = torch.where(valid.unsqueeze(1), probabilities, 0)
        axes = [0, *range(2, logits.ndim)]
        overlap = torch.where(truth, probabilities, 0).sum(axes)
        size = probabilities.sum(axes) + truth.sum(axes)
        smooth = 1e-5  # a class that is neither there nor predicted counts as perfectly found
        return 1 - ((2 * overlap + smooth) / (size + smooth))[1:].mean()

    def extra_repr(self) -> str:
        """Shown by ``print(loss)``."""
        return f"num_classes={self.num_classes}"
