"""A streaming, exact calibration meter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from crac.errors import InputError, check_number, one_of
from crac.functional.arrays import Array, as_tensor
from crac.functional.patches import check_integers
from crac.metrics.cells import cut_cells
from crac.metrics.counts import Counts, TopLabel, count_voxels
from crac.metrics.masks import FARTHEST, MASKS, Mask, holding, select_voxels
from crac.metrics.results import CalibrationResult, result
from crac.metrics.slabs import cut

# Up to this many voxels offered, masked or not, the confidences themselves are kept: ten megabytes.
EXACT_VOXELS = 2**20


class CalibrationMeter:
    """Calibration of any number of batches or volumes in one pass, in memory that does not grow with them.

    Counts are ``int64`` and sums ``float64``, on the device of the input, so the result does not depend on how the
    input was divided into calls, volumes or processes. On a GPU :meth:`update` never waits for the device; bad
    values found there are reported by :meth:`compute`.

    Args:
        num_classes: ``K``; class 0 is the background.
        bins: Number of bins, equal-width ones ``(a, b]`` and equal-mass ones alike.
        mask: Which voxels count: ``"label_foreground"`` (the paper's), ``"predicted_foreground"``,
            ``"union_foreground"`` (either), ``"band"`` (within ``band`` of either), ``"all"``, or a boolean tensor that
            broadcasts to the labels of every update. The name is repeated in the result.
        threshold: TACE leaves out probabilities up to it.
        ignore_index: Label of voxels that never count.
        band: Largest distance to the foreground of the voxels of the mask ``"band"``, in pixels or, where
            :meth:`update` is told the spacing, in its unit.

    Example:
        >>> meter = CalibrationMeter(num_classes=2, mask="all")
        >>> meter.update(probabilities=torch.tensor([[[[0.1, 0.9]], [[0.9, 0.1]]]]), labels=torch.tensor([[[1, 1]]]))
        >>> result = meter.compute()
        >>> round(result.ece, 6), round(result.gap, 6)
        (0.4, 0.4)
    """

    def __init__(
        self,
        num_classes: int,
        bins: int = 15,
        mask: Mask | Array = "label_foreground",
        threshold: float = 1e-3,
        ignore_index: int | None = None,
        band: float = 5.0,
    ) -> None:
        check_number("num_classes", num_classes, least=2, whole=True)
        check_number("band", band, least=0, most=FARTHEST)
        if not isinstance(mask, str):
            mask = _checked_mask(mask)
        elif mask not in MASKS:
            raise one_of("mask", mask, (*MASKS, "a boolean tensor"))
        self.num_classes, self.mask, self.ignore_index, self.band = num_classes, mask, ignore_index, band
        self.cells = cut_cells(bins, threshold)
        self.reset()

    def reset(self) -> None:
        """Forget everything counted so far."""
        self._counts: Counts | None = None
        self._tops: list[TopLabel] | None = []
        self._offered = 0

    @property
    def mask_name(self) -> str:
        """The mask's name, ``"custom"`` for a tensor."""
        return self.mask if isinstance(self.mask, str) else "custom"

    @torch.no_grad()
    def update(
        self,
        *,
        labels: Array,
        logits: Array | None = None,
        probabilities: Array | None = None,
        mask: Array | None = None,
        spacing: Sequence[float] | None = None,
    ) -> None:
        """Count a batch of tensors or NumPy arrays.

        A volume goes in as one item with three spatial dimensions, or as a batch of slices: the numbers differ only
        in ``by_region`` and in the mask ``"band"``, whose neighbourhoods are then two-dimensional.

        Args:
            labels: Integers, ``(B, *S)`` or ``(B, 1, *S)``, on the same device.
            logits: ``(B, K, *S)``, any floating-point type; or
            probabilities: the same, summing to 1 over the classes.
            mask: Boolean, broadcasting to the labels; takes the place of the meter's own mask.
            spacing: Size of a voxel along each spatial axis, for the mask ``"band"``; 1 by default.
        """
        if (logits is None) == (probabilities is None):
            raise InputError(
                "update takes either logits or probabilities; got " + ("neither" if logits is None else "both")
            )
        scores = as_tensor(logits if logits is not None else probabilities)  # type: ignore[arg-type]
        labels = self._check(scores, as_tensor(labels))
        if not labels.numel():
            return
        keep = self._keep(scores, labels, mask, spacing)
        record = self._tops is not None and self._offered + labels.numel() <= EXACT_VOXELS
        slabs = cut(scores, labels, keep, self.ignore_index)
        batch, tops = count_voxels(slabs, scores, self.cells, logits is not None, record)
        if scores.device.type == "cpu":
            self._refuse_invalid(batch)
        self._add(batch, tops if record else None, labels.numel())

    def compute(self, sync: bool = False) -> CalibrationResult:
        """The statistics of everything counted so far; NaN where nothing was.

        Args:
            sync: First add up the meters of all processes of the default ``torch.distributed`` group.
        """
        meter = self.reduced() if sync else self
        counted = meter._counts or Counts.zeros(self.num_classes, self.cells, torch.device("cpu"))
        self._refuse_invalid(counted)
        tops = None if meter._tops is None else [TopLabel(*(part.cpu() for part in top)) for top in meter._tops]
        return result(Counts(*(part.cpu() for part in counted)), self.cells, self.mask_name, tops)

    def merge(self, other: CalibrationMeter) -> None:
        """Add what another meter has counted, on whatever device; it must have been made with the same arguments."""
        mine, theirs = self._arguments(), other._arguments()
        if mine != theirs:
            raise InputError(f"meters of different arguments cannot be merged: {mine} and {theirs}")
        if other._counts is not None:
            self._add(other._counts, other._tops, other._offered)

    def reduced(self) -> CalibrationMeter:
        """A meter that holds what all processes of the default ``torch.distributed`` group have counted.

        Every process must call it. Without an initialised group it is the meter itself.
        """
        import torch.distributed as dist

        if not (dist.is_available() and dist.is_initialized()):
            return self
        gathered: list[Any] = [None] * dist.get_world_size()
        dist.all_gather_object(gathered, self.state())
        total = self._empty_copy()
        for state in gathered:
            part = self._empty_copy()
            part.load_state(state)
            total.merge(part)
        return total

    def state(self) -> dict[str, Any]:
        """What was counted, as NumPy arrays: enough to go on elsewhere with :meth:`load_state`."""
        counted = None if self._counts is None else [part.cpu().numpy() for part in self._counts]
        tops = None if self._tops is None else [[part.cpu().numpy() for part in top] for top in self._tops]
        return {"arguments": self._arguments(), "counts": counted, "tops": tops, "offered": self._offered}

    def load_state(self, state: dict[str, Any]) -> None:
        """Take over a :meth:`state`, replacing what was counted."""
        if state["arguments"] != self._arguments():
            raise InputError(f"the state is of a meter with {state['arguments']}; this one has {self._arguments()}")
        self._counts = None if state["counts"] is None else Counts(*(torch.tensor(part) for part in state["counts"]))
        tops = state["tops"]
        self._tops = None if tops is None else [TopLabel(*(torch.tensor(part) for part in top)) for top in tops]
        self._offered = state["offered"]

    def _add(self, counted: Counts, tops: list[TopLabel] | None, offered: int) -> None:
        self._counts = counted if self._counts is None else self._counts.plus(counted)
        self._offered += offered
        kept = self._tops is not None and tops is not None and self._offered <= EXACT_VOXELS
        self._tops = [*self._tops, *tops] if kept else None  # type: ignore[misc]

    def _arguments(self) -> tuple[Any, ...]:
        return self.num_classes, self.cells.bins, self.mask_name, self.cells.threshold, self.ignore_index, self.band

    def _empty_copy(self) -> CalibrationMeter:
        cells = self.cells
        return CalibrationMeter(self.num_classes, cells.bins, self.mask, cells.threshold, self.ignore_index, self.band)

    def _check(self, scores: Tensor, labels: Tensor) -> Tensor:
        if not scores.is_floating_point() or scores.ndim not in (4, 5) or scores.shape[1] != self.num_classes:
            raise InputError(
                f"logits and probabilities must be floating point of shape (B, {self.num_classes}, H, W) or "
                f"(B, {self.num_classes}, D, H, W); got {scores.dtype} of shape {tuple(scores.shape)}"
            )
        labels = check_integers(labels)
        if labels.ndim == scores.ndim and labels.shape[1] == 1:
            labels = labels.squeeze(1)
        shape = (scores.shape[0], *scores.shape[2:])
        if labels.shape != shape:
            raise InputError(f"labels must have shape {shape} to match the scores; got {tuple(labels.shape)}")
        if labels.device != scores.device:
            raise InputError(f"labels must be on the device of the scores, {scores.device}; got {labels.device}")
        return holding(labels, self.ignore_index)

    def _keep(
        self, scores: Tensor, labels: Tensor, mask: Array | None, spacing: Sequence[float] | None
    ) -> Tensor | None:
        """Boolean ``(B, *S)`` of the voxels that count, None for all."""
        chosen = self.mask if mask is None else mask
        if isinstance(chosen, str):
            return select_voxels(
                chosen, scores, labels, band=self.band, spacing=spacing, ignore_index=self.ignore_index
            )
        chosen = _checked_mask(chosen).to(labels.device)
        chosen = chosen.squeeze(1) if chosen.ndim == scores.ndim and chosen.shape[1] == 1 else chosen
        try:
            keep = chosen.expand(labels.shape)
        except RuntimeError:
            raise InputError(f"mask must broadcast to {tuple(labels.shape)}; got {tuple(chosen.shape)}") from None
        return keep if self.ignore_index is None else keep & (labels != self.ignore_index)

    def _refuse_invalid(self, counted: Counts) -> None:
        # Every voxel counts once for class 0, and once as a hit of its label if that is a class.
        unknown = int(counted.counts[0].sum() - counted.counts[:, :, :, 1].sum())
        if unknown:
            raise InputError(f"labels must lie in 0..{self.num_classes - 1}; {unknown} voxels of the mask do not")
        faulty = int(counted.invalid)
        if faulty:
            raise InputError(
                f"{faulty} voxels of the mask hold scores that are not finite, or probabilities that are negative or "
                "do not sum to 1"
            )


def _checked_mask(mask: Array) -> Tensor:
    mask = as_tensor(mask)
    if mask.dtype != torch.bool:
        raise InputError(f"a mask tensor must be boolean; got dtype {mask.dtype}")
    return mask
