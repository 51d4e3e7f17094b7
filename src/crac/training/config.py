"""Everything that decides a training, in one record: the same names in YAML, on the command line and in Python."""

import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import yaml
from pydantic import Field, ValidationInfo, field_validator

from crac.data.recipe import Strict
from crac.errors import InputError, checked, one_of
from crac.losses import METHODS
from crac.networks import BACKBONES

MOST_NESTED = 64
Positive = Annotated[int, Field(ge=1)]
Rate = Annotated[float, Field(gt=0)]
Share = Annotated[float, Field(ge=0, le=1)]


class TrainConfig(Strict):
    """Settings of a training; the defaults are the paper's."""

    data: Path = Field(description="prepared store (crac prepare)")
    method: str = Field("crac", description=f"loss, one of {', '.join(METHODS)}")
    method_options: dict[str, Any] = Field(default_factory=dict, description="keywords of the loss, e.g. alpha=0.2")
    backbone: str = Field("unet", description=f"network, one of {', '.join(BACKBONES)}")
    width: Positive = Field(32, description="filters of the network's first level")
    dims: Literal[2, 3] | None = Field(
        None, description="2 for slices, 3 for patches of volumes; by default what the store is meant for"
    )
    patch_size: tuple[Positive, ...] | None = Field(
        None, description="sides of random patches, one number a dimension; by default whole slices or volumes"
    )
    epochs: Positive = Field(100, description="passes over the training set, each with validation and the outer step")
    batch_size: Positive = Field(16, description="images of one step, over all devices together")
    learning_rate: Rate = Field(1e-3, description="learning rate of Adam")
    late_learning_rate: Rate = Field(1e-4, description="learning rate of Adam in the later part of the training")
    late_from: Share = Field(0.5, description="where the later part begins, as a share of the epochs")
    seed: Annotated[int, Field(ge=0, lt=2**31)] = Field(0, description="seed of the weights and of every random draw")
    split: Path | None = Field(None, description="split file; by default a split is drawn with the split seed")
    split_seed: Annotated[int, Field(ge=0)] = Field(0, description="seed of the 70/10/20 split by patient")
    augment: bool = Field(False, description="flip, rotate, scale and shift intensities of the training images")
    precision: Literal["fp32", "tf32", "bf16", "fp16"] = Field(
        "fp32", description="tf32 uses fast matrix units, bf16 and fp16 are mixed precision, fp16 with loss scaling"
    )
    channels_last: bool = Field(False, description="channels innermost in memory, which GPUs prefer; not on the CPU")
    compile: bool = Field(False, description="let torch.compile optimise the network")
    cuda_graph: bool = Field(False, description="record the step once and replay it without the CPU; one GPU, not fp16")
    cache: Literal["mmap", "memory", "device"] = Field(
        "memory", description="where the training set lives: on disk (mmap), in memory or on the device"
    )
    deterministic: bool = Field(False, description="the same result to the last bit (on a GPU as far as it can)")
    accelerator: Literal["auto", "cpu", "cuda"] = Field("auto", description="kind of device; auto takes a GPU if any")
    devices: Positive = Field(1, description="processes on each node, one a device")
    nodes: Positive = Field(1, description="number of machines")
    init: Path | None = Field(
        None, description="run or checkpoint whose weights to begin from; the last layer is new if classes differ"
    )
    save_every: Positive = Field(1, description="epochs between checkpoints to go on from; the best one is always kept")
    pictures: bool = Field(True, description="write TensorBoard files and draw the multipliers")
    mlflow: bool = Field(False, description="log to MLflow as well")

    @field_validator("method", "backbone")
    @classmethod
    def _known(cls, value: str, info: ValidationInfo) -> str:
        known = METHODS if info.field_name == "method" else BACKBONES
        if value not in known:
            raise one_of(str(info.field_name), value, known)
        return value

    @field_validator("method_options")
    @classmethod
    def _free_options(cls, value: dict[str, Any]) -> dict[str, Any]:
        if decided := sorted({"name", "num_classes"} & value.keys()):
            raise InputError(f"method_options must not hold {decided[0]!r}, which the method and the store decide")
        return value

    @classmethod
    def make(cls, settings: Mapping[str, Any], source: str = "settings") -> Self:
        """Check settings by name; all that is wrong with them, and where they come from, is reported together."""
        return checked(cls, dict(settings), source, cls.model_fields)

    @classmethod
    def load(cls, path: Path | None, overrides: Mapping[str, Any] | None = None) -> Self:
        """Return the settings of a YAML file, if any, over which ``overrides``, field name -> value, win."""
        settings = {} if path is None else read_yaml(path)
        return cls.make({**settings, **(overrides or {})}, "settings" if path is None else str(path))

    def dump(self) -> str:
        """Return the settings as YAML, every one of them named."""
        return yaml.safe_dump(self.model_dump(mode="json"), sort_keys=False, allow_unicode=True)

    def rate(self, epoch: int) -> float:
        """Return the learning rate of an epoch, counted from 0."""
        return self.learning_rate if epoch < self.late_from * self.epochs else self.late_learning_rate


def read_yaml(path: Path) -> dict[str, Any]:
    """Return the settings in a YAML file by name; one that holds anything else is refused."""
    try:
        text = path.read_text(encoding="utf-8")
        brackets = ((letter in "[{") - (letter in "]}") for letter in text)
        if max(itertools.accumulate(brackets), default=0) > MOST_NESTED:  # the parser would take minutes
            raise ValueError(f"more than {MOST_NESTED} brackets within each other")
        settings = yaml.safe_load(text)
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        raise InputError(f"{path} cannot be read as YAML: {' '.join(str(error).split())}") from error
    if settings is None:
        return {}
    if not isinstance(settings, dict) or not all(isinstance(key, str) for key in settings):
        raise InputError(f"{path} must hold settings as 'name: value' lines; got {type(settings).__name__}")
    return settings
