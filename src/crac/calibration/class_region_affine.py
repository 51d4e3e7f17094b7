"""``class_region_affine``: a scale and a bias for each predicted class and region, the predicted class kept."""

from torch import Tensor

from crac.calibration.base import Calibrator


class ClassRegionAffineCalibrator(Calibrator):
    """``softmax(a[c] l + b[c])`` with a number ``a`` and ``K`` biases ``b`` for each class and band of distance ``c``.

    Where the predicted class would fall behind another, its probability is lifted just above that one's.
    """

    name = "class_region_affine"
    coefficients = "affine"
    by_class = by_region = True
    default_radii = (1, 2, 4)
    default_mask = "all"

    @property
    def bias(self) -> Tensor:
        """The biases, ``(K, R, K)``: predicted class, region, class."""
        return self.weights[:, 1:].view(*self.cell_shape, self.num_classes)
