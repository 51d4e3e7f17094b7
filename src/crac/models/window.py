"""A network over a whole prepared volume, in slabs: slices in batches, or a window that slides."""

import itertools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from crac.models.planes import Planes, steps
from crac.progress import Track, silent

Network = Callable[[Tensor], Tensor]
OVERLAP = 0.5
SIGMA = 0.125
"""Standard deviation of the Gaussian that weighs a window, as a share of the window's sides."""


def sliding_window(network: Network, patch_size: Sequence[int] | None) -> Network:
    """The network for 3-D images larger than the patches it was trained on.

    Args:
        network: Maps ``(B, C, D, H, W)`` to logits.
        patch_size: ``(D, H, W)`` of the windows, taken one at a time; None for the whole image at once.
    """
    if patch_size is None:
        return network

    def whole(images: Tensor) -> Tensor:
        return torch.stack([torch.cat(list(_windows(network, image, patch_size, 1)), 1) for image in images])

    return whole


@torch.inference_mode()
def logit_slabs(
    network: Network,
    image: Tensor,
    dims: int,
    patch_size: Sequence[int] | None = None,
    batch_size: int = 16,
    mirror: bool = False,
    *,
    track: Track = silent,
    folder: Path | None = None,
) -> Iterator[Tensor]:
    """Yield the logits of a prepared volume on its device, slab by slab from the first plane to the last.

    Args:
        network: In evaluation mode; maps ``(B, C, *S)`` to logits.
        image: ``(C, D, H, W)`` float32, on the network's device.
        dims: 2 to go slice by slice, 3 for windows or the volume as a whole.
        patch_size: ``(D, H, W)`` of the window that slides over the volume where ``dims`` is 3; None for all at once.
            Windows overlap by half, and a Gaussian weighs their middle most.
        batch_size: Slices or windows at a time.
        mirror: Average the probabilities over the mirrored versions of the image; the logits are then the logarithms
            of these averages.
        track: Shows progress.
        folder: Where a file may be put while mirrored versions are added up, if they are too large for memory.

    Yields:
        ``(K, d, H, W)`` float32.
    """
    if dims == 2:
        slices = torch.split(image.transpose(0, 1), batch_size)
        for part in track(slices, "slices", len(slices)):
            yield _mirrored(network, part.contiguous(), mirror).transpose(0, 1)
    elif patch_size is None:
        yield _mirrored(network, image.unsqueeze(0), mirror)[0]
    elif not mirror:
        yield from _windows(network, image, patch_size, batch_size, track)
    else:
        yield from _mirrored_windows(network, image, patch_size, batch_size, track, folder)


def _windows(
    network: Network, image: Tensor, patch_size: Sequence[int], batch_size: int, track: Track = silent
) -> Iterator[Tensor]:
    """Planes are complete once no later window reaches them: not more than a window's depth is in memory."""
    size = image.shape[1:]
    missing = [max(side - have, 0) for side, have in zip(patch_size, size, strict=True)]
    before = [amount // 2 for amount in missing]
    pads = [part for low, amount in zip(before[::-1], missing[::-1], strict=True) for part in (low, amount - low)]
    image = F.pad(image, pads) if any(pads) else image
    depth, height, width = image.shape[1:]
    downs, *across = (_starts(side, patch) for side, patch in zip(image.shape[1:], patch_size, strict=True))
    places = list(itertools.product(*across))
    batches = [(down, places[at : at + batch_size]) for down in downs for at in range(0, len(places), batch_size)]
    weight = gaussian(patch_size).to(image.device)
    total, share = None, image.new_zeros((patch_size[0], height, width))
    top = 0  # the plane that is the first of `total`
    for down, corners in track(batches, "windows", len(batches)):
        if down > top:
            assert total is not None
            yield from _complete(total, share, top, down, before, size)
            for plane in range(patch_size[0]):  # one by one, for they overlap
                later = plane + down - top
                for buffer in (total, share):
                    if later < patch_size[0]:
                        buffer.select(-3, plane).copy_(buffer.select(-3, later))
                    else:
                        buffer.select(-3, plane).zero_()
            top = down
        where = [
            (slice(None), *(slice(low, low + side) for low, side in zip(corner, patch_size[1:], strict=True)))
            for corner in corners
        ]
        parts = torch.stack([image[(slice(None), slice(down, down + patch_size[0]), *place[1:])] for place in where])
        answers = network(parts).float()
        if total is None:
            total = answers.new_zeros((answers.shape[1], patch_size[0], height, width))
        for place, answer in zip(where, answers, strict=True):
            total[(slice(None), *place)] += answer * weight
            share[place] += weight
    assert total is not None
    yield from _complete(total, share, top, depth, before, size)


def _complete(
    total: Tensor, share: Tensor, top: int, stop: int, before: Sequence[int], size: Sequence[int]
) -> Iterator[Tensor]:
    """Yield the planes ``top`` to ``stop`` of the padded image as far as they belong to the image."""
    low, high = max(top, before[0]) - top, min(stop, before[0] + size[0]) - top
    rows, columns = (slice(start, start + side) for start, side in zip(before[1:], size[1:], strict=True))
    for start, end in steps(high - low, total.shape[0] * size[1] * size[2]):
        where = slice(low + start, low + end), rows, columns
        yield total[(slice(None), *where)] / share[where]


def _starts(size: int, patch: int) -> list[int]:
    """Where windows begin along an axis; the last one ends with the axis."""
    step = max(1, int(patch * (1 - OVERLAP)))
    return [*range(0, size - patch, step), size - patch]


def gaussian(patch_size: Sequence[int]) -> Tensor:
    """What a window's voxels weigh: 1 in the middle, at least a thousandth at the edges."""
    weight = torch.ones(())
    for side in patch_size:
        position = torch.arange(side) - (side - 1) / 2
        weight = weight.unsqueeze(-1) * torch.exp(position**2 / (-2 * (SIGMA * side) ** 2))
    return weight.clamp(min=1e-3)


def _mirrored(network: Network, images: Tensor, mirror: bool) -> Tensor:
    if not mirror:
        return network(images).float()
    mirrors = _mirrors(range(2, images.ndim))
    answers = (network(images.flip(chosen)).float().log_softmax(1).flip(chosen) for chosen in mirrors)
    total = next(answers)
    for answer in answers:
        total = torch.logaddexp(total, answer)
    return _mean(total, len(mirrors))


def _mirrored_windows(
    network: Network, image: Tensor, patch_size: Sequence[int], batch_size: int, track: Track, folder: Path | None
) -> Iterator[Tensor]:
    total, depth, mirrors = None, image.shape[1], _mirrors((1, 2, 3))
    for number, chosen in enumerate(mirrors):
        at = 0
        for slab in _windows(network, image.flip(chosen), patch_size, batch_size, track):
            part = slab.log_softmax(0).flip(chosen)
            planes = part.shape[1]
            if total is None:
                total = Planes((len(part), *image.shape[1:]), part.dtype, image.device, folder)
            start = depth - at - planes if 1 in chosen else at
            total.write(start, torch.logaddexp(total.read(start, start + planes), part) if number else part)
            at += planes
    assert total is not None
    for slab in total.slabs():
        yield _mean(slab, len(mirrors))
    total.close()


def _mirrors(axes: Sequence[int]) -> list[tuple[int, ...]]:
    return [chosen for count in range(len(axes) + 1) for chosen in itertools.combinations(axes, count)]


def _mean(total: Tensor, number: int) -> Tensor:
    return total - torch.tensor(float(number)).log().to(total.device)
