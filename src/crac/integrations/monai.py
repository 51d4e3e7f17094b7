"""MONAI: losses that take its targets, a handler for the outer step, a metric and a transform for calibration."""

from collections.abc import Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from crac.calibration import Calibrator, load_calibrator
from crac.calibration.volume import calibrate_volume
from crac.errors import InputError, one_of, require
from crac.functional.arrays import as_tensor, computable
from crac.losses import DeepSupervision, SegmentationLoss
from crac.metrics import CalibrationMeter
from crac.metrics.results import SCALARS, CalibrationResult

require("monai")
from monai.config import KeysCollection  # noqa: E402
from monai.data import MetaTensor  # noqa: E402
from monai.metrics import CumulativeIterationMetric  # noqa: E402
from monai.transforms import MapTransform  # noqa: E402
from monai.utils import CommonKeys  # noqa: E402


def as_labels(target: Tensor, logits: Tensor, ignore_index: int | None = None) -> Tensor:
    """Return integer labels ``(B, *S)`` from any target MONAI's loaders and transforms produce.

    Args:
        target: Whole numbers of any dtype, ``(B, 1, *S)`` or ``(B, *S)``, or one-hot ``(B, K, *S)``.
        logits: ``(B, K, *S)``, which tells the forms apart.
        ignore_index: Label given to the pixels of a one-hot target that belong to no class; ``None`` refuses them.

    Raises:
        InputError: Fractional labels, or a target that is not one-hot. Values are looked at on the CPU only, as
            everywhere in ``crac``: on a GPU that would wait for the device.
    """
    target = computable(_plain(target))
    if target.dtype == torch.bool:
        target = target.byte()  # torch finds no largest among booleans
    look = target.device.type == "cpu"
    if target.ndim == logits.ndim and target.shape[1] == logits.shape[1]:
        members = target.sum(1)
        if look:
            hard = ((target == 0) | (target == 1)).all() and members.max() <= 1
            if not hard or (ignore_index is None and members.min() < 1):
                wanted = f"a single 1 among the {logits.shape[1]} channels of each pixel, 0 elsewhere"
                raise InputError(f"target of shape {tuple(target.shape)} must be one-hot: {wanted}")
        return torch.where(members == 1, target.argmax(1), -1 if ignore_index is None else ignore_index)
    if target.ndim == logits.ndim and target.shape[1] == 1:
        target = target.squeeze(1)
    if look and target.is_floating_point() and (target != target.round()).any():
        raise InputError(f"target must hold whole numbers; got {target[target != target.round()][0].item()}")
    return target.long() if target.is_floating_point() else target


def _plain(tensor: Tensor) -> Tensor:
    """Return the tensor under a ``MetaTensor``, whose bookkeeping would slow down every operation of the loss."""
    return tensor.as_tensor() if hasattr(tensor, "as_tensor") else tensor


class MonaiLoss(nn.Module):
    """A ``crac`` loss as MONAI calls one: ``loss(input, target)`` with the targets MONAI produces.

    Inside ``monai.losses.DeepSupervisionLoss`` the whole loss, penalty included, is taken at every resolution; wrap
    a :class:`crac.DeepSupervision` instead to keep the penalty to the full resolution.

    Args:
        loss: Any loss of :data:`crac.METHODS`, or a :class:`crac.DeepSupervision` around one.

    Shape:
        - input: logits ``(B, K, *S)``. For a ``DeepSupervision`` also a list of them, the finest first, or all of one
          size in a tensor ``(B, L, K, *S)``, as MONAI's ``DynUNet`` returns them.
        - target: ``(B, 1, *S)``, ``(B, *S)`` or one-hot ``(B, K, *S)``, integers or floats.
        - output: scalar.

    Example:
        >>> from crac import CRaCLoss
        >>> loss = MonaiLoss(CRaCLoss(num_classes=4))
        >>> loss(torch.randn(2, 4, 16, 16), torch.ones(2, 1, 16, 16)).shape
        torch.Size([])
    """

    def __init__(self, loss: SegmentationLoss | DeepSupervision) -> None:
        super().__init__()
        if not isinstance(loss, SegmentationLoss | DeepSupervision):
            raise InputError(f"loss must be a loss of crac; got {type(loss).__name__}")
        self.loss = loss

    def forward(self, input: Tensor | Sequence[Tensor], target: Tensor) -> Tensor:
        """Return the loss of one batch."""
        value: Tensor = self.loss(*self._converted(input, target))
        return value

    def observe(self, input: Tensor | Sequence[Tensor], target: Tensor) -> None:
        """Take in one validation batch; full resolution only, also during deep supervision."""
        self.loss.observe(*self._converted(input, target))

    def update_multipliers(self) -> None:
        """Take the outer step of the loss."""
        self.loss.update_multipliers()

    def _converted(self, logits: Tensor | Sequence[Tensor], target: Tensor) -> tuple[Any, Tensor]:
        inner = self.loss.loss if isinstance(self.loss, DeepSupervision) else self.loss
        deep = inner is not self.loss
        if deep and isinstance(logits, Tensor) and _stacked(logits, target, inner.num_classes):
            logits = _plain(logits).unbind(1)
        plain = _plain(logits) if isinstance(logits, Tensor) else [_plain(level) for level in logits]
        finest = plain if isinstance(plain, Tensor) else plain[0]
        return plain, as_labels(target, finest, inner.ignore_index)


def _stacked(logits: Tensor, target: Tensor, num_classes: int) -> bool:
    """Return whether logits are ``(B, L, K, *S)``: a volume ``(B, K, D, H, W)`` may have as many axes."""
    more = logits.ndim - target.ndim
    has_channel = more == 1 and target.shape[1] in (1, num_classes) and logits.shape[2] == num_classes
    return more == 2 or has_channel


class MultiplierHandler:
    """The outer step for ``SupervisedTrainer``: give it to the ``SupervisedEvaluator`` that validates each epoch.

    It sees the network's logits before any post-processing, and updates the multipliers when the evaluator's epoch
    ends. Put the loss into the ``save_dict`` of ``CheckpointSaver`` beside the network: the multipliers are its state.

    Args:
        loss: The trainer's loss function, or the one inside its ``DeepSupervisionLoss``.

    Example::

        evaluator = SupervisedEvaluator(..., val_handlers=[MultiplierHandler(loss)])
        trainer = SupervisedTrainer(..., loss_function=loss, train_handlers=[ValidationHandler(1, evaluator)])
    """

    def __init__(self, loss: MonaiLoss) -> None:
        if not isinstance(loss, MonaiLoss):
            raise InputError(
                f"loss must be a MonaiLoss, also where a DeepSupervisionLoss is around it; got {type(loss).__name__}"
            )
        self.loss = loss

    def attach(self, engine: Any) -> None:
        """Listen to the evaluator, with which MONAI calls this."""
        require("ignite")
        from ignite.engine import Events
        from monai.engines import IterationEvents

        engine.add_event_handler(IterationEvents.FORWARD_COMPLETED, self._observe)
        engine.add_event_handler(Events.EPOCH_COMPLETED, lambda _: self.loss.update_multipliers())

    def _observe(self, engine: Any) -> None:
        output = engine.state.output
        self.loss.observe(output[CommonKeys.PRED], output[CommonKeys.LABEL])


class CalibrationMetric(CumulativeIterationMetric):  # type: ignore[misc]
    """A :class:`crac.CalibrationMeter` as one of MONAI's metrics.

    The buffer holds one value per image, as with MONAI's own; the aggregate is over all voxels counted, or the mean of
    those values. Both are over all ranks.

    Args:
        num_classes: ``K``, the background included.
        metric: Which number to report, e.g. ``"ece"``, ``"tace"``, ``"nll"``.
        softmax: Whether ``y_pred`` holds logits rather than probabilities.
        reduction: ``"pooled"`` counts the voxels of all images together; ``"mean"`` averages the images that have
            voxels to count, the paper's way with volumes.
        **options: Of the meter: ``bins``, ``mask``, ``threshold``, ``ignore_index``.

    Example:
        >>> metric = CalibrationMetric(num_classes=2, mask="all", softmax=True)
        >>> values = metric(y_pred=torch.zeros(3, 2, 8, 8), y=torch.ones(3, 1, 8, 8))
        >>> metric.aggregate().item()
        0.5
    """

    def __init__(
        self, num_classes: int, metric: str = "ece", softmax: bool = False, reduction: str = "pooled", **options: Any
    ) -> None:
        if metric not in SCALARS:
            raise one_of("metric", metric, SCALARS)
        if reduction not in ("pooled", "mean"):
            raise one_of("reduction", reduction, ("pooled", "mean"))
        self.options = {"num_classes": num_classes} | options
        self.meter = CalibrationMeter(**self.options)
        self.metric, self.softmax, self.reduction = metric, softmax, reduction
        super().__init__()

    def reset(self) -> None:
        """Forget everything counted so far."""
        super().reset()
        self.meter.reset()

    def _compute_tensor(self, y_pred: Tensor, y: Tensor, **_: Any) -> Tensor:
        scores = _plain(y_pred)
        labels = as_labels(y, scores, self.meter.ignore_index)
        values = []
        for item in range(len(scores)):
            meter = CalibrationMeter(**self.options)
            image, target = scores[item : item + 1], labels[item : item + 1]
            logits, probabilities = (image, None) if self.softmax else (None, image)
            meter.update(logits=logits, probabilities=probabilities, labels=target)
            values.append(getattr(meter.compute(), self.metric))
            self.meter.merge(meter)
        # On the device of the scores, where MONAI gathers over ranks.
        dtype = torch.float32 if scores.device.type == "mps" else torch.float64
        return torch.tensor(values, dtype=dtype, device=scores.device).unsqueeze(1)

    def aggregate(self) -> Tensor:
        """Return the number asked for; NaN if no voxel was counted."""
        if self.reduction == "pooled":
            return torch.tensor(getattr(self.result(), self.metric), dtype=torch.float64)
        values = self.get_buffer()
        return torch.tensor(torch.nan) if values is None else values.nanmean()

    def result(self) -> CalibrationResult:
        """Return every number of all images together, by class and by region, and the bins."""
        return self.meter.compute(sync=True)


class ApplyCalibrationd(MapTransform):  # type: ignore[misc]
    """Turns logits into calibrated probabilities; takes the place of ``Activationsd(softmax=True)``.

    Args:
        keys: Items of shape ``(K, *S)``, 2-D or 3-D; arrays become tensors.
        calibrator: A fitted one, or its file.
        from_probabilities: The items are probabilities instead of logits.
        slice_axis: Axis of ``S`` along which the slices of a volume follow each other, for a calibrator with regions
            of slices; MONAI's loaders make it the last one.
        allow_missing_keys: As in all of MONAI's transforms.

    Example:
        >>> from crac import build_calibrator
        >>> transform = ApplyCalibrationd("pred", build_calibrator("temperature", num_classes=2))
        >>> transform({"pred": torch.zeros(2, 4, 4)})["pred"][0, 0, 0].item()
        0.5
    """

    def __init__(
        self,
        keys: KeysCollection,
        calibrator: Calibrator | str | Path,
        from_probabilities: bool = False,
        slice_axis: int = -1,
        allow_missing_keys: bool = False,
    ) -> None:
        super().__init__(keys, allow_missing_keys)
        self.calibrator = load_calibrator(calibrator) if isinstance(calibrator, str | Path) else calibrator
        if not isinstance(self.calibrator, Calibrator):
            raise InputError(f"calibrator must be one of crac or its file; got {type(calibrator).__name__}")
        self.from_probabilities, self.slice_axis = from_probabilities, slice_axis

    def __call__(self, data: Mapping[Hashable, Tensor]) -> dict[Hashable, Tensor]:
        """Return the data with calibrated probabilities in the place of the items."""
        found = dict(data)
        for key in self.key_iterator(found):
            item = found[key]
            scores = as_tensor(_plain(item))
            axis = self.slice_axis % max(1, scores.ndim - 1)
            calibrator = self.calibrator.to(scores.device)
            values = calibrate_volume(calibrator, scores, axis, from_probabilities=self.from_probabilities)
            # A MetaTensor keeps where it lies.
            found[key] = item.clone().to(values.dtype).copy_(values) if isinstance(item, MetaTensor) else values
        return found
