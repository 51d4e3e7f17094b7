"""What the picture of the multipliers shows."""

from pathlib import Path

import pytest

from crac.palette import pyplot
from crac.training.plots import plot_multipliers


def drawn(history: list[dict[str, float]], path: Path, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, list[str]]]:
    """The panels by the name of their axis, with the names of their lines."""
    figures = []
    monkeypatch.setattr(pyplot(), "close", figures.append)
    plot_multipliers(history, path)
    (figure,) = figures
    return [(axis.get_ylabel(), [line.get_label() for line in axis.get_lines()]) for axis in figure.axes]


def rows(apart: float, grows: float) -> list[dict[str, float]]:
    """Two epochs of two classes that are this far apart, and a rho that grows by so much."""
    return [
        {"epoch": epoch}
        | {f"lambda_{region}_{name}": epoch + apart * number for region in ("inner", "outer") for number, name in NAMES}
        | {f"rho_{region}_{name}": 6.0 + grows * epoch for region in ("inner", "outer") for _, name in NAMES}
        for epoch in (1, 2)
    ]


NAMES = list(enumerate(("liver", "tumour_left")))


def test_classes_that_share_a_multiplier_are_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shared = drawn(rows(apart=0, grows=0), tmp_path / "shared.png", monkeypatch)
    assert shared == [("multiplier λ", ["all classes, inner", "all classes, outer"])]
    own = drawn(rows(apart=1, grows=1), tmp_path / "own.png", monkeypatch)
    assert own[0][1] == ["liver, inner", "tumour_left, inner", "liver, outer", "tumour_left, outer"]
    assert [name for name, _ in own] == ["multiplier λ", r"penalty weight $\rho$"]
