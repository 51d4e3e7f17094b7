"""Which cases are looked at, and what is kept of them."""

import numpy as np
import pytest
from tests.evaluation.looked import LookedCases, organ

from crac.data.upright import Upright
from crac.errors import InputError
from crac.evaluation import Protocol, evaluate
from crac.evaluation.views import MOST_PIXELS, MOST_SLICES, load_views, look_at, save_views, worst_and_middle


def measured(cases):
    return evaluate(cases, Protocol(["background", "organ"], masks=["all"]))


def test_the_worst_and_the_middle_case_are_kept_and_read_back(tmp_path):
    cases = LookedCases([organ("good", 0), organ("bad", 5), organ("fair", 2)])
    evaluation = measured(cases)
    views = look_at(cases, evaluation)
    assert [(view.name, view.which) for view in views] == [("bad", "worst"), ("fair", "middle")]
    bad = views[0]
    assert bad.slices == [1, 2, 3, 4]  # those that show something, and their neighbours
    assert bad.aspect == 2.0
    # Rows 10 to 15 and columns 12 to 24 with a margin of eight on each side.
    labels = cases.load("bad").labels.numpy()
    np.testing.assert_array_equal(bad.label, labels[1:5, 2:24, 4:33])
    np.testing.assert_array_equal(bad.prediction, np.roll(labels, 5, 2)[1:5, 2:24, 4:33])
    assert set(np.unique(bad.confidence)) == {round(255 * 0.9)}
    np.testing.assert_array_equal(bad.image, 255 * bad.label)
    save_views(views, tmp_path / "cases.npz")
    for one, other in zip(views, load_views(tmp_path / "cases.npz"), strict=True):
        for first, second in zip(one, other, strict=True):
            np.testing.assert_array_equal(first, second)


def test_pictures_are_turned_like_every_other():
    case = organ("a", 0)
    turned = LookedCases([case], Upright((0, 1, 2), (1, 2)))
    plain = LookedCases([case])
    first, second = (look_at(cases, measured(cases))[0] for cases in (plain, turned))
    for name in ("label", "prediction", "confidence", "image"):
        np.testing.assert_array_equal(getattr(second, name), getattr(first, name)[:, ::-1, ::-1])


def test_a_confidence_that_rounding_leaves_above_one_is_shown_as_sure():
    case = organ("a", 0)
    case.scores.copy_(case.scores.round() * 1.01)
    cases = LookedCases([case])
    (view,) = look_at(cases, measured(cases))
    assert set(np.unique(view.confidence)) == {255}


def test_large_cases_are_thinned_out_and_empty_ones_shown_whole():
    case = organ("large", 1, (100, 600, 30))
    case.labels[:, 20:580, 5:20] = 1
    cases = LookedCases([case], image=False)
    (view,) = look_at(cases, measured(cases))
    assert view.label.shape == (MOST_SLICES, 200, 10)
    assert max(view.label.shape[1:]) <= MOST_PIXELS
    assert view.image.size == 0
    assert (view.slices[0], view.slices[-1]) == (0, 99)
    empty = organ("empty", 0)
    empty.labels.zero_()
    cases = LookedCases([empty, organ("full", 0)])
    evaluation = measured(cases)
    assert "empty" in worst_and_middle(evaluation)  # a missed or invented organ has a Dice of 0
    view = look_at(cases, evaluation, {"full": "middle"})[0]
    assert view.which == "middle"


def test_volumes_without_a_score_are_not_looked_at():
    nothing = organ("nothing", 0)
    nothing.labels.zero_()
    nothing.scores[0], nothing.scores[1] = 0.9, 0.1
    cases = LookedCases([nothing])
    assert look_at(cases, measured(cases)) == []
    (view,) = look_at(cases, measured(cases), {"nothing": ""})
    assert view.label.shape == (6, 30, 40)


def test_a_damaged_file_is_one_sentence(tmp_path):
    assert load_views(tmp_path / "cases.npz") == []
    (tmp_path / "cases.npz").write_bytes(b"PK nothing")
    with pytest.raises(InputError, match=r"cases\.npz is damaged"):
        load_views(tmp_path / "cases.npz")
