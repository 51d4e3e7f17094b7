"""The loss of the nnU-Net trainers; nnU-Net itself is not needed here."""

import pytest
import torch

import crac
from crac.integrations.nnunet.loss import CalibratedLoss, Fit


class Weighted(torch.nn.Module):
    """Stands for nnU-Net's loss under deep supervision."""

    def forward(self, outputs, targets):
        return sum(
            weight * torch.nn.functional.cross_entropy(output.float(), target[:, 0].long())
            for weight, output, target in zip((0.75, 0.25), outputs, targets, strict=True)
        )


def batch(dtype: torch.dtype = torch.float32, scale: float = 3.0) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    labels = torch.randint(3, (2, 1, 4, 4)).repeat_interleave(4, 2).repeat_interleave(4, 3).to(torch.int16)
    logits = [(scale * torch.randn(2, 3, size, size)).to(dtype) for size in (16, 8)]
    return logits, [labels, labels[:, :, ::2, ::2]]


def test_penalty_on_the_full_resolution_output_only() -> None:
    outputs, targets = batch()
    calibration = crac.CRaCLoss(3, rho=1.0)
    value = CalibratedLoss(Weighted(), calibration, weight=0.75)(outputs, targets)
    penalty = calibration.penalty(outputs[0], targets[0][:, 0].long())
    torch.testing.assert_close(value, Weighted()(outputs, targets) + 0.75 * penalty)


def test_without_deep_supervision() -> None:
    outputs, targets = batch()
    calibration = crac.CRaCLoss(3, rho=1.0)
    loss = CalibratedLoss(Fit(crac.build_loss("ce", 3)), calibration)
    torch.testing.assert_close(loss(outputs[0], targets[0]), calibration(outputs[0], targets[0].long()))


def test_observes_in_eval_mode_only() -> None:
    outputs, targets = batch()
    loss, plain = CalibratedLoss(Weighted(), crac.CRaCLoss(3)), crac.CRaCLoss(3)
    loss(outputs, targets)
    with pytest.raises(crac.errors.InputError, match="observe"):
        loss.calibration.update_multipliers()
    loss.eval()
    loss(outputs, targets)
    loss.calibration.update_multipliers()
    plain.observe(outputs[0], targets[0].long())
    plain.update_multipliers()
    assert torch.equal(loss.calibration.lambda_, plain.lambda_)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_does_not_overflow(dtype: torch.dtype) -> None:
    outputs, targets = batch(dtype, scale=500)
    outputs = [output.requires_grad_() for output in outputs]
    loss = CalibratedLoss(Weighted(), crac.CRaCLoss(3, lambda_=1e3, rho=10.0))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        value = loss(outputs, targets)
    assert value.dtype == torch.float32
    assert value > torch.finfo(torch.float16).max  # this very value would be infinite in fp16
    expected = loss([output.float() for output in outputs], targets)
    torch.testing.assert_close(value, expected)
    value.backward()
    assert outputs[0].grad.isfinite().all()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_on_a_gpu_as_nnunet_trains() -> None:
    """Autocast to fp16 and a gradient scaler, with multipliers whose penalty would overflow fp16."""
    network = torch.nn.Conv2d(1, 3, 3, padding=1).cuda()
    loss = CalibratedLoss(Weighted(), crac.CRaCLoss(3, lambda_=1e3, rho=10.0)).cuda()
    optimiser, scaler = torch.optim.SGD(network.parameters(), lr=1e-6), torch.amp.GradScaler("cuda")
    targets = [target.cuda() for target in batch()[1]]
    images = torch.randn(2, 1, 16, 16, device="cuda")
    before = network.weight.clone()
    for _ in range(12):  # the scaler skips steps until its scale fits
        optimiser.zero_grad()
        with torch.autocast("cuda"):
            logits = network(images)
            value = loss([logits, logits[:, :, ::2, ::2]], targets)
        assert logits.dtype == torch.float16
        assert value.isfinite()
        scaler.scale(value).backward()
        scaler.step(optimiser)
        scaler.update()
    assert not torch.equal(network.weight, before)
    assert network.weight.isfinite().all()
    loss.eval()
    with torch.no_grad(), torch.autocast("cuda"):
        logits = network(images)
        loss([logits, logits[:, :, ::2, ::2]], targets)
    loss.calibration.update_multipliers()
    assert loss.calibration.lambda_.device.type == "cuda"
    assert (loss.calibration.lambda_ > 1e3).all()


def test_fit_smooths_at_every_resolution() -> None:
    svls = crac.build_loss("svls", 3)
    for logits, target in zip(*batch(), strict=True):
        expected = svls(logits, target.long())
        torch.testing.assert_close(Fit(svls)(logits, target.float()), expected)
        torch.testing.assert_close(Fit(svls)(logits, target[:, 0].float()), expected)
