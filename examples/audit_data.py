"""Writes a small set of label maps and overconfident probabilities to try ``crac evaluate`` on.

``python examples/audit_data.py example`` writes ``example/labels`` and ``example/probabilities``; docs/audit.md goes on
from there. With ``nnunet`` behind it the probabilities are files such as nnU-Net v2 writes.
"""

import pickle
import sys
from pathlib import Path

import nibabel as nib
import numpy as np
from scipy import ndimage

SHAPE, SPACING = (64, 64, 24), (1.0, 1.0, 2.5)


def labels(rng: np.random.Generator) -> np.ndarray:
    """A large ellipsoid with a small one in it."""
    grid = np.stack(np.meshgrid(*(np.linspace(-1, 1, side) for side in SHAPE), indexing="ij"), -1)
    outer = (((grid - rng.uniform(-0.1, 0.1, 3)) / rng.uniform(0.55, 0.7, 3)) ** 2).sum(-1) < 1
    inner = (((grid - rng.uniform(-0.2, 0.2, 3)) / rng.uniform(0.2, 0.3, 3)) ** 2).sum(-1) < 1
    return np.where(inner & outer, 2, outer).astype(np.uint8)


def probabilities(truth: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """What a network might say: right inside, unsure about boundaries, and surer than it should be."""
    blurred = np.stack([ndimage.gaussian_filter((truth == k).astype(float), 1.0) for k in range(3)], -1)
    error = np.stack([ndimage.gaussian_filter(rng.normal(size=SHAPE), 1.5) for _ in range(3)], -1)
    logits = 3 * np.log(blurred + 1e-4) + 30 * error
    powers = np.exp(logits - logits.max(-1, keepdims=True))
    return (powers / powers.sum(-1, keepdims=True)).astype(np.float32)


def write_nnunet(path: Path, array: np.ndarray) -> None:
    """What ``nnUNetv2_predict --save_probabilities`` leaves of a case: the axes reversed, the classes first."""
    np.savez_compressed(f"{path}.npz", probabilities=array.transpose())
    geometry = {"spacing": SPACING, "origin": (0.0, 0.0, 0.0), "direction": (-1.0, 0, 0, 0, -1.0, 0, 0, 0, 1.0)}
    path.with_name(f"{path.name}.pkl").write_bytes(pickle.dumps({"sitk_stuff": geometry, "spacing": SPACING[::-1]}))


def main(folder: Path, kind: str = "nifti", number: int = 12) -> None:
    rng = np.random.default_rng(0)
    for name in ("labels", "probabilities"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    for case in range(number):
        truth = labels(rng)
        for name, array in (("labels", truth), ("probabilities", probabilities(truth, rng))):
            path = folder / name / f"case_{case:02}"
            if name == "probabilities" and kind == "nnunet":
                write_nnunet(path, array)
            else:
                nib.Nifti1Image(array, np.diag([*SPACING, 1])).to_filename(f"{path}.nii.gz")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "example"), *sys.argv[2:3])
