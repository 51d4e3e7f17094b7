"""The table of an evaluation."""

import torch
from tests.evaluation.volumes import NAMES, volume

from crac.evaluation import LoadedCases, Protocol, evaluate
from crac.report.table import table


def test_a_column_without_values_is_shown_as_a_dash():
    case = volume("one")
    empty = case._replace(labels=torch.zeros_like(case.labels))
    lines = table(evaluate(LoadedCases([empty]), Protocol(NAMES, masks=["label_foreground", "all"])))
    shown = {line[0]: line[1:] for line in lines}
    assert shown["ece [label_foreground]"] == ("-", "-", "-")
    assert shown["ece [all]"][0] != "-"
