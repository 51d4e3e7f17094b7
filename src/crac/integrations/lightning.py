"""Lightning: a callback that takes the outer step after each validation, and one that calibrates at the end."""

import copy
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils.hooks import RemovableHandle

from crac.calibration import build_calibrator
from crac.errors import InputError, require
from crac.losses import SegmentationLoss

require("lightning")
from lightning.pytorch import Callback, LightningModule, Trainer  # noqa: E402
from lightning.pytorch.utilities import CombinedLoader  # noqa: E402


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
        self._copies: dict[SegmentationLoss, SegmentationLoss] = {}
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

        @torch.compiler.disable  # type: ignore[untyped-decorator]
        def observe(loss: SegmentationLoss, arguments: tuple[Any, ...], keywords: dict[str, Any], _: Any) -> None:
            if loss in self._copies:
                self._copies[loss].observe(*arguments, **keywords)

        # At once: a compiled module does not see hooks that come after its first call, which is in the sanity check.
        self._hooks = [loss.register_forward_hook(observe, with_kwargs=True) for loss in self._losses]

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Listen to the calls of the loss."""
        if _part_of_training(trainer):
            # Copies observe: callbacks that average weights swap other multipliers into the module until it ends.
            self._copies = {loss: copy.deepcopy(loss) for loss in self._losses}

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Take the outer step."""
        copies, self._copies = self._copies, {}
        for loss, observer in copies.items():
            assert loss.multipliers is not None
            assert observer.multipliers is not None
            loss.multipliers.observed = observer.multipliers.observed
            try:
                loss.update_multipliers()
            except InputError as error:
                step = f"validation_step of {type(pl_module).__name__}"
                raise InputError(f"{error}; the {step} must call the loss with finite logits") from error

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Leave no hook behind."""
        self._stop_listening()

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Leave no hook behind."""
        self._stop_listening()

    def _stop_listening(self) -> None:
        for hook in self._hooks:
            hook.remove()
        self._hooks, self._copies = [], {}


def predict_first(module: LightningModule, batch: Any) -> tuple[Tensor, Tensor]:
    """Logits and labels of a batch ``(images, labels, ...)``."""
    return module(batch[0]), batch[1]


class CalibrationCallback(Callback):  # type: ignore[misc]
    """Fits a calibrator on the validation batches when the training ends, and writes it to a file.

    It belongs to the weights the training ended with. On several devices each reads its share of the batches, all find
    the same calibrator, and one writes.

    Args:
        path: JSON file to write, for :func:`crac.load_calibrator`.
        num_classes: ``K``, the background included.
        method: One of :data:`crac.CALIBRATORS`.
        predict: Gives logits ``(B, K, *S)`` and labels of a batch; by default ``module(batch[0]), batch[1]``.
        **options: Of :meth:`crac.calibration.Calibrator.fit`: ``mask``, ``weight``, ``ignore_index``.

    Attributes:
        calibrator: Fitted once the training has ended.

    Example::

        from crac.integrations.lightning import CalibrationCallback

        trainer = Trainer(callbacks=[CalibrationCallback("calibration.json", num_classes=4)])
    """

    def __init__(
        self,
        path: str | Path,
        num_classes: int,
        method: str = "class_region",
        predict: Callable[[Any, Any], tuple[Tensor, Tensor]] = predict_first,
        **options: Any,
    ) -> None:
        self.path, self.predict, self.options = Path(path), predict, options
        self.calibrator = build_calibrator(method, num_classes)

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Stop a script without validation batches before it has trained for nothing."""
        if not trainer.enable_validation:
            raise InputError("CalibrationCallback fits on validation batches and there are none: give fit a dataloader")

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Fit and write."""
        if trainer.fast_dev_run:
            return
        training = pl_module.training
        pl_module.eval()
        try:
            self.calibrator.to(pl_module.device).fit(lambda: self._batches(trainer, pl_module), **self.options)
        finally:
            pl_module.train(training)
        if trainer.is_global_zero:
            self.calibrator.save(self.path)

    @torch.no_grad()
    def _batches(self, trainer: Trainer, module: LightningModule) -> Iterator[tuple[Tensor, Tensor]]:
        if trainer.val_dataloaders is None:  # no epoch has been validated
            trainer.fit_loop.epoch_loop.val_loop.setup_data()
        for loader in CombinedLoader(trainer.val_dataloaders).flattened:
            for batch in loader:
                with trainer.strategy.precision_plugin.val_step_context():
                    yield self.predict(module, trainer.strategy.batch_to_device(batch, module.device))


def _part_of_training(trainer: Trainer) -> bool:
    return trainer.state.fn == "fit" and not trainer.sanity_checking
