"""What every loss shares: checked input, cross-entropy, an optional Dice term, hooks for what a method changes."""

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from crac import kernels
from crac.errors import InputError, check_number
from crac.functional.patches import check_integers, one_hot
from crac.losses.multipliers import FixedPrecision, Multipliers

ClassWeights = Sequence[float] | Tensor | None

NO_LABEL = -(2**31)
"""What torch is told to ignore where nothing is: by itself it would ignore -100."""


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
    labels = check_integers(labels)
    if labels.ndim == logits.ndim and labels.shape[1] == 1:
        labels = labels.squeeze(1)
    batch, _, *size = logits.shape
    if labels.shape != (batch, *size):
        accepted = f"{(batch, *size)} or {(batch, 1, *size)} to fit logits of shape {tuple(logits.shape)}"
        raise InputError(f"labels must have shape {accepted}; got {tuple(labels.shape)}")
    if labels.device.type == "cpu" and labels.numel() and not torch.compiler.is_compiling():
        _check_values(labels, num_classes, ignore_index)
    return labels


def _check_values(labels: Tensor, num_classes: int, ignore_index: int | None) -> None:
    low, high = (bound.item() for bound in labels.aminmax())
    if low >= 0 and high < num_classes:
        return
    labels = labels.long()  # a byte compared with -1 or 300 would be compared with 255 or 44
    known = (labels >= 0) & (labels < num_classes)
    if ignore_index is not None:
        known |= labels == ignore_index
    if not known.all():
        accepted = f"0..{num_classes - 1}" + ("" if ignore_index is None else f" or ignore_index={ignore_index}")
        raise InputError(f"labels must lie in {accepted}; got {labels[~known][0].item()}")


def widen(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Return logits in at least ``float32`` and labels in ``int64``, as the hooks of a loss receive them."""
    return (logits if logits.dtype == torch.float64 else logits.float()), labels.long()


def masked_mean(values: Tensor, valid: Tensor | None) -> Tensor:
    """Return the mean of ``(B, *S)`` or ``(B, K, *S)`` over the valid pixels, ``None`` for all; 0 if none is valid."""
    if valid is None:
        return values.mean()
    classes = values.numel() // max(valid.numel(), 1)
    if values.ndim > valid.ndim:
        valid = valid.unsqueeze(1)
    # `where` rather than a product: a masked pixel may hold an infinity.
    return torch.where(valid, values, 0).sum() / (valid.sum() * classes).clamp(min=1)


class SegmentationLoss(FixedPrecision):
    """Mean cross-entropy, the base of every method.

    A method implements one or both of two hooks, :meth:`fit_term` and :meth:`penalty_term`; the loss is their sum,
    plus a Dice term if there is a ``dice_weight``. Both hooks receive checked input: logits in at least ``float32``,
    labels ``int64`` of shape ``(B, *S)``. A method that a fused kernel can compute also implements :meth:`setting`.
    The methods to call, :meth:`forward`, :meth:`supervised`, :meth:`fit` and :meth:`penalty`, take logits and labels
    as they come, and all reach hooks and kernel the same way.

    Everything is computed in ``float32`` (``float64`` for ``float64`` logits), also under autocast.

    Args:
        num_classes: ``K``, the background included.
        ignore_index: Label of pixels that take no part in the loss, ``None`` for no such label.
        class_weights: ``K`` weights of the cross-entropy, which then is the weighted mean, as in PyTorch.
        dice_weight: Weight of a soft Dice loss over the foreground classes, added to the cross-entropy.

    Attributes:
        multipliers: State of methods that learn from validation batches, ``None`` for all others.

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
        class_weights: ClassWeights = None,
        dice_weight: float = 0.0,
    ) -> None:
        super().__init__()
        check_number("num_classes", num_classes, least=2, whole=True)
        check_number("dice_weight", dice_weight, least=0)
        if ignore_index is not None:
            check_number("ignore_index", ignore_index, whole=True)
        self.num_classes, self.ignore_index, self.dice_weight = num_classes, ignore_index, dice_weight
        self.multipliers: Multipliers | None = None
        self.register_buffer("class_weights", _check_weights(class_weights, num_classes), persistent=False)
        kernels.load()

    def forward(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Return the loss of one batch."""
        return self._value(logits, labels)

    def supervised(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Return the loss of one batch without its calibration penalty: the fitting term and the Dice term."""
        return self._value(logits, labels, penalty=False)

    def fit(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Return the fitting term of one batch alone."""
        return self._value(logits, labels, penalty=False, dice=False)

    def penalty(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Return the calibration penalty of one batch alone; 0 for methods that have none."""
        return self._value(logits, labels, fit=False, dice=False)

    def _value(
        self, logits: Tensor, labels: Tensor, fit: bool = True, penalty: bool = True, dice: bool = True
    ) -> Tensor:
        """Check a batch and return the sum of the terms asked for: the one place that decides on kernel or eager."""
        labels = check_batch(logits, labels, self.num_classes, self.ignore_index)
        setting = self.setting(logits, labels, fit, penalty)
        dice = dice and self.dice_weight > 0
        terms = [] if setting is None else [kernels.fused_loss(logits, labels, setting)]
        if setting is not None and not dice:
            return terms[0]
        logits, labels = widen(logits, labels)
        if fit and setting is None:
            terms.append(self.fit_term(logits, labels))
        if dice:
            terms.append(self.dice_weight * self._dice(logits, labels))
        if penalty and setting is None:
            terms.append(self.penalty_term(logits, labels))
        return sum(terms[1:], terms[0])

    def setting(self, logits: Tensor, labels: Tensor, fit: bool = True, penalty: bool = True) -> kernels.Setting | None:
        """Describe to the fused kernel what ``fit`` and ``penalty`` ask for; ``None`` leaves it to the hooks.

        The batch is checked, and in the dtypes given.
        """
        return None

    def fit_term(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Return the term that fits the labels: the cross-entropy, unless a method replaces it."""
        if self.ignore_index is None and self.class_weights is None:
            return F.cross_entropy(logits, labels, ignore_index=NO_LABEL)
        weights = None if self.class_weights is None else self.class_weights.to(logits.dtype)
        ignore = NO_LABEL if self.ignore_index is None else self.ignore_index
        total = F.cross_entropy(logits, labels, weights, ignore_index=ignore, reduction="sum")
        valid = self.valid(labels)
        if weights is None:
            assert valid is not None
            return total / valid.sum().clamp(min=1)
        share = weights[labels if valid is None else torch.where(valid, labels, 0)]
        mass = share.sum() if valid is None else torch.where(valid, share, 0).sum()
        return total / torch.where(mass > 0, mass, 1)  # a tiny number would make infinite gradients, times 0 NaN

    def penalty_term(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Return what the method adds for calibration, its weight included: 0, unless a method adds something."""
        return logits.new_zeros(())

    def valid(self, labels: Tensor) -> Tensor | None:
        """Return which pixels count, ``None`` for all of them."""
        return None if self.ignore_index is None else labels != self.ignore_index

    def observe(self, logits: Tensor, labels: Tensor) -> None:
        """Take in one validation batch; only methods with multipliers learn from it."""

    def update_multipliers(self) -> None:
        """Take the outer step from all batches observed since the last one; see :class:`Multipliers`."""
        if self.multipliers is not None:
            self.multipliers.update()

    def _dice(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Return one minus the soft Dice of the foreground classes, pooled over the batch."""
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
        """Return what ``print(loss)`` shows."""
        return f"num_classes={self.num_classes}"

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        # Multipliers save their buffers under the names of the loss; see there.
        for name in () if self.multipliers is None else self.multipliers.state_dict():
            if prefix + name in state_dict:
                state_dict[f"{prefix}multipliers.{name}"] = state_dict.pop(prefix + name)
        super()._load_from_state_dict(state_dict, prefix, *rest)


def _check_weights(weights: ClassWeights, num_classes: int) -> Tensor | None:
    """Return the class weights as a tensor."""
    if weights is None:
        return None
    try:
        tensor = torch.as_tensor(weights, dtype=torch.float32).contiguous()  # kernels read it so
    except (TypeError, ValueError, RuntimeError):
        tensor = torch.empty(0)
    if tensor.shape != (num_classes,) or not bool(((tensor >= 0) & tensor.isfinite()).all()):
        raise InputError(f"class_weights must be {num_classes} finite numbers, none negative; got {weights!r}")
    return tensor
