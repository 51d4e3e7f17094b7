"""Patients made up of a ball each, and a model that is uneven: good on some, bad on others."""

import numpy as np

import crac

CLASSES = 3


def softmax(logits: np.ndarray) -> np.ndarray:
    powers = np.exp(logits - logits.max(0, keepdims=True))
    return (powers / powers.sum(0, keepdims=True)).astype(np.float32)


def patient(
    seed: int,
    shape: tuple[int, ...] = (10, 14, 12),
    spacing: tuple[float, ...] = (2.0, 1.0, 1.5),
    name: str | None = "",
) -> crac.Case:
    """Two balls that touch; the logits are shifted and blurred by an error of the patient's own size."""
    rng = np.random.default_rng(seed)
    grid = np.stack(np.meshgrid(*(np.arange(side) for side in shape), indexing="ij"), -1)
    centre, other = np.array(shape) / 2 - 1, np.array(shape) / 2 + 1.5
    radius = min(shape) / 4 + rng.uniform(-0.5, 1)
    depth = [radius - np.linalg.norm(grid - place, axis=-1) for place in (centre, other)]
    labels = np.where(depth[0] > 0, 1, np.where(depth[1] > 0, 2, 0))
    error = rng.exponential(0.8)  # a few patients are far worse than the rest
    logits = np.stack([np.zeros(shape), *(3 * (one + rng.normal(0, error)) for one in depth)])
    logits = logits + rng.normal(0, 1 + error, size=logits.shape)
    return crac.Case(softmax(logits), labels.astype(np.uint8), spacing, f"p{seed}" if name == "" else name)


def patients(count: int, **options) -> list[crac.Case]:
    return [patient(seed, **options) for seed in range(count)]
