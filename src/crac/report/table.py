"""An evaluation as a table on the terminal."""

import math
from collections.abc import Mapping
from typing import Any

from crac.errors import require
from crac.evaluation.measure import BY_REGION, CALIBRATION, SEGMENTATION, Evaluation
from crac.metrics.results import REGION_NAMES

REALISED = {
    "possible": "of its voxels lay in the possible set",
    "certain": "of the certain set was right",
    "margin": "lay within the grown contour",
    "core": "held the shrunken contour",
    "volume": "had their volume in its interval",
}
"""A guarantee and what it is to have kept it."""


def table(evaluation: Evaluation) -> list[tuple[str, str, str, str]]:
    """Lines ``(measure, mean over volumes, standard deviation, pooled)`` in the order they are read."""
    means, pooled = evaluation.per_volume(), evaluation.pooled()
    protocol = evaluation.protocol
    units = {"hd95": f" ({protocol.unit}, {protocol.hd95})", "asd": f" ({protocol.unit})"}
    units["surface_dice"] = f" (at {protocol.tolerance:g} {protocol.unit})"
    lines = [(metric + units.get(metric, ""), means[metric], math.nan) for metric in SEGMENTATION]
    lines += [
        (f"{m} {name}", means[f"{m}.{name}"], math.nan) for m in ("dsc", "hd95") for name in protocol.class_names[1:]
    ]
    left_out = protocol.left_out()
    for mask, result in pooled.items():
        shown = [metric for metric in CALIBRATION if f"{metric}[{mask}]" not in left_out]
        lines += [(f"{m} [{mask}]", means[f"{m}[{mask}]"], getattr(result, m)) for m in shown]
        lines += [
            (f"{m} {region} [{mask}]", means[f"{m}.{region}[{mask}]"], getattr(result.by_region[region], m))
            for region in REGION_NAMES
            for m in BY_REGION
        ]
    return [(name, _number(one["mean"]), _number(one["sd"]), _number(whole)) for name, one, whole in lines]


def print_table(evaluation: Evaluation) -> None:
    """Show the table on the terminal."""
    protocol = evaluation.protocol
    console = require("rich.console").Console(highlight=False)
    shown = require("rich.table").Table(
        title=f"{len(evaluation.rows)} volumes, protocol: {protocol.name}", title_justify="left"
    )
    for heading, justify in (("measure [mask]", "left"), ("per volume", "right"), ("sd", "right"), ("pooled", "right")):
        shown.add_column(require("rich.text").Text(heading), justify=justify)
    previous = ""
    for line in table(evaluation):
        mask = line[0].rpartition(" [")[2] if " [" in line[0] else ""
        if mask != previous:
            shown.add_section()
        previous = mask
        shown.add_row(*(require("rich.text").Text(part) for part in line))
    console.print(shown)
    console.print(
        f"{protocol.bins} bins; inner, outer and band: in the {protocol.regions}; distances where a class is absent: "
        f"{protocol.empty}; gap: confidence - accuracy",
        markup=False,
    )
    for reason, columns in by_reason(protocol.left_out()).items():
        console.print(f"left out: {', '.join(columns)}: {reason}", markup=False)
    if evaluation.realised is not None:
        for sentence in realised_lines(evaluation.realised.summary):
            console.print(sentence, markup=False, soft_wrap=True)


def by_reason(left_out: Mapping[str, str]) -> dict[str, list[str]]:
    """Return the columns that were left out for each reason."""
    return {reason: [name for name in left_out if left_out[name] == reason] for reason in left_out.values()}


def realised_lines(summary: dict[str, Any]) -> list[str]:
    """What came of guarantees (``guarantees`` of ``summary.json``), a sentence each."""
    lines = []
    for name, parts in summary["by_class"].items():
        for part, words in REALISED.items():
            one = parts[part]
            if one["reason"] is not None:
                lines.append(f"{name}, {part}: nothing was promised, {one['reason']}")
                continue
            kept, ends = one["realised"], one["interval"]
            if part in ("possible", "certain"):  # these are risks
                kept, ends = 1 - kept, [1 - end for end in reversed(ends)]
            low, high = (100 * end for end in ends)
            span = "" if math.isnan(low) else f" [{low:.1f}, {high:.1f}]"
            lines.append(
                f"{name}, {part}: {100 * kept:.1f} %{span} {words}, of {one['patients']} patients; "
                f"{100 * (1 - summary['alpha']):g} % were promised"
            )
    referral = summary["referral"]
    lines.append(
        f"flags: {100 * referral['flagged']:.1f} % of patients; {100 * referral['bad']:.1f} % had a Dice below "
        f"{referral['acceptable']:g}, {100 * referral['bad_and_not_flagged']:.1f} % and no flag"
    )
    return lines


def _number(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.4f}"
