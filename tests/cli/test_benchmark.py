import re
from pathlib import Path

import pytest

from crac.benchmark.suite import SUITES
from crac.cli import main


def test_the_help_names_every_suite(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["benchmark", "--help"])
    shown = " ".join(capsys.readouterr().out.split())
    assert f"package: {', '.join(sorted(file.stem for file in SUITES.glob('*.yaml')))}." in shown


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--out", "x"], "name either a SUITE to run or --render RESULTS; got neither"),
        (["phantom_smoke", "--render", "x", "--out", "x"], "got both"),
        (["no_such", "--out", "x"], "suite must be a YAML file or one of"),
        (["paper_acdc", "--out", "x"], "data set acdc: .* is not a prepared store.*--data acdc=STORE"),
        (["paper_acdc", "--data", "acdd=x", "--out", "x"], "data must be one of acdc; got 'acdd'"),
        (["paper_acdc", "--data", "acdc", "--out", "x"], "--data must be NAME=STORE; got 'acdc'"),
        (["phantom_smoke", "--out", "x", "--jobs", "0"], "jobs must be a whole number of at least 1; got 0"),
        (["--render", "nowhere", "--out", "x"], "nowhere: no such folder of results"),
        (
            ["--render", "x", "--out", "x", "--jobs", "9", "--seeds", "7"],
            "--seeds, --jobs go with SUITE; --render runs",
        ),
        (["phantom_smoke", "--out", "x", "--maps", "y"], "--maps goes with --render"),
    ],
)
def test_bad_input_is_one_sentence_and_leaves_nothing(
    arguments: list[str], sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    assert main(["benchmark", *arguments]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert re.search(sentence, error)
    assert not list(tmp_path.iterdir())
