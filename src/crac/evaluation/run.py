"""A run measured on the cases of its own split: the paper's protocol, volume by volume."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from crac.data import Store
from crac.errors import InputError, one_of
from crac.evaluation.protocol import Evaluation, Prediction, Protocol, evaluate
from crac.models.model import Model
from crac.training.run import RunFolder

__all__ = ["evaluate_run", "predictions"]

PARTS = ("train", "validation", "test")
Track = Callable[[Iterable[Any], str, int], Iterable[Any]]


def evaluate_run(
    run: str | Path,
    model: Model,
    split: str = "test",
    data: str | Path | None = None,
    track: Track = lambda items, description, total: items,
    **protocol: Any,
) -> Evaluation:
    """Measure a model on prepared volumes, slices stacked to 3-D.

    Args:
        run: Folder of the run, for its split and the place of its data.
        model: Loaded from that run.
        split: ``train``, ``validation`` or ``test``.
        data: Store, if it is no longer where the run found it.
        track: Shows progress.
        **protocol: Keywords of :class:`~crac.evaluation.protocol.Protocol`; by default as the authors' code measures:
            HD95 in voxels, 0 where a class is absent.
    """
    if split not in PARTS:
        raise one_of("split", split, PARTS)
    folder = RunFolder.open(run)
    store = Store.open(data or folder.config().data)
    model.card.check_store(store)
    cases = folder.split()
    cases.check(store.cases, str(folder.path / "split.json"))
    names = getattr(cases, split)
    if not names:
        raise InputError(f"{folder.path / 'split.json'}: the {split} part is empty")
    chosen = {"unit": "voxel", "empty": "zero", "slice_axis": 0 if model.card.dims == 2 else None, **protocol}
    volumes = predictions(model, store, track(names, "measuring", len(names)))
    return evaluate(volumes, Protocol(store.class_names, **chosen), on_gpu=model.device.type == "cuda")


def predictions(model: Model, store: Store, names: Iterable[str]) -> Iterator[Prediction]:
    """What the model says about prepared cases, one at a time, on the prepared grid."""
    for name in names:
        image = torch.from_numpy(np.array(store.image(name), dtype=np.float32))
        labels = torch.from_numpy(np.array(store.label(name)))
        yield Prediction(name, model.predict_prepared(image), labels, store.cases[name].prepared_spacing)
