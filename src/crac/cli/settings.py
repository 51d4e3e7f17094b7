"""Options of a command from the fields of a pydantic model, which alone says their types, defaults and meaning."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union, get_args, get_origin

from crac.errors import InputError

if TYPE_CHECKING:
    from pydantic import BaseModel

FORMS: dict[Any, dict[str, Any]] = {
    bool: {"action": argparse.BooleanOptionalAction},
    int: {"metavar": "N"},
    float: {"metavar": "X"},
    str: {"metavar": "NAME"},
    Path: {"metavar": "PATH"},
    tuple: {"metavar": "N", "nargs": "+"},
    dict: {"metavar": "NAME=VALUE", "nargs": "+"},
}
"""How argparse reads a type; numbers stay text, which the model checks with a better message."""


def flag(name: str) -> str:
    """Return the option of a field, e.g. ``--batch-size`` of ``batch_size``."""
    return f"--{name.replace('_', '-')}"


def add_settings(
    parser: argparse.ArgumentParser, model: type[BaseModel], also: Mapping[str, Mapping[str, Any]] | None = None
) -> None:
    """Add one option a field; what is not given stays out of the result, so that other sources can decide it.

    Other sets of defaults, by name, are told beside the model's own.
    """
    for name, field in model.model_fields.items():
        text, default = (field.description or "").replace("%", "%%"), field.default
        if not field.is_required() and default is not None and field.default_factory is None:
            others = [f"; {source}: {_word(values[name])}" for source, values in (also or {}).items() if name in values]
            text += f" (default: {_word(default)}{''.join(others)})"
        parser.add_argument(flag(name), default=argparse.SUPPRESS, help=text, **_form(field.annotation))


def given_settings(args: argparse.Namespace, model: type[BaseModel]) -> dict[str, Any]:
    """Return the fields given on the command line, as the model reads them."""
    given = {name: value for name, value in vars(args).items() if name in model.model_fields}
    pairs = [name for name in given if get_origin(model.model_fields[name].annotation) is dict]
    return given | {name: dict(_pair(flag(name), text) for text in given[name]) for name in pairs}


def _word(value: Any) -> Any:
    return ("no", "yes")[value] if isinstance(value, bool) else "none" if value is None else value


def _form(annotation: Any) -> dict[str, Any]:
    if get_origin(annotation) in (Union, UnionType):
        annotation = next(one for one in get_args(annotation) if one is not NoneType)
    if get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    if get_origin(annotation) is Literal:
        return {"choices": get_args(annotation), "type": type(get_args(annotation)[0])}
    return FORMS[get_origin(annotation) or annotation]


def _pair(option: str, text: str) -> tuple[str, Any]:
    import yaml

    name, sign, value = text.partition("=")
    if not sign or not name:
        raise InputError(f"{option} must be NAME=VALUE; got {text!r}")
    try:
        return name, yaml.safe_load(value)
    except yaml.YAMLError:
        raise InputError(f"{option}: the value of {name} cannot be read; got {value!r}") from None
