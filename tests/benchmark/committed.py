"""The committed results of phantoms, and changes to them."""

from dataclasses import replace
from pathlib import Path

from crac.benchmark import CellResult
from crac.benchmark.suite import Cell

FIXTURE = Path(__file__).parent / "fixture"


def with_column(result: CellResult, name: str, value: float = 0.5) -> CellResult:
    """The result with one more measure of every volume."""
    volumes = {volume: [*values, value] for volume, values in result.volumes.items()}
    return replace(result, columns=[*result.columns, name], volumes=volumes)


def many_patients(result: CellResult, copies: int = 3) -> CellResult:
    """The result with each volume several times, every time a little different and of another patient."""
    volumes = {
        f"{v}-{n}": [x * (1 + 0.01 * n) for x in own] for v, own in result.volumes.items() for n in range(copies)
    }
    return replace(result, volumes=volumes, patients={name: name for name in volumes})


def as_on_acdc(results: list[CellResult]) -> list[CellResult]:
    """The results as if they were of a data set and a backbone that the paper has."""
    return [replace(r, cell=replace(r.cell, dataset="acdc", backbone="unet")) for r in results]


def on_splits(
    first: CellResult, runs: dict[str, list[tuple[int, int, float]]], objective: str = ""
) -> list[CellResult]:
    """Results of methods by split and seed, all of whose volumes have the same DSC; splits test different patients."""
    column, made = first.columns.index("dsc"), []
    for method, given in runs.items():
        for split, seed, dsc in given:
            cell = Cell("phantom", "nnunet", method, seed, method, split=split, objective=objective)
            rows = {f"{split}-{name}": [*row[:column], dsc, *row[column + 1 :]] for name, row in first.volumes.items()}
            made.append(replace(first, cell=cell, volumes=rows, patients={name: name for name in rows}))
    return made
