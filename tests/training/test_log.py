"""Where the numbers of an epoch go."""

import re
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from crac.errors import InputError
from crac.training import train


def test_mlflow_gets_settings_and_every_epoch(small: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[Any, ...]] = []
    fake = SimpleNamespace(
        start_run=lambda run_name: calls.append(("start", run_name)),
        log_params=lambda params: calls.append(("params", params["epochs"])),
        log_metrics=lambda row, step: calls.append(("metrics", step, row["dice"])),
        end_run=lambda: calls.append(("end",)),
    )
    monkeypatch.setitem(sys.modules, "mlflow", fake)
    history = train(small(mlflow=True), tmp_path / "run").history
    metrics = [("metrics", step, row["dice"]) for step, row in enumerate(history, start=1)]
    assert calls == [("start", "run"), ("params", 2), *metrics, ("end",)]
    monkeypatch.setitem(sys.modules, "mlflow", None)
    with pytest.raises(InputError, match=r"pip install 'crac\[mlflow\]'"):
        train(small(mlflow=True), tmp_path / "without")
    assert not (tmp_path / "without").exists()


@pytest.mark.parametrize(
    ("method", "options", "rises"), [("crac", {}, True), ("crac", {"preset": "signed"}, False), ("ce", {}, False)]
)
def test_a_line_tells_what_to_expect(
    method: str,
    options: dict[str, Any],
    rises: bool,
    small: Any,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    train(small(method=method, method_options=options), tmp_path / "run")
    said = capsys.readouterr()
    assert said.err.count("note: the CRaC loss rises by design") == rises
    lines = said.out.splitlines()
    told = r"epoch [12]/2 .* Dice 0\.\d{4}  ECE .*\)  [\d.e+]+ images/s  \d+\.\d GiB  \d:\d\d:\d\d left"
    assert all(re.fullmatch(told, line) for line in lines[-2:])
    assert lines[-1].endswith("0:00:00 left")


def test_curves_are_drawn_at_the_end_and_now_and_then(
    small: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[tuple[int, str]] = []
    monkeypatch.setattr(
        "crac.training.log.plot_curves", lambda history, path, title, note: drawn.append((len(history), path.name))
    )
    train(small(), tmp_path / "run")
    assert drawn == [(2, "curves.png")]
    monkeypatch.setattr("crac.training.log.BETWEEN_PICTURES", -1.0)
    train(small(), tmp_path / "often")
    assert [count for count, _ in drawn] == [2, 1, 2, 2]
    train(small(pictures=False), tmp_path / "without")
    assert len(drawn) == 4


def test_curves_show_a_run(small: Any, tmp_path: Path) -> None:
    train(small(epochs=1), tmp_path / "run")
    assert (tmp_path / "run" / "curves.png").read_bytes().startswith(b"\x89PNG")
