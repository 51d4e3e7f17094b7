"""The errors a user can cause, each one sentence long."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping, Sequence
from numbers import Integral, Real
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar

import torch

if TYPE_CHECKING:
    from pydantic import BaseModel

EXTRAS = {
    "audit": ("PIL", "jinja2", "matplotlib", "nibabel", "pandas", "pydantic", "rich"),
    "train": ("filelock", "lightning", "markdown_it", "safetensors", "scikit_posthocs", "tensorboard", "yaml"),
    "formats": ("SimpleITK",),
    "monai": ("ignite", "monai"),
    "nnunet": ("nnunetv2",),
    "mlflow": ("mlflow",),
    "ray": ("ray",),
    "gpu": ("triton",),
}
EXTRA_OF = {package: extra for extra, packages in EXTRAS.items() for package in packages}
"""Optional package -> the extra of ``crac`` that installs it."""

Model = TypeVar("Model", bound="BaseModel")
Value = TypeVar("Value")


class InputError(ValueError):
    """Bad input: the message names the argument, the value given and what is accepted.

    The command line prints it and leaves with exit code 2.
    """


class ProblemsError(InputError):
    """Several defects of one folder or data set: what was checked, then one sentence a problem."""

    def __init__(self, subject: str, problems: Sequence[str]) -> None:
        self.subject, self.problems = subject, list(problems)
        plural = "problem" if len(self.problems) == 1 else "problems"
        super().__init__("\n  - ".join([f"{subject}: {len(self.problems)} {plural}", *self.problems]))

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.subject, self.problems)


class MissingExtraError(InputError, ImportError):
    """An optional package is needed and not installed."""

    def __init__(self, package: str) -> None:
        self.package = package
        super().__init__(f"{package} is not installed; run: pip install 'crac[{EXTRA_OF.get(package, 'all')}]'")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.package,)


def one_of(argument: str, value: object, accepted: Iterable[object]) -> InputError:
    """Return the error for a value outside a fixed set of choices."""
    return InputError(f"{argument} must be one of {', '.join(map(str, accepted))}; got {value!r}")


def check_number(
    argument: str,
    value: Value,
    *,
    least: float | None = None,
    above: float | None = None,
    most: float | None = None,
    whole: bool = False,
) -> Value:
    """Return a value that is a number, a ``whole`` one where that is asked for, and in its range; refuse any other.

    The range includes ``least`` and ``most`` but not ``above``; ``argument`` is the value's name in the message.
    """
    if not isinstance(value, bool) and isinstance(value, Integral if whole else Real):
        number = float(value)
        low = number == number and (least is None or number >= least)
        if low and (above is None or number > above) and (most is None or number <= most):
            return value
    words = "a whole number" if whole else "a number"
    bounds = [f"of at least {least}"] * (least is not None) + [f"above {above}"] * (above is not None)
    bounds += [f"of at most {most}"] * (most is not None)
    raise InputError(" ".join([f"{argument} must be", words, " and ".join(bounds)]).rstrip() + f"; got {value!r}")


def checked(model: type[Model], content: object, subject: str, known: Iterable[str] = ()) -> Model:
    """Return the record of a pydantic model that ``content`` describes, or raise all that is wrong, one sentence each.

    The message begins with ``subject``, what is checked, and lists the ``known`` settings where one is unknown.
    """
    try:
        return model.model_validate(content)
    except require("pydantic").ValidationError as error:
        problems = [_sentence(problem, known) for problem in error.errors(include_url=False)]
        one = len(problems) == 1
        raise InputError(f"{subject}: {problems[0]}") if one else ProblemsError(subject, problems) from error
    except (OverflowError, RecursionError) as error:  # numbers and nesting that no computer can follow
        raise InputError(f"{subject}: {error}") from error


def _sentence(problem: Mapping[str, Any], known: Iterable[str]) -> str:
    place = ".".join(map(str, problem["loc"]))
    if problem["type"] == "extra_forbidden":
        return f"unknown setting {place!r}" + (f"; known are {', '.join(known)}" if known else "")
    if problem["type"] == "missing":
        return f"{place} is missing"
    message = str(problem["msg"]).removeprefix("Value error, ")
    if not place or message.startswith(f"{place} must"):  # our own validators name argument and value themselves
        return message
    given = repr(problem["input"])
    return f"{place}: {message[:1].lower()}{message[1:]}" + (f"; got {given}" if len(given) < 80 else "")


def out_of_memory(error: BaseException) -> bool:
    """Whether an error means that there is too little memory, on any device."""
    # On the CPU torch raises a plain RuntimeError.
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or "allocate memory" in str(error)


def require(module: str) -> ModuleType:
    """Import an optional package by its dotted name, or say in one sentence how to install it."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        package = module.partition(".")[0]
        if error.name is None or error.name.partition(".")[0] != package:
            raise  # the package is there, one of its own imports is broken
        raise MissingExtraError(package) from None
