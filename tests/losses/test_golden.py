"""Every value, gradient and multiplier of the authors' code."""

import pytest
import torch

import crac
from common import golden

CASES = ["losses_a", "losses_b"]
METHODS = {
    "ce": ("ce", {}),
    "fl": ("fl", {"gamma": 3}),
    "ecp": ("ecp", {"alpha": 0.1}),
    "ls": ("ls", {"alpha": 0.1}),
    "svls_sigma1": ("svls", {"sigma": 1}),
    "svls_sigma2": ("svls", {"sigma": 2}),
    "mbls_m10": ("mbls", {"alpha": 0.1, "margin": 10}),
    "mbls_m5": ("mbls", {"alpha": 0.1, "margin": 5}),
    "nacl": ("nacl", {"alpha": 0.1, "border": "background"}),
    "crac": ("crac", {"preset": "released"}),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("key", METHODS)
def test_value_and_gradient(case: str, key: str) -> None:
    numbers = golden(case)
    logits = torch.from_numpy(numbers["logits"]).requires_grad_()
    labels = torch.from_numpy(numbers["labels"])
    name, options = METHODS[key]
    loss = crac.build_loss(name, logits.shape[1], **options)
    if name == "crac":
        assert numbers["crac_inner_scale"] == loss.scales[0]
        loss.load_state_dict(
            {
                **loss.state_dict(),
                "lambda_": torch.from_numpy(numbers["crac_lambda"]),
                "rho": torch.from_numpy(numbers["crac_rho"]),
            }
        )
    value = loss(logits, labels)
    value.backward()
    assert value.item() == pytest.approx(float(numbers[f"{key}_value"]), rel=1e-5)
    gradient = torch.from_numpy(numbers[f"{key}_grad"])
    # Relative to the gradient's own size: an element that cancels to nearly 0 has no relative precision.
    torch.testing.assert_close(logits.grad, gradient, rtol=1e-5, atol=1e-5 * gradient.abs().max().item())


@pytest.mark.parametrize("case", CASES)
def test_prior_regions_and_boundary_weights(case: str) -> None:
    numbers = golden(case)
    labels = torch.from_numpy(numbers["labels"])
    classes = numbers["logits"].shape[1]
    prior = crac.functional.neighbourhood_proportions(labels, classes, border="background")
    torch.testing.assert_close(prior, torch.from_numpy(numbers["proportion"]), rtol=1e-6, atol=0)
    outer = crac.functional.region_map(labels, border="background").bool()
    assert torch.equal(outer, torch.from_numpy(numbers["outer"]))
    weights = crac.build_loss("bwcr", classes).weights(labels)
    assert torch.equal(weights, torch.from_numpy(numbers["bwcr_weights"]))


def test_multipliers_over_35_epochs() -> None:
    numbers = golden("multipliers_a")
    labels, logits, target = (torch.from_numpy(numbers[key]) for key in ("labels", "logits", "target"))
    batch = int(numbers["batch"])
    loss = crac.CRaCLoss(4, preset="released", inner_scale=float(numbers["inner_scale"]), rho=0.1)
    for epoch, mix in enumerate(numbers["mix"]):
        torch.testing.assert_close(loss.lambda_, torch.from_numpy(numbers["lambda_"][epoch]), rtol=1e-5, atol=0)
        torch.testing.assert_close(loss.rho, torch.from_numpy(numbers["rho"][epoch]), rtol=1e-5, atol=0)
        now = target + float(mix) * (logits - target)
        for part in range(0, len(labels), batch):
            loss.observe(now[part : part + batch], labels[part : part + batch])
        loss.update_multipliers()
    torch.testing.assert_close(loss.lambda_, torch.from_numpy(numbers["lambda_"][-1]), rtol=1e-5, atol=0)
    torch.testing.assert_close(loss.rho, torch.from_numpy(numbers["rho"][-1]), rtol=1e-5, atol=0)
    assert loss.rho.max() > 0.1  # the sequence does reach the growth of rho
