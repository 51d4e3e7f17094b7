"""The prepared store: one folder of memory-mapped arrays and the manifest that explains them.

STORE/manifest.json                      what is below, with checksums
STORE/split.json                         the default split (seed 0)
STORE/contact_sheet.png                  a look at the labels
STORE/cases/NAME/image.npy               float16 (C, D, H, W), in 0..1
STORE/cases/NAME/label.npy               uint8 (D, H, W)
STORE/cases/NAME/original_label.nii.gz   class indices on the input's own grid
"""

import functools
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from crac.data.nifti import read_label
from crac.data.records import FORMAT, IMAGE, LABEL, ORIGINAL_LABEL, Case, FileRecord, Manifest
from crac.data.split import Split
from crac.errors import InputError, ProblemsError, checked, one_of
from crac.files import read_json, sha256

MOST_OPEN = 384
"""Memory maps kept open: each costs a file descriptor, of which a process commonly has 1,024."""


class Store:
    """A prepared data set on disk; open it with ``Store.open``.

    Attributes:
        path: Its folder.
        manifest: All that is known about it.
        name: Name of the data set.
        class_names: Names of the classes by index, the background first.
        num_classes: Number of classes, the background included.
        channels: Number of channels of the images.
        cases: Records of the cases, by name.
        ignore_index: Value of labels that count nowhere, None if there is none.
    """

    def __init__(self, path: Path, manifest: Manifest) -> None:
        self.path, self.manifest = path, manifest
        self.name, self.class_names, self.cases = manifest.name, manifest.class_names, manifest.cases
        self.num_classes, self.channels = len(manifest.class_names), len(manifest.channel_names)
        self.ignore_index = manifest.ignore_index
        self._map = functools.lru_cache(maxsize=MOST_OPEN)(self._open_array)

    def __reduce__(self) -> tuple[Any, ...]:
        return Store, (self.path, self.manifest)

    @classmethod
    def open(cls, path: str | Path) -> Self:
        """Open a store: its manifest must be readable, its files there with the right sizes."""
        path = Path(path)
        file = path / "manifest.json"
        if not file.exists():
            raise InputError(f"{path} is not a prepared store: it has no manifest.json (see crac prepare)")
        content = read_json(file)
        version = content.get("version") if isinstance(content, dict) else None
        if isinstance(version, int) and version > FORMAT:
            raise InputError(f"{path} has store format {version}, this crac reads up to {FORMAT}: upgrade crac")
        store = cls(path, checked(Manifest, content, f"{file} is damaged"))
        store._report(_wrong_size)
        return store

    def verify(self) -> None:
        """Read every file and compare its checksum with the manifest."""
        self._report(_wrong_checksum)

    def image(self, name: str) -> NDArray[np.float16]:
        """Return a case's image, memory-mapped, ``(C, D, H, W)``."""
        return self._map(self._case(name).name, IMAGE)

    def label(self, name: str) -> NDArray[np.uint8]:
        """Return a case's label, memory-mapped, ``(D, H, W)``."""
        return self._map(self._case(name).name, LABEL)

    def moments(self, cases: Iterable[str]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return mean and standard deviation of each channel ``(C,)`` over all voxels of these cases."""
        voxels, total, squares = 0, np.zeros(self.channels), np.zeros(self.channels)
        for name in cases:
            channels = self.image(name).reshape(self.channels, -1).astype(np.float64)
            voxels += channels.shape[1]
            total += channels.sum(axis=1)
            squares += np.square(channels).sum(axis=1)
        mean = total / voxels
        return mean, np.sqrt(np.maximum(squares / voxels - mean**2, 0))

    def original_label(self, name: str) -> NDArray[np.uint8]:
        """Return a case's class indices on the input's own grid, ``(X, Y, Z)``."""
        label = read_label(self._file(self._case(name).name, ORIGINAL_LABEL)).array.astype(np.uint8)
        if label.shape != self.cases[name].geometry.shape:
            raise InputError(f"{self.path}: the original label of {name} does not have the shape in the manifest")
        return label

    def restore(self, name: str, array: NDArray[Any]) -> NDArray[Any]:
        """Bring class indices ``(D, H, W)`` or probabilities ``(K, D, H, W)`` back to the case's input grid."""
        return self.manifest.recipe.invert(array, self._case(name).geometry)

    def split(self, seed: int = 0) -> Split:
        """Return a split 70/10/20 by patient, stratified by group; the store's ``split.json`` holds seed 0."""
        return Split.make(self.cases, seed)

    def _case(self, name: str) -> Case:
        if name not in self.cases:
            raise one_of("case", name, self.cases)
        return self.cases[name]

    def _file(self, name: str, file: str) -> Path:
        return self.path / "cases" / name / file

    def _open_array(self, name: str, file: str) -> NDArray[Any]:
        path = self._file(name, file)
        try:
            array: NDArray[Any] = np.load(path, mmap_mode="r")
        except Exception as error:  # numpy parses a damaged header as Python, with all of Python's errors
            raise InputError(f"{path} cannot be read: {error}") from error
        shape = self.cases[name].prepared_shape
        expected = ((self.channels, *shape), "float16") if file == IMAGE else (shape, "uint8")
        if (array.shape, array.dtype.name) != expected:
            raise InputError(f"{path} must be {expected[1]} {expected[0]}; got {array.dtype} {array.shape}")
        return array

    def _report(self, check: Callable[[Path, FileRecord], str | None]) -> None:
        cases = self.cases.values()
        files = ((self._file(case.name, name), record) for case in cases for name, record in case.files.items())
        checks = (check(path, record) if path.is_file() else f"{path} is missing" for path, record in files)
        if problems := [problem for problem in checks if problem]:
            raise ProblemsError(f"{self.path} is damaged, prepare it again", problems)


def _wrong_size(path: Path, record: FileRecord) -> str | None:
    size = path.stat().st_size
    return None if size == record.bytes else f"{path} has {size} bytes, the manifest says {record.bytes}"


def _wrong_checksum(path: Path, record: FileRecord) -> str | None:
    return None if sha256(path) == record.sha256 else f"{path} has another checksum than the manifest"
