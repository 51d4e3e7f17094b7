"""The Lightning callback: once an epoch, from the batches validated, in every checkpoint, over all ranks."""

import copy
import os
import subprocess
import sys
from pathlib import Path

import lightning.pytorch as pl
import pytest
import torch
from lightning.pytorch.callbacks import EMAWeightAveraging, ModelCheckpoint
from torch.utils.data import DataLoader, TensorDataset

import crac
from crac.errors import InputError
from crac.integrations.lightning import CalibrationCallback, MultiplierCallback


class Segmenter(pl.LightningModule):
    def __init__(self, loss: torch.nn.Module | None = None) -> None:
        super().__init__()
        self.network = torch.nn.Conv2d(1, 3, 3, padding=1)
        self.loss = crac.CRaCLoss(num_classes=3) if loss is None else loss

    def training_step(self, batch, _):
        return self.loss(self.network(batch[0]), batch[1])

    def validation_step(self, batch, _):
        self.log("val_loss", self.loss(self.network(batch[0]), labels=batch[1]))

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=0.01)


def batches(shuffle: bool = False) -> DataLoader:
    generator = torch.Generator().manual_seed(1)
    images = torch.randn(8, 1, 16, 16, generator=generator)
    labels = torch.randint(3, (8, 4, 4), generator=generator).repeat_interleave(4, 1).repeat_interleave(4, 2)
    return DataLoader(TensorDataset(images, labels), batch_size=2, shuffle=shuffle)


def trainer(folder: Path, epochs: int, *callbacks: pl.Callback, **options) -> pl.Trainer:
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    return pl.Trainer(
        max_epochs=epochs,
        accelerator="cpu",
        default_root_dir=folder,
        callbacks=[MultiplierCallback(), *callbacks],
        **(quiet | options),
    )


class Spy(pl.Callback):
    """Multipliers when each epoch ends, and what the plain loop would have made of the same network."""

    def __init__(self) -> None:
        self.lambdas, self.expected = [], []

    def on_validation_epoch_start(self, trainer, pl_module):
        plain = crac.CRaCLoss(num_classes=3)
        plain.load_state_dict(pl_module.loss.state_dict())
        for images, labels in batches():
            plain.observe(pl_module.network(images), labels)
        plain.update_multipliers()
        self.expected.append(plain.lambda_.clone())

    def on_validation_end(self, trainer, pl_module):
        self.lambdas.append(pl_module.loss.lambda_.clone())


def test_the_outer_step_is_that_of_the_plain_loop(tmp_path: Path) -> None:
    module, spy = Segmenter(), Spy()
    trainer(tmp_path, 3, spy, num_sanity_val_steps=0, enable_checkpointing=False).fit(module, batches(True), batches())
    assert int(module.loss.steps) == 3
    for observed, expected in zip(spy.lambdas, spy.expected, strict=True):
        torch.testing.assert_close(observed, expected)
    assert not module.loss._forward_hooks


def test_sanity_check_and_validate_change_nothing(tmp_path: Path) -> None:
    module = Segmenter()
    engine = trainer(tmp_path, 1, enable_checkpointing=False)
    engine.fit(module, batches(), batches())
    assert int(module.loss.steps) == 1
    before = module.loss.lambda_.clone()
    engine.validate(module, batches(), verbose=False)
    assert torch.equal(module.loss.lambda_, before)
    assert int(module.loss.steps) == 1


def test_checkpoints_hold_the_updated_multipliers(tmp_path: Path) -> None:
    module, spy = Segmenter(), Spy()
    saver = ModelCheckpoint(tmp_path, filename="{epoch}", save_top_k=-1)
    trainer(tmp_path, 2, spy, saver).fit(module, batches(), batches())
    # The sanity check is the first of the spy's three validations.
    for epoch, expected in enumerate(spy.lambdas[1:]):
        saved = torch.load(tmp_path / f"epoch={epoch}.ckpt", weights_only=True)["state_dict"]
        assert torch.equal(saved["loss.lambda_"], expected)
        assert int(saved["loss.steps"]) == epoch + 1


def test_resuming_equals_never_having_stopped(tmp_path: Path) -> None:
    def start() -> Segmenter:
        torch.manual_seed(3)
        return Segmenter()

    straight = start()
    trainer(tmp_path / "a", 3).fit(straight, batches(), batches())
    first = start()
    trainer(tmp_path / "b", 1, ModelCheckpoint(tmp_path, filename="one")).fit(first, batches(), batches())
    resumed = Segmenter()
    trainer(tmp_path / "b", 3).fit(resumed, batches(), batches(), ckpt_path=tmp_path / "one.ckpt")
    torch.testing.assert_close(resumed.state_dict(), straight.state_dict())


def test_averaged_weights_are_observed_with_the_multipliers_of_the_training(tmp_path: Path) -> None:
    """While it validates, the averaged module stands in the place of the module, multipliers included."""

    class Averaged(Segmenter):
        def validation_step(self, batch, number):
            super().validation_step(batch, number)
            with torch.no_grad():
                expected[-1].observe(self.network(batch[0]), batch[1])

    class Copy(pl.Callback):
        def on_validation_start(self, trainer, pl_module):
            expected.append(copy.deepcopy(pl_module.loss))

    module, spy, expected = Averaged(crac.CRaCLoss(num_classes=3, rho_every=1)), Spy(), []
    callbacks = Copy(), EMAWeightAveraging(decay=0.5), spy
    trainer(tmp_path, 3, *callbacks, num_sanity_val_steps=0, enable_checkpointing=False).fit(
        module, batches(True), batches()
    )
    for found, loss in zip(spy.lambdas, expected, strict=True):
        loss.update_multipliers()
        torch.testing.assert_close(found, loss.lambda_)


@pytest.mark.parametrize("what", ["module", "loss"])
def test_a_compiled_module_is_observed(what: str, tmp_path: Path) -> None:
    """The sanity check compiles before the training begins."""
    module, spy = Segmenter(), Spy()
    compiled = torch.compile(module, backend="eager") if what == "module" else module
    if what == "loss":
        module.loss.compile(backend="eager")
    trainer(tmp_path, 2, spy, enable_checkpointing=False).fit(compiled, batches(True), batches())
    assert int(module.loss.steps) == 2
    torch.testing.assert_close(spy.lambdas[1:], spy.expected[1:])


def test_deep_supervision_is_observed_at_full_resolution(tmp_path: Path) -> None:
    class Deep(Segmenter):
        def _outputs(self, images):
            logits = self.network(images)
            return [logits, torch.nn.functional.avg_pool2d(logits, 2)]

        def training_step(self, batch, _):
            return self.loss(self._outputs(batch[0]), batch[1])

        def validation_step(self, batch, _):
            self.log("val_loss", self.loss(self._outputs(batch[0]), batch[1]))

    module = Deep(crac.DeepSupervision(crac.CRaCLoss(num_classes=3)))
    plain = crac.CRaCLoss(num_classes=3)
    trainer(tmp_path, 1, num_sanity_val_steps=0, enable_checkpointing=False).fit(module, batches(), batches())
    with torch.no_grad():
        for images, labels in batches():
            plain.observe(module.network(images), labels)
    plain.update_multipliers()
    torch.testing.assert_close(module.loss.loss.lambda_, plain.lambda_)


def test_a_module_without_multipliers_is_told_so(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="found no loss with multipliers in Segmenter"):
        trainer(tmp_path, 1).fit(Segmenter(torch.nn.CrossEntropyLoss()), batches(), batches())


def test_a_fit_without_validation_is_told_so(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="learns from validation batches and there are none"):
        trainer(tmp_path, 1).fit(Segmenter(), batches())


def test_a_validation_step_that_never_calls_the_loss_is_told_so(tmp_path: Path) -> None:
    class Silent(Segmenter):
        def validation_step(self, batch, _):
            self.network(batch[0])

    module = Silent()
    with pytest.raises(InputError, match="validation_step of Silent"):
        trainer(tmp_path, 1).fit(module, batches(), batches())
    assert not module.loss._forward_hooks


def test_ranks_agree_with_one_process_that_saw_all_batches(tmp_path: Path) -> None:
    script = tmp_path / "ranks.py"
    script.write_text(
        "import sys, torch\n"
        "from pathlib import Path\n"
        "from test_lightning import Segmenter, batches, trainer\n"
        "torch.manual_seed(3)\n"
        "module, ranks = Segmenter(), int(sys.argv[1])\n"
        "options = dict(strategy='ddp', devices=ranks) if ranks > 1 else dict(devices=1)\n"
        "module.configure_optimizers = lambda: torch.optim.SGD(module.parameters(), lr=0)\n"
        "fit = trainer(Path('.'), 2, enable_checkpointing=False, **options)\n"
        "fit.fit(module, batches(), batches())\n"
        "torch.save(module.loss.state_dict(), f'{ranks}_{fit.global_rank}.pt')\n"
        "if ranks > 1: torch.distributed.destroy_process_group()\n"  # its threads may abort a process that ends
    )
    paths = [str(Path(__file__).parent), str(Path(crac.__file__).parents[1])]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"}
    for ranks in ("1", "2"):
        command = [sys.executable, str(script), ranks]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
    alone, first, second = (torch.load(tmp_path / f"{name}.pt") for name in ("1_0", "2_0", "2_1"))
    torch.testing.assert_close(first, alone)
    torch.testing.assert_close(first, second, rtol=0, atol=0)
    assert int(first["steps"]) == 2


class Forwarding(Segmenter):
    def forward(self, images):
        return self.network(images)

    def validation_step(self, batch, number, dataloader_idx=0):
        super().validation_step(batch, number)


def test_a_calibrator_is_fitted_when_training_ends(tmp_path: Path) -> None:
    module, path = Forwarding(), tmp_path / "calibration.json"
    calibrate = CalibrationCallback(path, num_classes=3, mask="all", weight="volume")
    # A list of dataloaders, as Lightning allows.
    trainer(tmp_path, 2, calibrate, enable_checkpointing=False).fit(module, batches(True), [batches(), batches()])
    assert module.training
    module.eval()
    with torch.no_grad():
        pairs = [(module(images), labels) for images, labels in batches()]
    options = {"mask": "all", "weight": "volume"}
    expected = crac.build_calibrator("class_region", 3).fit(lambda: pairs + pairs, **options)
    found = crac.load_calibrator(path)
    torch.testing.assert_close(found.weights, expected.weights)
    assert found.fitted["batches"] == 8
    assert torch.equal(calibrate.calibrator.weights, found.weights)


def test_named_dataloaders_and_ones_that_no_epoch_has_used(tmp_path: Path) -> None:
    both, named = [batches(), batches()], {"a": batches(), "b": batches()}
    weights = []
    for number, (loaders, every) in enumerate([(both, 1), (named, 1), (both, 5)]):
        torch.manual_seed(0)
        path = tmp_path / f"{number}.json"
        own = pl.Trainer(
            max_epochs=2, accelerator="cpu", default_root_dir=tmp_path, logger=False, enable_progress_bar=False,
            enable_checkpointing=False, check_val_every_n_epoch=every, num_sanity_val_steps=0,
            callbacks=[CalibrationCallback(path, num_classes=3, mask="all", weight="volume")],
        )  # fmt: skip
        own.fit(Forwarding(), batches(), loaders)
        weights.append(crac.load_calibrator(path).weights)
    assert torch.equal(weights[0], weights[1])
    assert torch.equal(weights[0], weights[2])


def test_logits_of_any_module_and_no_file_after_a_dry_run(tmp_path: Path) -> None:
    path = tmp_path / "calibration.json"

    def predict(module, batch):
        return module.network(batch[0]), batch[1].unsqueeze(1)

    calibrate = CalibrationCallback(path, 3, "temperature", predict, mask="all")
    trainer(tmp_path, 1, calibrate, fast_dev_run=True).fit(Segmenter(), batches(), batches())
    assert not path.exists()
    trainer(tmp_path, 1, calibrate, enable_checkpointing=False).fit(Segmenter(), batches(), batches())
    assert crac.load_calibrator(path).fitted["voxels"] == 8 * 16 * 16


def test_without_validation_nothing_is_calibrated(tmp_path: Path) -> None:
    calibrate = CalibrationCallback(tmp_path / "c.json", num_classes=3)
    plain = pl.Trainer(max_epochs=1, accelerator="cpu", logger=False, callbacks=[calibrate], default_root_dir=tmp_path)
    with pytest.raises(InputError, match="CalibrationCallback fits on validation batches and there are none"):
        plain.fit(Segmenter(), batches())
    with pytest.raises(InputError, match="name must be one of identity, temperature"):
        CalibrationCallback(tmp_path / "c.json", 3, "platt")
