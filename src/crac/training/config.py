"""Everything that decides a training, in one record: the same names in YAML, on the command line and in Python."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from crac.errors import InputError, invalid, one_of
from crac.losses import METHODS
from crac.networks import BACKBONES

__all__ = ["TrainConfig"]

Positive = Annotated[int, Field(ge=1)]
Rate = Annotated[float, Field(gt=0)]


class TrainConfig(BaseModel):
    """Settings of a training; the defaults are the paper's.

    Args:
        data: Prepared store (``crac prepare``).
        method: Loss, one of :data:`crac.METHODS`.
        method_options: Keywords of the loss.
        backbone: Network, one of :data:`crac.networks.BACKBONES`.
        width: Filters of the network's first level.
        dims: 2 for slices, 3 for patches of volumes; by default what the store is meant for.
        patch_size: Sides of random patches, ``dims`` numbers; whole slices or volumes by default.
        epochs: Passes over the training set, each followed by validation and the outer step.
        batch_size: Images of one step, over all devices together.
        learning_rate: Of Adam.
        late_learning_rate: Of Adam in the later part of the training.
        late_from: Where the later part begins, as a share of the epochs.
        seed: Of the initial weights and of every random draw.
        split: Split file; by default one is drawn with ``split_seed``.
        split_seed: Of the 70/10/20 split by patient.
        augment: Flip, rotate, scale and shift intensities of the training images.
        precision: ``fp32``, ``tf32`` (fast matrix units), ``bf16`` or ``fp16`` (mixed, with loss scaling).
        channels_last: Store images with their channels innermost, which GPUs prefer; no effect on the CPU.
        compile: Let ``torch.compile`` optimise the network.
        cuda_graph: Record the training step once and replay it, which frees it from the CPU's pace; one GPU, not fp16.
        cache: Where the training set lives: ``mmap`` (disk), ``memory`` or ``device``.
        deterministic: Same result to the last bit on every run (on the CPU; on a GPU as far as it can).
        accelerator: ``auto``, ``cpu`` or ``cuda``.
        devices: Processes on each node, one a device.
        nodes: Machines.
        save_every: Epochs between checkpoints to go on from; the best one is always kept.
        pictures: Write TensorBoard files and draw the multipliers.
        mlflow: Log to MLflow as well.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    data: Path
    method: str = "crac"
    method_options: dict[str, Any] = Field(default_factory=dict)
    backbone: str = "unet"
    width: Positive = 32
    dims: Literal[2, 3] | None = None
    patch_size: tuple[Positive, ...] | None = None
    epochs: Positive = 100
    batch_size: Positive = 16
    learning_rate: Rate = 1e-3
    late_learning_rate: Rate = 1e-4
    late_from: Annotated[float, Field(ge=0, le=1)] = 0.5
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0
    split: Path | None = None
    split_seed: Annotated[int, Field(ge=0)] = 0
    augment: bool = False
    precision: Literal["fp32", "tf32", "bf16", "fp16"] = "fp32"
    channels_last: bool = False
    compile: bool = False
    cuda_graph: bool = False
    cache: Literal["mmap", "memory", "device"] = "memory"
    deterministic: bool = False
    accelerator: Literal["auto", "cpu", "cuda"] = "auto"
    devices: Positive = 1
    nodes: Positive = 1
    save_every: Positive = 1
    pictures: bool = True
    mlflow: bool = False

    @field_validator("method")
    @classmethod
    def _known_method(cls, value: str) -> str:
        if value not in METHODS:
            raise one_of("method", value, METHODS)
        return value

    @field_validator("method_options")
    @classmethod
    def _free_options(cls, value: dict[str, Any]) -> dict[str, Any]:
        if decided := sorted({"name", "num_classes"} & value.keys()):
            raise InputError(f"method_options must not hold {decided[0]!r}, which the method and the store decide")
        return value

    @field_validator("backbone")
    @classmethod
    def _known_backbone(cls, value: str) -> str:
        if value not in BACKBONES:
            raise one_of("backbone", value, BACKBONES)
        return value

    @classmethod
    def make(cls, settings: Mapping[str, Any], source: str = "settings") -> TrainConfig:
        """Check settings; all that is wrong with them is reported together.

        Args:
            settings: Field name -> value.
            source: Where they come from, for the message.
        """
        try:
            return cls.model_validate(dict(settings))
        except ValidationError as error:
            raise invalid(source, error, cls.model_fields) from error

    @classmethod
    def load(cls, path: Path | None, overrides: Mapping[str, Any] | None = None) -> TrainConfig:
        """Settings from a YAML file, over which those given directly win.

        Args:
            path: YAML file, or None for the overrides alone.
            overrides: Field name -> value.
        """
        settings = {} if path is None else _read_yaml(path)
        return cls.make({**settings, **(overrides or {})}, "settings" if path is None else str(path))

    def dump(self) -> str:
        """As YAML, every setting named."""
        return yaml.safe_dump(self.model_dump(mode="json"), sort_keys=False, allow_unicode=True)

    def rate(self, epoch: int) -> float:
        """Learning rate of an epoch, counted from 0."""
        return self.learning_rate if epoch < self.late_from * self.epochs else self.late_learning_rate


def _read_yaml(path: Path) -> dict[str, Any]:
    try:
        settings = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        reason = " ".join(str(error).split())
        raise InputError(f"{path} cannot be read as YAML: {reason}") from error
    if settings is None:
        return {}
    if not isinstance(settings, dict) or not all(isinstance(key, str) for key in settings):
        raise InputError(f"{path} must hold settings as 'name: value' lines; got {type(settings).__name__}")
    return settings
