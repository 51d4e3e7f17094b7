"""Everything that decides a training, in one record: the same names in YAML, on the command line and in Python."""

import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import yaml
from pydantic import Field, ValidationInfo, field_validator, model_validator

from crac.data.recipe import Strict
from crac.errors import InputError, checked, one_of
from crac.losses import METHODS
from crac.networks import BACKBONES

MOST_NESTED = 64
Positive = Annotated[int, Field(ge=1)]
Rate = Annotated[float, Field(gt=0)]
Weight = Annotated[float, Field(ge=0)]
Share = Annotated[float, Field(ge=0, le=1)]

PLANNED = ("precision", "patch_size", "patches", "strides", "batch_size")
"""Settings that :mod:`crac.training.plan` chooses where they are None."""

POWER = 0.9
"""How the learning rate falls: linearly, but for this exponent, as nnU-Net has it."""

PAPER: dict[str, Any] = {
    "method": "crac",
    "dice_weight": 0.0,
    "backbone": "unet",
    "deep_supervision": False,
    "augment": "none",
    "learning_rate": 1e-3,
    "schedule": "step",
    "clip_norm": 0.0,
    "foreground": 0.0,
    "batch_size": 16,
    "precision": "fp32",
    "channels_last": False,
}
"""Where the paper's recipe differs from the practical one, whose values are the defaults of the fields."""


class TrainConfig(Strict):
    """Settings of a training; what is not given is decided by the recipe.

    The practical recipe trains with cross-entropy and Dice: with augmentation no penalty on logits was better (see the
    trials in docs/augmented), and what Dice does to the probabilities is repaired afterwards by ``crac calibrate``.
    """

    data: Path = Field(description="prepared store (crac prepare)")
    recipe: Literal["practical", "paper"] = Field(
        "practical", description="decides what is not given: what works in practice, or what the paper did"
    )
    method: str = Field("ce", description=f"loss, one of {', '.join(METHODS)}")
    method_options: dict[str, Any] = Field(default_factory=dict, description="keywords of the loss, e.g. alpha=0.2")
    dice_weight: Weight = Field(1.0, description="weight of a soft Dice loss beside the method's")
    backbone: str = Field("nnunet", description=f"network, one of {', '.join(BACKBONES)}")
    width: Positive = Field(32, description="filters of the network's first level")
    deep_supervision: bool = Field(True, description="let the coarser levels of the network learn from the labels too")
    dims: Literal[2, 3] | None = Field(
        None, description="2 for slices, 3 for patches of volumes; by default what the store is meant for"
    )
    patch_size: tuple[Positive, ...] | None = Field(
        None,
        description="sides of random patches, one number a dimension; by default whole slices, and of volumes what "
        "suits their median size and the memory (paper: whole volumes)",
    )
    patches: Positive | None = Field(
        None, description="random patches of each slice or volume in an epoch; by default as many as fill a volume"
    )
    strides: tuple[tuple[Positive, ...], ...] | None = Field(
        None,
        description="how much each way down of nnunet shrinks, as 1,2,2 2,2,2; by default what suits the patch "
        "(paper, 2-D: every side is halved five times)",
    )
    foreground: Share = Field(0.33, description="share of the images of an epoch that are sure to show foreground")
    epochs: Positive = Field(100, description="passes over the training set, each with validation and the outer step")
    batch_size: Positive | None = Field(
        None,
        description="images of one step, over all devices together; by default 16, of volumes what fits into memory",
    )
    memory: Rate | None = Field(
        None, description="GiB that a step may need, which decides what patch and batch are where they are not given"
    )
    learning_rate: Rate = Field(3e-3, description="learning rate of Adam")
    schedule: Literal["poly", "step"] = Field(
        "poly", description="poly: the learning rate rises, then falls to 0; step: a second rate in the later part"
    )
    warm_up: Share = Field(0.02, description="poly: how long the rate rises, as a share of the epochs")
    late_learning_rate: Rate = Field(1e-4, description="step: learning rate of the later part of the training")
    late_from: Share = Field(0.5, description="step: where the later part begins, as a share of the epochs")
    clip_norm: Weight = Field(12.0, description="longest gradient; a longer one is shortened; 0 for no such limit")
    seed: Annotated[int, Field(ge=0, lt=2**31)] = Field(0, description="seed of the weights and of every random draw")
    split: Path | None = Field(None, description="split file; by default a split is drawn with the split seed")
    split_seed: Annotated[int, Field(ge=0)] = Field(0, description="seed of the 70/10/20 split by patient")
    augment: Literal["none", "light", "strong"] = Field(
        "light", description="how much training images are turned, scaled and changed in intensity"
    )
    mirror: bool = Field(False, description="mirror training images as well; not where left and right are classes")
    precision: Literal["fp32", "tf32", "bf16", "fp16"] | None = Field(
        None,
        description="tf32 uses fast matrix units, bf16 and fp16 are mixed precision, fp16 with loss scaling; by "
        "default bf16 on a GPU that has it, else fp32 (paper: fp32)",
    )
    channels_last: bool = Field(True, description="channels innermost in memory, which GPUs prefer; not on the CPU")
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

    @model_validator(mode="before")
    @classmethod
    def _old_words(cls, settings: Any) -> Any:
        """``augment: true`` of version 0.1.0 mirrored and changed images lightly."""
        if isinstance(settings, dict) and isinstance(settings.get("augment"), bool):
            augmented = settings["augment"]
            return {"mirror": augmented, **settings, "augment": "light" if augmented else "none"}
        return settings

    @field_validator("strides", mode="before")
    @classmethod
    def _by_level(cls, value: Any) -> Any:
        """On the command line a level is numbers with commas between them."""
        if not isinstance(value, list):
            return value
        return [level.split(",") if isinstance(level, str) else level for level in value]

    @model_validator(mode="after")
    def _fill_in(self) -> Self:
        for name, value in PAPER.items() if self.recipe == "paper" else ():
            if name not in self.model_fields_set:
                self.__dict__[name] = value  # as a default, not as a setting that was given
        return self

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

    @classmethod
    def written(cls, settings: Mapping[str, Any], source: str = "settings") -> Self:
        """Return settings that a training wrote down; version 0.1.0 knew the paper's recipe only, and named none."""
        return cls.make({"recipe": "paper", **settings}, source)

    def absolute(self) -> Self:
        """Return the settings with whole paths, for a run may be resumed from anywhere."""
        return self.model_copy(update={"data": self.data.absolute(), "init": self.init and self.init.absolute()})

    def dump(self) -> str:
        """Return the settings as YAML, every one of them named."""
        return yaml.safe_dump(self.model_dump(mode="json"), sort_keys=False, allow_unicode=True)

    def rate(self, epochs: float) -> float:
        """Return the learning rate after so many epochs, which may be a fraction."""
        if self.schedule == "step":
            return self.learning_rate if int(epochs) < self.late_from * self.epochs else self.late_learning_rate
        done = epochs / self.epochs
        rise = max(done / self.warm_up, 0.01) if done < self.warm_up else 1.0
        return float(self.learning_rate * rise * (1 - done) ** POWER)


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
