"""The tables of pages that a script prints are those of the committed results."""

import importlib.util

from common import ROOT


def test_the_table_of_nnunet_is_made_of_the_committed_results() -> None:
    spec = importlib.util.spec_from_file_location("tables", ROOT / "docs/tables.py")
    assert spec is not None and spec.loader is not None
    tables = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tables)
    assert tables.nnunet() in (ROOT / "docs/nnunet.md").read_text(encoding="utf-8"), "python docs/tables.py prints it"
