"""Files of calibrators: what is written is read back, and what is no calibrator is refused in one sentence."""

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import crac
from crac.errors import InputError


def fitted(name: str) -> crac.calibration.Calibrator:
    logits = torch.randn(2, 4, 20, 20)
    labels = torch.distributions.Categorical(logits=logits.movedim(1, -1) / 2).sample()
    return crac.build_calibrator(name, 4, radii=(1, 3), regions="slice").fit(lambda: [(logits, labels)])


@pytest.mark.parametrize("name", crac.CALIBRATORS)
def test_round_trip(name: str, tmp_path: Path) -> None:
    calibrator = fitted(name)
    calibrator.save(tmp_path / "calibration.json")
    again = crac.load_calibrator(str(tmp_path / "calibration.json"))
    assert type(again) is crac.CALIBRATORS[name]
    assert (again.num_classes, again.radii, again.regions) == (4, (1, 3), "slice")
    assert again.fitted == calibrator.fitted
    torch.testing.assert_close(again.weights, calibrator.weights, rtol=1e-12, atol=1e-12)
    logits = torch.randn(1, 4, 3, 9, 9)
    torch.testing.assert_close(again(logits), calibrator(logits), rtol=1e-12, atol=1e-12)
    assert [path.name for path in tmp_path.iterdir()] == ["calibration.json"]


def test_a_number_of_classes_that_numpy_counted(tmp_path: Path) -> None:
    crac.build_calibrator("class", np.int64(3)).save(tmp_path / "calibration.json")
    assert crac.load_calibrator(tmp_path / "calibration.json").num_classes == 3


def changed(**changes: Any) -> Any:
    def change(content: dict[str, Any]) -> Any:
        return {**content, **changes}

    return change


REFUSED = {
    "wrong class count": (changed(num_classes=5), r"weights must have shape \(15, 1\); got \(12, 1\)"),
    "one class": (changed(num_classes=1), "num_classes must be a whole number of at least 2 and of at most 65536"),
    "half a class": (changed(num_classes=2.5), "num_classes must be a whole number"),
    "NaN": (changed(weights=[[float("nan")]] * 12), "weights must be finite, and temperatures positive"),
    "infinite": (changed(weights=[[float("inf")]] * 12), "weights must be finite, and temperatures positive"),
    "negative": (changed(weights=[[1.0]] * 11 + [[-1.0]]), "weights must be finite, and temperatures positive"),
    "zero": (changed(weights=[[1.0]] * 11 + [[0]]), "weights must be finite, and temperatures positive"),
    "null": (changed(weights=[[None]] * 12), "."),
    "words": (changed(weights=[["one"]] * 12), "."),
    "ragged": (changed(weights=[[1.0], [1.0, 2.0]]), "."),
    "beyond double": (changed(weights=[[10**400]] * 12), "."),
    "newer": (changed(format=2), "it has format 2, this crac reads up to 1: upgrade crac"),
    "no format": (changed(format="one"), "format must be a whole number of at least 1; got 'one'"),
    "unknown": (changed(calibrator="platt"), "name must be one of identity, .*; got 'platt'"),
    "list for a name": (changed(calibrator=[]), "."),
    "unknown option": (changed(options={"colour": 1}), "option of 'class_region' must be one of radii, regions"),
    "wrong radii": (changed(options={"radii": [3, 1]}), "radii must be growing"),
    "no options": (changed(options=None), "."),
    "no record": (changed(fitted="well"), "."),
    "other JSON": (lambda content: {"name": "something else"}, "format is missing"),
    "half of it": (lambda content: {"format": 1}, "num_classes is missing"),
    "a list": (lambda content: [content], "it must hold a JSON object; got list"),
    "a number": (lambda content: 3, "it must hold a JSON object; got int"),
}


@pytest.mark.parametrize("defect", REFUSED)
def test_what_is_no_calibrator_is_refused(defect: str, tmp_path: Path) -> None:
    change, message = REFUSED[defect]
    path = tmp_path / "calibration.json"
    fitted("class_region").save(path)
    path.write_text(json.dumps(change(json.loads(path.read_text()))))
    with pytest.raises(InputError, match=f"calibration.json is not a calibrator: .*{message}") as caught:
        crac.load_calibrator(path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", [name for name, kind in crac.CALIBRATORS.items() if kind.keeps_labels])
def test_a_negative_temperature_is_refused_by_all_that_keep_labels(name: str, tmp_path: Path) -> None:
    calibrator = crac.build_calibrator(name, 3)
    calibrator.weights[-1, 0] = -0.5
    calibrator.save(tmp_path / "calibration.json")
    with pytest.raises(InputError, match="weights must be finite, and temperatures positive"):
        crac.load_calibrator(tmp_path / "calibration.json")


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    path = tmp_path / "calibration.json"
    with pytest.raises(InputError, match=r"calibration.json cannot be read as JSON: .*No such file"):
        crac.load_calibrator(path)
    fitted("class").save(path)
    path.write_text(path.read_text()[:-20])
    with pytest.raises(InputError, match=r"calibration.json cannot be read as JSON"):
        crac.load_calibrator(path)


class Harmful:
    def __reduce__(self) -> Any:
        return Path.touch, (Path("harmed"),)


def test_loading_runs_no_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for content in (pickle.dumps(Harmful()), b'{"format": 1, "calibrator": "__import__(\'os\').mkdir(\'harmed\')"}'):
        Path("calibration.json").write_bytes(content)
        with pytest.raises(InputError):
            crac.load_calibrator("calibration.json")
    assert not Path("harmed").exists()


def test_a_folder_that_is_missing_is_said(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be written"):
        fitted("temperature").save(tmp_path / "nowhere" / "calibration.json")


NAMES = tuple(crac.CALIBRATORS)


def test_the_registry() -> None:
    assert NAMES == ("identity", "temperature", "class", "region", "class_region", "class_region_affine", "vector")
    with pytest.raises(InputError, match=r"name must be one of identity, temperature, .*; got 'platt'"):
        crac.build_calibrator("platt", 3)
    with pytest.raises(InputError, match="option of 'region' must be one of radii, regions; got 'radius'"):
        crac.build_calibrator("region", 3, radius=1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"radii": 3}, "radii must be growing whole numbers"),
        ({"radii": (2, 1)}, "radii must be growing whole numbers"),
        ({"regions": "plane"}, "regions must be one of volume, slice; got 'plane'"),
        ({"num_classes": 1}, "num_classes must be a whole number of at least 2; got 1"),
    ],
)
def test_arguments_are_checked(options: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        crac.build_calibrator("region", **{"num_classes": 3, **options})
