"""A network over a whole prepared volume: slices in batches, or a window that slides."""

import itertools
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from crac.errors import require

Network = Callable[[Tensor], Tensor]
OVERLAP = 0.5


def sliding_window(network: Network, patch_size: Sequence[int] | None, batch_size: int = 1) -> Network:
    """The network for 3-D images larger than the patches it was trained on.

    Args:
        network: Maps ``(B, C, D, H, W)`` to logits.
        patch_size: ``(D, H, W)`` of the window, None for the whole image at once.
        batch_size: Windows at a time.
    """
    if patch_size is None:
        return network
    window = require("monai.inferers").SlidingWindowInferer(
        list(patch_size), sw_batch_size=batch_size, overlap=OVERLAP, mode="gaussian"
    )

    def whole(images: Tensor) -> Tensor:
        logits: Tensor = window(images, network)
        return logits

    return whole


@torch.inference_mode()
def volume_logits(network: Network, image: Tensor, dims: int, batch_size: int = 16, flips: bool = False) -> Tensor:
    """Logits of a prepared volume, on its device.

    Args:
        network: In evaluation mode; maps ``(B, C, *S)`` to logits. For 3-D, see :func:`sliding_window`.
        image: ``(C, D, H, W)`` float32, on the network's device.
        dims: 2 to go slice by slice, 3 for the volume as a whole.
        batch_size: Slices at a time.
        flips: Average the probabilities over the mirrored versions of each image; the logits are then the logarithms
            of these averages.

    Returns:
        ``(K, D, H, W)`` float32.
    """
    if dims == 3:
        return _logits(network, image.unsqueeze(0), flips)[0]
    slices = torch.split(image.transpose(0, 1), batch_size)
    return torch.cat([_logits(network, part.contiguous(), flips) for part in slices]).transpose(0, 1)


def _logits(network: Network, images: Tensor, flips: bool) -> Tensor:
    if not flips:
        return network(images).float()
    axes = range(2, images.ndim)
    mirrored = [chosen for count in range(len(axes) + 1) for chosen in itertools.combinations(axes, count)]
    answers = (network(images.flip(chosen)).float().log_softmax(1).flip(chosen) for chosen in mirrored)
    total = next(answers)
    for answer in answers:
        total = torch.logaddexp(total, answer)
    return total - torch.tensor(len(mirrored)).log().to(total.device)
