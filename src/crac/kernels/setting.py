"""Which loss a kernel computes."""

from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor


class Setting(NamedTuple):
    """One loss; its tensors are contiguous and lie on the logits' device.

    Args:
        rho: Penalty weights ``(R, K)``, or ``None`` for a penalty without multipliers, as the next two.
        lambda_: Multipliers ``(R, K)``.
        scales: Scale of the target in each region, ``(R,)``.
        class_weights: ``(K,)``, or ``None``.
        regions: ``uint8`` region map ``(B, *S)``, or ``None``: inner and outer by the patch itself.
        rings: Weights of a patch's labels in the target by squared distance from the centre, 0 to 3; ``None`` for
            the pixel's own label.
        fit: Whether the fitting term is part of the loss.
        penalty: A name of :data:`crac.functional.PENALTIES`, ``"distance"`` for the constraint itself,
            ``"divergence"`` for that of the softmax from the target, times ``lambda_``, or ``"none"``: the loss is the
            fitting term alone.
        weight: Factor of the penalty's mean over pixels and classes.
        tolerance: Distance to the target that is free.
        radius: Radius of the patch.
        replicate: Whether the edge goes on beyond the border, instead of background.
        ignore_index: Label of pixels without one, outside ``0..K-1``.
        smoothing: Probability that the target of a divergence spreads over all classes inside.
        near: Radius of the patch that tells inner from outer, if it is not ``radius``.
    """

    rho: Tensor | None = None
    lambda_: Tensor | None = None
    scales: Tensor | None = None
    class_weights: Tensor | None = None
    regions: Tensor | None = None
    rings: Sequence[float] | None = None
    fit: bool = True
    penalty: str = "none"
    weight: float = 1.0
    tolerance: float = 0.0
    radius: int = 1
    replicate: bool = True
    ignore_index: int | None = None
    smoothing: float = 0.0
    near: int | None = None

    @property
    def constants(self) -> "Setting":
        """Return the setting without its tensors, which can be a key."""
        return Setting(None, None, None, None, None, None if self.rings is None else tuple(self.rings), *self[6:])
