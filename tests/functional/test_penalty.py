"""The four axioms, and derivatives, of every penalty in the registry."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from crac.functional import PENALTIES

positive = st.floats(1e-3, 1e3)
every = pytest.mark.parametrize("name", sorted(PENALTIES))


def tensors(*values):
    return [torch.tensor(value, dtype=torch.float64) for value in values]


@every
@given(z=st.floats(-1e3, 1e3), rho=positive, lambda_=positive)
def test_derivative_is_never_negative(name, z, rho, lambda_):
    assert PENALTIES[name].derivative(*tensors(z, rho, lambda_)) >= 0


@every
@given(rho=positive, lambda_=positive)
def test_derivative_at_zero_is_lambda_and_value_is_zero(name, rho, lambda_):
    assert PENALTIES[name].derivative(*tensors(0.0, rho, lambda_)).item() == lambda_
    assert PENALTIES[name].value(*tensors(0.0, rho, lambda_)).item() == 0


@every
@given(z=st.floats(1e-2, 1e2), lambda_=st.floats(1e-2, 1e2))
def test_grows_without_bound_where_violated(name, z, lambda_):
    derivative = PENALTIES[name].derivative(*tensors(z, [1e2, 1e6, 1e12], [lambda_] * 3))
    assert torch.all(derivative.diff() > 0)
    assert derivative[-1] > 1e6


@every
@given(z=st.floats(-1e2, -1e-2), lambda_=st.floats(1e-2, 1e2))
def test_vanishes_where_satisfied(name, z, lambda_):
    derivative = PENALTIES[name].derivative(*tensors(z, [1e2, 1e6, 1e12], [lambda_] * 3))
    assert torch.all(derivative.diff() <= 0)
    assert derivative[-1] < 1e-6


@every
@given(z=st.lists(st.floats(-30, 30), min_size=1, max_size=5), rho=st.floats(1e-2, 30), lambda_=st.floats(1e-6, 30))
def test_derivative_is_the_gradient(name, z, rho, lambda_):
    z, rho, lambda_ = tensors(z, rho, lambda_)
    z.requires_grad_()
    (gradient,) = torch.autograd.grad(PENALTIES[name].value(z, rho, lambda_).sum(), z)
    torch.testing.assert_close(gradient, PENALTIES[name].derivative(z.detach(), rho, lambda_))


@every
def test_gradcheck(name):
    generator = torch.Generator().manual_seed(1)
    z = torch.randn(64, dtype=torch.float64, generator=generator).requires_grad_()
    rho, lambda_ = (torch.rand(64, dtype=torch.float64, generator=generator) + 0.1 for _ in range(2))
    assert torch.autograd.gradcheck(PENALTIES[name].value, (z, rho, lambda_))
    assert torch.autograd.gradcheck(PENALTIES[name].derivative, (z, rho, lambda_))


@every
def test_gradient_is_finite_at_the_pole_of_the_other_branch(name):
    # lambda z / (1 - rho z) has a pole at rho z = 1, on the side where it is not used.
    z = torch.tensor([0.5], dtype=torch.float64, requires_grad=True)
    PENALTIES[name].value(z, *tensors(2.0, 1.0)).sum().backward()
    assert z.grad.isfinite().all()
