"""``crac report`` from folders to a page."""

import json
import shutil

import pytest
from tests.report.conftest import folders  # noqa: F401

from crac.cli import main


def test_one_folder_or_several_make_a_page(folders, tmp_path, capsys):  # noqa: F811
    page = tmp_path / "page.html"
    assert main(["report", str(folders()), "--out", str(page), "--title", "Ours"]) == 0
    assert capsys.readouterr().out == f"written to {page}\n"
    assert "<h1>Ours</h1>" in page.read_text()
    both = [str(folders()), str(folders(8, 2.0))]
    assert main(["report", *both, "--names", "one", "two", "--out", str(page), "--anonymous"]) == 0
    assert "<h1>one and two, compared</h1>" in page.read_text()
    assert "patient_0" not in page.read_text()


def test_bad_input_is_one_sentence_and_writes_nothing(folders, tmp_path, capsys):  # noqa: F811
    page = tmp_path / "page.html"
    for arguments, message in (
        ([str(tmp_path), "--out", str(page)], "must be a folder written by crac evaluate"),
        ([str(folders()), "--names", "a", "b", "--out", str(page)], "--names must be 1 names, one for each DIR; got 2"),
        ([str(folders()), "--out", str(tmp_path)], "--out must be a file"),
        ([str(folders()), "--out", str(tmp_path / "no" / "page.html")], "cannot be written: No such file"),
    ):
        assert main(["report", *arguments]) == 2
        assert message in capsys.readouterr().err
        assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "change", [{"pooled": None}, {"settings": []}, {"over_patients": {"dsc": 3}}, {"patients": "x"}]
)
def test_a_damaged_result_is_one_sentence(change, folders, tmp_path, capsys):  # noqa: F811
    shutil.copytree(folders(), tmp_path / "damaged")
    path = tmp_path / "damaged" / "summary.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    assert main(["report", str(path.parent), "--out", str(tmp_path / "page.html")]) == 2
    assert "damaged does not hold the results of crac evaluate" in capsys.readouterr().err
    assert not (tmp_path / "page.html").exists()
