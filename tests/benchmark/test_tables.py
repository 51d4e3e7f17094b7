import csv
import io

import pytest
import yaml

from crac.benchmark import paper
from crac.benchmark.paper import paper_rank, paper_table
from crac.benchmark.tables import Number, Table, ranked_table, rounded, signed


@pytest.mark.parametrize("backbone", ["unet", "nnunet"])
def test_ranks_of_the_printed_tables_are_reproduced(backbone: str) -> None:
    table = paper_table(backbone)
    printed = paper_rank(backbone)
    assert len(table.rows) == len(printed) == 8
    for row, expected in zip(table.rows, printed.values(), strict=True):
        assert isinstance(row[-2], Number)
        assert row[-2].text() == f"{expected:.2f}"
    assert table.rows[-1][0] == "CRaC"
    assert table.rows[-1][-1] == "1"
    assert table.rows[5][-1] == "2"  # NACL


def test_the_printed_tables_are_data_once() -> None:
    content = yaml.safe_load(paper.Path(paper.__file__).with_name("paper.yaml").read_text())
    assert content["tables"]["unet"]["crac"] == [0.877, 1.72, 0.057, 0.058, 0.876, 5.52, 0.029, 0.033, 1.75]
    assert sum(len(row) for table in content["tables"].values() for row in table.values()) == 2 * 8 * 9


def test_rounding_is_half_up_and_zero_has_no_sign() -> None:
    assert [str(rounded(value, 2)) for value in (3.125, 6.625, 0.005, -0.005, 2)] == [
        *("3.13", "6.63", "0.01", "-0.01", "2.00"),
    ]
    assert [signed(value, 3) for value in (0.0304, -0.0305, -0.0001)] == ["+0.030", "-0.031", "0.000"]


def example() -> Table:
    rows = {
        "a_1": [Number(0.9, 0.01), Number(3.0, 0.5, 2, paper=2.5)],
        "b": [Number(0.9004, 0.02), Number(1.0, None, 2)],
        "c": [Number(0.7, 0.02), None],
    }
    return ranked_table("x", "An example", ["DSC", "HD95"], rows, [True, False])


def test_three_forms_of_one_table() -> None:
    table = example()
    assert table.markdown().splitlines() == [
        "| method | DSC | HD95 | Friedman rank | final rank |",
        "| --- | ---: | ---: | ---: | ---: |",
        "| a_1 | **0.900 ± 0.010** | <u>3.00 ± 0.50</u> (2.50) | <u>1.50</u> | 2 |",
        "| b | **0.900 ± 0.020** | **1.00** | **1.00** | 1 |",
        "| c | <u>0.700 ± 0.020</u> | - | - | - |",
    ]
    latex = table.latex()
    assert r"a\_1 & \textbf{0.900 $\pm$ 0.010} & \underline{3.00 $\pm$ 0.50} (2.50) & \underline{1.50} & 2 \\" in latex
    assert latex.count("{") == latex.count("}")
    rows = list(csv.DictReader(io.StringIO(table.csv())))
    assert rows[0] == {
        "method": "a_1", "DSC": "0.9", "DSC sd": "0.01", "HD95": "3", "HD95 sd": "0.5", "HD95 paper": "2.5",
        "Friedman rank": "1.5", "final rank": "2",
    }  # fmt: skip
    assert float(rows[1]["DSC"]) == 0.9004
    assert rows[2]["HD95"] == ""


def test_columns_without_a_better_end_are_neither_marked_nor_ranked() -> None:
    rows = {"a": [Number(1.0), Number(0.1, signed=True)], "b": [Number(2.0), Number(-0.1, signed=True)]}
    table = ranked_table("x", "x", ["DSC", "gap"], rows, [True, None])
    assert [row[2].text() for row in table.rows if isinstance(row[2], Number)] == ["+0.100", "-0.100"]
    assert not any(row[2].mark for row in table.rows if isinstance(row[2], Number))
    assert [row[-1] for row in table.rows] == ["2", "1"]
