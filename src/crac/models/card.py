"""What a trained network is: all that is needed to rebuild it and to feed it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Self

import torch

from crac.data import Recipe, Store
from crac.data.batches import common_size
from crac.data.recipe import Strict
from crac.errors import InputError, checked
from crac.networks import Framed, build_network


def check_patch(patch_size: tuple[int, ...] | None, dims: int) -> None:
    """Refuse a patch of other dimensions."""
    if patch_size is not None and len(patch_size) != dims:
        raise InputError(f"patch_size must be {dims} numbers where dims is {dims}; got {patch_size}")


class ModelCard(Strict):
    """Travels in every checkpoint, so that a model can be used without the data it was trained on.

    Args:
        backbone: Name of the network.
        width: Filters of its first level.
        dims: 2 for slices, 3 for volumes.
        patch_size: What it was trained on, None for whole slices or volumes.
        deep_supervision: Whether its coarser levels were trained too.
        class_names: Index = class, 0 the background.
        channel_names: One a channel of the images.
        recipe: How images are prepared.
        strides: How much each way down of the network shrinks; None for the network's own.
        least_size: Sides that whole slices or volumes were padded to in training. Smaller ones are padded to them in
            prediction too: a network that normalises each image by its own mean takes the padding into account.
    """

    backbone: str
    width: int
    dims: Literal[2, 3]
    patch_size: tuple[int, ...] | None
    class_names: tuple[str, ...]
    channel_names: tuple[str, ...]
    recipe: Recipe
    deep_supervision: bool = False
    strides: tuple[tuple[int, ...], ...] | None = None
    least_size: tuple[int, ...] | None = None

    @classmethod
    def of(
        cls,
        store: Store,
        backbone: str,
        width: int,
        dims: Literal[2, 3],
        patch_size: tuple[int, ...] | None,
        deep_supervision: bool = False,
        strides: tuple[tuple[int, ...], ...] | None = None,
    ) -> Self:
        """The card of a network trained on a store."""
        check_patch(patch_size, dims)
        of_data = {name: getattr(store.manifest, name) for name in ("class_names", "channel_names", "recipe")}
        own = {"backbone": backbone, "width": width, "dims": dims, "patch_size": patch_size}
        card = cls(**own, **of_data, deep_supervision=deep_supervision, strides=strides)
        with torch.device("meta"):
            network = card.build()
        if patch_size is not None:
            network.check_sides("patch_size", patch_size)
            return card
        return card.model_copy(update={"least_size": common_size(store, dims, max(network.coarse))})

    @classmethod
    def read(cls, info: Mapping[str, Any], path: Path) -> Self:
        """The card in a checkpoint's description."""
        return checked(cls, info.get("model"), f"{path} does not say what model it holds")

    def build(self) -> Framed:
        """The network, with fresh weights."""
        counts = len(self.channel_names), len(self.class_names)
        network = build_network(self.backbone, *counts, self.dims, self.width, self.deep_supervision, self.strides)
        network.least = self.least_size or network.least
        return network

    def check_store(self, store: Store) -> None:
        """Refuse a store with other classes, channels or preparation."""
        manifest = store.manifest
        for what, own, other in (
            ("classes", self.class_names, manifest.class_names),
            ("channels", self.channel_names, manifest.channel_names),
        ):
            if len(own) != len(other):
                raise InputError(
                    f"{store.path} has {len(other)} {what} ({', '.join(other)}), "
                    f"the checkpoint has {len(own)} ({', '.join(own)})"
                )
            if own != other and sorted(own) == sorted(other):  # one that is only called otherwise is the same
                raise InputError(
                    f"{store.path} has its {what} in the order {', '.join(other)}, the checkpoint has {', '.join(own)}"
                )
        if self.recipe != manifest.recipe:
            raise InputError(f"{store.path} was prepared with another recipe than the checkpoint's training data")
