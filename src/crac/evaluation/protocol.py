"""How volumes are measured: settings that every command shares, under two names.

``paper``
    As the paper does: on the grid the network was trained on, distances in voxels, HD95 as MedPy has it.
``clinical``
    As a reader of the images would: on the image's own grid, in millimetres.

Under both, a class that only one of prediction and label shows is as far away as the volume's diagonal: a network that
misses an organ must not gain by it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Self, get_args

from crac.errors import InputError, check_number, one_of
from crac.metrics import CalibrationMeter
from crac.metrics.masks import FARTHEST, MASKS, Mask
from crac.metrics.segmentation import Definition, Empty

Grid = Literal["native", "prepared"]
Regions = Literal["volume", "slice"]

PROTOCOLS: dict[str, dict[str, Any]] = {
    "paper": {
        "masks": ("label_foreground", "union_foreground", "band", "all"),
        "unit": "voxel",
        "grid": "prepared",
    },
    "clinical": {"masks": ("band", "label_foreground"), "unit": "mm", "grid": "native"},
}
"""Name -> what it sets; everything else has the defaults of :class:`Protocol`."""


@dataclass(frozen=True)
class Protocol:
    """What is measured, and how; repeated in every result.

    Args:
        class_names: One per class, background first; empty if not known yet.
        name: One of :data:`PROTOCOLS`, with the settings that were changed if any were.
        masks: Which voxels calibration is measured on, see :class:`crac.CalibrationMeter`.
        bins: Number of bins.
        threshold: TACE leaves out probabilities up to it.
        hd95: Definition of HD95, see :func:`crac.hd95`.
        empty: What the distances are where a class is absent from the prediction or the labels.
        tolerance: Tolerance of the surface Dice, in ``unit``.
        unit: Unit of all distances, ``"mm"`` or ``"voxel"``.
        grid: Where runs are measured: the ``"native"`` grid of the image, or the ``"prepared"`` one.
        regions: Where neighbourhoods are taken that tell inside from boundary, and near from far: in the ``"volume"``
            (3-D), or in each ``"slice"``.
        band: Distance to the foreground that the mask ``band`` reaches, in ``unit``.
        ignore_index: Label of voxels that do not count, if there is one.
    """

    class_names: Sequence[str] = ()
    name: str = "custom"
    masks: Sequence[Mask] = ("band", "label_foreground")
    bins: int = 15
    threshold: float = 1e-3
    hd95: Definition = "pooled"
    empty: Empty = "diagonal"
    tolerance: float = 1.0
    unit: Literal["mm", "voxel"] = "mm"
    grid: Grid = "native"
    regions: Regions = "volume"
    band: float = 5.0
    ignore_index: int | None = None

    def __post_init__(self) -> None:
        names = list(self.class_names)
        if len(names) == 1 or len(set(names)) != len(names):
            raise InputError(f"class_names must be at least 2 different names; got {names!r}")
        check_number("tolerance", self.tolerance, least=0, most=FARTHEST)
        check_number("band", self.band, least=0, most=FARTHEST)
        if not isinstance(self.empty, str):
            check_number("empty", self.empty, least=0, most=FARTHEST)
        if not self.masks:
            raise one_of("masks", self.masks, MASKS)
        for argument, values, accepted in (
            ("masks", self.masks, MASKS),
            ("unit", [self.unit], ("mm", "voxel")),
            ("grid", [self.grid], get_args(Grid)),
            ("regions", [self.regions], get_args(Regions)),
        ):
            for value in values:
                if value not in accepted:
                    raise one_of(argument, value, accepted)

    @classmethod
    def named(cls, name: str, class_names: Sequence[str] = (), regions: Regions = "volume", **changes: Any) -> Self:
        """A protocol by its name.

        Args:
            name: One of :data:`PROTOCOLS`.
            class_names: One per class, background first; empty if not known yet.
            regions: ``"slice"`` for stacks of slices, as 2-D networks make, else ``"volume"``.
            **changes: Other settings than the protocol's own; the name in the results then says which.
        """
        if name not in PROTOCOLS:
            raise one_of("protocol", name, PROTOCOLS)
        named = cls(class_names, name, regions=regions, **PROTOCOLS[name])
        changed = replace(named, **changes)
        differing = [key for key in changes if getattr(changed, key) != getattr(named, key)]
        return replace(changed, name=f"{name}, but for {', '.join(differing)}") if differing else named

    @classmethod
    def for_network(
        cls, name: str, dims: int, class_names: Sequence[str], ignore_index: int | None = None, **changes: Any
    ) -> Self:
        """A protocol by its name for what a network says.

        Args:
            name: One of :data:`PROTOCOLS`.
            dims: Dimensions of the network: one of slices (2) tells inside from boundary in each slice, one of
                volumes (3) in the volume, unless ``regions`` is among the changes.
            class_names: One per class, background first.
            ignore_index: Label of voxels that do not count, if there is one.
            **changes: As for :meth:`named`.
        """
        changes.setdefault("regions", "slice" if dims == 2 else "volume")
        return replace(cls.named(name, class_names, **changes), ignore_index=ignore_index)

    def left_out(self) -> dict[str, str]:
        """Return the columns of measures that say nothing here, with the reason."""
        if len(self.class_names) != 2 or "label_foreground" not in self.masks:
            return {}
        reason = "all voxels labelled foreground have the same label, against which no class-wise curve can be drawn"
        return {f"{name}[label_foreground]": reason for name in ("cece", "tace", "tace_adaptive")}

    def meters(self) -> dict[str, CalibrationMeter]:
        """A fresh meter for each mask."""
        classes = len(self.class_names)
        return {
            mask: CalibrationMeter(classes, self.bins, mask, self.threshold, self.ignore_index, self.band)
            for mask in self.masks
        }
