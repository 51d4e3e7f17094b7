"""Test a network volume by volume, as the paper does, and keep what its tables and figures need."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from crac.data import Store
from crac.evaluation.protocol import Evaluation, Prediction, Protocol, measure_all
from crac.files import replacing
from crac.models.model import Model
from crac.models.window import sliding_window

__all__ = ["Measurement", "measure_volumes", "paper_protocol", "volume_logits"]

LOGIT_RANGE, LOGIT_BINS = (-40.0, 40.0), 160


class Volume(NamedTuple):
    """Logits ``(K, D, H, W)`` and labels ``(D, H, W)`` of one case, on the network's device."""

    name: str
    logits: Tensor
    labels: Tensor


@dataclass(frozen=True)
class Measurement:
    """The test of one network.

    Args:
        evaluation: Rows and pooled counts.
        logits: Histograms of the winning class's logits and of the others', over voxels labelled foreground.
        slices: Of the best and of the worst volume: image, label, prediction, confidence.
    """

    evaluation: Evaluation
    logits: dict[str, Any]
    slices: dict[str, NDArray[Any]]


def paper_protocol(class_names: Sequence[str], dims: int) -> Protocol:
    """As the paper measures: on the prepared grid, HD95 as MedPy has it and in voxels, 15 bins.

    Where only one of prediction and label shows a class, the distance is the volume's diagonal: to count it as 0,
    as the released code does, would reward a network that misses an organ.
    """
    return Protocol(
        class_names=list(class_names),
        masks=("label_foreground", "union_foreground"),
        hd95="pooled",
        empty="diagonal",
        unit="voxel",
        slice_axis=0 if dims == 2 else None,
    )


@torch.inference_mode()
def volume_logits(model: Model, store: Store, cases: Sequence[str]) -> Iterator[Volume]:
    """The network's logits of prepared cases, one after the other.

    Args:
        model: A trained network.
        store: Where the cases are.
        cases: Their names.
    """
    card, size = model.card, model.batch_size
    network = sliding_window(model.network, card.patch_size, size) if card.dims == 3 else model.network
    for name in cases:
        image = torch.from_numpy(np.array(store.image(name))).to(model.device).float()
        labels = torch.from_numpy(np.array(store.label(name))).to(model.device)
        if card.dims == 2:
            parts = [network(part.contiguous()).float() for part in torch.split(image.transpose(0, 1), size)]
            logits = torch.cat(parts).transpose(0, 1)
        else:
            logits = network(image.unsqueeze(0)).float()[0]
        yield Volume(name, logits, labels)


@torch.inference_mode()
def measure_volumes(
    model: Model, store: Store, cases: Sequence[str], protocol: Protocol, temperature: float = 1.0
) -> Measurement:
    """Measure prepared cases.

    Args:
        model: A trained network.
        store: Where the cases are.
        cases: Their names.
        protocol: How to measure.
        temperature: Divides the logits.
    """
    evaluation = Evaluation(protocol)
    winning, other = np.zeros(LOGIT_BINS, dtype=np.int64), np.zeros(LOGIT_BINS, dtype=np.int64)
    kept: dict[str, tuple[float, dict[str, NDArray[Any]]]] = {}
    volumes = (
        Prediction(name, logits / temperature, labels, store.cases[name].prepared_spacing, from_logits=True)
        for name, logits, labels in volume_logits(model, store, cases)
    )
    for (name, logits, labels, *_), measured in measure_all(volumes, protocol, on_gpu=model.device.type == "cuda"):
        evaluation.add(measured)
        ordered = logits[:, labels > 0].sort(0, descending=True).values
        winning += _histogram(ordered[:1])
        other += _histogram(ordered[1:])
        score = float(measured.row["dsc"])
        better = {"best": score > kept["best"][0], "worst": score < kept["worst"][0]} if kept else {}
        for which in ("best", "worst"):
            if better.get(which, score == score):
                kept[which] = score, _slice(name, store, logits, labels, score)
    histograms = {"range": list(LOGIT_RANGE), "winning": winning.tolist(), "other": other.tolist()}
    slices = {f"{which}_{part}": array for which, (_, parts) in kept.items() for part, array in parts.items()}
    return Measurement(evaluation, histograms, slices)


def save_slices(slices: dict[str, NDArray[Any]], path: Path) -> None:
    """Write the slices of a measurement."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as partial:
        np.savez_compressed(partial, allow_pickle=False, **slices)


def _histogram(values: Tensor) -> NDArray[np.int64]:
    """Counts in ``LOGIT_BINS`` bins; what lies outside the range is counted at its ends."""
    low, high = LOGIT_RANGE
    place = ((values.flatten() - low) * (LOGIT_BINS / (high - low))).long().clamp(0, LOGIT_BINS - 1)
    counts: NDArray[np.int64] = torch.bincount(place, minlength=LOGIT_BINS).cpu().numpy()
    return counts


def _slice(name: str, store: Store, logits: Tensor, labels: Tensor, score: float) -> dict[str, NDArray[Any]]:
    """The slice with most foreground, in bytes."""
    index = int((labels > 0).sum((1, 2)).argmax())
    probabilities = logits[:, index].softmax(0)
    confidence, prediction = probabilities.max(0)
    image = np.array(store.image(name)[0, index], dtype=np.float32)
    return {
        "name": np.array(name),
        "dsc": np.array(score),
        "image": (255 * image.clip(0, 1)).astype(np.uint8),
        "label": labels[index].cpu().numpy().astype(np.uint8),
        "prediction": prediction.cpu().numpy().astype(np.uint8),
        "confidence": (255 * confidence).round().cpu().numpy().astype(np.uint8),
    }
