"""``ce``: cross-entropy, the reference."""

from __future__ import annotations

from crac.losses.base import SegmentationLoss

__all__ = ["CELoss"]


class CELoss(SegmentationLoss):
    """Mean cross-entropy, with the arguments of :class:`~crac.losses.base.SegmentationLoss`."""
