"""Trainers for the tests: a few iterations an epoch, and death after the first epoch on request."""

import os
import signal
from pathlib import Path

import torch

from crac.integrations.nnunet import trainer


class nnUNetTrainerCRaCTiny(trainer.nnUNetTrainerCRaC):  # noqa: N801
    def __init__(self, plans, configuration, fold, dataset_json, device=torch.device("cuda")):  # noqa: B008
        super().__init__(plans, configuration, fold, dataset_json, device)
        self.num_epochs = 3
        self.num_iterations_per_epoch = 2
        self.num_val_iterations_per_epoch = 2
        self.save_every = 1

    def on_train_start(self):
        super().on_train_start()
        torch.save(self.loss.calibration.state_dict(), Path(self.output_folder) / f"start_{self.current_epoch}.pt")

    def on_epoch_end(self):
        super().on_epoch_end()
        if os.environ.get("CRAC_TEST_KILL_AFTER") == str(self.current_epoch):
            os.kill(os.getpid(), signal.SIGKILL)


class nnUNetTrainerCRaCOtherNetwork(trainer.nnUNetTrainerCRaC):  # noqa: N801
    @staticmethod
    def build_network_architecture(plans_manager, configuration_manager, inputs, outputs, enable_deep_supervision=True):
        build = trainer.nnUNetTrainerCRaC.build_network_architecture
        return build(plans_manager, configuration_manager, inputs, outputs, enable_deep_supervision)
