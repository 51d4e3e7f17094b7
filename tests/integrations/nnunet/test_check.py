"""``crac nnunet path`` and ``crac nnunet check``; nnU-Net itself is not needed here."""

import json
from pathlib import Path

from crac.cli import main
from crac.integrations.nnunet import TRAINERS, trainers_folder


def test_path_is_a_folder_with_nothing_but_the_trainers(capsys) -> None:
    assert main(["nnunet", "path"]) == 0
    folder = Path(capsys.readouterr().out.strip())
    assert folder == trainers_folder()
    files = [path for path in folder.iterdir() if path.suffix == ".py"]
    assert len(files) == 1
    assert all(name in files[0].read_text() for name in TRAINERS)


def test_check_names_every_missing_piece(monkeypatch, tmp_path: Path, capsys) -> None:
    for name in ("nnUNet_raw", "nnUNet_extTrainer"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("nnUNet_preprocessed", str(tmp_path / "nowhere"))
    monkeypatch.setenv("nnUNet_results", str(tmp_path))
    assert main(["nnunet", "check"]) == 2
    said = capsys.readouterr().err
    assert "nnUNet_raw is not set; run: export nnUNet_raw=" in said
    assert f"nnUNet_preprocessed={tmp_path / 'nowhere'} is not a folder" in said
    assert 'nnUNet_extTrainer lacks the trainers; run: export nnUNet_extTrainer="$(crac nnunet path)"' in said
    assert "nnUNet_results" not in said
    monkeypatch.setenv("nnUNet_extTrainer", str(tmp_path))  # somebody's own trainers are not lost
    assert main(["nnunet", "check"]) == 2
    assert 'export nnUNet_extTrainer="$(crac nnunet path):$nnUNet_extTrainer"' in capsys.readouterr().err
    assert main(["nnunet", "check", "--json"]) == 2
    report = json.loads(capsys.readouterr().out)
    assert report["ok"] is False
    assert len(report["problems"]) >= 3
