"""Short-axis cardiac MR: a left ventricle in its ring of muscle, a right ventricle beside it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from crac.data.phantom import imaging
from crac.data.phantom.imaging import Array
from crac.files import write_text

GROUPS = {
    "DCM": (31, 8, 22, 0.12),
    "HCM": (21, 14, 19, 0.45),
    "MINF": (27, 9, 20, 0.2),
    "NOR": (24, 9, 20, 0.35),
    "RV": (23, 9, 28, 0.32),
}
"""Group -> millimetres of the left cavity, its wall and the right ventricle, and how far the heart shortens."""
RIGHT, MUSCLE, LEFT = 1, 2, 3


@dataclass(frozen=True)
class Heart:
    """One phase of one heart, in millimetres: radii at the base, which shrink towards the apex."""

    cavity: float
    wall: float
    right: float
    septum: float
    roundness: float
    ripple: Array
    thin: float

    def levels(self, rows: Array, columns: Array, depth: Array) -> tuple[Array, Array, Array]:
        """Signed depth inside cavity, muscle and right ventricle at ``depth`` 0 (base) to 1 (apex), ``(D, 1, 1)``."""
        shrink = np.sqrt(np.maximum(1 - (0.9 * depth) ** 2, 0.05))
        angle = np.arctan2(rows, columns)
        wobble = 1 + sum(
            self.ripple[0, order] * np.cos((order + 2) * angle + self.ripple[1, order] + depth) for order in range(3)
        )
        distance = np.hypot(rows * self.roundness, columns / self.roundness) * wobble
        cavity = self.cavity * shrink - distance
        # An infarct thins one side of the wall.
        wall = self.wall * (1 - self.thin * np.clip(np.cos(angle - self.ripple[1, 0]), 0, 1))
        muscle = self.cavity * shrink + wall * (0.6 + 0.4 * shrink) - distance
        # The crescent: an ellipse to the left, minus the round left heart. It ends before the apex.
        reach = shrink * np.clip(1.25 - depth, 0, 1)
        centre = (0.0, -(self.cavity * shrink + self.septum))
        radii = np.maximum(1.35 * self.right * reach, 0.1), np.maximum(self.right * reach, 0.1)
        right = (1 - imaging.ellipsoid((rows, columns), centre, radii, 0.25)) * radii[1]
        return cavity, muscle, np.minimum(right, -muscle)


def cardiac(
    folder: str | Path, patients: int = 20, seed: int = 0, size: int = 128, slices: int = 8, waver_mm: float = 1.5
) -> Path:
    """Write short-axis cardiac volumes in ACDC's layout; returns the folder.

    Every patient has an end-diastolic and an end-systolic frame, and belongs to one of ACDC's five groups, whose
    hearts differ as the pathology says.

    Args:
        folder: Made if needed.
        patients: How many.
        seed: The same seed writes the same patients, however many follow.
        size: About how many rows and columns a slice has; it varies a little between patients.
        slices: About how many slices a volume has.
        waver_mm: How far the annotator's outline strays, as a standard deviation in millimetres.
    """
    folder = imaging.start(folder, seed, patients, size, slices, fewest=2)
    for number in range(1, patients + 1):
        _write_patient(folder / f"patient{number:03d}", seed, number, size, slices, waver_mm)
    return folder


def _write_patient(folder: Path, seed: int, number: int, size: int, slices: int, waver_mm: float) -> None:
    generator = np.random.default_rng((seed, number))
    group = list(GROUPS)[(number - 1) % len(GROUPS)]
    height, width = (size + 8 * int(step) for step in generator.integers(-1, 2, 2))
    depth = max(2, slices + int(generator.integers(-1, 2)))
    spacing = (10.0, *[float(np.round(180 / size * generator.uniform(0.93, 1.07), 4))] * 2)
    cavity, wall, right, shortens = GROUPS[group]
    vary = generator.uniform(0.88, 1.12, 4)
    diastole = Heart(
        cavity=cavity * vary[0],
        wall=wall * vary[1],
        right=right * vary[2],
        septum=12 * vary[3],
        ripple=np.stack([generator.uniform(0, 0.035, 3), generator.uniform(0, 2 * np.pi, 3)]),
        roundness=float(generator.uniform(0.94, 1.06)),
        thin=0.5 if group == "MINF" else 0.0,
    )
    shortening = shortens * generator.uniform(0.85, 1.15)
    systole = replace(
        diastole,
        cavity=diastole.cavity * (1 - shortening),
        wall=diastole.wall * (1 + 0.7 * shortening),
        right=diastole.right * (1 - 0.6 * shortening),
    )
    frames = (1, int(generator.integers(8, 14)))
    centre = generator.uniform(-8, 8, 2)
    for frame, heart in zip(frames, (diastole, systole), strict=True):
        image, label = _frame(generator, heart, (depth, height, width), spacing[1], centre, waver_mm)
        name = f"{folder.name}_frame{frame:02d}"
        imaging.write_volume(folder / f"{name}.nii.gz", image, spacing)
        imaging.write_volume(folder / f"{name}_gt.nii.gz", label, spacing)
    info = {"ED": frames[0], "ES": frames[1], "Group": group, "NbFrame": 30}
    write_text(folder / "Info.cfg", "".join(f"{key}: {value}\n" for key, value in info.items()))


def _frame(
    generator: np.random.Generator, heart: Heart, shape: Sequence[int], pixel: float, centre: Array, waver_mm: float
) -> imaging.Pair:
    depth, height, width = shape
    middle = (height / 2 + centre[0] / pixel, width / 2 + centre[1] / pixel)
    blood, muscle = generator.uniform(0.75, 0.95), generator.uniform(0.28, 0.42)
    flow = generator.uniform(0.85, 1.0)
    # Neighbouring slices are drawn by the same hand, but one at a time.
    astray = imaging.waver(generator, shape, waver_mm / pixel, (0.5, height / 25, width / 25))
    texture = imaging.smooth_noise(generator, shape, (0.3, 2.0, 2.0))
    level = np.arange(depth)[:, None, None] / (depth - 1)

    def draw(down: Array, right: Array, values: Sequence[float], around: Array | float) -> Array:
        insides = heart.levels((down - middle[0]) * pixel, (right - middle[1]) * pixel, level)
        return np.select([inside > 0 for inside in insides], values, around)

    def tissue(down: Array, right: Array) -> Array:
        return draw(down, right, (blood, muscle, blood * flow), _body(down / height - 0.5, right / width - 0.5))

    image = imaging.render(tissue, height, width)
    rows, columns = np.mgrid[:height, :width]
    label = draw(rows + astray[0], columns + astray[1], (LEFT, MUSCLE, RIGHT), 0).astype(np.uint8)
    image = image * imaging.bias_field(generator, shape, 0.25) * (1 + 0.06 * texture)
    image = imaging.rician(generator, image, generator.uniform(0.03, 0.06)) * generator.uniform(250, 900)
    return np.rint(image).astype(np.int16), label


def _body(row: Array, column: Array) -> Array:
    """What surrounds the heart, in shares of the field of view: air, fat, chest wall, lungs, liver."""
    points = (row, column)
    value = np.where(imaging.ellipsoid(points, (0.02, 0), (0.47, 0.49)) < 1, 0.8, 0.02)
    value = np.where(imaging.ellipsoid(points, (0.02, 0), (0.43, 0.46)) < 1, 0.3, value)
    value = np.where(imaging.ellipsoid(points, (-0.02, 0.27), (0.33, 0.17), 0.2) < 1, 0.08, value)
    value = np.where(imaging.ellipsoid(points, (-0.1, -0.3), (0.24, 0.13), -0.2) < 1, 0.08, value)
    value = np.where(imaging.ellipsoid(points, (0.3, -0.22), (0.13, 0.2), 0.1) < 1, 0.38, value)
    return np.where(imaging.ellipsoid(points, (0, 0), (0.27, 0.27)) < 1, 0.45, value)
