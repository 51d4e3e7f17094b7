"""The ways to compute the loss that the benchmarks compare."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

import crac
from crac import kernels

Loss = Callable[[Any, Any], Tensor]


def unfold(loss: crac.CRaCLoss) -> Loss:
    """CRaC the straightforward way: every patch laid out in memory, one channel per class and region."""

    def compute(logits: Tensor, labels: Tensor) -> Tensor:
        dims, classes = labels.ndim - 1, logits.shape[1]
        patches = F.pad(labels, (1, 1) * dims)
        for dim in range(1, dims + 1):
            patches = patches.unfold(dim, 3, 1)
        patches = patches.flatten(-dims)
        prior = F.one_hot(patches, classes).float().mean(-2).movedim(-1, 1)
        outer = (patches.amin(-1) != patches.amax(-1)).unsqueeze(1)
        inner_distance = (loss.scales[0] * prior - logits).abs() * ~outer
        outer_distance = (loss.scales[1] * prior - logits).abs() * outer
        z = torch.cat([inner_distance, outer_distance], 1)
        shape = (1, -1, *[1] * dims)
        rho, lambda_ = loss.rho.view(shape), loss.lambda_.view(shape)
        violated = lambda_ * z + rho * z**2 / 2
        penalty = torch.where(lambda_ + rho * z >= 0, violated, -(lambda_**2) / (2 * rho))
        return F.cross_entropy(logits, labels) + penalty.mean()

    return compute


def with_mode(mode: str, function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """A function that is always called in this mode of the kernels."""

    def compute(logits: Any, labels: Any) -> Any:
        kernels.mode = mode
        return function(logits, labels)

    return compute


def rivals(classes: int, device: str, compiled: bool = True, fused: str | None = None) -> dict[str, Loss]:
    """Name -> loss, all for ``int64`` labels ``(B, *S)``.

    Args:
        classes: Number of classes.
        device: Where they compute.
        compiled: Whether to add those that ``torch.compile`` makes.
        fused: Mode of the kernels for the fused loss, ``None`` to leave it out.
    """
    loss = crac.CRaCLoss(classes).to(device)

    found: dict[str, Loss] = {"unfold": unfold(loss)}
    if importlib.util.find_spec("monai"):
        found["MONAI NACLLoss"] = monai_nacl(classes)
    found["crac, eager"] = with_mode("off", loss)
    if compiled:
        found["crac, torch.compile of eager"] = with_mode("off", torch.compile(lambda x, y: loss(x, y)))
    found["cross-entropy alone"] = F.cross_entropy
    if fused is not None:
        found["crac, fused"] = with_mode(fused, loss)
        if compiled:
            twin = crac.CRaCLoss(classes).to(device)
            found["crac, fused inside torch.compile"] = with_mode(fused, torch.compile(lambda x, y: twin(x, y)))
    return found


def nnunet_rivals(classes: int, levels: int, device: str, compiled: bool, fused: str) -> dict[str, Loss]:
    """Name -> nnU-Net's own loss over so many resolutions, with and without CRaC's penalty.

    Args:
        classes: Number of classes.
        levels: Number of outputs of deep supervision.
        device: Where they compute.
        compiled: Whether the Dice loss is compiled, as nnU-Net does on a GPU.
        fused: Mode of the kernels for the fused penalty.

    Raises:
        ImportError: ``nnunetv2`` is not installed.
    """
    from nnunetv2.training.loss.compound_losses import DC_and_CE_loss
    from nnunetv2.training.loss.deep_supervision import DeepSupervisionWrapper
    from nnunetv2.training.loss.dice import MemoryEfficientSoftDiceLoss

    from crac.integrations.nnunet.loss import CalibratedLoss

    dice = {"batch_dice": True, "smooth": 1e-5, "do_bg": False, "ddp": False}
    loss = DC_and_CE_loss(dice, {}, dice_class=MemoryEfficientSoftDiceLoss)
    if compiled:
        loss.dc = torch.compile(loss.dc)
    weights = [0.5**level for level in range(levels)]
    weights[-1] = 0.0  # as nnU-Net does
    own = DeepSupervisionWrapper(loss, [weight / sum(weights) for weight in weights])
    ours = CalibratedLoss(own, crac.CRaCLoss(classes, border="replicate"), own.weight_factors[0]).to(device)
    return {
        "nnU-Net's own loss": own,
        "nnU-Net's loss and crac's penalty, eager": with_mode("off", ours),
        "nnU-Net's loss and crac's penalty, fused": with_mode(fused, ours),
    }


def monai_nacl(classes: int) -> Loss:
    """MONAI's loss of the same family, made once per number of dimensions."""
    from monai.losses import NACLLoss

    made: dict[int, Any] = {}

    def compute(logits: Tensor, labels: Tensor) -> Tensor:
        dims = labels.ndim - 1
        if dims not in made:
            made[dims] = NACLLoss(classes, dims, kernel_size=3, alpha=0.1).to(logits.device)
        value: Tensor = made[dims](logits, labels)
        return value

    return compute
