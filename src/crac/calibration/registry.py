"""Every calibrator by its name, and from its file."""

from pathlib import Path
from typing import Any

from crac.calibration.base import FORMAT, Calibrator
from crac.calibration.class_ import ClassCalibrator
from crac.calibration.class_region import ClassRegionCalibrator
from crac.calibration.class_region_affine import ClassRegionAffineCalibrator
from crac.calibration.identity import IdentityCalibrator
from crac.calibration.region import RegionCalibrator
from crac.calibration.temperature import TemperatureCalibrator
from crac.calibration.vector import VectorCalibrator
from crac.errors import check_number, one_of
from crac.files import versioned

CALIBRATORS: dict[str, type[Calibrator]] = {
    calibrator.name: calibrator
    for calibrator in (
        IdentityCalibrator,
        TemperatureCalibrator,
        ClassCalibrator,
        RegionCalibrator,
        ClassRegionCalibrator,
        ClassRegionAffineCalibrator,
        VectorCalibrator,
    )
}
"""Name -> class of the calibrator."""
OPTIONS = ("radii", "regions")
MOST_CLASSES = 2**16
"""Classes that a calibrator in a file may have: a damaged number must not ask for more memory than any network."""


def build_calibrator(name: str, num_classes: int, **options: Any) -> Calibrator:
    """Make a calibrator by its name.

    Args:
        name: One of :data:`CALIBRATORS`.
        num_classes: ``K``, the background included.
        **options: ``radii`` and ``regions``, see :class:`~crac.calibration.Calibrator`.

    Example:
        >>> build_calibrator("class_region", num_classes=4).temperature.shape
        torch.Size([4, 2])
    """
    if name not in CALIBRATORS:
        raise one_of("name", name, CALIBRATORS)
    for option in options:
        if option not in OPTIONS:
            raise one_of(f"option of {name!r}", option, OPTIONS)
    return CALIBRATORS[name](num_classes, **options)


def load_calibrator(path: str | Path) -> Calibrator:
    """Read a calibrator that :meth:`~crac.calibration.Calibrator.save` wrote; no code in the file is run."""
    with versioned(Path(path), FORMAT, "is not a calibrator") as content:
        check_number("num_classes", content["num_classes"], least=2, most=MOST_CLASSES, whole=True)
        calibrator = build_calibrator(content["calibrator"], content["num_classes"], **content["options"])
        calibrator.restore(content["weights"], content["fitted"])
    return calibrator
