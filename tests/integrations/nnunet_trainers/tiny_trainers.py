"""Trainers for the tests: a few iterations an epoch, and one that dies after its first epoch."""

import os
import signal

import torch

from crac.integrations.nnunet import trainer


class nnUNetTrainerCRaCTiny(trainer.nnUNetTrainerCRaC):  # noqa: N801
    def __init__(self, plans, configuration, fold, dataset_json, device=torch.device("cuda")):  # noqa: B008
        super().__init__(plans, configuration, fold, dataset_json, device)
        self.num_epochs = 3
        self.num_iterations_per_epoch = 3
        self.num_val_iterations_per_epoch = 2
        self.save_every = 1

    def on_epoch_end(self):
        super().on_epoch_end()
        if os.environ.get("CRAC_TEST_KILL") == str(self.current_epoch):
            os.kill(os.getpid(), signal.SIGKILL)
