"""Made-up hearts for the examples: slices in memory, a small network, and how well calibrated it is."""

from __future__ import annotations

import tempfile
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

import crac
from crac.data import phantom, read_image, read_label

CLASSES = ("background", "right ventricle", "muscle", "left ventricle")
SIZE = 48


def hearts(patients: int, seed: int = 0) -> TensorDataset:
    """Images ``(N, 1, 48, 48)`` and labels ``(N, 48, 48)``, the slices of ``patients`` made-up hearts."""
    images, labels = [], []
    with tempfile.TemporaryDirectory() as folder:
        for path in sorted(phantom.cardiac(folder, patients, seed, size=64, slices=5).glob("*/*_gt.nii.gz")):
            label = torch.from_numpy(read_label(path).array)
            image = torch.from_numpy(read_image(Path(str(path).replace("_gt", ""))).array[0])
            labels += _middle(label).unbind(2)
            images += _middle((image - image.mean()) / image.std()).unbind(2)
    return TensorDataset(torch.stack(images).unsqueeze(1), torch.stack(labels).long())


def _middle(volume: Tensor) -> Tensor:
    top, left = ((size - SIZE) // 2 for size in volume.shape[:2])
    return volume[top : top + SIZE, left : left + SIZE]


def network(width: int = 16) -> nn.Module:
    """A few convolutions: small enough for a CPU, large enough to learn the hearts by heart."""
    layers: list[nn.Module] = []
    for number, dilation in enumerate((1, 1, 2, 4, 2, 1)):
        layers += [
            nn.Conv2d(width if number else 1, width, 3, padding=dilation, dilation=dilation, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(),
        ]
    return nn.Sequential(*layers, nn.Conv2d(width, len(CLASSES), 1))


@torch.no_grad()
def calibration(network: nn.Module, data: TensorDataset) -> str:
    """One line on the foreground of some data."""
    network.eval()
    images, labels = data.tensors
    logits = network(images)
    meter = crac.CalibrationMeter(num_classes=len(CLASSES), mask="union_foreground")
    meter.update(logits=logits, labels=labels)
    result = meter.compute()
    dice = torch.as_tensor(crac.dice(logits.argmax(1), labels, len(CLASSES)))[1:].mean()
    return f"Dice {dice:.3f}, ECE {result.ece:.3f}, confidence {result.confidence:.3f}, accuracy {result.accuracy:.3f}"
