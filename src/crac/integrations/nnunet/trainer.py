"""nnU-Net trainers: its cross-entropy and Dice, our penalty, multipliers that survive ``--c``."""

from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import nn

from crac.errors import InputError, require
from crac.files import replacing
from crac.integrations.nnunet.loss import CalibratedLoss, Fit
from crac.integrations.nnunet.progress import add_panel
from crac.losses import build_loss

require("nnunetv2")
from nnunetv2.training.loss.deep_supervision import DeepSupervisionWrapper  # noqa: E402
from nnunetv2.training.nnUNetTrainer.nnUNetTrainer import nnUNetTrainer  # noqa: E402


class _CalibratedTrainer(nnUNetTrainer):  # type: ignore[misc]
    """nnU-Net's trainer with a method of ``crac`` in its loss.

    To change a constant, subclass a trainer in a folder of your own that is on ``nnUNet_extTrainer``::

        from crac.integrations.nnunet.trainer import nnUNetTrainerCRaC


        class nnUNetTrainerCRaCPaper(nnUNetTrainerCRaC):
            options = {"preset": "paper"}
    """

    method: ClassVar[str]
    options: ClassVar[dict[str, Any]] = {}

    def _build_loss(self) -> nn.Module:
        if self.label_manager.has_regions:
            raise InputError(
                f"{type(self).__name__} needs one label per voxel; the labels of "
                f"{self.plans_manager.dataset_name} are overlapping regions, which nnUNetTrainer can train"
            )
        loss = super()._build_loss()
        heads, ignored = self.label_manager.num_segmentation_heads, self.label_manager.ignore_label
        calibration = build_loss(self.method, heads, ignore_index=ignored, **self.options)
        deep = isinstance(loss, DeepSupervisionWrapper)
        self._adapt(loss.loss if deep else loss, calibration)
        return CalibratedLoss(loss, calibration, loss.weight_factors[0] if deep else 1.0).to(self.device)

    def _adapt(self, loss: nn.Module, calibration: nn.Module) -> None:
        """Change nnU-Net's ``DC_and_CE_loss``, for methods that replace a part of it rather than add to it."""

    def on_validation_epoch_start(self) -> None:
        super().on_validation_epoch_start()
        self.loss.eval()

    def on_validation_epoch_end(self, val_outputs: list[dict[str, Any]]) -> None:
        super().on_validation_epoch_end(val_outputs)
        self.loss.train()
        self.loss.calibration.update_multipliers()
        for name, regions in self._multipliers().items():
            for region, values in regions.items():
                self.print_to_log_file(f"{name} {region}", [float(f"{value:.4g}") for value in values])
                for label, value in zip(self._label_names(), values, strict=True):
                    key = f"{name}/{region}/{label}"
                    self.logger.get_checkpoint().setdefault(key, [])  # it only takes keys it has a list for
                    self.logger.log(key, value, self.current_epoch)

    def on_epoch_end(self) -> None:
        super().on_epoch_end()
        if self.local_rank == 0 and (found := self._multipliers()):
            curves = {
                (region, label): self.logger.get_value(f"lambda/{region}/{label}", step=None)
                for region in found["lambda"]
                for label in self._label_names()
            }
            add_panel(Path(self.output_folder) / "progress.png", curves)

    def save_checkpoint(self, filename: str) -> None:
        """Save the multipliers beside what nnU-Net saves, whole or not at all."""
        if self.local_rank != 0 or self.disable_checkpointing:
            super().save_checkpoint(filename)  # which writes nothing
            return
        with replacing(Path(filename)) as part:
            super().save_checkpoint(str(part))
            checkpoint = torch.load(part, map_location="cpu", weights_only=False)
            checkpoint["crac"] = {"trainer": type(self).__name__, "loss": self.loss.calibration.state_dict()}
            if type(self).build_network_architecture is nnUNetTrainer.build_network_architecture:
                # Only used to build the network for prediction, which people without crac can then do as well.
                checkpoint["trainer_name"] = nnUNetTrainer.__name__
            torch.save(checkpoint, part)

    def load_checkpoint(self, filename_or_checkpoint: str) -> None:
        super().load_checkpoint(filename_or_checkpoint)
        checkpoint = torch.load(filename_or_checkpoint, map_location=self.device, weights_only=False)
        if "crac" not in checkpoint:
            name = type(self).__name__
            raise InputError(f"{filename_or_checkpoint} was not written by {name}: it has no multipliers")
        self.loss.calibration.load_state_dict(checkpoint["crac"]["loss"])

    def _multipliers(self) -> dict[str, dict[str, list[float]]]:
        """Return name -> region -> one value per class; empty for methods without multipliers."""
        multipliers = self.loss.calibration.multipliers
        return {} if multipliers is None else multipliers.by_region()

    def _label_names(self) -> list[str]:
        labels = self.dataset_json["labels"]
        return sorted((name for name in labels if name != "ignore"), key=lambda name: int(labels[name]))


class nnUNetTrainerCRaC(_CalibratedTrainer):  # noqa: N801 (nnU-Net's way to name trainers)
    """CRaC; the outer step runs on nnU-Net's validation iterations, once an epoch."""

    method = "crac"
    # A training patch cuts through organs: what lies beyond its border is not background.
    options: ClassVar[dict[str, Any]] = {"border": "replicate"}


class nnUNetTrainerCRaCSigned(nnUNetTrainerCRaC):  # noqa: N801
    """CRaC as a divergence whose price follows the signed gap between confidence and accuracy."""

    options: ClassVar[dict[str, Any]] = {"preset": "signed"}


class nnUNetTrainerNACL(_CalibratedTrainer):  # noqa: N801
    """Neighbour-aware calibration: CRaC's penalty with one fixed weight."""

    method = "nacl"


class nnUNetTrainerMbLS(_CalibratedTrainer):  # noqa: N801
    """Margin-based label smoothing."""

    method = "mbls"


class nnUNetTrainerSVLS(_CalibratedTrainer):  # noqa: N801
    """Spatially varying label smoothing, in place of the cross-entropy; the Dice term keeps the labels."""

    method = "svls"

    def _adapt(self, loss: nn.Module, calibration: nn.Module) -> None:
        loss.ce = Fit(calibration)  # type: ignore[arg-type]


class nnUNetTrainerCE(_CalibratedTrainer):  # noqa: N801
    """Cross-entropy alone: the baseline, better calibrated than cross-entropy with Dice."""

    method = "ce"

    def _adapt(self, loss: nn.Module, calibration: nn.Module) -> None:
        loss.weight_dice = 0  # type: ignore[assignment]
