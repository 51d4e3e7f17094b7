"""Writers of small data sets."""

import json
from pathlib import Path

import nibabel as nib
import numpy as np


def write_nifti(path: Path, array: np.ndarray, spacing: tuple[float, ...] = (1, 1, 1), codes: str = "RAS") -> None:
    """An array on a grid with the given axis directions."""
    path.parent.mkdir(parents=True, exist_ok=True)
    orientation = nib.orientations.axcodes2ornt(codes)
    turn = nib.orientations.inv_ornt_aff(orientation, array.shape[:3])
    affine = np.diag([*np.array(spacing)[np.argsort(orientation[:, 0])], 1.0]) @ np.linalg.inv(turn)
    nib.Nifti1Image(array, affine).to_filename(path)


def write_nnunet(
    folder: Path, shapes: list[tuple[int, int, int]], channels: dict[str, str] | None = None, **grid
) -> Path:
    """A data set of two classes in nnU-Net's raw layout: a bright box in noise."""
    channels = channels or {"0": "MRI"}
    generator = np.random.default_rng(0)
    for number, shape in enumerate(shapes):
        label = np.zeros(shape, dtype=np.uint8)
        label[tuple(slice(size // 4, size - size // 3) for size in shape)] = 1
        for channel in channels:
            image = (100 + 10 * int(channel) + 50 * label + generator.normal(0, 5, shape)).astype(np.float32)
            write_nifti(folder / "imagesTr" / f"case{number}_{int(channel):04d}.nii.gz", image, **grid)
        write_nifti(folder / "labelsTr" / f"case{number}.nii.gz", label, **grid)
    content = {"channel_names": channels, "labels": {"background": 0, "box": 1}, "file_ending": ".nii.gz"}
    (folder / "dataset.json").write_text(json.dumps(content | {"numTraining": len(shapes)}))
    return folder
