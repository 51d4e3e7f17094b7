"""Pictures in the page hold the labels and predictions exactly."""

import base64
import io

import numpy as np
from PIL import Image
from tests.report.evaluations import evaluation

from crac.report import pictures as module
from crac.report.pictures import LEVELS, pictures


def decoded(uri):
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(uri.partition(",")[2]))))


def test_labels_and_predictions_are_exact_and_confidence_nearly():
    view = evaluation(1).views[0]
    (drawn,) = pictures([view])
    maps = decoded(drawn["maps"]).reshape(*view.label.shape, 3)
    np.testing.assert_array_equal(maps[..., 0], view.label)
    np.testing.assert_array_equal(maps[..., 1], view.prediction)
    assert np.abs(maps[..., 2].astype(int) - view.confidence).max() <= LEVELS // 2
    assert (drawn["rows"], drawn["columns"], drawn["aspect"]) == (*view.label.shape[1:], 2.0)
    assert drawn["slices"] == [index + 1 for index in view.slices]
    wrong = (view.label != view.prediction).sum((1, 2))
    assert drawn["start"] == drawn["slices"][wrong.argmax()]
    image = decoded(drawn["image"])
    assert np.abs(image[..., 0].reshape(view.image.shape).astype(int) - view.image).mean() < 10


def test_too_many_pictures_are_thinned_out(monkeypatch):
    view = evaluation(1).views[0]
    monkeypatch.setattr(module, "BUDGET", 3_000)
    (drawn,) = pictures([view])
    assert len(drawn["maps"]) + len(drawn["image"]) <= 3_000
    assert len(drawn["slices"]) < len(view.slices)
    assert decoded(drawn["maps"]).shape[0] == len(drawn["slices"]) * drawn["rows"]
