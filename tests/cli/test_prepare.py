"""``crac prepare`` as a person meets it."""

import errno
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.data.layouts import write_nnunet

from crac.cli import main
from crac.data import Store, phantom


@pytest.fixture(scope="module")
def raw(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return phantom.cardiac(tmp_path_factory.mktemp("cli") / "raw", patients=3, size=40, slices=3)


def test_text_and_json(raw: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["prepare", "acdc", str(raw), str(tmp_path / "text"), "--jobs", "1"]) == 0
    text = capsys.readouterr()
    assert "ACDC phantom: 6 cases of 3 patients" in text.out
    assert "preparing: 6 of 6" in text.err
    assert main(["prepare", "acdc", str(raw), str(tmp_path / "json"), "--jobs", "1", "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)
    store = Store.open(tmp_path / "json")
    assert summary["cases"] == len(store.cases) == 6
    assert summary["voxels"]["LV"] == sum(case.voxels[3] for case in store.cases.values())
    assert summary["split"] == {"train": 2, "validation": 2, "test": 2}


def test_bad_input_is_a_sentence_and_code_2(raw: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["prepare", "nnunet", str(raw), str(tmp_path / "store"), "--jobs", "1"]) == 2
    error = capsys.readouterr().err
    assert "it looks like ACDC (crac prepare acdc)" in error
    assert main(["prepare", "acdc", str(raw), str(tmp_path / "store"), "--crop", "1", "2", "3"]) == 2
    assert not list(tmp_path.iterdir())


def test_help_has_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["prepare", "--help"])
    assert left.value.code == 0
    assert "crac prepare acdc ACDC/training acdc-store" in capsys.readouterr().out


def test_a_missing_package_is_a_sentence(raw: Path, tmp_path: Path) -> None:
    program = (
        "import sys; sys.modules['nibabel'] = None; from crac.cli import main;"
        f"sys.exit(main(['prepare', 'acdc', {str(raw)!r}, {str(tmp_path / 'store')!r}]))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr == "crac prepare: nibabel is not installed; run: pip install 'crac[audit]'\n"


def test_a_folder_that_may_not_be_read_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    raw = write_nnunet(tmp_path / "raw", [(8, 8, 8)] * 3)
    images, iterate = raw / "imagesTr", Path.iterdir

    def guarded(folder: Path) -> Iterator[Path]:
        # The tests may run as a user whom permissions do not stop.
        if folder == images:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(folder))
        return iterate(folder)

    monkeypatch.setattr(Path, "iterdir", guarded)
    out = str(tmp_path / "out")
    for arguments in (
        ["prepare", "nnunet", str(raw), out],
        ["evaluate", "--probabilities", str(images), "--labels", str(raw / "labelsTr"), "--out", out],
    ):
        assert main(arguments) == 2
        assert capsys.readouterr().err == f"crac {arguments[0]}: no permission to open {images}\n"
        assert not (tmp_path / "out").exists()
