"""``ce``: cross-entropy, the reference."""

from __future__ import annotations

from crac.losses.base import SegmentationLoss

__all__ = ["CrossEntropyLoss"]


class CrossEntropyLoss(SegmentationLoss):
    """Mean cross-entropy."""
