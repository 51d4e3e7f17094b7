"""Whether guarantees are kept: realised risk over thousands of calibration sets, of very uneven patients.

    OMP_NUM_THREADS=2 python speed/coverage.py

A pool of made-up patients stands for the population. Most are easy, some are hard, and a third has two volumes. Every
calibration set is drawn from the pool, the guarantees are fitted on it, and what they promise is measured on all the
others. The mean over the sets must not exceed ``alpha`` by more than the Monte-Carlo error.

As a counter-example, both volumes of ten patients are counted as if they were twenty patients, which would do for
``alpha = 0.05``. Ten patients cannot promise that, and new patients show it.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from crac.guarantees import Case, Margin, Referral, RiskControl, VolumeInterval
from crac.guarantees.risk import best_level
from crac.guarantees.units import Unit, least_bound, reduce_unit
from crac.guarantees.volume import ends
from measure import RESULTS, environment, save

ALPHA = 0.1
SIDE = 20
EVERY = 8  # of the thresholds: any grid keeps the promise
Scores = dict[str, list[float]]


class Pool(NamedTuple):
    """What every patient contributes: a curve of losses a volume for risks, a score a volume for the rest."""

    curves: dict[str, dict[str, list[NDArray[np.float64]]]]
    scores: dict[str, Scores]


class Realised(NamedTuple):
    """Mean over the calibration sets, its Monte-Carlo error, and the sets in which nothing could be promised."""

    risk: float
    error: float
    void: int

    @classmethod
    def of(cls, risks: Sequence[float]) -> Realised:
        """Risks of single sets, NaN where nothing could be promised, which is no risk."""
        values = np.array(risks)
        void = np.isnan(values)
        values[void] = 0
        return cls(float(values.mean()), float(values.std() / math.sqrt(len(values))), int(void.sum()))

    def kept(self, alpha: float = ALPHA) -> bool:
        """Whether the promise was kept, as far as the sets can tell."""
        return self.risk <= alpha + 3 * self.error


def person(rng: np.random.Generator, volumes: int) -> list[tuple[NDArray[np.float32], NDArray[np.int64]]]:
    """Volumes of one patient: an ellipse, and a model that is shifted and noisy by as much as the patient is hard."""
    rows, columns = np.mgrid[:SIDE, :SIDE] - (SIDE - 1) / 2
    sides = rng.uniform(3, 8, size=2)
    hard = rng.lognormal(-1, 1.2)  # one in twenty is seven times as hard as most
    shift = rng.normal(0, hard)
    drawn = []
    for _ in range(volumes):
        depth = 5 * (1 - np.hypot(rows / sides[0], columns / sides[1]))
        labels = (depth > 0).astype(np.int64)
        logit = 2 * (depth + shift) + rng.normal(0, 1 + hard, size=depth.shape)
        second = (1 / (1 + np.exp(-logit))).astype(np.float32)
        drawn.append((np.stack([1 - second, second]), labels))
    return drawn


def make_pool(patients: int, seed: int = 0, two: float = 1 / 3) -> Pool:
    """Patients and their losses, by the guarantees' own code."""
    rng = np.random.default_rng(seed)
    controls = {name: RiskControl(2, ALPHA, name) for name in ("fnr", "fdr")}
    margin, volume, referral = Margin(2, ALPHA), VolumeInterval(2, ALPHA), Referral(2, ALPHA)
    for number in range(patients):
        for probabilities, labels in person(rng, 1 + int(rng.random() < two)):
            case = Case(probabilities, labels, (1.0, 1.5), str(number))
            for part in (*controls.values(), margin, volume, referral):
                part.update(case)
    curves = {
        name: {key: [curve[::EVERY] for curve in own] for key, own in control._curves[1].items()}
        for name, control in controls.items()
    }
    passing = {
        key: [-doubt if quality < referral.acceptable else -math.inf for doubt, quality in own]
        for key, own in referral._volumes.items()
    }
    scores = {"margin outwards": margin._outwards[1], "margin inwards": margin._inwards[1]}
    return Pool(curves, scores | {"volume": volume._scores[1], "referral": passing})


def realised_risk(
    curves: dict[str, list[NDArray[np.float64]]], loss: str, patients: int, sets: int, unit: Unit
) -> Realised:
    """Fit thresholds on every set and measure them on the patients left out.

    Args:
        curves: Losses of every patient's volumes.
        loss: ``"fnr"`` or ``"fdr"``.
        patients: Of a calibration set.
        sets: How many.
        unit: What several volumes of a patient count as.
    """
    rng = np.random.default_rng(patients)
    units = np.stack([reduce_unit(own, unit) for own in curves.values()])
    risks = []
    for _ in range(sets):
        order = rng.permutation(len(units))
        level = best_level(units[order[:patients]].sum(0), patients, ALPHA, loss)
        risks.append(math.nan if level is None else float(units[order[patients:], level].mean()))
    return Realised.of(risks)


def realised_misses(
    scores: Scores, patients: int, sets: int, unit: Unit, signed: bool, alpha: float = ALPHA, split: bool = False
) -> Realised:
    """The same for bounds of scores: the share of patients beyond them.

    Args:
        scores: Of every patient's volumes.
        patients: Of a calibration set.
        sets: How many.
        unit: What several volumes of a patient count as.
        signed: Whether scores are bounded on both sides.
        alpha: Level.
        split: Count volumes as patients.
    """
    rng = np.random.default_rng(patients)
    keys = list(scores)
    table = np.full((len(keys), max(map(len, scores.values()))), np.nan)
    for row, own in zip(table, scores.values(), strict=True):
        row[: len(own)] = own
    risks = []
    for _ in range(sets):
        order = rng.permutation(len(keys))
        chosen = {keys[number]: scores[keys[number]] for number in order[:patients]}
        if split:
            chosen = {f"{key} {part}": [score] for key, own in chosen.items() for part, score in enumerate(own)}
        down, up = ends(chosen, alpha, unit) if signed else (math.inf, least_bound(chosen, alpha, unit))
        if signed:  # the estimate is never outside
            down, up = max(down, 0.0), max(up, 0.0)
        others = table[order[patients:]]
        missed = np.where(np.isnan(others), np.nan, (others > up) | (-others > down))
        share = (np.nanmax if unit == "worst" else np.nanmean)(missed, axis=1)
        risks.append(math.nan if math.isnan(up) else float(share.mean()))
    return Realised.of(risks)


def simulate(pool: Pool, patients: int, sets: int, unit: Unit = "mean") -> dict[str, Realised]:
    """Every guarantee on calibration sets of one size."""
    found = {name: realised_risk(own, name, patients, sets, unit) for name, own in pool.curves.items()}
    misses = {name: realised_misses(own, patients, sets, unit, name == "volume") for name, own in pool.scores.items()}
    return found | misses


def counted_twice(pool: Pool, patients: int, sets: int, split: bool, alpha: float = 0.05) -> Realised:
    """Volumes of patients who have two each, as one patient or, wrongly, as two."""
    return realised_misses(pool.scores["volume"], patients, sets, "mean", True, alpha, split)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--patients", type=int, nargs="+", default=[10, 20, 50, 200])
    parser.add_argument("--sets", type=int, default=2000)
    parser.add_argument("--pool", type=int, default=1000)
    parser.add_argument("--out", type=Path, default=RESULTS / "coverage.json")
    args = parser.parse_args(arguments)
    pool, rows = make_pool(args.pool), []
    for unit in ("mean", "worst"):
        for patients in args.patients:
            for name, found in simulate(pool, patients, args.sets, unit).items():
                row = {"guarantee": name, "unit": unit, "patients": patients}
                rows.append(row | found._asdict() | {"kept": found.kept()})
                print(f"{name:16} {unit:5} n = {patients:3}: {found.risk:.4f} +- {found.error:.4f}, void {found.void}")
    twice, counter = make_pool(300, seed=1, two=1.0), {}
    for split, words in ((False, "one patient"), (True, "two patients")):
        found = counted_twice(twice, 10, args.sets, split)
        counter[words] = found._asdict() | {"kept": found.kept(0.05)}
        print(f"both volumes of 10 patients as {words}, alpha 0.05: {found.risk:.4f} +- {found.error:.4f}")
    settings = {"alpha": ALPHA, "sets": args.sets, "pool": args.pool}
    save(args.out, {"environment": environment(), **settings, "realised": rows, "two_volumes_counted_as": counter})
    if not all(row["kept"] for row in rows):
        raise SystemExit("a promise was broken")


if __name__ == "__main__":
    main()
