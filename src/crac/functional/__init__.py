"""Pure functions of tensors, which the losses and meters are made of."""

from crac.functional.penalty import PENALTIES, p2, p2_derivative, p3, p3_derivative, phr, phr_derivative
from crac.functional.priors import neighbourhood_proportions
from crac.functional.regions import region_map

__all__ = [
    "PENALTIES",
    "neighbourhood_proportions",
    "p2",
    "p2_derivative",
    "p3",
    "p3_derivative",
    "phr",
    "phr_derivative",
    "region_map",
]
