"""What the manifest of a prepared store says: pydantic records of its cases and files."""

from typing import Annotated, Literal, Self, get_args

from pydantic import Field, StringConstraints, model_validator

from crac.data.recipe import Dims, Geometry, Recipe, Strict
from crac.data.sources.source import CASE_NAME, LONGEST_NAME

FORMAT = 1
"""Version of the store's layout; raised when an older program could not read a newer store."""

FileName = Literal["image.npy", "label.npy", "original_label.nii.gz"]
FILES: tuple[FileName, ...] = get_args(FileName)
IMAGE, LABEL, ORIGINAL_LABEL = FILES

CaseName = Annotated[str, StringConstraints(pattern=f"^{CASE_NAME}$", max_length=LONGEST_NAME)]
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
        name: Name of the case.
        patient: The patient it shows.
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


class Manifest(Strict):
    """What a store holds.

    Args:
        version: Format of the store.
        crac: Version of the program that wrote it.
        name: Name of the data set.
        dims: 2 when meant for slices, 3 for volumes.
        class_names: Index = class, 0 the background.
        channel_names: One a channel.
        recipe: How images were prepared, with every constant.
        ignore_index: Value of labels that count nowhere, if there are any.
        cases: Records of the cases, by name.
    """

    version: int
    crac: str
    name: str
    dims: Dims
    class_names: tuple[str, ...] = Field(min_length=2, max_length=255)
    channel_names: tuple[str, ...] = Field(min_length=1)
    recipe: Recipe
    ignore_index: Literal[255] | None = None
    cases: dict[CaseName, Case] = Field(min_length=1)

    @model_validator(mode="after")
    def _agrees(self) -> Self:
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
