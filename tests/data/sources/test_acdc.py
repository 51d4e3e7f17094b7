"""ACDC's layout: what is accepted, what is said about the rest."""

import shutil
from pathlib import Path

from crac.data.sources import read_acdc


def test_acdc(cardiac_raw: Path) -> None:
    source = read_acdc(cardiac_raw)
    assert source.class_names == ("background", "RV", "MYO", "LV")
    assert not source.problems
    assert len(source.cases) == 12
    assert [case.group for case in source.cases[::2]] == ["DCM", "HCM", "MINF", "NOR", "RV", "DCM"]
    assert {case.patient for case in source.cases} == {f"patient{number:03d}" for number in range(1, 7)}


def test_acdc_defects(cardiac_raw: Path, tmp_path: Path) -> None:
    raw = tmp_path / "raw"
    shutil.copytree(cardiac_raw, raw)
    next(raw.glob("patient001/*_frame01_gt.nii.gz")).unlink()
    next(raw.glob("patient002/*_frame01.nii.gz")).unlink()
    (raw / "patient003" / "Info.cfg").unlink()
    (raw / "patient004" / "Info.cfg").write_text("ED: one\nGroup: NOR\n")
    (raw / "patient005" / "patient005_4d.nii.gz").write_bytes(b"not read")
    problems = read_acdc(raw).problems
    expected = (
        "patient001_frame01_gt.nii.gz: missing label of the ED frame",
        "patient002_frame01.nii.gz: missing image of the ED frame",
        "patient003/Info.cfg: missing or unreadable",
        "patient004/Info.cfg: ED must be a frame number; got 'one'",
        "patient004/Info.cfg: ES must be a frame number; got ''",
    )
    assert len(problems) == len(expected)
    for problem, text in zip(problems, expected, strict=True):
        assert text in problem
