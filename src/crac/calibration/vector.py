"""``vector``: a scale and a bias for each class."""

from torch import Tensor

from crac.calibration.base import Calibrator


class VectorCalibrator(Calibrator):
    """``softmax(w * log softmax(l) + b)``, vector scaling (Guo et al., ICML 2017); the predicted class may change.

    Logits are normalised first, so that a model's logits and its probabilities give the same calibrator.
    """

    name = "vector"
    coefficients = "vector"
    keeps_labels = False

    @property
    def temperature(self) -> Tensor:
        """Inverse of the scale of each class, ``(K,)``."""
        return 1 / self.weights[0, : self.num_classes]

    @property
    def bias(self) -> Tensor:
        """The biases, ``(K,)``."""
        return self.weights[0, self.num_classes :]
