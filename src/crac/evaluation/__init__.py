"""The calibration of any model, from the probabilities it has written. Needs the ``train`` extra."""

from crac.errors import require

for _package in ("nibabel", "matplotlib", "rich"):
    require(_package)

from crac.evaluation.audit import audit  # noqa: E402

__all__ = ["audit"]
