"""Weights to begin from: those of another run, with a new last layer where the classes differ."""

from collections.abc import Mapping
from pathlib import Path

from torch import Tensor, nn

from crac.errors import InputError
from crac.models.card import ModelCard
from crac.models.checkpoint import Checkpoint, load_tensors, state_of

OF_THE_DATA = ("mean", "deviation")
"""Buffers of a network that follow from its own training set."""


def initial_weights(source: Path, card: ModelCard) -> dict[str, Tensor]:
    """The weights of a run or checkpoint that fit a new network; the last layer is not among them if classes differ.

    Args:
        source: Folder of a run, of which the best checkpoint is taken, or a checkpoint file.
        card: What the new network is.

    Raises:
        InputError: There is no such checkpoint, or its network is another one.
    """
    path = source / "best.safetensors" if source.is_dir() else source
    if not path.exists():
        raise InputError(f"init must be a run or a checkpoint; {source} holds none")
    saved = Checkpoint.load(path)
    other = ModelCard.read(saved.info, path)
    for name in ("backbone", "width", "dims", "deep_supervision"):
        if getattr(other, name) != getattr(card, name):
            raise InputError(f"init: {path} has {name} {getattr(other, name)}, the new run {getattr(card, name)}")
    if len(other.channel_names) != len(card.channel_names):
        raise InputError(f"init: {path} has {len(other.channel_names)} channels, the new run {len(card.channel_names)}")
    weights = {name: value for name, value in saved.part("network").items() if name not in OF_THE_DATA}
    if other.class_names == card.class_names:
        return weights
    last = _last_layer(other)
    return {name: value for name, value in weights.items() if name not in last}


def begin_from(network: nn.Module, weights: Mapping[str, Tensor], source: Path) -> None:
    """Fill a network with :func:`initial_weights`; what is not among them stays as it is."""
    load_tensors(network, {**state_of(network), **weights}, source)


def _last_layer(card: ModelCard) -> set[str]:
    """Names of the weights whose shape depends on the number of classes."""
    one, more = (
        state_of(card.model_copy(update={"class_names": names}).build())
        for names in (card.class_names, (*card.class_names, "another"))
    )
    return {name for name, tensor in one.items() if tensor.shape != more[name].shape}
