"""Whether promises are kept by patients who were used twice: real networks, hundreds of divisions of their patients.

    python speed/shared_patients.py train Dataset004_Hippocampus --work DIR
    python speed/shared_patients.py divide --work DIR --jobs 16
    python speed/shared_patients.py report --work DIR

``train`` trains two small 2-D networks on 50 patients each (cross-entropy and Dice), keeps what every epoch says about
the 210 others, and trains a cross-validation on 90 patients. ``divide`` and ``report`` then ask three things:

* Patients fit the calibrator and the guarantee. The 210 are divided at random, hundreds of times: the guarantee is
  fitted on patients without a calibrator (``none``), on those who fitted the calibrator (``shared``), on these with
  scores from calibrators that were fitted on four fifths of them and leave their own fifth out (``crossed``), and on
  others (``apart``). What is promised is measured on 60 more.
* Patients choose the epoch and fit the guarantee. Likewise, with epochs chosen by the Dice of some patients and the
  guarantee fitted on the same ones, or on others.
* Out-of-fold patients promise something about the mean of the networks. Fitted on draws of patients whom a single
  network had not seen, measured on patients whom the mean predicts; beside it, fitted on such patients.

All but the last asks nothing but that divisions are random: without sharing the promise holds on average over them,
exactly, and what is missing is the price of sharing. Volumes, thresholds and margins are on the prepared grid.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
from collections.abc import Callable, Sequence
from functools import cache, partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

import crac
from crac.calibration import Calibrator
from crac.calibration.fitting import fit_cells
from crac.calibration.pieces import Choice, slabs
from crac.calibration.volume import as_batch
from crac.files import write_json
from crac.guarantees import Case, Margin, RiskControl, VolumeInterval
from crac.guarantees.case import check_case
from crac.guarantees.levels import THRESHOLDS
from crac.guarantees.risk import best_level
from crac.guarantees.units import least_bound
from crac.guarantees.volume import ends
from crac.parallel import Workers
from measure import RESULTS, environment, save

ALPHA, CLASSES, EVERY = 0.1, 3, 8
SPACING = (1.5, 1.5, 1.5)


class Kind(NamedTuple):
    """A calibrator, the voxels and numbers of patients it is fitted on, and for which of these scores are crossed."""

    method: str
    mask: str
    sizes: tuple[int, ...]
    crossed: tuple[int, ...]


CALIBRATIONS = {
    "class_region, near foreground": Kind("class_region", "band", (10, 13, 26, 52), (10, 13, 26)),
    "class_region": Kind("class_region", "all", (13, 26, 52), (13, 26)),
    "class_region_affine": Kind("class_region_affine", "all", (13, 26), (13,)),
}
MOST, TESTED, FOLDS = 52, 60, 5
NAMES = ("anterior", "posterior")
Values = NDArray[np.float64]
Row = dict[str, dict[str, list[float]]]
"""Scheme -> measure -> a number a class."""


class Pool(NamedTuple):
    """What guarantees need of some patients; ``N`` of them, ``C`` foreground classes, ``L`` thresholds.

    Attributes:
        score: ``(N, C)`` signed error of the volume over its scale.
        estimate, scale: ``(N, C)`` of the volume, in ml.
        fnr, fdr: ``(N, C, L)`` risks.
        outwards, inwards: ``(N, C)`` millimetres that are needed.
        dice: ``(N,)``.
    """

    score: Values
    estimate: Values
    scale: Values
    fnr: Values
    fdr: Values
    outwards: Values
    inwards: Values
    dice: Values

    def of(self, patients: Sequence[int] | NDArray[np.int64]) -> Pool:
        """Some of them."""
        return Pool(*(values[patients] for values in self))


def pool(probabilities: Sequence[Tensor], labels: Sequence[Tensor], margins: bool) -> Pool:
    """Patients, each with one volume, as the guarantees' own code sees them."""
    rows = [_patient(*pair, margins) for pair in zip(probabilities, labels, strict=True)]
    return Pool(*(np.stack(column) for column in zip(*rows, strict=True)))


def _patient(probabilities: Tensor, labels: Tensor, margins: bool) -> Pool:
    case = check_case(Case(probabilities, labels, SPACING, "one"), CLASSES, "one")
    controls = [RiskControl(CLASSES, ALPHA, loss) for loss in ("fnr", "fdr")]
    margin, volume = Margin(CLASSES, ALPHA), VolumeInterval(CLASSES, ALPHA)
    for part in (*controls, volume, *[margin] * margins):
        part.observe(case)
    sums, voxel, classes = case.own.sums, case.volume.voxel, range(1, CLASSES)
    whole = [0.0] * len(THRESHOLDS)  # every patient has both parts of the hippocampus
    curves = [np.array([own.get("one", [whole])[0] for own in control._curves[1:]])[:, ::EVERY] for control in controls]
    needed = [[own["one"][0] for own in side[1:]] for side in (margin._outwards, margin._inwards)] if margins else None
    return Pool(
        np.array([volume._scores[number]["one"][0] for number in classes]),
        sums.expected[1:] * voxel,
        volume._scale(sums, voxel)[1:],
        *(curve.astype(np.float32) for curve in curves),
        *np.array(needed if needed else np.full((2, CLASSES - 1), np.nan)),
        np.array(case.counts.dice),
    )


def realised(fitted: Pool, tested: Pool) -> dict[str, list[float]]:
    """Fit every promise on some patients and measure it on others: a number a class.

    Shares covered by ``volume``, ``margin`` and ``core``; risks of ``possible`` and ``certain``; ``width`` in ml.
    """
    patients, found = len(fitted.dice), {}
    for number in range(CLASSES - 1):
        down, up = ends({str(n): [s] for n, s in enumerate(fitted.score[:, number])}, ALPHA, "mean")
        down, up = max(down, 0.0), max(up, 0.0)  # the estimate is never outside
        score, estimate, scale = (values[:, number] for values in (tested.score, tested.estimate, tested.scale))
        own = {
            "volume": np.mean((-score <= down) & (score <= up)),
            "width": np.mean(up * scale + np.minimum(down * scale, estimate)),
        }
        for name, loss in (("possible", "fnr"), ("certain", "fdr")):
            level = best_level(getattr(fitted, loss)[:, number].sum(0, dtype=np.float64), patients, ALPHA, loss)
            own[name] = 0.0 if level is None else getattr(tested, loss)[:, number, level].mean()
        known = not np.isnan(fitted.inwards).any()
        for name, needed in (("margin", "outwards"), ("core", "inwards")) if known else ():
            bound = least_bound({str(n): [v] for n, v in enumerate(getattr(fitted, needed)[:, number])}, ALPHA, "mean")
            own[name] = np.mean(getattr(tested, needed)[:, number] <= bound * (1 + 1e-9))
        for name, value in own.items():
            found.setdefault(name, []).append(float(value))
    return found


class Predicted(NamedTuple):
    """Logits ``(N, K, D, H, W)``, their winners and labels ``(N, D, H, W)`` of patients whom a network has not seen."""

    logits: Tensor
    winners: Tensor
    labels: Tensor
    chosen: dict[tuple[str, str, int], Any]

    @classmethod
    def of(cls, logits: Tensor, labels: Tensor) -> Predicted:
        """With the winners."""
        return cls(logits, torch.stack([one.float().argmax(0) for one in logits]), labels, {})

    def save(self, path: Path) -> None:
        """Write what :func:`read` reads."""
        np.savez(path, logits=self.logits.numpy(), labels=self.labels.numpy())

    def fit(self, kind: Kind, patients: Sequence[int] | NDArray[np.int64]) -> Calibrator:
        """A calibrator as ``crac calibrate`` fits it; the voxels of a patient are chosen once and kept."""
        calibrator = crac.build_calibrator(kind.method, CLASSES, regions="slice")
        pieces = [self._voxels(calibrator, kind, int(number)) for number in patients]
        found = fit_cells(
            lambda few: ([one] for one in pieces),
            calibrator.coefficients, calibrator.num_cells, CLASSES, by_volume=True,
        )  # fmt: skip
        calibrator.weights.copy_(found.weights)
        return calibrator

    def _voxels(self, calibrator: Calibrator, kind: Kind, number: int) -> Any:
        key = kind.method, kind.mask, number
        if key not in self.chosen:
            logits = as_batch(calibrator, self.logits[number].float())
            labels = as_batch(calibrator, self.labels[number].long(), channels=0)
            (slab,) = slabs(calibrator, logits, labels, Choice(kind.mask, None, False))
            found = slab.voxels()
            self.chosen[key] = SimpleNamespace(scores=self.logits, voxels=lambda: found)
        return self.chosen[key]

    def pool(self, calibrator: Calibrator | None, patients: Sequence[int] | NDArray[np.int64], margins=False) -> Pool:
        """Some patients, calibrated."""
        found = [self._probabilities(calibrator, number) for number in patients]
        return pool(found, [self.labels[number] for number in patients], margins)

    def _probabilities(self, calibrator: Calibrator | None, number: int) -> Tensor:
        logits = self.logits[number].float()
        if calibrator is None:
            return logits.softmax(0)
        batch, winners = calibrator.checked(as_batch(calibrator, logits)), self.winners[number]
        return calibrator.calibrated(batch, winners, calibrator.cells_of(winners)).float().movedim(1, 0)


@cache
def read(path: Path) -> Predicted:
    """A file of ``train``."""
    torch.set_num_threads(1)
    with np.load(path) as file:
        return Predicted.of(torch.from_numpy(file["logits"]), torch.from_numpy(file["labels"]))


@cache
def uncalibrated(path: Path) -> Pool:
    """All patients of a network, as it is."""
    given = read(path)
    return given.pool(None, range(len(given.labels)))


def one_division(path: Path, name: str, seed: int) -> Row:
    """Fit calibrators and guarantees on a random division: scheme -> what was realised."""
    given, kind, plain, found = read(path), CALIBRATIONS[name], uncalibrated(path), {}
    order = np.random.default_rng(seed).permutation(len(given.labels))
    tested = order[MOST : MOST + TESTED]
    for size in kind.sizes:
        patients = order[:size]
        calibrator = given.fit(kind, patients)
        new, known = given.pool(calibrator, tested), given.pool(calibrator, order[: min(2 * size, MOST)])
        found[f"none {size}"] = realised(plain.of(patients), plain.of(tested))
        found[f"shared {size}"] = realised(known.of(range(size)), new)
        if 2 * size <= MOST:
            found[f"apart {size} + {size}"] = realised(known.of(range(size, 2 * size)), new)
        if size in kind.crossed:
            parts = [
                given.pool(given.fit(kind, np.delete(patients, np.s_[n::FOLDS])), patients[n::FOLDS])
                for n in range(FOLDS)
            ]
            left_out = Pool(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))
            found[f"crossed {size}"] = realised(left_out, new)
    return found


def summary(rows: Sequence[Row]) -> dict[str, Any]:
    """Scheme -> measure -> class -> mean, its Monte-Carlo error and the spread over divisions."""
    return {
        scheme: {
            measure: {
                name: _spread([row[scheme][measure][number] for row in rows]) for number, name in enumerate(NAMES)
            }
            for measure in rows[0][scheme]
        }
        for scheme in rows[0]
    }


def differences(rows: Sequence[Row], pairs: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """The same of the difference of two schemes, division by division."""
    found = {}
    for first, second in pairs:
        paired = [
            {"": {measure: list(np.subtract(row[first][measure], row[second][measure])) for measure in row[first]}}
            for row in rows
        ]
        found[f"{first} less {second}"] = summary(paired)[""]
    return found


def _spread(values: Sequence[float]) -> dict[str, float]:
    known = np.array(values)
    spread = known.std(ddof=1)
    found = {"mean": known.mean(), "error": spread / math.sqrt(len(known)), "sd": spread}
    return {name: round(float(value), 5) for name, value in found.items()}


def calibrators(work: Path, seeds: Sequence[int]) -> dict[str, Any]:
    """What sharing the patients with the calibrator costs, network by network."""
    found: dict[str, Any] = {}
    for kind in CALIBRATIONS:
        each = {f"seed {seed}": json.loads((work / f"rows{seed}.json").read_text())[kind] for seed in seeds}
        rows = [row for own in each.values() for row in own]
        pairs = []
        for n in CALIBRATIONS[kind].sizes:
            others = (f"none {n}", f"apart {n} + {n}", f"apart {n // 2} + {n // 2}")
            pairs += [(f"{one} {n}", other) for one in ("shared", "crossed") for other in others]
            pairs += [(f"shared {n}", f"crossed {n}")]
        pairs = [pair for pair in pairs if {*pair} <= rows[0].keys()]
        found[kind] = {name: summary(own) for name, own in each.items()}
        found[kind] |= {"divisions": len(rows), "all": summary(rows), "differences": differences(rows, pairs)}
    return found


def every_epoch(path: Path) -> list[Pool]:
    """What each epoch of a network said about all patients."""
    with np.load(path) as file:
        return [Pool(*(file[f"{field}_{n}"] for field in Pool._fields)) for n in range(int(file["epochs"]))]


def luck(work: Path, seeds: Sequence[int], divisions: int) -> dict[str, Any]:
    """How much coverage varies with who calibrates, nobody being used twice: 70 patients, and 140 others."""
    found = {}
    for seed in seeds:
        last = every_epoch(work / f"epochs{seed}.npz")[-1]
        orders = [np.random.default_rng(division).permutation(len(last.dice)) for division in range(divisions)]
        covered = np.array([realised(last.of(order[:70]), last.of(order[70:]))["volume"] for order in orders])
        percentiles = {"1 %": 0.01, "5 %": 0.05, "95 %": 0.95}
        rows = {key: np.quantile(covered, share, axis=0).round(5).tolist() for key, share in percentiles.items()}
        found[f"seed {seed}"] = {"mean": covered.mean(0).round(5).tolist(), **rows}
    return found


def epochs(work: Path, seeds: Sequence[int], divisions: int) -> dict[str, Any]:
    """What sharing the patients with the choice of the epoch costs."""
    rows: list[Row] = []
    chosen: list[int] = []
    for seed in seeds:
        pools = every_epoch(work / f"epochs{seed}.npz")
        for division in range(divisions):
            order = np.random.default_rng(division).permutation(len(pools[0].dice))
            row: Row = {}
            for size in (10, 26):
                best = int(np.argmax([one.dice[order[:size]].mean() for one in pools]))
                chosen.append(best + 1)
                own = pools[best]
                tested = own.of(order[2 * 26 :])
                row[f"same {size}"] = realised(own.of(order[:size]), tested)
                row[f"others {size}"] = realised(own.of(order[size : 2 * size]), tested)
            rows.append(row)
    pairs = [(f"same {size}", f"others {size}") for size in (10, 26)]
    numbers, counts = np.unique(chosen, return_counts=True)
    return {"realised": summary(rows), "differences": differences(rows, pairs),
            "chosen": {int(epoch): int(count) for epoch, count in zip(numbers, counts, strict=True)}}  # fmt: skip


def out_of_fold(work: Path, divisions: int, size: int = 45) -> dict[str, Any]:
    """What patients whom single networks had not seen promise about the mean of the networks."""
    left, new = read(work / "left_out.npz"), read(work / "mean.npz")
    found: dict[str, Any] = json.loads((work / "folds.json").read_text())
    for kind in (None, *CALIBRATIONS):
        calibrator = None if kind is None else left.fit(CALIBRATIONS[kind], range(len(left.labels)))
        single, mean = (given.pool(calibrator, range(len(given.labels)), margins=True) for given in (left, new))
        rows = []
        for division in range(divisions):
            rng = np.random.default_rng(division)
            order = rng.permutation(len(mean.dice))
            tested = mean.of(order[size:])
            rows.append({
                "out-of-fold": realised(single.of(rng.permutation(len(single.dice))[:size]), tested),
                "by the mean": realised(mean.of(order[:size]), tested),
            })  # fmt: skip
        found[kind or "none"] = summary(rows) | {
            "differences": differences(rows, [("out-of-fold", "by the mean")]),
            "dice": {"out-of-fold": float(single.dice.mean()), "by the mean": float(mean.dice.mean())},
            "all out-of-fold": realised(single, mean),
        }
        print(kind, found[kind or "none"]["all out-of-fold"], found[kind or "none"]["dice"], flush=True)
    return found


def divide(args: argparse.Namespace) -> None:
    """Divide the patients of every network at random and keep what was realised; goes on where it was stopped."""
    with Workers(args.jobs) as workers:
        for seed in args.seeds:
            kept, path = args.work / f"rows{seed}.json", args.work.absolute() / f"seed{seed}.npz"
            rows = json.loads(kept.read_text()) if kept.exists() else {kind: [] for kind in CALIBRATIONS}
            while (done := len(rows["class_region"])) < args.divisions:
                for kind, own in rows.items():
                    own += workers.map(partial(one_division, path, kind), range(done, min(done + 10, args.divisions)))
                write_json(kept, rows)
                print(f"seed {seed}: {len(own)} divisions", flush=True)


def report(args: argparse.Namespace) -> None:
    """Write the result."""
    found = {
        "calibrator": calibrators(args.work, args.seeds),
        "epoch": epochs(args.work, args.seeds, 500),
        "luck": luck(args.work, args.seeds, 1000),
        "folds": out_of_fold(args.work, 500),
    }
    save(args.out, {"environment": environment(), "alpha": ALPHA, "tested": TESTED, "seeds": args.seeds, **found})


def train(args: argparse.Namespace) -> None:
    """Train the networks and keep what they say about patients they have not seen."""
    from crac.data import Split, Store
    from volume_intervals import PREPARATION, command

    work: Path = args.work
    work.mkdir(parents=True, exist_ok=True)
    if not (work / "store").exists():
        command("prepare", "nnunet", args.raw, work / "store", *PREPARATION)
    store = Store.open(work / "store")
    options = ["--width", 8, "--epochs", args.epochs, "--batch-size", 32, "--augment", "none", "--no-pictures"]
    options += ["--accelerator", "cpu"]
    for seed in args.seeds:
        run, names = work / f"run{seed}", sorted(store.cases)
        order = [names[number] for number in np.random.default_rng(seed).permutation(len(names))]
        # The ten who validate choose nothing here: no use is made of the best epoch, and nothing else depends on them.
        split = Split(train=order[:50], validation=order[50:60], test=order[60:])
        split.save(work / f"split{seed}.json")
        with _keeping_epochs():
            begun = ("--data", store.path, "--split", work / f"split{seed}.json", "--seed", seed, "--out", run)
            command("train", *begun, *options)
        pools = []
        for epoch in range(1, args.epochs + 1):
            predicted = _predict([run / f"epoch{epoch}.safetensors"], store, order[50:])
            pools.append(predicted.pool(None, range(len(predicted.labels)), margins=True))
            print(f"seed {seed}, epoch {epoch}: Dice {pools[-1].dice.mean():.3f}", flush=True)
        predicted.save(work / f"seed{seed}.npz")
        kept = {f"{field}_{n}": getattr(one, field) for n, one in enumerate(pools) for field in Pool._fields}
        np.savez(work / f"epochs{seed}.npz", epochs=len(pools), **kept)
    _train_folds(args, options, command)


def _train_folds(args: argparse.Namespace, options: Sequence[object], command: Callable[..., str]) -> None:
    """A cross-validation on 90 patients; the others are predicted by the mean, and by ``crac guarantee``'s promises."""
    from crac.data import Store
    from crac.evaluation.realised import realise
    from crac.evaluation.run import RunCases
    from crac.models.ensemble import load
    from crac.models.folds import Folds
    from crac.models.guarantees import run_guarantees
    from volume_intervals import PREPARATION

    work: Path = args.work
    whole = Store.open(work / "store")
    names = sorted(whole.cases)
    order = [names[number] for number in np.random.default_rng(100).permutation(len(names))]
    raw, folds = work / "raw", work / "folds"
    if not (work / "few").exists():
        for part, ending in (("imagesTr", "_0000.nii.gz"), ("labelsTr", ".nii.gz")):
            (raw / part).mkdir(parents=True, exist_ok=True)
            for name in order[:90]:
                shutil.copy(args.raw / part / f"{name}{ending}", raw / part)
        shutil.copy(args.raw / "dataset.json", raw)
        command("prepare", "nnunet", raw, work / "few", *PREPARATION)
    few = Store.open(work / "few")
    command("train", "--data", few.path, "--folds", 3, "--jobs", args.jobs, "--out", folds, *options)
    runs = Folds(folds).runs()
    parts = [_predict([run.path / "last.safetensors"], few, run.split().test) for run in runs]
    left = Predicted.of(*(torch.cat([getattr(part, name) for part in parts]) for name in ("logits", "labels")))
    new = _predict([run.path / "last.safetensors" for run in runs], whole, order[90:])
    for name, predicted in (("left_out", left), ("mean", new)):
        predicted.save(work / f"{name}.npz")
    promised = {}
    for name, ways in (("none", ()), ("class_region", ("--mask", "all", "--force", "--folds", 2))):
        if ways:
            command("calibrate", folds, "--checkpoint", "last", "--device", "cpu", *ways)
        command("guarantee", folds, "--alpha", ALPHA, "--checkpoint", "last", "--device", "cpu")
        ensemble = load(folds, "cpu", "last")
        found = run_guarantees(folds, ensemble)
        assert found is not None
        promised[name] = realise(found, RunCases(ensemble, whole, order[90:], "native")).summary["by_class"]
        for one, kept in promised[name].items():
            print(name, one, {part: own["realised"] for part, own in kept.items()}, flush=True)
    (work / "folds.json").write_text(json.dumps({"crac guarantee FOLDS": promised}))


def _keeping_epochs() -> Any:
    """Let trainings keep the checkpoint of every epoch."""
    from crac.training.run import RunFolder

    original = RunFolder.save_epoch

    def keep(self: RunFolder, state: Any, *more: Any) -> None:
        original(self, state, *more)
        shutil.copy(self.last, self.path / f"epoch{state.epoch}.safetensors")

    return mock.patch.object(RunFolder, "save_epoch", keep)


@torch.inference_mode()
def _predict(checkpoints: Sequence[Path], store: Any, names: Sequence[str]) -> Predicted:
    """What networks together say about patients: logits, or the logarithms of their mean probabilities."""
    from crac.models.ensemble import Ensemble
    from crac.models.model import Model

    models = tuple(Model.load(path, "cpu") for path in checkpoints)
    model = models[0] if len(models) == 1 else Ensemble(models)
    logits = [model.logits(torch.from_numpy(np.array(store.image(name), dtype=np.float32))).half() for name in names]
    labels = [torch.from_numpy(np.array(store.label(name)).astype(np.uint8)) for name in names]
    return Predicted.of(torch.stack(logits), torch.stack(labels))


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    for name, action in (("train", train), ("divide", divide), ("report", report)):
        own = commands.add_parser(name)
        own.add_argument("--work", type=Path, required=True, help="folder for data, runs and what they predict")
        own.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
        own.add_argument("--jobs", type=int, default=1)
        own.set_defaults(action=action)
        if name == "train":
            own.add_argument("raw", type=Path, help="data set in nnU-Net's layout")
            own.add_argument("--epochs", type=int, default=8)
        elif name == "divide":
            own.add_argument("--divisions", type=int, default=100, help="of each network's patients")
        else:
            own.add_argument("--out", type=Path, default=RESULTS / "shared_patients.json")
    args = parser.parse_args(arguments)
    args.action(args)


if __name__ == "__main__":
    main()
