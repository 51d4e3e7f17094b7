"""Lightning: a callback that takes the outer step after each validation."""

from typing import Any

from torch.utils.hooks import RemovableHandle

from crac.errors import InputError, require
from crac.losses import SegmentationLoss

require("lightning")
from lightning.pytorch import Callback, LightningModule, Trainer  # noqa: E402


class MultiplierCallback(Callback):  # type: ignore[misc]
    """Observes validation batches and updates the multipliers at the end of each validation of ``fit``.

    The loss is found by itself: it must be an attribute of the ``LightningModule``, which also puts the multipliers
    into every checkpoint, moves them with the module and brings them back on resume. A batch is observed whenever
    ``validation_step`` calls the loss. The sanity check and ``trainer.validate`` change nothing. Multipliers are
    updated before ``ModelCheckpoint`` saves, and over all ranks.

    Example::

        from crac.integrations.lightning import MultiplierCallback

        trainer = Trainer(callbacks=[MultiplierCallback()])
    """

    def __init__(self) -> None:
        self._losses: list[SegmentationLoss] = []
        self._hooks: list[RemovableHandle] = []

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Find the losses; a script without one, or without validation, stops before it has trained for nothing."""
        losses = (module for module in pl_module.modules() if isinstance(module, SegmentationLoss))
        self._losses = [loss for loss in losses if loss.multipliers is not None]
        if not self._losses:
            raise InputError(
                f"MultiplierCallback found no loss with multipliers in {type(pl_module).__name__}; "
                "assign one in its __init__, e.g. self.loss = crac.CRaCLoss(num_classes=4)"
            )
        if not trainer.enable_validation:
            raise InputError(
                "MultiplierCallback learns from validation batches and there are none: give fit a validation "
                f"dataloader, and {type(pl_module).__name__} a validation_step"
            )

    def on_validation_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Listen to the calls of the loss."""
        if _part_of_training(trainer):
            self._hooks = [loss.register_forward_hook(_observe, with_kwargs=True) for loss in self._losses]

    def on_validation_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Take the outer step."""
        if _part_of_training(trainer):
            self._stop_listening()
            for loss in self._losses:
                try:
                    loss.update_multipliers()
                except InputError as error:
                    step = f"validation_step of {type(pl_module).__name__}"
                    raise InputError(f"{error}; the {step} must call the loss with finite logits") from error

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Leave no hook behind."""
        self._stop_listening()

    def _stop_listening(self) -> None:
        for hook in self._hooks:
            hook.remove()
        self._hooks = []


def _part_of_training(trainer: Trainer) -> bool:
    return trainer.state.fn == "fit" and not trainer.sanity_checking


def _observe(loss: Any, arguments: tuple[Any, ...], keywords: dict[str, Any], _: Any) -> None:
    loss.observe(*arguments, **keywords)
