"""The tables of pages that a script prints are those of the committed results."""

import runpy

import pytest

from common import ROOT


@pytest.mark.parametrize(
    ("page", "table", "arguments"),
    [
        ("nnunet.md", "nnunet", []),
        ("training.md", "equal", ["hippocampus"]),
        ("training.md", "equal", ["acdc"]),
        ("training.md", "augmented", []),
    ],
)
def test_a_table_is_made_of_the_committed_results(page: str, table: str, arguments: list[str]) -> None:
    made = runpy.run_path(str(ROOT / "docs/tables.py"))[table](*arguments)
    assert made in (ROOT / "docs" / page).read_text(encoding="utf-8"), "python docs/tables.py prints it"
