"""``ce``: cross-entropy, the reference."""

from crac.losses.base import SegmentationLoss


class CELoss(SegmentationLoss):
    """Mean cross-entropy, with the arguments of :class:`~crac.losses.base.SegmentationLoss`."""
