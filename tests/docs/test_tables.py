"""The tables of pages that a script prints are those of the committed results."""

import runpy

from common import ROOT


def test_the_table_of_nnunet_is_made_of_the_committed_results() -> None:
    table = runpy.run_path(str(ROOT / "docs/tables.py"))["nnunet"]()
    assert table in (ROOT / "docs/nnunet.md").read_text(encoding="utf-8"), "python docs/tables.py prints it"
