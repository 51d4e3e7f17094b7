"""Volumes with smooth logits, for the tests of this folder."""

import torch
import torch.nn.functional as F
from torch import Tensor


def smooth(shape: tuple[int, ...], seed: int, sharp: float = 2.5) -> tuple[Tensor, Tensor]:
    """Logits ``(B, K, D, H, W)``, ``sharp`` times too large, and labels that follow them."""
    generator = torch.Generator().manual_seed(seed)
    coarse = 2 * torch.randn(*shape[:2], 4, 4, 4, generator=generator)
    logits = F.interpolate(coarse, size=shape[2:], mode="trilinear")
    logits[:, 0] += 1
    p = logits.softmax(1).movedim(1, -1)
    labels = torch.multinomial(p.reshape(-1, shape[1]), 1, generator=generator).view(p.shape[:-1])
    return sharp * logits, labels
