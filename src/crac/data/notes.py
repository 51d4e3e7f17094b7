"""What is odd about a prepared data set, said before anybody trains on it."""

from collections.abc import Sequence

from crac.data.recipe import Intensity
from crac.data.recipes import MR_INTENSITY
from crac.data.records import Statistics
from crac.data.split import Split
from crac.data.store import Store

USUAL_SPACING = (0.01, 25.0)
"""Millimetres; a voxel outside this range is most likely a mistake in a header."""


def store_notes(store: Store) -> list[str]:
    """Return a sentence for everything that training on a store would silently suffer from."""
    cases = list(store.cases.values())
    notes = _constant(store, list(store.cases))
    low, high = USUAL_SPACING
    if odd := [case for case in cases if not low <= min(case.spacing) <= max(case.spacing) <= high]:
        sizes = " x ".join(f"{side:g}" for side in odd[0].spacing)
        notes.append(f"{_some([case.name for case in odd])}: voxels of {sizes} mm; is the spacing in the header right?")
    if empty := [case.name for case in cases if not any(case.voxels[1:])]:
        all_of_them = "; there is nothing to learn" if len(empty) == len(cases) else ""
        notes.append(f"{len(empty)} of {len(cases)} cases have no labelled voxel{all_of_them}: {_some(empty)}")
    for index, name in list(enumerate(store.class_names))[1:]:
        shown = [case for case in cases if case.voxels[index]]
        if not shown and len(empty) < len(cases):
            notes.append(f"no case shows the class {name}")
        if lost := [case.name for case in shown if not case.prepared_voxels[index]]:
            notes.append(
                f"the class {name} is lost in preparation, by resampling or by the crop, in {len(lost)} of the "
                f"{len(shown)} cases that show it: {_some(lost)}"
            )
    return notes


def training_notes(store: Store, split: Split) -> list[str]:
    """Return a sentence for everything that a training with this split would silently suffer from."""
    notes = _constant(store, split.train)
    learned, judged = (_prepared_voxels(store, part) for part in (split.train, split.validation))
    if not any(learned[1:]):
        notes.append("the training part has no labelled voxel: there is nothing to learn")
    elif missing := [name for name, count in zip(store.class_names, learned, strict=True) if not count]:
        notes.append(f"no training case shows {', '.join(missing)}: the network cannot learn it")
    if not any(judged[1:]):
        notes.append(
            "the validation part has no labelled voxel: neither Dice nor ECE can be measured, and the first epoch "
            "stays the best"
        )
    return notes


def _constant(store: Store, names: Sequence[str]) -> list[str]:
    scales = store.manifest.recipe.intensity
    found = [name for name in names if any(map(_flat, scales, store.cases[name].intensity))]
    if not found:
        return []
    return [f"{len(found)} of {len(names)} images are constant in a channel once prepared: {_some(found)}"]


def _flat(scale: Intensity, channel: Statistics) -> bool:
    """Whether a channel is constant, or made so by clipping all there is to see in it, say a few bright voxels."""
    if scale.method == "window":
        clipped = channel.maximum <= scale.low or channel.minimum >= scale.high
    else:
        clipped = scale == MR_INTENSITY and channel.percentile_0_5 >= channel.percentile_99_5
    return clipped or channel.minimum == channel.maximum


def _prepared_voxels(store: Store, names: Sequence[str]) -> list[int]:
    return [sum(counts) for counts in zip(*(store.cases[name].prepared_voxels for name in names), strict=True)]


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
