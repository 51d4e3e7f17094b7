"""A loss of any method and a batch for it, for the tests of this folder."""

import torch

import crac

VARIANTS = {"crac-signed": ("crac", {"preset": "signed"}), "ml1ace-soft": ("ml1ace", {"soft": True})}
"""Options that make another penalty of a method."""
ALL = [*sorted(crac.METHODS), *VARIANTS]


def build(name, num_classes=3, **options):
    name, own = VARIANTS.get(name, (name, {}))
    return crac.build_loss(name, num_classes, **own, **options)


def make(name, num_classes=3, **options):
    loss = build(name, num_classes, **options)
    if loss.multipliers is not None:  # multipliers that matter: at their start they are 1e-6
        generator = torch.Generator().manual_seed(3)
        loss.lambda_.copy_(torch.rand(loss.lambda_.shape, generator=generator))
        loss.rho.copy_(torch.rand(loss.rho.shape, generator=generator) + 0.1)
    return loss


def batch(shape=(2, 8, 9), num_classes=3, dtype=torch.float32, seed=0):
    generator = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn(shape[0], num_classes, *shape[1:], dtype=dtype, generator=generator)
    return logits.requires_grad_(), torch.randint(num_classes, shape, generator=generator)


def gradient(loss, logits, labels):
    value = loss(logits, labels)
    (grad,) = torch.autograd.grad(value, logits)
    return value.detach(), grad
