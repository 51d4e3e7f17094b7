"""What the demo does, step by step; each is a command that can be given by hand."""

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from crac.data import Intensity, Recipe, Split, phantom, prepare
from crac.demo.page import scores, write_demo_page
from crac.demo.settings import CHECKPOINT, PRESET, DemoSettings
from crac.errors import InputError
from crac.evaluation import Evaluation
from crac.evaluation.calibrate import calibrate, of_run
from crac.evaluation.guarantees import guarantee_run
from crac.evaluation.run import RunCases, about_run, evaluate_run
from crac.evaluation.views import look_at, worst_and_middle
from crac.guarantees import Guarantees
from crac.models.guarantees import GUARANTEES
from crac.models.model import CALIBRATION, Model
from crac.models.predict import Image, predict_images
from crac.report.folder import write_report
from crac.training import TrainConfig, train

METHODS = ("ce", "crac")


@contextlib.contextmanager
def _one_thread() -> Iterator[None]:
    """Compute in one thread: images are small, and on a busy machine several threads wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@_one_thread()
def run_demo(out: Path, settings: DemoSettings | None = None, say: Callable[[str], None] = print) -> dict[str, Any]:
    """Make patients, train two networks, calibrate both, let one promise, measure all and write a page, in ``out``.

    The settings say how much is made and trained; ``say`` takes a line of progress. Returns what was measured on the
    held-out patients, by network, what the page says of it, and where it is.
    """
    settings = settings or DemoSettings()
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise InputError(f"--out must be an empty folder or not exist yet; got {out}")
    began = time.perf_counter()

    def step(number: int, what: str) -> None:
        say(f"[{time.perf_counter() - began:5.0f} s] {number}/7 {what}")

    step(1, f"making {settings.patients} patients ({out / 'raw'})")
    _make_data(out, settings)
    models: dict[str, Model] = {}
    for number, method in enumerate(METHODS, start=2):
        step(number, f"training with {method} ({out / method})")
        if not train(_config(out, settings, method), out / method).finished:
            raise KeyboardInterrupt
    step(4, f"calibrating both on the validation patients (ce/{CALIBRATION}, crac/{CALIBRATION})")
    for method in METHODS:
        models[method] = Model.load(out / method, checkpoint=CHECKPOINT)
        found = calibrate(of_run(out / method, models[method], checkpoint=CHECKPOINT))
        found.calibrator.save(out / method / CALIBRATION)
        models[f"{method}-calibrated"] = Model.load(out / method, checkpoint=CHECKPOINT)
    step(5, f"fitting promises of crac on them ({out / 'crac' / GUARANTEES})")
    promised = guarantee_run(out / "crac", models["crac-calibrated"], settings.alpha)
    step(6, "measuring all four, and what the promises came to, on held-out patients")
    evaluations, about = _measure(out, models, promised)
    step(7, f"segmenting one of them ({out / 'maps'}) and writing the page")
    held_out = Split.load(out / "split.json").test
    raw = next((out / "raw").glob(f"*/{held_out[0]}.nii.gz"))
    predict_images(models["crac-calibrated"], [Image(held_out[0], (raw,))], out / "maps")
    seconds = time.perf_counter() - began
    sentences = write_demo_page(out, settings, evaluations, about, seconds)
    say(f"[{time.perf_counter() - began:5.0f} s] done: open {out / 'index.html'}")
    measured = {"page": str(out / "index.html"), "seconds": seconds, "verdict": " ".join(sentences)}
    return measured | scores(evaluations)


def _measure(
    out: Path, models: dict[str, Model], promised: Guarantees
) -> tuple[dict[str, Evaluation], dict[str, dict[str, Any]]]:
    """Measure every model on the test part, the last one's promises too, and look at the same cases of each."""
    evaluations: dict[str, Evaluation] = {}
    about: dict[str, dict[str, Any]] = {}
    chosen: dict[str, str] | None = None
    for name, model in models.items():
        run = out / name.removesuffix("-calibrated")
        evaluation = evaluate_run(run, model, guarantees=promised if name == "crac-calibrated" else None)
        chosen = chosen or worst_and_middle(evaluation)
        evaluation.views = look_at(RunCases.of(run, model), evaluation, chosen)
        evaluations[name], about[name] = evaluation, about_run(run, model, checkpoint=CHECKPOINT)
        write_report(evaluation, out / f"{name}-audit", **about[name])
    return evaluations, about


def _make_data(out: Path, settings: DemoSettings) -> None:
    phantom.cardiac(
        out / "raw", patients=settings.patients, seed=settings.seed, size=settings.size, slices=settings.slices
    )
    recipe = Recipe(
        name="demo",
        orientation="stored",
        size=(None, settings.size, settings.size),
        intensity=(Intensity(method="percentile", low=0, high=100),),
    )
    store = prepare("acdc", out / "raw", out / "store", recipe=recipe)
    patients = sorted({case.patient for case in store.cases.values()})
    first, second = settings.train, settings.train + settings.validation
    parts = patients[:first], patients[first:second], patients[second:]
    Split.of_patients(store.cases, parts).save(out / "split.json")


def _config(out: Path, settings: DemoSettings, method: str) -> TrainConfig:
    return TrainConfig(
        data=out / "store",
        split=out / "split.json",
        method=method,
        method_options={"preset": PRESET} if method == "crac" else {},
        width=settings.width,
        epochs=settings.epochs,
        batch_size=4,
        patches=settings.patches,
        seed=settings.seed,
        accelerator="cpu",
    )
