"""From files as their owners publish them to batches. Needs the ``train`` extra."""

from crac.errors import require

for _package in ("nibabel", "pydantic"):
    require(_package)

from crac.data import phantom  # noqa: E402
from crac.data.augment import Augmentation  # noqa: E402
from crac.data.batches import Batch, Batches  # noqa: E402
from crac.data.nifti import Volume, read_image, read_label, write  # noqa: E402
from crac.data.preparation import prepare  # noqa: E402
from crac.data.recipe import Geometry, Intensity, Recipe  # noqa: E402
from crac.data.records import Case, Manifest  # noqa: E402
from crac.data.split import Split  # noqa: E402
from crac.data.store import Store  # noqa: E402

__all__ = [
    "Augmentation",
    "Batch",
    "Batches",
    "Case",
    "Geometry",
    "Intensity",
    "Manifest",
    "Recipe",
    "Split",
    "Store",
    "Volume",
    "phantom",
    "prepare",
    "read_image",
    "read_label",
    "write",
]
