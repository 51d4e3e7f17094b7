"""Network, loss, data and folder of a training, made ready on its device."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor

from crac._version import __version__
from crac.data import Augmentation, Batch, Batches, Split, Store
from crac.losses import SegmentationLoss, build_loss
from crac.models.card import ModelCard
from crac.models.window import sliding_window
from crac.training.config import TrainConfig
from crac.training.engine import memory_format, on_first
from crac.training.graph import GraphedStep
from crac.training.initial import begin_from, initial_weights
from crac.training.run import RunFolder
from crac.training.state import State
from crac.training.step import InnerStep, step_generator
from crac.training.validation import Volumes, validate

if TYPE_CHECKING:
    from lightning.fabric import Fabric


@dataclass(frozen=True)
class Task:
    """What :func:`~crac.training.fit.fit` works with.

    Args:
        step: One step of the inner iteration, with Fabric and what Fabric has set up: network, loss and optimizer.
        batches: This process's share of the training set.
        memory_format: Layout of the images.
        observe: Lets the loss observe the validation set and returns the scores there.
        run: Folder of the run.
        card: What the network is.
        config: Settings.
    """

    step: InnerStep
    batches: Batches
    memory_format: torch.memory_format
    observe: Callable[[], dict[str, float]]
    run: RunFolder
    card: ModelCard
    config: TrainConfig

    @property
    def loss(self) -> SegmentationLoss:
        """The loss, with its multipliers."""
        return self.step.loss

    @property
    def device(self) -> torch.device:
        """The device that this process computes on."""
        return cast(torch.device, self.step.fabric.device)

    @property
    def distributed(self) -> bool:
        """Whether there are other processes."""
        return bool(self.step.fabric.world_size > 1)

    def take_step(self, batch: Batch, epoch: int, step: int) -> Tensor:
        """Take one inner step; its random numbers follow from seed, epoch, step and process alone."""
        images = batch.images.contiguous(memory_format=self.memory_format)
        generator = step_generator(self.device, self.config.seed, epoch, step, self.step.fabric.global_rank)
        return self.step(Batch(images, batch.labels, batch.names), generator)

    def set_learning_rate(self, rate: float) -> None:
        """Set the learning rate of the steps to come."""
        for group in self.step.optimizer.param_groups:
            if isinstance(group["lr"], Tensor):  # a recorded step reads it from the device
                group["lr"].fill_(rate)
            else:
                group["lr"] = rate

    def validate(self) -> dict[str, float]:
        """Let the loss observe the validation set; returns the scores."""
        self.step.network.eval()
        scores = self.observe()
        self.step.network.train()
        return scores

    def multipliers(self) -> dict[str, float]:
        """Every lambda and rho by name, for methods that have them."""
        if self.loss.multipliers is None:
            return {}
        return {
            f"{kind}_{region}_{name}": value
            for kind, regions in self.loss.multipliers.by_region().items()
            for region, row in regions.items()
            for name, value in zip(self.card.class_names, row, strict=True)
        }

    def save(self, state: State, epoch_finished: bool) -> None:
        """Write the checkpoint; the other processes wait for the one that does."""
        about = {"crac": __version__, "method": self.config.method, "model": self.card.model_dump(mode="json")}
        due = state.epoch % self.config.save_every == 0 or state.epoch == self.config.epochs

        def write() -> None:
            if epoch_finished:
                self.run.save_epoch(state, about, due)
            else:
                self.run.save_last(state, about)

        on_first(self.step.fabric, write)

    def mean(self, value: Tensor) -> float:
        """Return the mean over processes."""
        return float(self.step.fabric.all_reduce(value, reduce_op="mean"))

    def any_rank(self, flag: bool) -> bool:
        """Whether the flag is set on any process."""
        return self.mean(torch.tensor(float(flag), device=self.device)) > 0


def model_card(config: TrainConfig, store: Store) -> ModelCard:
    """Return what the network of a training will be."""
    dims = config.dims or store.manifest.dims
    of_network = config.backbone, config.width, dims, config.patch_size, config.deep_supervision, config.strides
    return ModelCard.of(store, *of_network)


def training_loss(config: TrainConfig, store: Store) -> SegmentationLoss:
    """Return the loss of a training; keywords of the method win over what settings and store say."""
    shared = {"dice_weight": config.dice_weight, "ignore_index": store.ignore_index}
    return build_loss(config.method, store.num_classes, **{**shared, **config.method_options})


def prepare_task(fabric: Fabric, config: TrainConfig, store: Store, split: Split, run: RunFolder) -> tuple[Task, State]:
    """Build everything, and go back to the run's last checkpoint if it has one."""
    card = model_card(config, store)
    device = fabric.device
    layout = memory_format(config, card.dims, device)
    torch.manual_seed(config.seed)
    network = card.build().to(device).to(memory_format=layout)  # type: ignore[call-overload]
    loss = training_loss(config, store).to(device)
    on_gpu = device.type == "cuda"
    rate = torch.tensor(config.learning_rate, device=device) if config.cuda_graph else config.learning_rate
    optimizer = torch.optim.Adam(network.parameters(), rate, fused=on_gpu, capturable=config.cuda_graph)
    if config.compile:
        network.compile()  # in place, which leaves the names of its weights alone
    fabric_network, fabric_optimizer = fabric.setup(network, optimizer)
    parts = fabric, fabric_network, loss, fabric_optimizer, config.clip_norm
    step = GraphedStep(*parts) if config.cuda_graph else InnerStep(*parts)
    state = State(network, loss, optimizer, fabric.strategy.precision)
    if (saved := run.load_last()) is not None:
        state.restore(saved, run.last)
    else:
        if config.init is not None:
            begin_from(network, initial_weights(config.init, card), config.init)
        network.standardise(*map(torch.from_numpy, store.moments(split.train)))
    whole = sliding_window(fabric_network, card.patch_size) if card.dims == 3 else fabric_network
    share = {"rank": fabric.global_rank, "world_size": fabric.world_size}
    place: dict[str, Any] = {"dims": card.dims, "cache": config.cache, "device": device, **share}
    assert config.batch_size is not None  # planned before the run began
    size = config.batch_size // fabric.world_size
    augment = None
    if config.augment != "none":
        spacings = [store.cases[name].prepared_spacing for name in split.train]
        augment = Augmentation.named(config.augment, config.mirror, torch.tensor(spacings).median(0).values.tolist())
    batches = Batches(
        store,
        split.train,
        size,
        patch_size=config.patch_size,
        seed=config.seed,
        augment=augment,
        foreground=config.foreground,
        multiple=max(network.coarse),
        patches=config.patches or 1,
        **place,
    )
    validation: Batches | Volumes
    if card.dims == 2:
        # Nothing is kept for a backward pass, and on a GPU every launch costs.
        validation = Batches(store, split.validation, size * 4 if on_gpu else size, shuffle=False, **place)
    else:
        validation = Volumes(store, split.validation, device, **share)
    observe = partial(
        validate, fabric, whole, loss, validation, split.validation, store.class_names, store.ignore_index
    )
    return Task(step, batches, layout, observe, run, card, config), state
