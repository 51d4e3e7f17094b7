"""Penalty-Lagrangian functions and their derivatives.

Each takes the constraint value ``z``, the penalty weight ``rho`` and the multiplier ``lambda_``, broadcast
against each other. All satisfy the four axioms of the augmented Lagrangian: the derivative in ``z`` is never
negative, equals ``lambda_`` at ``z = 0``, and as ``rho`` grows tends to infinity where the constraint is
violated (``z > 0``) and to zero where it holds (``z < 0``).
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor


def phr(z: Tensor, rho: Tensor, lambda_: Tensor) -> Tensor:
    """Powell, Hestenes and Rockafellar: quadratic until the constraint is slack, then constant."""
    return torch.where(lambda_ + rho * z >= 0, z * (lambda_ + rho * z / 2), -(lambda_**2) / (2 * rho))


def phr_derivative(z: Tensor, rho: Tensor, lambda_: Tensor) -> Tensor:
    """Derivative of :func:`phr` in ``z``; also its multiplier update."""
    return (lambda_ + rho * z).clamp(min=0)


def p2(z: Tensor, rho: Tensor, lambda_: Tensor) -> Tensor:
    """Cubic where the constraint is violated, a hyperbola where it holds."""
    return torch.where(z >= 0, lambda_ * z + lambda_ * rho * z**2 + rho**2 * z**3 / 6, _slack(z, rho, lambda_))


def p2_derivative(z: Tensor, rho: Tensor, lambda_: Tensor) -> Tensor:
    """Derivative of :func:`p2` in ``z``."""
    violated = lambda_ + 2 * lambda_ * rho * z + (rho * z) ** 2 / 2
    return torch.where(z >= 0, violated, _slack_derivative(z, rho, lambda_))


def p3(z: Tensor, rho: Tensor, lambda_: Tensor) -> Tensor:
    """Quadratic where the constraint is violated, a hyperbola where it holds."""
    return torch.where(z >= 0, lambda_ * z + lambda_ * rho * z**2, _slack(z, rho, lambda_))


def p3_derivative(z: Tensor, rho: Tensor, lambda_: Tensor) -> Tensor:
    """Derivative of :func:`p3` in ``z``."""
    return torch.where(z >= 0, lambda_ + 2 * lambda_ * rho * z, _slack_derivative(z, rho, lambda_))


def _slack(z: Tensor, rho: Tensor, lambda_: Tensor) -> Tensor:
    z = z.clamp(max=0)  # keeps the pole at rho z = 1 out of reach, of the gradient too
    return lambda_ * z / (1 - rho * z)


def _slack_derivative(z: Tensor, rho: Tensor, lambda_: Tensor) -> Tensor:
    return lambda_ / (1 - rho * z.clamp(max=0)) ** 2


class Penalty(NamedTuple):
    """A penalty function and its derivative in ``z``."""

    value: Callable[[Tensor, Tensor, Tensor], Tensor]
    derivative: Callable[[Tensor, Tensor, Tensor], Tensor]


PENALTIES = {"phr": Penalty(phr, phr_derivative), "p2": Penalty(p2, p2_derivative), "p3": Penalty(p3, p3_derivative)}
"""Name -> penalty, the choices of ``CRaCLoss(penalty=...)``."""
