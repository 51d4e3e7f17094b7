"""Whether a fused kernel and the eager path in float64 agree, on any combination of what a user can choose.

The tests draw combinations for Triton's interpreter, ``loss_gpu.py`` for the GPU.
"""

from __future__ import annotations

import random
from typing import Any

import torch
from torch import Tensor

import crac
from crac import kernels

CHOICES: dict[str, list[Any]] = {
    "method": [
        ("crac", {}),
        ("crac", {"penalty": "p2", "tolerance": 0.5}),
        ("crac", {"penalty": "p3"}),
        ("crac", {"tolerance": 1.5}),
        ("crac", {"radii": (1, 3), "outer_scale": [2.3, 1.1]}),
        ("crac", {"kernel_size": 1}),
        ("crac", {"dice_weight": 0.5}),
        ("crac", {"preset": "signed"}),
        ("crac", {"preset": "signed", "kernel_size": 3, "radii": (1, 3), "smoothing": 0.2}),
        ("crac", {"preset": "signed", "kernel_size": 1}),
        ("nacl", {"alpha": 0.3}),
        ("svls", {"sigma": 1.0}),
    ],
    "classes": [2, 3, 4, 8, 9, 13],
    "batch": [1, 2],
    "size": [(1, 1), (5, 7), (9, 33), (2, 130), (1, 1, 2), (3, 4, 5)],
    "border": ["replicate", "background"],
    "ignore_index": [None, None, 255, -1],
    "weighted": [False, True],
    "dtype": [torch.float32, torch.bfloat16, torch.float16],
    "label_dtype": [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64],
    "layout": ["contiguous", "channels last", "strided"],
    "upstream": [1.0, 0.25],
    "part": ["forward", "supervised", "penalty"],
}
"""What a case is made of. Scales below keep targets off the values that bf16 can hold: there |x| has no slope."""

BIG = {"classes": [2, 4, 5, 19, 64], "batch": [3], "size": [(97, 131), (192, 192), (31, 33, 35)]}
"""Sizes for a device that is not interpreted."""


def draw(seed: int, big: bool = True) -> dict[str, Any]:
    """One random case, of real size or of one for the interpreter."""
    source = random.Random(seed)
    return {name: source.choice(choices) for name, choices in (CHOICES | BIG if big else CHOICES).items()}


def batch(case: dict[str, Any], device: str) -> tuple[Tensor, Tensor]:
    """Random logits and labels of a case, the labels in blobs so that both regions occur."""
    shape = (case["batch"], case["classes"], *case["size"])
    logits = (3 * torch.randn(shape)).to(case["dtype"])
    if case["layout"] == "channels last":
        logits = logits.movedim(1, -1).contiguous().movedim(-1, 1)
    elif case["layout"] == "strided":
        wide = logits.repeat_interleave(2, -1).transpose(-1, -2).contiguous()
        logits = wide.transpose(-1, -2)[..., ::2]
    size = [-(-extent // 4) for extent in case["size"]]
    labels = torch.randint(case["classes"], (case["batch"], *size))
    for dim, extent in enumerate(case["size"], start=1):
        labels = labels.repeat_interleave(4, dim).narrow(dim, 0, extent)
    noise = torch.rand(labels.shape)
    labels = torch.where(noise < 0.05, torch.randint_like(labels, case["classes"]), labels)
    if case["ignore_index"] is not None:
        labels = torch.where(noise > 0.8, case["ignore_index"], labels)
    if case["layout"] == "strided":
        labels = labels.transpose(-1, -2).contiguous().transpose(-1, -2)
    return logits.to(device), labels.to(device, case["label_dtype"])


def build(case: dict[str, Any], device: str) -> crac.losses.SegmentationLoss:
    """The loss of a case, with multipliers that all differ."""
    name, options = case["method"]
    options = {"ignore_index": case["ignore_index"], **options}
    if case["weighted"]:
        options["class_weights"] = [0.5 + k % 3 for k in range(case["classes"])]
    if name == "crac" and "preset" not in options:
        options = {"inner_scale": 5.3, "outer_scale": 1.1, **options}
    if name != "svls":
        options["border"] = case["border"]
    loss = crac.build_loss(name, case["classes"], **options).to(device)
    if name == "crac":
        loss.rho.uniform_(0.1, 2)
        loss.lambda_.uniform_(0, 1)
    return loss


def disagreements(case: dict[str, Any], device: str, seed: int = 0) -> list[str]:
    """What differs between the kernel and the eager path in float64, by more than rounding; nothing, if all is well."""
    if case["ignore_index"] == 255 and case["label_dtype"] == torch.int8:
        case = case | {"label_dtype": torch.int16}
    if case["ignore_index"] == -1 and case["label_dtype"] == torch.uint8:
        case = case | {"label_dtype": torch.int8}
    torch.manual_seed(seed)
    logits, labels = batch(case, device)
    loss = build(case, device)
    logits.requires_grad_()
    wide = logits.detach().double().requires_grad_()
    if loss.setting(logits, labels) is None:
        return ["the kernel was not chosen"]
    # SVLS has no penalty.
    part = getattr(loss, "fit" if (case["method"][0], case["part"]) == ("svls", "penalty") else case["part"])
    value, expected = part(logits, labels), part(wide, labels)
    upstream = case["upstream"]
    (gradient,) = torch.autograd.grad(value, logits, torch.tensor(upstream, device=device))
    (reference,) = torch.autograd.grad(expected, wide, torch.tensor(upstream, device=device, dtype=torch.float64))
    found = []
    if not abs(value.item() - expected.item()) <= 1e-5 * abs(expected.item()):
        found.append(f"value {value.item()!r}, not {expected.item()!r}")
    info = torch.finfo(case["dtype"])
    allowed = 1e-5 * reference.abs().max()
    if case["dtype"] != torch.float32:
        # Dice adds a second gradient, rounded by itself; where the two cancel, the rounding of both stays.
        size = 2 * reference.abs().max() if "dice_weight" in case["method"][1] else reference.abs()
        allowed = allowed + info.eps * size + info.tiny * info.eps
    error = (gradient - reference).abs()
    if gradient.dtype != case["dtype"] or not bool((error <= allowed).all()):
        found.append(f"gradient off by {(error / reference.abs().max()).max().item():.1e} of its largest element")
    if case["method"][0] == "crac" and "preset" not in case["method"][1]:  # else observe has no kernel
        found += _observed(loss, logits.detach(), labels)
    return found


def _observed(loss: crac.CRaCLoss, logits: Tensor, labels: Tensor) -> list[str]:
    found = []
    setting = loss.setting(logits, labels)
    assert setting is not None
    sums, counts = kernels.fused_sums(logits, labels, setting)
    loss.multipliers.observed = None
    loss.observe(logits.double(), labels)
    assert loss.multipliers.observed is not None
    expected, pixels = loss.multipliers.observed
    if not torch.equal(counts, pixels.to(counts.dtype)):
        found.append(f"observe counted {counts.tolist()}, not {pixels.tolist()}")
    if not torch.allclose(sums, expected, rtol=1e-5, atol=1e-5 * expected.abs().max().item()):
        found.append("observe summed something else")
    return found
