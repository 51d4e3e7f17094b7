"""The prepared store: one folder of memory-mapped arrays and the manifest that explains them.

STORE/manifest.json                      what is below, with checksums
STORE/split.json                         the default split (seed 0)
STORE/contact_sheet.png                  a look at the labels
STORE/cases/NAME/image.npy               float16 (C, D, H, W), in 0..1
STORE/cases/NAME/label.npy               uint8 (D, H, W)
STORE/cases/NAME/original_label.nii.gz   class indices on the input's own grid
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, StringConstraints, ValidationError, model_validator

from crac.data.nifti import read_label
from crac.data.recipe import Geometry, Recipe, Strict
from crac.data.sources.source import CASE_NAME
from crac.data.split import Split
from crac.errors import InputError, ProblemsError, invalid, one_of
from crac.files import sha256

__all__ = [
    "FILES",
    "FORMAT",
    "IMAGE",
    "LABEL",
    "ORIGINAL_LABEL",
    "Case",
    "FileRecord",
    "Manifest",
    "Statistics",
    "Store",
]

FORMAT = 1
"""Version of the store's layout; raised when an older program could not read a newer store."""

FileName = Literal["image.npy", "label.npy", "original_label.nii.gz"]
FILES: tuple[FileName, ...] = get_args(FileName)
IMAGE, LABEL, ORIGINAL_LABEL = FILES
MOST_OPEN = 384
"""Memory maps kept open: each costs a file descriptor, of which a process commonly has 1,024."""

CaseName = Annotated[str, StringConstraints(pattern=f"^{CASE_NAME}$", max_length=200)]
Count = Annotated[int, Field(ge=0)]


class FileRecord(Strict):
    """Size and checksum of one file."""

    bytes: Count
    sha256: str


class Statistics(Strict):
    """Intensities of one channel on the input's grid."""

    minimum: float
    maximum: float
    mean: float
    deviation: float
    percentile_0_5: float
    percentile_99_5: float


class Case(Strict):
    """One prepared volume.

    Args:
        name: Of the case.
        patient: Whom it shows.
        group: Stratum for splits, if known.
        geometry: The input's grid, which ``Store.restore`` returns to.
        spacing: Millimetres along the input's ``(X, Y, Z)``.
        prepared_shape: ``(D, H, W)``.
        prepared_spacing: Millimetres along ``(D, H, W)``.
        voxels: Voxels of each class in the input's label.
        prepared_voxels: Voxels of each class in the prepared label.
        cropped_away: Share of the labelled foreground that lies outside the crop.
        intensity: Statistics of each channel.
        files: File name -> size and checksum.
    """

    name: CaseName
    patient: str
    group: str | None
    geometry: Geometry
    spacing: tuple[float, float, float]
    prepared_shape: tuple[Count, Count, Count]
    prepared_spacing: tuple[float, float, float]
    voxels: tuple[Count, ...]
    prepared_voxels: tuple[Count, ...]
    cropped_away: float
    intensity: tuple[Statistics, ...]
    files: dict[FileName, FileRecord] = Field(min_length=3)

    @property
    def affine(self) -> NDArray[np.float64]:
        """The input's voxel to millimetre matrix."""
        return np.array(self.geometry.affine)


class Manifest(Strict):
    """What a store holds.

    Args:
        version: Format of the store.
        crac: Version of the program that wrote it.
        name: Of the data set.
        dims: 2 when meant for slices, 3 for volumes.
        class_names: Index = class, 0 the background.
        channel_names: One a channel.
        recipe: How images were prepared, with every constant.
        cases: By name.
    """

    version: int
    crac: str
    name: str
    dims: Literal[2, 3]
    class_names: tuple[str, ...] = Field(min_length=2, max_length=255)
    channel_names: tuple[str, ...] = Field(min_length=1)
    recipe: Recipe
    cases: dict[CaseName, Case] = Field(min_length=1)

    @model_validator(mode="after")
    def _agrees(self) -> Manifest:
        if len(self.recipe.intensity) != len(self.channel_names):
            raise ValueError(f"{len(self.channel_names)} channels, {len(self.recipe.intensity)} intensity scalings")
        for name, case in self.cases.items():
            if case.name != name:
                raise ValueError(f"the case {name!r} calls itself {case.name!r}")
            if len(case.voxels) != len(self.class_names):
                raise ValueError(f"the case {name!r} counts {len(case.voxels)} classes of {len(self.class_names)}")
            if case.prepared_shape != self.recipe.prepared_shape(case.geometry):
                raise ValueError(f"the case {name!r} has a shape its recipe does not give")
        return self


class Store:
    """A prepared data set on disk; open it with ``Store.open``.

    Args:
        path: Folder of the store.
        manifest: Its manifest.
    """

    def __init__(self, path: Path, manifest: Manifest) -> None:
        self.path = path
        self.manifest = manifest
        self._map = functools.lru_cache(maxsize=MOST_OPEN)(self._open_array)

    def __reduce__(self) -> tuple[Any, ...]:
        return Store, (self.path, self.manifest)

    @classmethod
    def open(cls, path: str | Path) -> Store:
        """Open a store: its manifest must be readable, its files there with the right sizes."""
        path = Path(path)
        try:
            content = json.loads((path / "manifest.json").read_text(encoding="utf-8"))
            if isinstance(content, dict) and isinstance(content.get("version"), int) and content["version"] > FORMAT:
                raise InputError(
                    f"{path} has store format {content['version']}, this crac reads up to {FORMAT}: upgrade crac"
                )
            store = cls(path, Manifest.model_validate(content))
        except InputError:
            raise
        except FileNotFoundError as error:
            raise InputError(f"{path} is not a prepared store: it has no manifest.json (see crac prepare)") from error
        except ValidationError as error:
            raise invalid(f"{path}/manifest.json is damaged", error) from error
        except (OSError, ValueError, OverflowError, RecursionError) as error:
            raise InputError(f"{path}/manifest.json cannot be read: {error}") from error
        store._report(store._check_size)
        return store

    def verify(self) -> None:
        """Read every file and compare its checksum with the manifest."""
        self._report(self._check_sum)

    @property
    def name(self) -> str:
        """Of the data set."""
        return self.manifest.name

    @property
    def class_names(self) -> tuple[str, ...]:
        """Index = class, 0 the background."""
        return self.manifest.class_names

    @property
    def num_classes(self) -> int:
        """Background included."""
        return len(self.manifest.class_names)

    @property
    def channels(self) -> int:
        """Of the images."""
        return len(self.manifest.channel_names)

    @property
    def cases(self) -> dict[str, Case]:
        """By name."""
        return self.manifest.cases

    def image(self, name: str) -> NDArray[np.float16]:
        """A case's image, memory-mapped, ``(C, D, H, W)``."""
        return self._map(self._case(name).name, IMAGE)

    def label(self, name: str) -> NDArray[np.uint8]:
        """A case's label, memory-mapped, ``(D, H, W)``."""
        return self._map(self._case(name).name, LABEL)

    def moments(self, cases: Iterable[str]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Mean and standard deviation of each channel ``(C,)`` over all voxels of these cases."""
        voxels, total, squares = 0, np.zeros(self.channels), np.zeros(self.channels)
        for name in cases:
            channels = self.image(name).reshape(self.channels, -1).astype(np.float64)
            voxels += channels.shape[1]
            total += channels.sum(axis=1)
            squares += np.square(channels).sum(axis=1)
        mean = total / voxels
        return mean, np.sqrt(np.maximum(squares / voxels - mean**2, 0))

    def original_label(self, name: str) -> NDArray[np.uint8]:
        """A case's class indices on the input's own grid, ``(X, Y, Z)``."""
        label = read_label(self._file(self._case(name).name, ORIGINAL_LABEL)).array.astype(np.uint8)
        if label.shape != self.cases[name].geometry.shape:
            raise InputError(f"{self.path}: the original label of {name} does not have the shape in the manifest")
        return label

    def restore(self, name: str, array: NDArray[Any]) -> NDArray[Any]:
        """Bring class indices ``(D, H, W)`` or probabilities ``(K, D, H, W)`` back to the case's input grid."""
        return self.manifest.recipe.invert(array, self._case(name).geometry)

    def split(self, seed: int = 0) -> Split:
        """70/10/20 by patient, stratified by group; the store's ``split.json`` holds seed 0."""
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
        except (OSError, ValueError) as error:
            raise InputError(f"{path} cannot be read: {error}") from error
        shape = self.cases[name].prepared_shape
        expected = ((self.channels, *shape), "float16") if file == IMAGE else (shape, "uint8")
        if (array.shape, array.dtype.name) != expected:
            raise InputError(f"{path} must be {expected[1]} {expected[0]}; got {array.dtype} {array.shape}")
        return array

    def _report(self, check: Any) -> None:
        records = ((name, file, record) for name, case in self.cases.items() for file, record in case.files.items())
        problems = [problem for name, file, record in records if (problem := check(self._file(name, file), record))]
        if problems:
            raise ProblemsError(f"{self.path} is damaged, prepare it again", problems)

    @staticmethod
    def _check_size(path: Path, record: FileRecord) -> str | None:
        if not path.is_file():
            return f"{path} is missing"
        size = path.stat().st_size
        return None if size == record.bytes else f"{path} has {size} bytes, the manifest says {record.bytes}"

    @staticmethod
    def _check_sum(path: Path, record: FileRecord) -> str | None:
        if not path.is_file():
            return f"{path} is missing"
        return None if sha256(path) == record.sha256 else f"{path} has another checksum than the manifest"
