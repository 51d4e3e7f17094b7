"""What guarantees say about a new image, beside its maps: volumes with intervals, sets of voxels, and a flag."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from crac.data.nifti import write_channels
from crac.errors import InputError
from crac.files import finite, read_json, write_json, write_rows
from crac.guarantees import Guarantees
from crac.guarantees.counts import VolumeCounter
from crac.models.maps import Target
from crac.models.planes import Planes
from crac.models.predictor import Piece

SETS = ("possible", "certain")


@dataclass(frozen=True)
class Promised:
    """Writes ``NAME_volumes.csv``, ``NAME_possible.nii.gz``, ``NAME_certain.nii.gz`` and ``NAME_review.json``.

    The two maps have a channel a class, as the map of probabilities has: 1 where the class is possible, or certain. The
    background is possible where no class is certain, and certain where none is possible; nothing is promised about it.

    Args:
        guarantees: Guarantees of the model that predicts.
    """

    guarantees: Guarantees
    name: str = "guarantees"

    def settings(self) -> dict[str, Any]:
        """What the files depend on."""
        parts = {name: part.state() for name, part in self.guarantees.parts.items()}
        settings: dict[str, Any] = finite({"alpha": self.guarantees.alpha, **parts})
        return settings

    def files(self, name: str) -> list[str]:
        """The four files."""
        return [f"{name}_volumes.csv", *(f"{name}_{kind}.nii.gz" for kind in SETS), f"{name}_review.json"]

    def begin(self, target: Target) -> "PromisedWriting":
        """Start on an image."""
        return PromisedWriting(self.guarantees, target)


class PromisedWriting:
    """Sets that grow plane by plane, and the sums that volumes and doubts need.

    Args:
        guarantees: Guarantees of the model that predicts.
        target: The image.
    """

    def __init__(self, guarantees: Guarantees, target: Target) -> None:
        self.guarantees, self.target = guarantees, target
        shape = list(target.geometry.shape)
        planes = [shape.pop(target.axis), *shape]
        cpu = torch.device("cpu")
        self._sets = {kind: Planes((guarantees.num_classes, *planes), torch.uint8, cpu, target.out) for kind in SETS}
        self._counter = VolumeCounter(guarantees.num_classes, target.geometry.shape, guarantees.referral.entropy)

    def add(self, piece: Piece) -> None:
        """Take one plane."""
        probabilities = torch.from_numpy(np.ascontiguousarray(piece.prediction.probabilities))
        values = probabilities.flatten(1)
        self._counter.add(piece.where, values)
        possible, certain = self.guarantees.possible.members(values), self.guarantees.certain.members(values)
        background = ~certain[1:].any(0), ~possible[1:].any(0)
        for kind, members, rest in zip(SETS, (possible, certain), background, strict=True):
            members[0] = rest
            turned = members.view(probabilities.shape).movedim(self.target.axis + 1, 1)
            self._sets[kind].write(piece.where[self.target.axis].start, turned.to(torch.uint8).contiguous())

    def finish(self) -> None:
        """Write the files."""
        name, out = self.target.name, self.target.out
        for kind, planes in self._sets.items():
            channels = (
                np.moveaxis(planes.channel(number).numpy(), 0, self.target.axis) for number in range(planes.shape[0])
            )
            shape = (*self.target.geometry.shape, planes.shape[0])
            write_channels(out / f"{name}_{kind}.nii.gz", channels, shape, np.uint8, self.target.like)
            planes.close()
        rows = self._volumes()
        write_rows(out / f"{name}_volumes.csv", rows)
        look = self.guarantees.referral.judge(self._counter.doubts())
        fitted = {"fitted_on": self.guarantees.fitted.get("split"), "patients": len(self.guarantees.patients)}
        review = {"look": look.flagged, "reason": look.reason, "doubt": look.doubt, "volumes": rows}
        write_json(out / f"{name}_review.json", {"image": name, **review, **fitted})

    def _volumes(self) -> list[dict[str, Any]]:
        voxel = math.prod(self.target.geometry.spacing) / 1000
        found = self.guarantees.volume.interval(self._counter.sums, voxel)
        return [
            {
                "class": self.target.class_names[number],
                "estimate_ml": float(found[number, 0]),
                "low_ml": float(found[number, 1]),
                "high_ml": float(found[number, 2]),
                "level": 1 - self.guarantees.alpha,
                "note": self.guarantees.volume.reasons.get(number, ""),
            }
            for number in range(1, self.guarantees.num_classes)
        ]


def review(out: Path, name: str) -> dict[str, Any]:
    """What was written about an image: whether a person should ``look`` at it, the ``reason``, and its ``volumes``."""
    found = read_json(out / f"{name}_review.json")
    if not isinstance(found, dict):
        raise InputError(f"{out / name}_review.json is damaged: remove it, and it is made again")
    return found
