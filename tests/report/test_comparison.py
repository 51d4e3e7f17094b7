"""One table in its forms, and what they mark."""

import csv
import io

import numpy as np
import pandas as pd

from crac.report.comparison import Column, Table
from crac.report.measure import Measure


def test_three_forms_of_one_table() -> None:
    dsc = Column(
        Measure("dsc", "DSC", 3, True),
        pd.Series({"a": 0.9, "b": 0.9004, "c": 0.7}),
        pd.Series([0.01, 0.02, 0.02], list("abc")),
    )
    hd95 = Column(
        Measure("hd95", "HD95", 2), pd.Series({"a": 3.0, "b": 1.0}), pd.Series({"a": 0.5}), pd.Series({"a": 2.5})
    )
    text = Column(Measure("x", "x", 0, None), pd.Series({"a": "50 %", "c": "1 ± 2"}))
    table = Table("x", "An example", {"a": "a_1", "b": "b", "c": "c"}, [dsc, hd95, text]).ranked()
    assert table.markdown().splitlines() == [
        "| method | DSC | HD95 | x | Friedman rank | final rank |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
        "| a_1 | **0.900 ± 0.010** | <u>3.00 ± 0.50</u> (2.50) | 50 % | <u>1.50</u> | 2 |",
        "| b | **0.900 ± 0.020** | **1.00** | - | **1.00** | 1 |",
        "| c | <u>0.700 ± 0.020</u> | - | 1 ± 2 | - | - |",
    ]
    lines = table.latex().splitlines()
    assert lines[:2] == ["% An example", r"\begin{tabular}{lrrrrr}"]
    assert (
        r"a\_1 & \textbf{0.900 $\pm$ 0.010} & \underline{3.00 $\pm$ 0.50} (2.50) & 50 \% & \underline{1.50} & 2 \\"
        in lines
    )
    assert r"c & \underline{0.700 $\pm$ 0.020} & -- & 1 $\pm$ 2 & -- & -- \\" in lines
    rows = list(csv.DictReader(io.StringIO(table.csv())))
    assert rows[0] == {
        "method": "a_1", "DSC": "0.9", "DSC sd": "0.01", "HD95": "3", "HD95 sd": "0.5", "HD95 paper": "2.5",
        "x": "50 %", "Friedman rank": "1.5", "final rank": "2",
    }  # fmt: skip
    assert float(rows[1]["DSC"]) == 0.9004
    assert rows[2]["HD95"] == ""


def test_names_are_text_in_every_form() -> None:
    dsc = Column(Measure("dsc", "DSC", 3, True), pd.Series({"a": 1.0}))
    table = Table("x", "x", {"a": "CE | $5^2$ *y* {~}"}, [dsc])
    assert table.markdown().splitlines()[2] == r"| CE \| $5^2$ \*y\* {~} | 1.000 |"
    assert r"CE | \$5\textasciicircum{}2\$ *y* \{\textasciitilde{}\} & 1.000" in table.latex()


def test_columns_without_a_better_end_are_neither_marked_nor_ranked() -> None:
    dsc = Column(Measure("dsc", "DSC", 3, True), pd.Series({"a": 1.0, "b": 2.0}))
    gap = Column(Measure("gap", "gap", 3, None, signed=True), pd.Series({"a": 0.1, "b": -0.1}))
    table = Table("x", "x", {"a": "a", "b": "b"}, [dsc, gap]).ranked()
    assert [gap.text(row) for row in "ab"] == ["+0.100", "-0.100"]
    assert [table.columns[-1].text(row) for row in "ab"] == ["2", "1"]


def test_a_column_of_equal_values_marks_none() -> None:
    column = Column(Measure("dsc", "DSC", 3, True), pd.Series({"a": 0.5, "b": 0.5001, "c": np.nan}))
    assert [column.text(row) for row in "abc"] == ["0.500", "0.500", "-"]
