"""``crac``: class and region-adaptive constraints, the method of this package."""

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from crac import kernels
from crac.errors import InputError, check_number, one_of
from crac.functional import planes
from crac.functional.patches import Border, check_border, narrow, patch_radius
from crac.functional.penalty import PENALTIES
from crac.functional.priors import neighbourhood_counts, neighbourhood_proportions, soft_targets
from crac.functional.regions import check_radii, region_map
from crac.losses.base import ClassWeights, SegmentationLoss, check_batch, masked_mean, widen
from crac.losses.multipliers import Average, Multipliers
from crac.losses.presets import choose
from crac.losses.signed import SIGNALS, Signal, SignedMultipliers, gap_sums


class CRaCLoss(SegmentationLoss):
    """Cross-entropy, plus a penalty where the network leaves what the neighbouring labels say.

    With the presets ``released`` and ``paper`` (Murugesan et al., MICCAI 2024) the constraint of class ``k`` at pixel
    ``i`` is ``h = |tau - l| - tolerance``, with ``tau`` the share of the class in the patch around the pixel times the
    scale of the pixel's region. It enters through a penalty-Lagrangian function with one multiplier per class and
    region, which the outer step adapts on the validation set.

    With the preset ``signed`` the constraint is ``KL(q || softmax(l))``, with ``q`` the shares of the patch on
    boundaries and the smoothed label inside; its weight in each region, ``lambda_``, grows on the validation set where
    the network is overconfident and falls where it is underconfident. At a weight of 0 the loss is as without it.

    Args:
        preset: ``"released"``, ``"paper"`` or ``"signed"``: where all options that are not given come from, see
            :data:`crac.losses.PRESETS`. An option that the preset does not have is refused.
        inner_scale: Scale of the target inside organs.
        outer_scale: Scale of the target on boundaries; a sequence gives each of several ``radii`` its own.
        border: What lies outside the image: ``"replicate"`` or ``"background"``.
        average: ``"all"`` or ``"region"``, see :class:`~crac.losses.multipliers.Multipliers`.
        kernel_size: Side of the patch, odd. ``signed`` by default takes 5 in 2-D and 3 in 3-D: 25 or 27 labels, of
            which a pixel on a straight boundary shares 3 in 5 or 2 in 3, whatever the distance between slices.
        radii: Growing distances to the boundary that separate the regions, ``len(radii) + 1`` of them; by default
            the two of the paper: patches with one class, and patches with several.
        tolerance: Distance between logit and target that is free. Above 0 the constraint can be satisfied, and
            multipliers can fall as well as grow.
        penalty: Name of the penalty function, see :data:`crac.functional.PENALTIES`.
        lambda_, lambda_min, lambda_max: Start and bounds of the multipliers.
        rho, rho_min, rho_max: Start and bounds of the penalty weights; with ``signed``, ``rho`` is the pace.
        gamma, mu, rho_every: Growth of ``rho``, see :class:`~crac.losses.multipliers.Multipliers`.
        signal: Whose confidence ``signed`` compares with their accuracy: the voxels ``"predicted"`` as foreground, or
            ``"all"``, see :func:`~crac.losses.signed.gap_sums`.
        by_class: Whether ``signed`` learns a weight for each class of a region, instead of one a region.
        smoothing: Probability that the target of ``signed`` spreads over all classes inside.
        num_classes, ignore_index, class_weights, dice_weight: As for :class:`~crac.losses.base.SegmentationLoss`.

    Example:
        >>> loss = CRaCLoss(num_classes=4)
        >>> logits, labels = torch.randn(2, 4, 16, 16, requires_grad=True), torch.randint(4, (2, 16, 16))
        >>> loss(logits, labels).backward()  # each training step
        >>> loss.observe(logits, labels)  # each validation batch
        >>> loss.update_multipliers()  # once an epoch
        >>> loss.lambda_.shape
        torch.Size([2, 4])
    """

    multipliers: Multipliers
    scales: Tensor | None

    def __init__(
        self,
        num_classes: int,
        preset: str = "released",
        *,
        inner_scale: float | None = None,
        outer_scale: float | Sequence[float] | None = None,
        border: Border | None = None,
        average: Average | None = None,
        kernel_size: int | None = None,
        radii: Sequence[int] | None = None,
        tolerance: float | None = None,
        penalty: str | None = None,
        lambda_: float | None = None,
        lambda_min: float | None = None,
        lambda_max: float | None = None,
        rho: float | None = None,
        rho_min: float | None = None,
        rho_max: float | None = None,
        gamma: float | None = None,
        mu: float | None = None,
        rho_every: int | None = None,
        signal: Signal | None = None,
        by_class: bool | None = None,
        smoothing: float | None = None,
        ignore_index: int | None = None,
        class_weights: ClassWeights = None,
        dice_weight: float = 0.0,
    ) -> None:
        chosen = choose(preset, locals())
        super().__init__(num_classes, ignore_index=ignore_index, class_weights=class_weights, dice_weight=dice_weight)
        self.preset = preset
        self.border = check_border(chosen["border"])
        self.kernel_size: int | None = chosen["kernel_size"]
        radius = 1 if self.kernel_size is None else max(patch_radius(self.kernel_size), 1)
        self.radii = check_radii((radius,) if chosen["radii"] is None else chosen["radii"])
        self.regions = len(self.radii) + 1
        lambdas = chosen["lambda_"], chosen["lambda_min"], chosen["lambda_max"]
        self.signed = preset == "signed"
        if self.signed:
            if chosen["signal"] not in SIGNALS:
                raise one_of("signal", chosen["signal"], SIGNALS)
            self.signal: Signal = chosen["signal"]
            self.smoothing: float = check_number("smoothing", chosen["smoothing"], least=0, most=1)
            self.register_buffer("scales", None, persistent=False)
            self.multipliers = SignedMultipliers(
                num_classes, self.regions, lambdas, chosen["rho"], bool(chosen["by_class"])
            )
            return
        self.tolerance: float = check_number("tolerance", chosen["tolerance"], least=0)
        if chosen["penalty"] not in PENALTIES:
            raise one_of("penalty", chosen["penalty"], PENALTIES)
        self.penalty_name: str = chosen["penalty"]
        self.penalty_function = PENALTIES[self.penalty_name]
        scales = _check_scales(chosen["inner_scale"], chosen["outer_scale"], len(self.radii))
        self.register_buffer("scales", torch.tensor(scales), persistent=False)
        rhos = chosen["rho"], chosen["rho_min"], chosen["rho_max"]
        growth = chosen["gamma"], chosen["mu"], chosen["rho_every"]
        self.multipliers = Multipliers(num_classes, self.regions, chosen["average"], lambdas, rhos, *growth)

    @property
    def lambda_(self) -> Tensor:
        """Multipliers, ``(R, K)``; row 0 inner, the last row nearest to the boundary."""
        return self.multipliers.lambda_

    @lambda_.setter
    def lambda_(self, value: Tensor) -> None:
        self.multipliers.lambda_ = value.to(self.lambda_).contiguous()

    @property
    def rho(self) -> Tensor:
        """Penalty weights, ``(R, K)``, in the same order."""
        return self.multipliers.rho

    @rho.setter
    def rho(self, value: Tensor) -> None:
        self.multipliers.rho = value.to(self.rho).contiguous()

    @property
    def steps(self) -> Tensor:
        """Number of outer steps taken."""
        return self.multipliers.steps

    def patch(self, dims: int) -> int:
        """Return the side of the patch in 2 or 3 dimensions."""
        return (5 if dims == 2 else 3) if self.kernel_size is None else self.kernel_size

    def setting(self, logits: Tensor, labels: Tensor, fit: bool = True, penalty: bool = True) -> kernels.Setting | None:
        """Describe cross-entropy, penalty or both to the kernel, which knows every penalty and any regions."""
        radius = self.patch(labels.ndim - 1) // 2
        if not kernels.usable(logits, labels, radius, self.ignore_index):
            return None
        # A module looks for an attribute elsewhere first, which small batches feel.
        own, learned = self._buffers, self._modules["multipliers"]._buffers  # type: ignore[union-attr]
        if not penalty:
            return kernels.Setting(class_weights=own["class_weights"], ignore_index=self.ignore_index)
        if self.signed:
            here = self.radii == (1,) and radius > 0
            return kernels.Setting(
                rho=learned["rho"],
                lambda_=learned["lambda_"],
                class_weights=own["class_weights"],
                regions=None if here else region_map(labels.long(), self.border, self.radii, self.ignore_index),
                fit=fit,
                penalty="divergence",
                weight=self.num_classes,
                radius=radius,
                replicate=self.border == "replicate",
                ignore_index=self.ignore_index,
                smoothing=self.smoothing,
                near=1,
            )
        mixed = self.radii == (radius,)
        return kernels.Setting(
            rho=learned["rho"],
            lambda_=learned["lambda_"],
            scales=own["scales"],
            class_weights=own["class_weights"],
            regions=None if mixed else region_map(labels.long(), self.border, self.radii, self.ignore_index),
            fit=fit,
            penalty=self.penalty_name,
            weight=1 / self.regions,
            tolerance=self.tolerance,
            radius=radius,
            replicate=self.border == "replicate",
            ignore_index=self.ignore_index,
        )

    def constraint(self, logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Return constraint values ``(B, K, *S)`` and regions ``(B, *S)`` of checked logits and labels."""
        region = region_map(labels, self.border, self.radii, self.ignore_index)
        size = self.patch(labels.ndim - 1)
        prior = neighbourhood_proportions(labels, self.num_classes, self.border, size, self.ignore_index)
        assert self.scales is not None
        target = prior * self.scales[region.long()].unsqueeze(1)
        distance = (target - logits).abs()
        return (distance - self.tolerance if self.tolerance else distance), region

    def penalty_term(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Return the augmented Lagrangian's penalty, averaged over pixels, classes and regions.

        With ``signed`` it is the mean over pixels of the divergence times its price.
        """
        if self.signed:
            return self._priced_divergence(logits, labels)
        if planes.pays(logits):
            return self._penalty_by_class(logits, labels)
        z, region = self.constraint(logits, labels)
        values = self.penalty_function.value(z, *self._multipliers_at(region, z))
        return masked_mean(values, self.valid(labels)) / self.regions

    def _priced_divergence(self, logits: Tensor, labels: Tensor) -> Tensor:
        region = region_map(labels, self.border, self.radii, self.ignore_index)
        target = soft_targets(
            labels, region, self.num_classes, self.border, self.patch(labels.ndim - 1), self.smoothing,
            self.ignore_index,
        ).to(logits.dtype)  # fmt: skip
        divergence = (torch.special.xlogy(target, target) - target * logits.log_softmax(1)).sum(1)
        valid = self.valid(labels)
        price = self.lambda_[region.long(), labels if valid is None else torch.where(valid, labels, 0)]
        return masked_mean(price.to(logits.dtype) * divergence, valid)

    def _penalty_by_class(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Compute :meth:`penalty_term` in the memory of one class."""
        valid = self.valid(labels)
        labels, ignored = narrow(labels, self.num_classes, self.ignore_index)
        region = region_map(labels, self.border, self.radii, ignored)
        # Blending with 0 and 1 is several times faster than `where`.
        masks = [(region == number).float() for number in range(1, self.regions)]
        side = self.patch(labels.ndim - 1)
        counts, size = neighbourhood_counts(labels, self.num_classes, self.border, side, ignored)
        assert self.scales is not None

        def at(rows: Tensor) -> Tensor:
            base, *others = rows.tolist()
            values = torch.full_like(masks[0], base)
            for mask, other in zip(masks, others, strict=True):
                values.add_(mask, alpha=other - base)
            return values

        scale = at(self.scales)

        def target(k: int) -> Tensor:
            return counts[:, k].div(size).mul_(scale)

        def terms(k: int, z: Tensor) -> tuple[Tensor, Tensor]:
            rho, lambda_ = at(self.rho[:, k]), at(self.lambda_[:, k])
            if self.penalty_name == "phr" and not self.tolerance:  # z >= 0: no slack to look for
                slope = torch.addcmul(lambda_, rho, z)
                return lambda_.add_(slope).mul_(z).mul_(0.5), slope
            z = z - self.tolerance
            return self.penalty_function.value(z, rho, lambda_), self.penalty_function.derivative(z, rho, lambda_)

        pixels = labels.numel() if valid is None else valid.sum().clamp(min=1)
        total = planes.distance_penalty(logits, target, terms, valid)
        return total / (pixels * self.num_classes * self.regions)

    @torch.no_grad()
    def observe(self, logits: Tensor, labels: Tensor) -> None:
        """Take in one validation batch; call :meth:`update_multipliers` after the last.

        NaN or infinite logits raise an error here on the CPU, and in :meth:`update_multipliers` on a GPU, where
        looking at once would wait for the device.
        """
        labels = check_batch(logits, labels, self.num_classes, self.ignore_index)
        if isinstance(self.multipliers, SignedMultipliers):
            logits, labels = widen(logits, labels)
            by_class = self.multipliers.by_class
            found = gap_sums(logits, labels, self.signal, by_class, self.border, self.radii, self.ignore_index)
            self.multipliers.accumulate(*found)
            return
        setting = self.setting(logits, labels)
        if setting is not None:
            self.multipliers.accumulate(*kernels.fused_sums(logits, labels, setting))
            return
        logits, labels = widen(logits, labels)
        z, region = self.constraint(logits, labels)
        derivative = self.penalty_function.derivative(z, *self._multipliers_at(region, z))
        valid = self.valid(labels)
        axes = [0, *range(2, z.ndim)]
        dtype = torch.float32 if z.device.type == "mps" else torch.float64
        sums, counts = [], []
        for number in range(self.regions):
            here = region == number if valid is None else (region == number) & valid
            counts.append(here.sum())
            sums += [torch.where(here.unsqueeze(1), what, 0).sum(axes, dtype=dtype) for what in (z, derivative)]
        self.multipliers.accumulate(torch.stack(sums).view(self.regions, 2, -1).transpose(0, 1), torch.stack(counts))

    def _multipliers_at(self, region: Tensor, like: Tensor) -> tuple[Tensor, Tensor]:
        """Return ``rho`` and ``lambda_`` of each pixel's region, broadcastable to ``(B, K, *S)``."""
        shape = (self.regions, 1, -1, *[1] * (like.ndim - 2))
        rhos, lambdas = self.rho.to(like.dtype).view(shape), self.lambda_.to(like.dtype).view(shape)
        rho, lambda_ = rhos[0], lambdas[0]
        for number in range(1, self.regions):
            here = (region == number).unsqueeze(1)
            rho, lambda_ = torch.where(here, rhos[number], rho), torch.where(here, lambdas[number], lambda_)
        return rho, lambda_

    def extra_repr(self) -> str:
        """Return what ``print(loss)`` shows."""
        own = f"preset={self.preset!r}"
        if isinstance(self.multipliers, SignedMultipliers):
            own += f", signal={self.signal!r}, by_class={self.multipliers.by_class}"
        elif self.scales is not None:
            own += f", scales={self.scales.tolist()}, average={self.multipliers.average!r}"
        return f"{super().extra_repr()}, {own}"


def _check_scales(inner: Any, outer: Any, radii: int) -> list[float]:
    """Return the scale of every region, from the inside to the boundary."""
    check_number("inner_scale", inner)
    scales = list(outer) if isinstance(outer, Iterable) and not isinstance(outer, str) else [outer] * radii
    for scale in scales:
        check_number("outer_scale", scale)
    if len(scales) != radii:
        raise InputError(f"outer_scale must be one number or one per radius, {radii}; got {outer!r}")
    return [float(inner), *map(float, scales)]
