"""Pages of the reference that are read from the program: commands from their parsers, settings from their models."""

import argparse
import itertools
import re
import textwrap
from collections.abc import Iterator
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from crac.benchmark.suite import DataSet, Method, Phantom, Suite, Variant
from crac.cli import COMMANDS, build_parser
from crac.training import TrainConfig


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages."""
    for name, text in (("commands", commands()), ("settings", settings())):
        files.append(File.generated(config, f"reference/{name}.md", content=text))
    return files


def commands() -> str:
    """Return the page of the command line, one part a command."""
    lines = [
        "# Command line",
        "",
        "After `make install` in a clone the command is `.venv/bin/crac`. Exit code 2 and one sentence say what is",
        "wrong with the input. The examples are those of `crac COMMAND --help`.",
        "",
        "| command | what it does |",
        "|---|---|",
        *(f"| [`crac {name}`](#crac-{name}) | {cell(command.HELP)} |" for name, command in COMMANDS.items()),
    ]
    for name, command in COMMANDS.items():
        (parser,) = (action.choices[name] for action in build_parser(name)._actions if has_parsers(action))
        lines += ["", f"## crac {name}", "", f"{sentence(command.HELP)}.", "", *arguments(parser)]
        lines += explained(command.EXAMPLE)
    return "\n".join(lines)


def explained(text: str) -> Iterator[str]:
    """Yield what stands under the options of a command: sentences as paragraphs, what is indented as it is typed."""
    for typed, lines in itertools.groupby(text.splitlines(), lambda line: not line or line.startswith(" ")):
        part = "\n".join(lines).strip("\n")
        if part and typed:
            yield from ("", "```text", textwrap.dedent(part), "```")
        elif part:
            yield from ("", sentence(part))


def sentence(text: str) -> str:
    """Return text that begins with a capital letter; the others stay as they are."""
    return f"{text[0].upper()}{text[1:]}"


def arguments(parser: argparse.ArgumentParser, level: int = 3) -> Iterator[str]:
    """Yield the table of what a parser takes, then its sub-commands."""
    taken = [action for action in parser._actions if not has_parsers(action) and "--help" not in action.option_strings]
    if taken:
        yield from ("| argument | values | meaning |", "|---|---|---|")
    for action in taken:
        name = ", ".join(action.option_strings) or action.metavar or action.dest
        required = " **required**" if action.option_strings and action.required else ""
        meaning = (action.help or "") % {"default": action.default, "prog": parser.prog}
        yield f"| `{name}`{required} | {cell(values(action))} | {cell(meaning)} |"
    for action in filter(has_parsers, parser._actions):
        helps = {choice.dest: choice.help for choice in action._choices_actions}
        for name, sub in action.choices.items():
            yield from ("", f"{'#' * level} {sub.prog}", "", f"{sentence(helps.get(name) or name)}.", "")
            yield from arguments(sub, level + 1)


def has_parsers(action: argparse.Action) -> bool:
    """Return whether an action chooses between sub-commands."""
    return isinstance(action, argparse._SubParsersAction)


def values(action: argparse.Action) -> str:
    """Return what may follow an option."""
    if action.nargs == 0:
        return ""
    if action.choices:
        shown = " ".join(f"`{choice}`" for choice in action.choices)
    elif isinstance(action.metavar, tuple):
        return f"`{' '.join(action.metavar)}`"
    else:
        shown = f"`{action.metavar or action.dest.upper()}`" if action.option_strings else ""
    return f"{shown} …" if action.nargs in ("+", "*") else shown


def settings() -> str:
    """Return the page of the settings of a training and of a suite."""
    lines = [
        "# Settings",
        "",
        "The same names in a YAML file, on the command line (`--batch-size` for `batch_size`) and in Python. Unknown",
        "names are refused. What they do: [Training](../training.md) and [Compare methods](../benchmarking.md).",
        "",
        "## A training",
        "",
        "`crac train --config settings.yaml`, `crac train --NAME VALUE`, `crac.training.TrainConfig(...)`.",
        "",
        *fields(TrainConfig),
        "",
        "## A suite",
        "",
        "`crac benchmark SUITE.yaml`. `training` takes every setting above but `data`, `method` and the like, which",
        "the suite itself decides.",
        "",
        *fields(Suite),
    ]
    parts = (
        ("A data set of a suite", DataSet),
        ("Its phantoms", Phantom),
        ("A method of a suite", Method),
        ("A variant of a suite", Variant),
    )
    for title, model in parts:
        lines += ["", f"### {title}", "", *fields(model)]
    return "\n".join(lines)


def fields(model: type[BaseModel]) -> Iterator[str]:
    """Yield the table of a model's fields; what is said of them in the docstring counts where they say nothing."""
    said = arguments_of(model.__doc__ or "")
    yield from ("| setting | default | meaning |", "|---|---|---|")
    for name, field in model.model_fields.items():
        default: Any = field.get_default(call_default_factory=True, validated_data={})
        shown = "**required**" if default is PydanticUndefined else "" if default is None else f"`{default}`"
        shown = "as above" if isinstance(default, BaseModel) else shown
        yield f"| `{name}` | {cell(shown)} | {cell(field.description or said.get(name, ''))} |"


def arguments_of(docstring: str) -> dict[str, str]:
    """Return the sentences of a docstring's ``Args`` by name."""
    found: dict[str, str] = {}
    name = ""
    for line in docstring.partition("Args:\n")[2].splitlines():
        if line.startswith(" " * 8) and not line.startswith(" " * 9) and ":" in line:
            name, _, text = line.strip().partition(": ")
            found[name] = text
        elif name and line.startswith(" " * 12):
            found[name] += f" {line.strip()}"
    return found


def cell(text: str) -> str:
    """Return text that stays in its cell of a table, with names in code font as docstrings mark them."""
    text = re.sub(r":(?:class|data|func|meth|mod):`~?([^`]+)`", r"`\1`", text)
    return text.replace("``", "`").replace("|", "\\|").replace("\n", " ").replace("<", "&lt;")
