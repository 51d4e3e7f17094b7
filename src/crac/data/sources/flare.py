"""FLARE: abdominal CT, as FLARE21 (``TrainingImg``) or FLARE22 (``imagesTr``) publish it.

The paper has four organs. FLARE22 labels thirteen, with the kidneys apart: they become one class here, the
nine other organs background.
"""

from pathlib import Path

from crac.data.sources.nnunet import pair_files
from crac.data.sources.source import Source, check_folder, data_set_name, wrong_layout

CLASS_NAMES = ("background", "liver", "kidney", "spleen", "pancreas")
FLARE21 = {index: index for index in range(5)}
FLARE22 = dict.fromkeys(range(14), 0) | {1: 1, 2: 2, 13: 2, 3: 3, 4: 4}


def read_flare(folder: Path) -> Source:
    """Pair images and labels of either year."""
    check_folder(folder)
    for images, labels, values in (("TrainingImg", "TrainingMask", FLARE21), ("imagesTr", "labelsTr", FLARE22)):
        if (folder / images).is_dir() and (folder / labels).is_dir() and not (folder / "dataset.json").exists():
            cases, problems = pair_files(folder / images, folder / labels, channels=1)
            return Source(
                name=data_set_name(folder, "FLARE21" if values is FLARE21 else "FLARE22"),
                folder=folder,
                class_names=CLASS_NAMES,
                channel_names=("CT",),
                label_values=values,
                cases=tuple(cases),
                problems=tuple(problems),
            )
    raise wrong_layout(folder, "FLARE's layout, TrainingImg and TrainingMask, or imagesTr and labelsTr")
