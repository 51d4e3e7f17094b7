"""The errors a user can cause, each one sentence long."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Sequence
from types import ModuleType
from typing import Any

EXTRA_OF = {
    "filelock": "train",
    "ignite": "monai",
    "lightning": "train",
    "matplotlib": "train",
    "mlflow": "mlflow",
    "monai": "monai",
    "nibabel": "train",
    "nnunetv2": "nnunet",
    "pandas": "train",
    "pydantic": "train",
    "ray": "ray",
    "rich": "train",
    "safetensors": "train",
    "scikit_posthocs": "train",
    "tensorboard": "train",
    "triton": "gpu",
    "yaml": "train",
}
"""Optional package -> the extra of ``crac`` that installs it."""


class InputError(ValueError):
    """Bad input: the message names the argument, the value given and what is accepted.

    The command line prints it and leaves with exit code 2.
    """


class ProblemsError(InputError):
    """Several defects of one folder or data set, reported together.

    Args:
        subject: What was checked, for the first line.
        problems: One sentence per defect.
    """

    def __init__(self, subject: str, problems: Sequence[str]) -> None:
        self.problems = list(problems)
        plural = "problem" if len(self.problems) == 1 else "problems"
        super().__init__("\n  - ".join([f"{subject}: {len(self.problems)} {plural}", *self.problems]))

    def __reduce__(self) -> tuple[Any, ...]:
        subject = str(self).split("\n", 1)[0].rsplit(":", 1)[0]
        return type(self), (subject, self.problems)


class MissingExtraError(InputError, ImportError):
    """An optional package is needed and not installed."""


def one_of(argument: str, value: object, accepted: Iterable[object]) -> InputError:
    """The error for a value outside a fixed set of choices."""
    return InputError(f"{argument} must be one of {', '.join(map(str, accepted))}; got {value!r}")


def require(module: str) -> ModuleType:
    """Import an optional package, or say in one sentence how to install it.

    Args:
        module: Dotted name of the module, e.g. ``"nibabel"``.

    Raises:
        MissingExtraError: The package is not installed.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        package = module.partition(".")[0]
        if error.name is None or error.name.partition(".")[0] != package:
            raise  # the package is there, one of its own imports is broken
        extra = EXTRA_OF.get(package, "all")
        raise MissingExtraError(f"{package} is not installed; run: pip install 'crac[{extra}]'") from None
