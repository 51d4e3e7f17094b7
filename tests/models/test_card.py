"""What a checkpoint says about its model."""

from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest
import torch
from tests.data.layouts import write_nnunet

import crac
from crac.data import Batches, Store, prepare
from crac.data.grid import window
from crac.errors import InputError
from crac.models.card import ModelCard
from crac.models.checkpoint import Checkpoint
from crac.models.model import Model


def test_a_card_of_another_version_is_one_sentence(run: Path, tmp_path: Path) -> None:
    saved = Checkpoint.load(run / "best.safetensors")
    saved.info["model"]["recipe"]["future"] = 1
    saved.save(tmp_path / "new.safetensors")
    with pytest.raises(InputError, match=r"new\.safetensors does not say .*: unknown setting 'recipe.future'$"):
        crac.load(tmp_path / "new.safetensors")


def test_a_store_with_classes_or_channels_in_another_order_is_refused(tmp_path: Path) -> None:
    raw = write_nnunet(tmp_path / "raw", [(8, 8, 8)] * 3, channels={"0": "T1", "1": "T2"})
    store = prepare("nnunet", raw, tmp_path / "store")
    card = ModelCard.of(store, "nnunet", 2, 2, None)

    def changed(**names: tuple[str, ...]) -> Store:
        return Store(store.path, store.manifest.model_copy(update=names))

    card.check_store(store)
    card.check_store(changed(class_names=("background", "cube")))
    with pytest.raises(
        InputError, match="its classes in the order box, background, the checkpoint has background, box"
    ):
        card.check_store(changed(class_names=("box", "background")))
    with pytest.raises(InputError, match="its channels in the order T2, T1, the checkpoint has T1, T2"):
        card.check_store(changed(channel_names=("T2", "T1")))


@pytest.mark.parametrize("dims", [2, 3])
def test_small_images_are_padded_in_prediction_as_in_training(dims: Literal[2, 3], tmp_path: Path) -> None:
    raw = write_nnunet(tmp_path / "raw", [(40, 70, 33), (33, 40, 35), (30, 31, 34)])
    store = prepare("nnunet", raw, tmp_path / "store")
    torch.manual_seed(0)
    card = ModelCard.of(store, "nnunet", 2, dims, None, deep_supervision=True)
    network = card.build().eval()
    model = Model(network, card, torch.device("cpu"), batch_size=7)
    assert ModelCard.model_validate(card.model_dump(mode="json")) == card
    matters: list[bool] = []
    for batch in Batches(store, list(store.cases), 1 if dims == 3 else 500, dims, shuffle=False, multiple=8):
        assert batch.images.shape[2:] == card.least_size
        with torch.no_grad():
            expected = network(batch.images)
        for name in dict.fromkeys(batch.names):
            rows = [row for row, own in enumerate(batch.names) if own == name]
            image = torch.from_numpy(store.image(name).astype("float32"))
            got = model.logits(image).transpose(0, 1) if dims == 2 else model.logits(image).unsqueeze(0)
            inside = [window(*sides)[1] for sides in zip(image.shape[-dims:], batch.images.shape[2:], strict=True)]
            wanted = expected[(rows, slice(None), *inside)]
            torch.testing.assert_close(got, wanted, rtol=1e-3, atol=1e-4)
            bare = replace(model, network=card.model_copy(update={"least_size": None}).build().eval())
            bare.network.load_state_dict(network.state_dict())
            off = bare.logits(image).transpose(0, 1) if dims == 2 else bare.logits(image).unsqueeze(0)
            matters.append(bool((off - wanted).abs().max() > 0.01))
    assert any(matters)
