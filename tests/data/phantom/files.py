"""What a phantom wrote."""

import hashlib
from pathlib import Path

import nibabel as nib
import numpy as np


def fingerprint(folder: Path) -> dict[str, str]:
    # Voxels, not files: a gzip header holds the time.
    return {
        str(path.relative_to(folder)): hashlib.sha256(np.asarray(nib.load(path).dataobj).tobytes()).hexdigest()
        for path in sorted(folder.rglob("*.nii.gz"))
    }
