"""Short-axis cardiac MR: a left ventricle in its ring of muscle, a right ventricle beside it."""

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

    def levels(self, rows: Array, columns: Array, depth: float) -> tuple[Array, Array, Array]:
        """Signed depth inside cavity, heart muscle and right ventricle at ``depth`` 0 (base) to 1 (apex)."""
        shrink = float(np.sqrt(max(1 - (0.9 * depth) ** 2, 0.05)))
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
        reach = shrink * float(np.clip(1.25 - depth, 0, 1))
        centre = (0.0, -(self.cavity * shrink + self.septum))
        radii = (max(1.35 * self.right * reach, 0.1), max(self.right * reach, 0.1))
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
        generator = np.random.default_rng((seed, number))
        _write_patient(folder / f"patient{number:03d}", generator, number, size, slices, waver_mm)
    return folder


def _write_patient(
    folder: Path, generator: np.random.Generator, number: int, size: int, slices: int, waver_mm: float
) -> None:
    group = list(GROUPS)[(number - 1) % len(GROUPS)]
    height, width = (size + 8 * int(step) for step in generator.integers(-1, 2, 2))
    depth = max(2, slices + int(generator.integers(-1, 2)))
    spacing = (10.0, *[float(np.round(180 / size * generator.uniform(0.93, 1.07), 4))] * 2)
    diastole = _heart(generator, group)
    shortening = GROUPS[group][3] * generator.uniform(0.85, 1.15)
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


def _heart(generator: np.random.Generator, group: str) -> Heart:
    vary = generator.uniform(0.88, 1.12, 4)
    cavity, wall, right, _ = GROUPS[group]
    ripple = np.stack([generator.uniform(0, 0.035, 3), generator.uniform(0, 2 * np.pi, 3)])
    return Heart(
        cavity=cavity * vary[0],
        wall=wall * vary[1],
        right=right * vary[2],
        septum=12 * vary[3],
        roundness=float(generator.uniform(0.94, 1.06)),
        ripple=ripple,
        thin=0.5 if group == "MINF" else 0.0,
    )


def _frame(
    generator: np.random.Generator,
    heart: Heart,
    shape: tuple[int, int, int],
    pixel: float,
    centre: Array,
    waver_mm: float,
) -> imaging.Pair:
    depth, height, width = shape
    middle = (height / 2 + centre[0] / pixel, width / 2 + centre[1] / pixel)
    blood, muscle = generator.uniform(0.75, 0.95), generator.uniform(0.28, 0.42)
    flow = generator.uniform(0.85, 1.0)
    image = np.zeros(shape)
    label = np.zeros(shape, dtype=np.uint8)
    # Neighbouring slices are drawn by the same hand, but one at a time.
    astray = imaging.waver(generator, shape, waver_mm / pixel, (0.5, height / 25, width / 25))
    texture = imaging.smooth_noise(generator, shape, (0.3, 2.0, 2.0))
    rows, columns = np.meshgrid(np.arange(height, dtype=float), np.arange(width, dtype=float), indexing="ij")
    for index in range(depth):
        level = index / (depth - 1)

        def levels(down: Array, right: Array, level: float = level) -> tuple[Array, Array, Array]:
            return heart.levels((down - middle[0]) * pixel, (right - middle[1]) * pixel, level)

        def tissue(down: Array, right: Array) -> Array:
            cavity, wall, ventricle = levels(down, right)
            value = _body((down / height - 0.5), (right / width - 0.5))
            value = np.where(ventricle > 0, blood * flow, value)
            value = np.where(wall > 0, muscle, value)
            return np.where(cavity > 0, blood, value)

        image[index] = imaging.render(tissue, height, width)
        cavity, wall, ventricle = levels(rows + astray[0][index], columns + astray[1][index])
        label[index] = np.select([cavity > 0, wall > 0, ventricle > 0], [LEFT, MUSCLE, RIGHT], 0)
    image = image * imaging.bias_field(generator, shape, 0.25) * (1 + 0.06 * texture)
    image = imaging.rician(generator, image, generator.uniform(0.03, 0.06)) * generator.uniform(250, 900)
    return np.rint(image).astype(np.int16), label


def _body(row: Array, column: Array) -> Array:
    """What surrounds the heart, in shares of the field of view: air, fat, chest wall, lungs, liver."""
    points = (row, column)
    value = np.full(row.shape, 0.02)
    value = np.where(imaging.ellipsoid(points, (0.02, 0), (0.47, 0.49)) < 1, 0.8, value)
    value = np.where(imaging.ellipsoid(points, (0.02, 0), (0.43, 0.46)) < 1, 0.3, value)
    value = np.where(imaging.ellipsoid(points, (-0.02, 0.27), (0.33, 0.17), 0.2) < 1, 0.08, value)
    value = np.where(imaging.ellipsoid(points, (-0.1, -0.3), (0.24, 0.13), -0.2) < 1, 0.08, value)
    value = np.where(imaging.ellipsoid(points, (0.3, -0.22), (0.13, 0.2), 0.1) < 1, 0.38, value)
    return np.where(imaging.ellipsoid(points, (0, 0), (0.27, 0.27)) < 1, 0.45, value)
