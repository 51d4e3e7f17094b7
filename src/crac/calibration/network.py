"""A network and its calibrator as one module."""

from torch import Tensor, nn

from crac.calibration.base import Calibrator


class Calibrated(nn.Module):
    """Calibrated probabilities of images; can be compiled, and exported with ``torch.export``.

    Args:
        network: Maps images to logits ``(B, K, *S)``.
        calibrator: Fitted on that network's logits.
    """

    def __init__(self, network: nn.Module, calibrator: Calibrator) -> None:
        super().__init__()
        self.network = network
        self.calibrator = calibrator

    def forward(self, images: Tensor) -> Tensor:
        """Probabilities ``(B, K, *S)``."""
        probabilities: Tensor = self.calibrator(self.network(images))
        return probabilities
