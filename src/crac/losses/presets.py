"""The presets of ``CRaCLoss``: which options each has, and their defaults."""

from collections.abc import Mapping
from typing import Any

from crac.errors import one_of

_RELEASED: dict[str, Any] = {
    "inner_scale": 5.0, "outer_scale": 1.0, "border": "background", "average": "all", "kernel_size": 3, "radii": None,
    "tolerance": 0.0, "penalty": "phr", "lambda_": 1e-6, "lambda_min": 1e-6, "lambda_max": 1e6, "rho": 0.1,
    "rho_min": 0.1, "rho_max": 10.0, "gamma": 1.2, "mu": 0.9, "rho_every": 10,
}  # fmt: skip
PRESETS: dict[str, dict[str, Any]] = {
    "released": _RELEASED,
    "paper": _RELEASED | {"inner_scale": 9.0, "outer_scale": 9.0, "border": "replicate", "average": "region"},
    "signed": {
        "border": "replicate", "kernel_size": None, "radii": (1,), "lambda_": 0.02, "lambda_min": 1e-3,
        "lambda_max": 10.0, "rho": 6.0, "signal": "predicted", "by_class": False, "smoothing": 0.05,
    },
}  # fmt: skip
"""Name -> the options it takes, with their defaults: the authors' code, the text of their paper, and ours."""


def choose(preset: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a preset, with those that are given and not ``None`` in place of its own.

    Args:
        preset: One of :data:`PRESETS`.
        given: Name -> value; names that no preset has are left out.

    Raises:
        InputError: There is no such preset, or it lacks an option that is given.
    """
    if preset not in PRESETS:
        raise one_of("preset", preset, PRESETS)
    known = {name for options in PRESETS.values() for name in options}
    changed = {name: value for name, value in given.items() if name in known and value is not None}
    for name in changed:
        if name not in PRESETS[preset]:
            raise one_of(f"option of preset {preset!r}", name, PRESETS[preset])
    return PRESETS[preset] | changed
