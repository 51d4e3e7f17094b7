"""Abdominal CT: liver, kidneys, spleen and pancreas in a body with spine and gut."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from crac.data.phantom.imaging import Array, Pair, ellipsoid, render, smooth_noise, start, waver, write_volume

LIVER, KIDNEY, SPLEEN, PANCREAS = 1, 2, 3, 4
BODY_MM = (240.0, 240.0, 330.0)
"""Height, front to back and width of the part that is drawn; organs are placed in shares of it."""


@dataclass(frozen=True)
class Organ:
    """An ellipsoid: class (0 is not labelled), Hounsfield units, centre and radii in shares, turn in radians."""

    label: int
    units: float
    centre: tuple[float, float, float]
    radii: tuple[float, float, float]
    turn: float = 0.0


# Later ones cover earlier ones. Axes: up, backwards, towards the patient's left.
ORGANS = (
    Organ(0, 20, (-0.15, -0.05, 0.05), (0.45, 0.28, 0.36)),
    Organ(0, -60, (-0.3, -0.2, 0.1), (0.14, 0.1, 0.18)),
    Organ(LIVER, 105, (0.18, -0.05, -0.22), (0.27, 0.3, 0.2), 0.25),
    Organ(LIVER, 105, (0.22, -0.18, -0.04), (0.13, 0.14, 0.2), -0.1),
    Organ(0, 40, (0.2, -0.12, 0.2), (0.17, 0.15, 0.11)),
    Organ(SPLEEN, 120, (0.17, 0.17, 0.34), (0.18, 0.15, 0.08), 0.5),
    Organ(KIDNEY, 160, (-0.08, 0.2, -0.2), (0.2, 0.11, 0.075), 0.4),
    Organ(KIDNEY, 160, (-0.03, 0.2, 0.21), (0.2, 0.11, 0.075), -0.4),
    Organ(0, 160, (0.0, 0.1, 0.02), (1.2, 0.045, 0.035)),
    Organ(PANCREAS, 80, (0.03, -0.02, 0.03), (0.06, 0.055, 0.08), -0.3),
    Organ(PANCREAS, 80, (0.07, 0.03, 0.14), (0.05, 0.045, 0.1), 0.3),
    Organ(0, 350, (0.0, 0.27, 0.0), (1.2, 0.1, 0.07)),
)


def abdominal(
    folder: str | Path, patients: int = 10, seed: int = 0, size: int = 96, slices: int = 30, waver_mm: float = 2.5
) -> Path:
    """Write abdominal volumes in FLARE21's layout, ``TrainingImg`` and ``TrainingMask``; returns the folder.

    The arguments are those of :func:`~crac.data.phantom.cardiac.cardiac`; all slices have the same size.
    """
    folder = start(folder, seed, patients, size, slices, fewest=4)
    for number in range(patients):
        generator = np.random.default_rng((seed, number))
        depth = slices + int(generator.integers(-2, 3)) if slices >= 8 else slices
        spacing = (BODY_MM[0] / slices, *[float(np.round(384 / size * generator.uniform(0.95, 1.05), 4))] * 2)
        image, label = _patient(generator, (depth, size, size), spacing, waver_mm)
        write_volume(folder / "TrainingImg" / f"train_{number:03d}_0000.nii.gz", image, spacing)
        write_volume(folder / "TrainingMask" / f"train_{number:03d}.nii.gz", label, spacing)
    return folder


def _patient(
    generator: np.random.Generator, shape: tuple[int, int, int], spacing: tuple[float, ...], waver_mm: float
) -> Pair:
    depth, height, width = shape
    organs = [
        Organ(
            organ.label,
            organ.units + float(generator.normal(0, 8)),
            tuple(np.add(organ.centre, generator.normal(0, 0.012, 3)).tolist()),
            tuple((np.array(organ.radii) * generator.uniform(0.88, 1.1, 3)).tolist()),
            organ.turn + float(generator.normal(0, 0.08)),
        )
        for organ in ORGANS
    ]
    girth = generator.uniform(0.92, 1.08, 2)
    # Shapes are bent by one smooth field (anatomy), labels by another on top (the annotator).
    bend = waver(generator, shape, 6 / spacing[1], (depth / 8, height / 12, width / 12))
    astray = waver(generator, shape, waver_mm / spacing[1], (0.5, height / 30, width / 30))
    up: Array = (np.arange(depth, dtype=float)[:, None, None] - (depth - 1) / 2) * spacing[0] / BODY_MM[0]

    def points(down: Array, right: Array) -> tuple[Array, Array, Array]:
        back = (down + bend[0] - (height - 1) / 2) * spacing[1] / BODY_MM[1] / girth[0]
        left = (right + bend[1] - (width - 1) / 2) * spacing[2] / BODY_MM[2] / girth[1]
        return up, back, left

    def tissue(down: Array, right: Array) -> Array:
        where = points(down, right)
        skin = ellipsoid(where[1:], (0, 0), (0.5, 0.5))
        value = np.where(skin < 1, -100.0, -1000.0)
        value[np.abs(skin - 0.86) < 0.06] = 50
        for organ in organs:
            value[ellipsoid(where, organ.centre, organ.radii, organ.turn) < 1] = organ.units
        return value

    image = render(tissue, height, width)
    label = np.zeros(shape, dtype=np.uint8)
    rows, columns = np.mgrid[:height, :width]
    where = points(rows + astray[0], columns + astray[1])
    for organ in organs:
        label[ellipsoid(where, organ.centre, organ.radii, organ.turn) < 1] = organ.label
    image += 12 * smooth_noise(generator, shape, (0.3, 0.8, 0.8)) + generator.normal(0, 12, shape)
    return np.rint(np.clip(image, -1024, 1500)).astype(np.int16), label
