"""Files that are whole or not there, and folders on other disks."""

import contextlib
import csv
import errno
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.cli.foreign import write_folders

from conftest_training import small, store  # noqa: F401
from crac.cli import main
from crac.data import Store, phantom
from crac.errors import InputError
from crac.files import PARTIAL, check_writable, remove_folder, remove_partials, replacing, write_rows, write_text


def test_a_link_to_another_disk_is_followed(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "link.txt").symlink_to(tmp_path / "disk" / "file.txt")
    write_text(tmp_path / "link.txt", "new")
    assert (tmp_path / "link.txt").is_symlink()
    assert (tmp_path / "disk" / "file.txt").read_text() == "new"
    assert [path.name for path in (tmp_path / "disk").iterdir()] == ["file.txt"]


def test_rows_come_back_from_a_table_and_lines_end_as_elsewhere(tmp_path: Path) -> None:
    rows = [{"volume": 'a, "b"\nc', "dsc": 0.5}, {"volume": "", "dsc": float("nan")}]
    write_rows(tmp_path / "table.csv", rows)
    assert b"\r" not in (tmp_path / "table.csv").read_bytes()
    with (tmp_path / "table.csv").open(newline="", encoding="utf-8") as file:
        found = list(csv.DictReader(file))
    assert found == [{name: str(value) for name, value in row.items()} for row in rows]


def test_file_and_folder_are_synced_before_and_after_the_rename(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    sync, replace = os.fsync, Path.replace

    def noted_sync(descriptor: int) -> None:
        done.append("folder" if os.path.isdir(f"/proc/self/fd/{descriptor}") else "file")  # noqa: PTH112
        sync(descriptor)

    def noted_replace(self: Path, target: Path) -> Path:
        done.append("rename")
        return replace(self, target)

    monkeypatch.setattr(os, "fsync", noted_sync)
    monkeypatch.setattr(Path, "replace", noted_replace)
    write_text(tmp_path / "file", "text")
    assert done == ["file", "rename", "folder"]


def test_what_was_there_stays_until_the_new_file_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    with contextlib.suppress(KeyboardInterrupt), replacing(path) as partial:
        partial.write_text("ha")
        raise KeyboardInterrupt
    assert path.read_text() == "old"

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(InputError, match="file cannot be written: No space left on device"):
        write_text(path, "new")
    assert path.read_text() == "old"
    assert not list(tmp_path.glob(f"{PARTIAL}*"))


def test_what_a_killed_process_left_is_removed_and_what_is_being_written_stays(tmp_path: Path) -> None:
    write = "import os, pathlib, sys\nfrom crac.files import replacing\n"
    write += "with replacing(pathlib.Path(sys.argv[1])) as partial:\n    partial.touch()\n    os.kill(os.getpid(), 9)"
    subprocess.run([sys.executable, "-c", write, str(tmp_path / "a")], check=False)
    (left,) = tmp_path.iterdir()
    with replacing(tmp_path / "a") as partial:
        partial.touch()
        elsewhere = left.with_name(left.name.replace(partial.name.split("-")[1], "0abcde"))
        elsewhere.touch()  # whether a process of another computer is alive cannot be known
        remove_partials(tmp_path)
        assert set(tmp_path.iterdir()) == {partial, elsewhere}


def test_what_cannot_be_written_is_refused_before_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    for path in (tmp_path / "new" / "deep", tmp_path, tmp_path / "file"):
        check_writable(path)
    with pytest.raises(InputError, match=r"cannot be written: .*file is not a folder"):
        check_writable(tmp_path / "file" / "below")
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(InputError, match="new cannot be written: no permission to write in"):
        check_writable(tmp_path / "new")
    probabilities, labels = write_folders(tmp_path)
    files = ["--probabilities", str(probabilities), "--labels", str(labels), "--out", str(tmp_path / "out.json")]
    for command in (["evaluate"], ["calibrate"], ["guarantee", "--alpha", "0.5"]):
        assert main([*command, *files]) == 2
        said = capsys.readouterr().err
        assert "no permission to write" in said
        assert "measuring" not in said
        assert "folds" not in said
        assert "fitting" not in said


def test_a_name_may_be_as_long_as_the_disk_allows(tmp_path: Path) -> None:
    path = tmp_path / ("ä" * 124 + ".nii.gz")
    write_text(path, "text")
    assert path.read_text() == "text"


def _patched(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a folder behave as a mount point does: never renamed or removed, no rename across its border."""
    rename, replace, rmdir = os.rename, os.replace, os.rmdir

    def busy(path: Any, how: Any, *rest: Any, **more: Any) -> Any:
        if not more and Path(path).absolute() == folder:
            raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))
        return how(path, *rest, **more)

    def moved(source: Any, target: Any, how: Any, **more: Any) -> Any:
        first, second = Path(source).absolute(), Path(target).absolute()
        if folder in (first, second):
            raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))
        if (folder in first.parents) != (folder in second.parents):
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
        return how(source, target, **more)

    monkeypatch.setattr(os, "rename", lambda a, b, **more: moved(a, b, rename, **more))
    monkeypatch.setattr(os, "replace", lambda a, b, **more: moved(a, b, replace, **more))
    monkeypatch.setattr(os, "rmdir", lambda path, **more: busy(path, rmdir, **more))


@pytest.fixture(params=["mounted", "patched", "link"])
def other_disk(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty folder on another disk: mounted where that is allowed, imitated, or behind a link."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if request.param == "patched":
        _patched(folder, monkeypatch)
        yield folder
    elif request.param == "link":
        (tmp_path / "link").symlink_to(folder)
        yield tmp_path / "link"
    else:
        if subprocess.run(["mount", "-t", "tmpfs", "none", str(folder)], capture_output=True, check=False).returncode:
            pytest.skip("only root may mount")
        yield folder
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_prepare_writes_into_the_folder_given(other_disk: Path, tmp_path: Path) -> None:
    raw = phantom.cardiac(tmp_path / "raw", patients=1, size=32, slices=2)
    assert main(["prepare", "acdc", str(raw), str(other_disk), "--jobs", "1"]) == 0
    Store.open(other_disk).verify()
    assert names(other_disk) == {"cases", "contact_sheet.png", "manifest.json", "split.json"}
    assert names(tmp_path) <= {"disk", "link", "raw"}


def test_train_evaluate_and_calibrate_write_into_the_folder_given(
    other_disk: Path,
    small: Any,  # noqa: F811
    store: Store,  # noqa: F811
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    train = ["train", "--data", str(store.path), "--width", "4", "--accelerator", "cpu", "--out", str(other_disk)]
    assert main([*train, "--epochs", "1", "--no-pictures", "--method-options", "alpha=1"]) == 2  # nothing stays of it
    assert not list(other_disk.iterdir())
    assert main([*train, "--epochs", "1", "--no-pictures"]) == 0
    assert {"config.yaml", "split.json", "best.safetensors", "last.safetensors"} <= names(other_disk)
    assert main(["evaluate", str(other_disk), "--out", str(other_disk / "audit")]) == 0
    assert {"summary.json", "per_volume.csv"} <= names(other_disk / "audit")
    remove_folder(other_disk)
    if other_disk.is_dir():
        assert not list(other_disk.iterdir())
        assert main(["evaluate", "--probabilities", "nowhere", "--labels", "nowhere", "--out", str(other_disk)]) == 2
    assert "Traceback" not in capsys.readouterr().err


def test_a_new_run_is_taken_up_where_a_kill_left_it(small: Any, tmp_path: Path) -> None:  # noqa: F811
    from crac.training import train

    run = tmp_path / "run"
    run.mkdir()
    for name in (".lock", "split.json", f"{PARTIAL}1-config.yaml"):
        (run / name).touch()
    assert train(small(epochs=1, pictures=False), run).finished
    assert not list(run.glob(f"{PARTIAL}*"))
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "split.json").touch()  # without the lock it is somebody's own
    with pytest.raises(InputError, match="not an empty folder"):
        train(small(epochs=1), tmp_path / "mine")
