"""A few voxels to find a start on, with what each of them stands for."""

import torch
from torch import Tensor

from crac.calibration.pieces import Piece

EACH = 128
"""Voxels of each slab and cell whose label is no surprise; four times as many of each other kind."""
SURPRISES = (1e-4, 1e-2, 0.5)
"""Negative log-likelihoods of a voxel that tell the kinds apart."""
MOST = 2**19
"""With so many voxels the sample is large enough, in each process."""

Kept = tuple[Tensor, Tensor, Tensor, Tensor]
"""Logits ``(K, V)``, labels, cells and how many voxels each stands for, ``(V,)`` each, on the CPU."""


def sampled(piece: Piece) -> Kept:
    """Evenly spaced voxels; of each cell as many whose label is a surprise as others.

    These are few where the model is good, and decide the temperature there.
    """
    logits, labels, cell = piece.logits.float(), piece.labels.long(), piece.cell.long()
    surprise = logits.logsumexp(0) - logits.gather(0, labels.unsqueeze(0)).squeeze(0)
    kinds = torch.tensor(SURPRISES, dtype=surprise.dtype, device=surprise.device)
    group = (len(SURPRISES) + 1) * cell + torch.bucketize(surprise, kinds)
    chosen, stands_for = [], []
    for number in torch.bincount(group).nonzero().flatten().tolist():
        where = (group == number).nonzero().squeeze(1)
        step = -(-where.numel() // (4 * EACH if number % (len(SURPRISES) + 1) else EACH))
        chosen.append(where[::step])
        stands_for.append(torch.full((len(chosen[-1]),), step * piece.stands_for, dtype=torch.float64))
    here = torch.cat(chosen)
    return logits[:, here].cpu(), labels[here].cpu(), cell[here].cpu(), torch.cat(stands_for)


def joined(parts: list[Kept], by_volume: bool) -> list[Kept]:
    """The samples of a batch as one, or none; where volumes weigh the same, a batch weighs 1."""
    if not parts:
        return []
    logits, labels, cell, weight = (torch.cat(part, -1) for part in zip(*parts, strict=True))
    return [(logits, labels, cell, weight / weight.sum() if by_volume else weight)]
