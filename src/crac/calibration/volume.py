"""Calibrators on single volumes, which come without a batch axis and may be stacks of slices."""

from torch import Tensor

from crac.calibration.base import Calibrator


def as_batch(calibrator: Calibrator, volume: Tensor, slice_axis: int = 0, channels: int = 1) -> Tensor:
    """A volume ``(K, *S)``, or labels ``(*S)`` with ``channels=0``, as the calibrator takes it.

    It becomes a batch of slices if the calibrator's regions are those of slices, else a batch of one.
    """
    return volume.movedim(slice_axis + channels, 0) if calibrator.regions == "slice" else volume.unsqueeze(0)


def calibrate_volume(calibrator: Calibrator, logits: Tensor, slice_axis: int = 0) -> Tensor:
    """Calibrated probabilities ``(K, *S)`` of the logits ``(K, *S)`` of one volume."""
    probabilities: Tensor = calibrator(as_batch(calibrator, logits, slice_axis))
    return probabilities.movedim(0, slice_axis + 1) if calibrator.regions == "slice" else probabilities[0]
