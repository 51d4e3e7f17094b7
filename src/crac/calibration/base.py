"""What every calibrator shares: the cell of each voxel, the map of its logits, fitting, and a file."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import torch
from torch import Tensor, nn

from crac._version import __version__
from crac.calibration.fitting import Fit, fit_cells
from crac.calibration.newton import LOWEST, identity
from crac.calibration.pieces import Choice, Slab, log_probabilities, slabs
from crac.calibration.sums import Coefficients
from crac.errors import InputError, check_number, one_of
from crac.files import remove_partials, write_json
from crac.functional.regions import check_radii, region_map
from crac.metrics.masks import MASKS, Mask

Batches = Callable[[], Iterable[tuple[Tensor, Tensor]]]
FORMAT = 1


class Calibrator(nn.Module):
    """Calibrated probabilities ``softmax(z)``, where ``z`` depends on the logits and on the cell of the voxel.

    The cell is the class that is predicted there, the region of the voxel in the map of predictions (inside, or near a
    boundary), both, or the same everywhere. Fitting finds the coefficients of each cell that maximise the likelihood
    of held-out labels.

    Args:
        num_classes: ``K``, the background included.
        radii: Growing distances to the predicted boundary, in voxels, that separate the regions; the default is the
            calibrator's own.
        regions: Whether neighbourhoods of a volume ``(B, K, D, H, W)`` are taken in the ``"volume"`` or in each
            ``"slice"`` ``(H, W)``.

    Attributes:
        fitted: What it was fitted on, and what there is to say about it; empty before.
    """

    name: ClassVar[str]
    coefficients: ClassVar[Coefficients] = "scale"
    by_class: ClassVar[bool] = False
    by_region: ClassVar[bool] = False
    keeps_labels: ClassVar[bool] = True
    default_radii: ClassVar[tuple[int, ...]] = (1,)
    default_mask: ClassVar[Mask] = "band"
    weights: Tensor

    def __init__(
        self,
        num_classes: int,
        *,
        radii: Sequence[int] | None = None,
        regions: Literal["volume", "slice"] = "volume",
    ) -> None:
        super().__init__()
        self.num_classes = int(check_number("num_classes", num_classes, least=2, whole=True))
        self.radii = check_radii(self.default_radii if radii is None else radii)
        if regions not in ("volume", "slice"):
            raise one_of("regions", regions, ("volume", "slice"))
        self.regions = regions
        self.fitted: dict[str, Any] = {}
        self.register_buffer("weights", identity(self.coefficients, self.num_cells, num_classes))

    @property
    def cell_shape(self) -> tuple[int, ...]:
        """Number of classes and of regions the cells tell apart, as far as they do."""
        return (self.num_classes,) * self.by_class + (len(self.radii) + 1,) * self.by_region

    @property
    def num_cells(self) -> int:
        """Number of cells."""
        return int(torch.Size(self.cell_shape).numel())

    @property
    def temperature(self) -> Tensor:
        """Temperature of each cell, in the shape of :attr:`cell_shape`: row = predicted class, column 0 inner."""
        return (1 / self.weights[:, 0]).view(self.cell_shape)

    def cells(self, logits: Tensor) -> Tensor:
        """The cell of every voxel, ``(B, *S)``, of logits ``(B, K, *S)``."""
        return self.cells_of(logits.argmax(1))

    def cells_of(self, predicted: Tensor) -> Tensor:
        """The cell of every voxel, ``(B, *S)``, of the classes that are predicted there."""
        return self.join(predicted.long(), *[self.regions_of(predicted)] * self.by_region)

    def regions_of(self, predicted: Tensor) -> Tensor:
        """The region of every voxel, ``(B, *S)``, in the map of the classes that are predicted."""
        slices = self.regions == "slice" and predicted.ndim == 4
        flat = predicted.flatten(0, 1) if slices else predicted
        return region_map(flat, radii=self.radii).view(predicted.shape)

    def join(self, predicted: Tensor, region: Tensor | None = None) -> Tensor:
        """The cells of voxels whose predicted class, and region where cells tell regions apart, are known."""
        cell = predicted if self.by_class else torch.zeros_like(predicted)
        return cell if region is None else cell * (len(self.radii) + 1) + region

    def forward(self, logits: Tensor) -> Tensor:
        """Calibrated probabilities ``(B, K, *S)`` in at least ``float32``."""
        wide = self.checked(logits)
        predicted = wide.argmax(1)
        return self.calibrated(wide, predicted, self.cells_of(predicted))

    def from_probabilities(self, probabilities: Tensor) -> Tensor:
        """Calibrate the probabilities ``(B, K, *S)`` of a model that gives no logits."""
        wide = self.checked(log_probabilities(probabilities))
        predicted = probabilities.argmax(1)  # not that of the logarithms, which rounding may make equal
        return self.calibrated(wide, predicted, self.cells_of(predicted))

    def calibrated(self, wide: Tensor, predicted: Tensor, cell: Tensor, logarithm: bool = False) -> Tensor:
        """Calibrated probabilities of :meth:`checked` logits whose classes and cells, ``(B, *S)`` each, are known.

        With ``logarithm`` it is their logarithms, which tell probabilities apart that round to 0.
        """
        weights = self.weights.to(wide.dtype)[cell].movedim(-1, 1)  # (B, J, *S)
        if self.coefficients == "vector":
            z = wide * weights[:, : self.num_classes]
        else:  # less the largest, so that no product overflows
            z = (wide - wide.amax(1, keepdim=True)) * weights[:, :1]
        if self.coefficients != "scale":
            z = z + weights[:, -self.num_classes :]
        probabilities = torch.log_softmax if logarithm else torch.softmax
        return _keeping(predicted.unsqueeze(1), z, probabilities) if self.keeps_labels else probabilities(z, 1)

    @torch.no_grad()
    def fit(
        self,
        batches: Batches,
        *,
        mask: Mask | None = None,
        weight: Literal["voxel", "volume"] = "voxel",
        ignore_index: int | None = None,
        from_probabilities: bool = False,
    ) -> Self:
        """Find the coefficients with the highest likelihood; reads the data a few times, one batch at a time.

        Args:
            batches: Called once a pass; yields logits ``(B, K, *S)`` and labels ``(B, *S)`` or ``(B, 1, *S)`` of
                held-out cases.
            mask: Which voxels count, see :class:`crac.CalibrationMeter`; the default is the calibrator's own: ``"all"``
                where cells tell classes and regions apart, so that the interior of the background has a cell of its
                own, and ``"band"`` where all that background would outweigh the rest. Of ``"all"`` in slices of 128
                voxels and more, background further than 3 voxels from any foreground counts by evenly spaced voxels.
            weight: What counts the same: every ``"voxel"``, or every ``"volume"`` however many voxels it has; each
                batch must then be one volume.
            ignore_index: Label of voxels that never count.
            from_probabilities: The batches hold probabilities instead of logits.

        Returns:
            The calibrator itself; :attr:`fitted` says what it was fitted on, and its ``"notes"`` what to beware of.

        Raises:
            InputError: No voxel is in the mask, logits are not finite, probabilities leave 0 to 1, or labels do not
                match them.
        """
        if not callable(batches):
            raise InputError(f"batches must be a function, which is called once a pass; got {type(batches).__name__}")
        if weight not in ("voxel", "volume"):
            raise one_of("weight", weight, ("voxel", "volume"))

        mask = self.default_mask if mask is None else mask
        if mask not in MASKS:
            raise one_of("mask", mask, MASKS)
        choice = Choice(mask, ignore_index, from_probabilities)

        def read(few: bool) -> Iterable[list[Slab]]:
            for number, (scores, labels) in enumerate(batches()):  # each is looked at in other places
                yield slabs(self, scores, labels, choice, (0.5 + 0.618 * number) % 1 if few else None)

        found = fit_cells(read, self.coefficients, self.num_cells, self.num_classes, by_volume=weight == "volume")
        self.weights.copy_(found.weights)
        self.fitted = {"mask": mask, "weight": weight, "batches": found.batches, "passes": found.passes}
        self.fitted |= {"voxels": found.voxels, "voxels_by_cell": found.by_cell, "notes": self._notes(found)}
        return self

    def save(self, path: str | Path) -> None:
        """Write a JSON file, which :func:`crac.load_calibrator` reads."""
        remove_partials(Path(path).parent)
        options = {"radii": list(self.radii), "regions": self.regions}
        write_json(
            Path(path),
            {"format": FORMAT, "crac": __version__, "calibrator": self.name, "num_classes": self.num_classes,
             "options": options, "weights": self.weights.double().tolist(), "fitted": self.fitted},
        )  # fmt: skip

    def restore(self, weights: Any, fitted: dict[str, Any]) -> None:
        """Take over coefficients from a file; what cannot be coefficients is refused."""
        values = torch.tensor(weights, dtype=torch.float64)
        if values.shape != self.weights.shape:
            raise InputError(f"weights must have shape {tuple(self.weights.shape)}; got {tuple(values.shape)}")
        scales = values[:, : -self.num_classes] if self.coefficients != "scale" else values
        if not values.isfinite().all() or (self.keeps_labels and not (scales > 0).all()):
            raise InputError("weights must be finite, and temperatures positive")
        self.weights.copy_(values)
        self.fitted = dict(fitted)

    def extra_repr(self) -> str:
        """Shown by ``print(calibrator)``."""
        return f"num_classes={self.num_classes}, radii={self.radii}, regions={self.regions!r}"

    def checked(self, logits: Tensor) -> Tensor:
        """Logits ``(B, K, *S)`` as :meth:`calibrated` takes them."""
        self.check_shape(logits)
        return self.widened(logits, 1)

    def widened(self, logits: Tensor, dim: int) -> Tensor:
        """The logits in at least ``float32``; for scales by class less their logarithm of summed powers along ``dim``.

        Softmax does not see what is subtracted, but scales that differ would.
        """
        wide = logits if logits.dtype == torch.float64 else logits.float()
        return wide.log_softmax(dim) if self.coefficients == "vector" else wide

    def check_shape(self, logits: Tensor) -> None:
        """Refuse what cannot be the logits of a batch."""
        if not logits.is_floating_point() or logits.ndim not in (4, 5) or logits.shape[1] != self.num_classes:
            raise InputError(
                f"logits must be floating point of shape (B, {self.num_classes}, *S), S 2 or 3 sizes; "
                f"got {logits.dtype} of shape {tuple(logits.shape)}"
            )

    def _notes(self, found: Fit) -> list[str]:
        """What a reader should know about the fit, a sentence each."""
        notes = []
        for number, count in enumerate(found.by_cell):
            where, scale = self.cell_name(number), float(found.weights[number, 0])
            common = f"so it takes the common temperature {1 / scale:.3g}"
            if not count:
                notes.append(f"{where}: no voxel was seen, {common}")
            elif self.coefficients != "vector" and not LOWEST * 1.001 < scale < 0.999 / LOWEST:
                notes.append(
                    f"{where}: the temperature is at its bound, {1 / scale:.3g}; the likelihood wants it beyond"
                )
            elif self.coefficients == "scale" and found.undecided[number]:
                notes.append(f"{where}: every temperature fits its predictions equally well, {common}")
        if not found.converged:
            notes.append(f"after {found.passes} passes the coefficients still changed; more data may settle them")
        return notes

    def cell_name(self, number: int) -> str:
        """A cell in words."""
        regions = len(self.radii) + 1 if self.by_region else 1
        names = [f"class {number // regions}"] * self.by_class
        if self.by_region:
            region = number % regions
            names.append(("inner", "outer")[region] if regions == 2 else f"region {region} of {regions}")
        return ", ".join(names) or "all voxels"


def _keeping(winner: Tensor, z: Tensor, probabilities: Callable[[Tensor, int], Tensor]) -> Tensor:
    """Softmax of calibrated logits, or its logarithm; the winner is first lifted to the largest where it is below that.

    Equal logits and rounding would still let the first of several equal values win; that of the winner is then the
    next larger number.
    """
    found = probabilities(z.scatter(1, winner, z.amax(1, keepdim=True)), 1)
    best, now = found.max(1, keepdim=True)
    above = torch.nextafter(best.detach(), torch.full_like(best, 2))
    return torch.where(now == winner, found, found.scatter(1, winner, above))
