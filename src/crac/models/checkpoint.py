"""Checkpoints: one safetensors file each, with its JSON inside, replaced in one move.

Weights and the JSON that explains them are one file, so that no moment exists at which they disagree; the
``.json`` beside it is a copy to read. A checksum over all of it finds a flipped bit. Loading runs no code.
"""

import contextlib
import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor, nn

from crac.errors import InputError, require
from crac.files import replacing, write_json

FORMAT = 1
KEY, CHECKSUM = "crac", "sha256"
"""Names of the description and of the checksum in the file's metadata."""


class DamagedError(InputError):
    """A checkpoint that cannot be read, or does not hold what was written."""


@dataclass(frozen=True)
class Checkpoint:
    """What a file holds.

    Args:
        tensors: Tensors by name: ``network.*``, ``loss.*`` and, where training can go on from it, ``optimizer.*``.
        info: Plain data: where the training stands and what is needed to use the network.
    """

    tensors: dict[str, Tensor]
    info: dict[str, Any]

    def save(self, path: Path) -> None:
        """Write the file and its readable copy; either may be interrupted at any moment."""
        safetensors, save_file = require("safetensors"), require("safetensors.torch").save_file
        tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in self.tensors.items()}
        info = {"format": FORMAT, **self.info}
        text = json.dumps(info)
        with replacing(path) as partial:
            partial.touch()
            mode = partial.stat().st_mode
            try:
                save_file(tensors, partial, metadata={KEY: text, CHECKSUM: _checksum(text, tensors)})
            except safetensors.SafetensorError as error:
                raise OSError(error) from error
            partial.chmod(mode)  # safetensors would leave the file to its owner alone
        write_json(path.with_suffix(".json"), info)

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read a file back.

        Raises:
            DamagedError: The file is damaged.
            InputError: The file is missing, or not a checkpoint of this package.
        """
        with _opened(path) as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a mapping)
            metadata = file.metadata() or {}
        # What 0.1.0 wrote has no checksum.
        if CHECKSUM in metadata and metadata[CHECKSUM] != _checksum(metadata.get(KEY, ""), tensors):
            raise DamagedError(f"{path} is damaged: it does not hold what was written (its checksum differs)")
        return cls(tensors, _info(path, metadata))

    @classmethod
    def read_info(cls, path: Path) -> dict[str, Any]:
        """The JSON alone."""
        with _opened(path) as file:
            return _info(path, file.metadata() or {})

    def part(self, prefix: str) -> dict[str, Tensor]:
        """The tensors whose names begin with ``prefix.``, without it."""
        start = f"{prefix}."
        return {name.removeprefix(start): value for name, value in self.tensors.items() if name.startswith(start)}


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[Any]:
    safetensors = require("safetensors")
    if not path.is_file():
        raise InputError(f"{path} is missing: no checkpoint was saved there")
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            yield file
    except InputError:
        raise
    except (safetensors.SafetensorError, OSError, ValueError, RuntimeError) as error:
        raise DamagedError(f"{path} is damaged or not a safetensors file: {error}") from error


def _checksum(text: str, tensors: Mapping[str, Tensor]) -> str:
    """The SHA-256 of the description and of every tensor with its name, type and shape."""
    digest = hashlib.sha256(text.encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _info(path: Path, metadata: Mapping[str, str]) -> dict[str, Any]:
    try:
        info = json.loads(metadata[KEY])
        version = int(info["format"])
    except (KeyError, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise InputError(f"{path} is not a checkpoint of crac: its description is missing or damaged") from error
    if version > FORMAT:
        raise InputError(f"{path} has checkpoint format {version}, this crac reads up to {FORMAT}: upgrade crac")
    return dict(info)


def prefixed(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Names with ``prefix.`` in front."""
    return {f"{prefix}.{name}": value for name, value in tensors.items()}


def state_of(module: nn.Module) -> dict[str, Tensor]:
    """The state of a module, each tensor once: some networks hold the same weights under several names."""
    first: dict[int, str] = {}
    state = module.state_dict(keep_vars=True)
    for name, tensor in state.items():
        first.setdefault(id(tensor), name)
    return {name: state[name].detach() for name in first.values()}


def load_tensors(module: nn.Module, tensors: Mapping[str, Tensor], path: Path) -> None:
    """Fill a module, or say in which way the checkpoint belongs to another one."""
    own = state_of(module)
    differing = [
        f"{name} is {_shape(tensors.get(name))}, not {_shape(own.get(name))}"
        for name in [*own, *(name for name in tensors if name not in own)]
        if _shape(tensors.get(name)) != _shape(own.get(name))
    ]
    if differing:
        more = f" (and {len(differing) - 1} more)" if len(differing) > 1 else ""
        raise InputError(f"{path} holds another architecture: {differing[0]}{more}")
    with torch.no_grad():
        for name, tensor in own.items():
            tensor.copy_(tensors[name])


def _shape(tensor: Tensor | None) -> str:
    return "absent" if tensor is None else "x".join(map(str, tensor.shape)) or "a number"
