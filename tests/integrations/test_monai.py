"""MONAI's target forms, deep supervision, engines, bundles and checkpoints."""

import copy
import itertools

import numpy as np
import pytest
import torch
from ignite.engine import Events
from monai.bundle import ConfigParser
from monai.data import DataLoader, Dataset, MetaTensor
from monai.engines import SupervisedEvaluator, SupervisedTrainer
from monai.handlers import CheckpointLoader, CheckpointSaver, IgniteMetricHandler, ValidationHandler, from_engine
from monai.losses import DeepSupervisionLoss
from monai.networks import one_hot
from monai.networks.nets import BasicUNet, DynUNet
from monai.transforms import Activationsd, AsDiscreted
from torch import Tensor

import crac
from crac.errors import InputError
from crac.integrations.monai import ApplyCalibrationd, CalibrationMetric, MonaiLoss, MultiplierHandler

METHODS = sorted(set(crac.METHODS) - {"bwcr"})


def batch(spatial: tuple[int, ...], classes: int = 4) -> tuple[Tensor, Tensor]:
    labels = torch.randint(classes, (2, 1, *(size // 4 for size in spatial)))
    for axis in range(2, labels.ndim):
        labels = labels.repeat_interleave(4, axis)
    return 3 * torch.randn(2, classes, *spatial), labels


def forms(labels: Tensor, classes: int) -> dict[str, Tensor]:
    return {
        "B1 integers": labels,
        "B1 floats": labels.float(),
        "B integers": labels[:, 0],
        "B floats": labels[:, 0].float(),
        "bytes": labels.to(torch.uint8),
        "two bytes": labels.to(torch.uint16),
        "two bytes without a channel": labels[:, 0].to(torch.uint16),
        "one-hot": one_hot(labels, classes),
        "one-hot integers": one_hot(labels, classes).long(),
        "one-hot two bytes": one_hot(labels, classes).to(torch.uint16),
        "one-hot booleans": one_hot(labels, classes).bool(),
        "meta": MetaTensor(labels.float()),
        "meta one-hot": MetaTensor(one_hot(labels, classes)),
    }


@pytest.mark.parametrize("spatial", [(16, 24), (8, 12, 16)], ids=["2-D", "3-D"])
@pytest.mark.parametrize("method", METHODS)
def test_every_target_form_gives_the_plain_value(method: str, spatial: tuple[int, ...]) -> None:
    logits, labels = batch(spatial)
    loss = crac.build_loss(method, num_classes=4)
    expected = loss(logits, labels)
    for name, target in forms(labels, 4).items():
        value = MonaiLoss(loss)(logits, target)
        assert torch.equal(value, expected), name
        assert type(value) is Tensor, name


def test_every_target_form_gives_the_plain_multipliers() -> None:
    logits, labels = batch((16, 24))
    plain = crac.CRaCLoss(4)
    plain.observe(logits, labels)
    plain.update_multipliers()
    for name, target in forms(labels, 4).items():
        loss = MonaiLoss(crac.CRaCLoss(4))
        loss.observe(MetaTensor(logits), target)
        loss.update_multipliers()
        assert torch.equal(loss.loss.lambda_, plain.lambda_), name


def test_two_classes_two_channels_is_one_hot() -> None:
    logits, labels = batch((16, 16), classes=2)
    loss = crac.CRaCLoss(2)
    assert torch.equal(MonaiLoss(loss)(logits, one_hot(labels, 2)), loss(logits, labels))


def test_pixels_of_no_class_are_ignored_ones() -> None:
    logits, labels = batch((16, 16))
    target = one_hot(labels, 4)
    target[:, :, :4] = 0
    ignored = labels.clone()
    ignored[:, :, :4] = 255
    loss = crac.CRaCLoss(4, ignore_index=255)
    assert torch.equal(MonaiLoss(loss)(logits, target), loss(logits, ignored))
    with pytest.raises(InputError, match="one-hot"):
        MonaiLoss(crac.CRaCLoss(4))(logits, target)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda labels: labels + 0.5, "whole numbers; got"),
        (lambda labels: one_hot(labels, 4) * 0.9 + 0.025, "one-hot"),
        (lambda labels: one_hot(labels, 4) * 2, "one-hot"),
        (lambda labels: torch.ones(2, 4, 16, 16), "one-hot"),
        (lambda labels: labels + 9, "labels must lie in 0..3"),
        (lambda labels: labels.expand(2, 3, 16, 16), "labels must have shape"),
    ],
)
def test_bad_targets_are_named(change, sentence: str) -> None:
    logits, labels = batch((16, 16))
    with pytest.raises(InputError, match=sentence):
        MonaiLoss(crac.CRaCLoss(4))(logits, change(labels))


def test_only_losses_of_crac_are_wrapped() -> None:
    with pytest.raises(InputError, match="CrossEntropyLoss"):
        MonaiLoss(torch.nn.CrossEntropyLoss())
    with pytest.raises(InputError, match="MonaiLoss"):
        MultiplierHandler(crac.CRaCLoss(4))


def test_inside_deep_supervision_loss() -> None:
    logits, labels = batch((16, 16))
    coarse = torch.randn(2, 4, 8, 8)
    loss = crac.CRaCLoss(4, rho=1.0)
    target = labels.float()
    value = DeepSupervisionLoss(MonaiLoss(loss))([logits, coarse], target)
    small = torch.nn.functional.interpolate(target, size=(8, 8), mode="nearest-exact").long()
    torch.testing.assert_close(value, loss(logits, labels) + 0.5 * loss(coarse, small))


def test_crac_deep_supervision_takes_monai_targets() -> None:
    logits, labels = batch((16, 16))
    outputs = [logits, torch.randn(2, 4, 8, 8)]
    loss = crac.DeepSupervision(crac.CRaCLoss(4, rho=1.0))
    wrapped = MonaiLoss(loss)
    assert torch.equal(wrapped(outputs, one_hot(labels, 4)), loss(outputs, labels))
    wrapped.observe(logits, labels.float())  # eval mode: the finest output alone
    wrapped.update_multipliers()
    assert loss.loss.lambda_.min() > 1e-6


@pytest.mark.parametrize("spatial", [(32, 32), (32, 32, 32)], ids=["2-D", "3-D"])
@pytest.mark.parametrize("levels", [1, 3])
def test_outputs_stacked_by_a_network_of_monai(spatial: tuple[int, ...], levels: int) -> None:
    dimensions = len(spatial)
    network = DynUNet(
        dimensions,
        1,
        4,
        kernel_size=[3] * 5,
        strides=[1, 2, 2, 2, 2],
        upsample_kernel_size=[2] * 4,
        filters=[4] * 5,
        deep_supervision=True,
        deep_supr_num=levels,
    )
    _, labels = batch(spatial)
    plain = crac.DeepSupervision(crac.CRaCLoss(4, rho=1.0))
    with torch.no_grad():
        stacked = network(torch.randn(2, 1, *spatial))
        alone = network.eval()(torch.randn(2, 1, *spatial))
    assert stacked.shape == (2, levels + 1, 4, *spatial)
    for name, target in forms(labels, 4).items():
        loss = MonaiLoss(crac.DeepSupervision(crac.CRaCLoss(4, rho=1.0)))
        for outputs, expected in ((stacked, list(stacked.unbind(1))), (MetaTensor(alone), alone)):
            assert torch.equal(loss(outputs, target), plain(expected, labels)), name
        observed, kept = loss.loss, copy.deepcopy(plain)
        loss.observe(stacked, target)
        kept.observe(stacked[:, 0], labels)
        for each in (observed, kept):
            each.update_multipliers()
        assert torch.equal(observed.loss.lambda_, kept.loss.lambda_), name


@pytest.mark.parametrize("spatial", [(16, 24), (8, 12, 16)], ids=["2-D", "3-D"])
@pytest.mark.parametrize("name", ["ece", "tace", "cece", "nll", "brier", "gap"])
def test_metric_is_the_meter_for_every_target_form(name: str, spatial: tuple[int, ...]) -> None:
    logits, labels = batch(spatial)
    meter = crac.CalibrationMeter(4)
    meter.update(logits=logits, labels=labels)
    expected = getattr(meter.compute(), name)
    for form, target in forms(labels, 4).items():
        metric = CalibrationMetric(4, name, softmax=True)
        assert metric(y_pred=logits, y=target).shape == (2, 1), form
        assert metric.aggregate().item() == pytest.approx(expected, abs=1e-12), form


def test_metric_takes_probabilities_lists_and_many_calls() -> None:
    logits, labels = batch((16, 24))
    whole, parts = CalibrationMetric(4, mask="all"), CalibrationMetric(4, mask="all")
    probabilities = logits.softmax(1)
    whole(probabilities, labels)
    for image, label in zip(probabilities, labels, strict=True):
        parts([image], [label])  # decollated, as in an evaluator
    assert parts.aggregate().item() == pytest.approx(whole.aggregate().item(), abs=1e-12)
    assert torch.equal(parts.get_buffer(), whole.get_buffer())
    assert parts.result().by_class[2].labelled == (labels == 2).sum()
    parts.reset()
    assert parts.get_buffer() is None
    assert parts.aggregate().isnan()


def test_metric_values_stay_on_the_device_of_the_scores(device: str) -> None:
    """Under NCCL, ranks can only gather what is on their GPUs."""
    logits, labels = batch((16, 24))
    values = CalibrationMetric(4, softmax=True)(logits.to(device), labels.to(device))
    assert values.device.type == device


def test_metric_mean_leaves_out_images_without_voxels() -> None:
    logits, labels = batch((16, 24))
    labels[1] = 0
    meter = crac.CalibrationMeter(4)
    meter.update(logits=logits[:1], labels=labels[:1])
    metric = CalibrationMetric(4, softmax=True, reduction="mean")
    values = metric(logits, labels)
    assert values[1].isnan()
    assert metric.aggregate().item() == pytest.approx(meter.compute().ece)


def test_metric_names_what_it_does_not_know() -> None:
    with pytest.raises(InputError, match="metric must be one of ece, "):
        CalibrationMetric(4, "dice")
    with pytest.raises(InputError, match="reduction must be one of pooled, mean"):
        CalibrationMetric(4, reduction="sum")


def test_metric_in_an_evaluator() -> None:
    network = BasicUNet(spatial_dims=2, in_channels=1, out_channels=3, features=(4, 4, 4, 4, 4, 4)).eval()
    evaluator = SupervisedEvaluator(
        device="cpu",
        val_data_loader=loader(1),
        network=network,
        postprocessing=Activationsd(keys="pred", softmax=True),
        key_val_metric={
            "ece": IgniteMetricHandler(CalibrationMetric(3), output_transform=from_engine(["pred", "label"]))
        },
    )
    evaluator.run()
    meter = crac.CalibrationMeter(3)
    with torch.no_grad():
        for item in loader(1):
            meter.update(logits=network(item["image"]), labels=item["label"].long())
    assert evaluator.state.metrics["ece"] == pytest.approx(meter.compute().ece, abs=1e-7)
    assert evaluator.state.metric_details["ece"].shape == (4, 1)


def test_bundle_config() -> None:
    parser = ConfigParser(
        {
            "loss": {
                "_target_": "crac.integrations.monai.MonaiLoss",
                "loss": {"_target_": "crac.CRaCLoss", "num_classes": 4, "preset": "paper"},
            },
            "handler": {"_target_": "crac.integrations.monai.MultiplierHandler", "loss": "@loss"},
            "metric": {"_target_": "crac.integrations.monai.CalibrationMetric", "num_classes": 4, "metric": "tace"},
            "other": {
                "_target_": "crac.integrations.monai.MonaiLoss",
                "loss": {"_target_": "crac.build_loss", "name": "nacl", "num_classes": 4, "alpha": 0.2},
            },
        }
    )
    loss = parser.get_parsed_content("loss")
    assert parser.get_parsed_content("handler").loss is loss
    assert loss.loss.preset == "paper"
    assert parser.get_parsed_content("metric").metric == "tace"
    assert parser.get_parsed_content("other").loss.alpha == 0.2


def loader(channels: int) -> DataLoader:
    """Squares on noise, as dictionaries of images and labels the way MONAI's transforms leave them."""
    items, noise = [], torch.Generator().manual_seed(0)
    for index in range(4):
        label = torch.zeros(1, 32, 32)
        label[:, 4 : 8 + index, 4:12] = 1 + index % 2
        label = label if channels == 1 else one_hot(label[None], channels)[0]
        items.append({"image": torch.randn(1, 32, 32, generator=noise), "label": label})
    return DataLoader(Dataset(items), batch_size=2)


def engines(loss: MonaiLoss, channels: int = 1, epochs: int = 3, **handlers):
    network = BasicUNet(spatial_dims=2, in_channels=1, out_channels=3, features=(4, 4, 4, 4, 4, 4))
    evaluator = SupervisedEvaluator(
        device="cpu",
        val_data_loader=loader(channels),
        network=network,
        # Post-processing would hide the logits from a handler that looks too late.
        postprocessing=AsDiscreted(keys="pred", argmax=True),
        val_handlers=[MultiplierHandler(loss)],
    )
    trainer = SupervisedTrainer(
        device="cpu",
        max_epochs=epochs,
        train_data_loader=loader(channels),
        network=network,
        optimizer=torch.optim.Adam(network.parameters()),
        loss_function=loss,
        train_handlers=[ValidationHandler(1, evaluator), *handlers.get("train", lambda _: [])(network)],
    )
    return trainer, evaluator, network


@pytest.mark.parametrize("channels", [1, 3], ids=["B1HW", "one-hot"])
def test_supervised_trainer_updates_once_an_epoch(channels: int) -> None:
    loss = MonaiLoss(crac.CRaCLoss(3))
    trainer, _, _ = engines(loss, channels)
    history = [loss.loss.lambda_.clone()]
    steps = []
    trainer.add_event_handler(Events.EPOCH_COMPLETED, lambda _: history.append(loss.loss.lambda_.clone()))
    trainer.add_event_handler(Events.EPOCH_COMPLETED, lambda _: steps.append(int(loss.loss.steps)))
    trainer.run()
    assert steps == [1, 2, 3]
    for before, after in itertools.pairwise(history):
        assert (after > before).all()


def test_handler_takes_the_outer_step_of_the_plain_loop() -> None:
    loss, plain = MonaiLoss(crac.CRaCLoss(3)), crac.CRaCLoss(3)
    _, evaluator, network = engines(loss)
    network.eval()
    with torch.no_grad():
        for item in loader(1):
            plain.observe(network(item["image"]), item["label"].long())
    plain.update_multipliers()
    evaluator.run()
    assert torch.equal(loss.loss.lambda_, plain.lambda_)


def test_checkpoints_hold_the_multipliers(tmp_path) -> None:
    loss = MonaiLoss(crac.CRaCLoss(3))

    def saver(network: torch.nn.Module) -> list[CheckpointSaver]:
        return [CheckpointSaver(str(tmp_path), {"network": network, "loss": loss}, save_final=True)]

    trainer, _, _ = engines(loss, train=saver)
    trainer.run()
    resumed = MonaiLoss(crac.CRaCLoss(3))

    def restore(network: torch.nn.Module) -> list[CheckpointLoader]:
        path = next(tmp_path.glob("*.pt"))
        return [CheckpointLoader(str(path), {"network": network, "loss": resumed})]

    trainer, _, _ = engines(resumed, epochs=1, train=restore)
    seen = []
    trainer.add_event_handler(Events.EPOCH_STARTED, lambda _: seen.append(resumed.loss.lambda_.clone()))
    trainer.run()
    assert torch.equal(seen[0], loss.loss.lambda_)
    assert int(resumed.loss.steps) == 4


@pytest.mark.parametrize("spatial", [(12, 10), (12, 10, 6)])
@pytest.mark.parametrize("regions", ["volume", "slice"])
def test_calibration_as_a_transform(spatial: tuple[int, ...], regions: str, tmp_path) -> None:
    calibrator = crac.build_calibrator("class_region", 3, regions=regions)
    calibrator.weights[:, 0] = 1 / torch.linspace(1, 4, 6)
    calibrator.save(tmp_path / "calibration.json")
    logits = torch.nn.functional.interpolate(torch.randn(1, 3, *[3] * len(spatial)), size=spatial)[0]
    volume = logits.movedim(-1, 0).movedim(0, 1) if len(spatial) == 3 and regions == "slice" else logits
    expected = calibrator(volume[None])[0]  # slices follow each other along the last axis
    if volume is not logits:
        expected = expected.movedim(1, -1)
    affine = torch.diag(torch.tensor([2.0, 3, 4, 1]))
    for given in (logits, logits.numpy()[:, ::-1], MetaTensor(logits, affine=affine)):
        right = expected.flip(1) if isinstance(given, np.ndarray) else expected
        for source in (calibrator, str(tmp_path / "calibration.json")):
            data = {"pred": given, "other": 1}
            found = ApplyCalibrationd("pred", source)(data)
            torch.testing.assert_close(torch.as_tensor(found["pred"]).as_subclass(Tensor), right)
            assert type(found["pred"]) is (MetaTensor if isinstance(given, MetaTensor) else Tensor)
            assert found["other"] == 1
            assert data["pred"] is given
    assert torch.equal(found["pred"].affine, affine.double())
    probabilities = ApplyCalibrationd("pred", calibrator, from_probabilities=True)({"pred": logits.softmax(0)})["pred"]
    torch.testing.assert_close(probabilities, expected, rtol=1e-4, atol=1e-5)


def test_the_transform_says_what_it_cannot_take() -> None:
    with pytest.raises(InputError, match="calibrator must be one of crac or its file; got int"):
        ApplyCalibrationd("pred", 3)
    transform = ApplyCalibrationd(["pred", "more"], crac.build_calibrator("temperature", 3))
    with pytest.raises(KeyError):
        transform({"pred": torch.zeros(3, 4, 4)})
    with pytest.raises(InputError, match=r"logits must be floating point of shape \(B, 3, \*S\)"):
        transform({"pred": torch.zeros(2, 4, 4), "more": torch.zeros(3, 4, 4)})
    lenient = ApplyCalibrationd("pred", crac.build_calibrator("temperature", 3), allow_missing_keys=True)
    assert lenient({"image": 1}) == {"image": 1}
