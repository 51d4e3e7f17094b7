"""``crac report`` from folders to a page."""

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
