"""The page: tables, figures, protocol and a plain reading, from results alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from crac.benchmark.reading import against_rivals, by_region, differs_from_paper
from crac.benchmark.scores import Group
from crac.benchmark.suite import FROM_THE_CELL
from crac.benchmark.tables import Table

__all__ = ["write_page"]

HEAD = """# Benchmark

How the methods compare, measured and printed by this package: {suites}.

This page is generated; every number in its tables and figures comes from the JSON files it was made from, one a run,
which hold the settings, the versions and the device as well. Every run there is shown; a dash is a run that is missing.
"Better" and "worse" are said where the 95 % interval of a paired bootstrap over test patients leaves out 0; it covers
the choice of patients, not that of seeds, which is what ± is for.

**DSC** overlap with the labels, 1 is perfect. **HD95** distance between outlines that 95 % of them keep, in voxels.
**ECE** how far, on average, confidence is from the share of right answers; 0 is calibrated. **TACE** the same for
every class's probability. Best in bold, second underlined. The **Friedman rank** is the mean of a method's ranks over
the columns, 1 being best; it follows from the values as printed.
"""

PROTOCOL = """## Protocol

{split} The checkpoint with the best validation Dice is tested, volume by volume, on the
prepared grid. DSC and HD95 (95th percentile of the pooled surface distances, in voxels) are averaged over foreground
classes, then volumes; where only one of prediction and label shows a class, its distance is the volume's diagonal. ECE
(top label, {bins} bins of equal width) and TACE (every class, probabilities above {threshold}) are measured on the
voxels labelled foreground, per volume, then averaged. Temperature is fitted on the validation set's likelihood, over
all voxels. Settings of the training:
"""

BY_SEED = (
    "Patients are divided 70/10/20 into training, validation and test, by seed {seed}, stratified by pathology where "
    "known;\nthe paper's split is not published."
)
BY_FILE = "Patients are divided into training, validation and test by the split file below."


def write_page(
    groups: Sequence[Group],
    main: Sequence[Table],
    tables: Mapping[str, Sequence[Table]],
    figures: Mapping[str, Sequence[tuple[str, str]]],
    notes: str = "",
    paper: bool = False,
) -> str:
    """The page as Markdown.

    Args:
        groups: All of them.
        main: The paper's tables, one per backbone.
        tables: Further tables by name of the group.
        figures: Path and caption, by name of the group.
        notes: Text by hand, placed after the first tables.
        paper: Whether to say how our numbers differ from the paper's.
    """
    suites = sorted({result.suite for group in groups for result in group.results()})
    parts = [HEAD.format(suites=", ".join(f"`crac benchmark {suite}`" for suite in suites))]
    for table in main:
        parts.append(f"## {table.caption}\n\n{table.markdown()}")
    parts.append("## Reading\n")
    for group in groups:
        sentences = [*against_rivals(group), *by_region(group)]
        if sentences:
            parts.append(f"### {group.title}\n\n" + "".join(f"- {sentence}\n" for sentence in sentences))
    if notes:
        parts.append(notes.strip() + "\n")
    differing = list(differs_from_paper(groups)) if paper else []
    if differing:
        parts.append("## What differs from the paper\n\n" + "".join(f"- {line}\n" for line in differing))
    for group in groups:
        parts.append(f"## {group.title}\n")
        parts += [f"**{table.caption}**\n\n{table.markdown()}" for table in tables.get(group.name, ())]
        parts += [f"{caption}:\n\n![{caption}, {group.title}]({path})\n" for path, caption in figures[group.name]]
    parts.append(_protocol(groups))
    return "\n".join(parts)


def _protocol(groups: Sequence[Group]) -> str:
    results = [result for group in groups for result in group.results()]
    first = results[0]
    split = BY_FILE if first.settings["split"] else BY_SEED.format(seed=first.settings["split_seed"])
    text = PROTOCOL.format(split=split, bins=first.protocol["bins"], threshold=first.protocol["threshold"])
    lines = [f"| {name} | {_values(groups, name)} |\n" for name in first.settings if name not in FROM_THE_CELL]
    settings = "| setting | value |\n| --- | --- |\n" + "".join(lines)
    data = [
        f"- {group.title}: {about['patients']} patients; {about['cases']['train']} training, "
        f"{about['cases']['validation']} validation and {about['cases']['test']} test volumes; seeds {_seeds(group)}.\n"
        for group in groups
        for about in [group.results()[0].dataset]
    ]
    machines = sorted(
        {
            f"{e['device']}, torch {e['packages'].get('torch', '?')}, Python {e['python']}, crac {e['crac']}"
            for e in (result.environment for result in results)
        }
    )
    return f"{text}\n{settings}\n" + "".join(data) + "".join(f"- Run on {machine}.\n" for machine in machines)


def _values(groups: Sequence[Group], name: str) -> str:
    """A setting: one value where all runs have the same, otherwise those of each group."""
    values = {
        group.title: dict.fromkeys(str(result.settings.get(name)) for result in group.results()) for group in groups
    }
    if len({tuple(own) for own in values.values()}) == 1:
        return ", ".join(next(iter(values.values())))
    return "; ".join(f"{title}: {', '.join(own)}" for title, own in values.items())


def _seeds(group: Group) -> str:
    seeds = sorted({result.cell.seed for result in group.results()})
    return ", ".join(map(str, seeds))
