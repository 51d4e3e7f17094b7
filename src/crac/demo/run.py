"""What the demo does, step by step; each is a command that can be given by hand."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from crac.data import Intensity, Recipe, Split, Store, phantom, prepare
from crac.demo.figures import draw_slices
from crac.demo.page import scores, write_page
from crac.demo.settings import DemoSettings
from crac.errors import InputError
from crac.evaluation import Evaluation
from crac.evaluation.run import evaluate_run
from crac.models.model import Model
from crac.models.predict import Image, predict_images
from crac.report.folder import write_report
from crac.training import TrainConfig, train

METHODS = ("ce", "crac")


def run_demo(out: Path, settings: DemoSettings | None = None, say: Callable[[str], None] = print) -> dict[str, Any]:
    """Make patients, train with and without calibration, audit both and write a page, all in the new folder ``out``.

    The settings say how much is made and trained; ``say`` takes a line of progress. Returns what was measured on the
    held-out patients, by method, and where the page is.
    """
    settings = settings or DemoSettings()
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise InputError(f"--out must be an empty folder or not exist yet; got {out}")
    began = time.perf_counter()

    def step(number: int, what: str) -> None:
        say(f"[{time.perf_counter() - began:5.0f} s] {number}/5 {what}")

    step(1, f"making {settings.patients} patients ({out / 'raw'})")
    store = _make_data(out, settings)
    evaluations: dict[str, Evaluation] = {}
    models: dict[str, Model] = {}
    for number, method in enumerate(METHODS, start=2):
        step(number, f"training with {method} ({out / method})")
        if not train(_config(out, settings, method), out / method).finished:
            raise KeyboardInterrupt
        models[method] = Model.load(out / method, checkpoint="last")
    step(4, "measuring both on held-out patients")
    for method in METHODS:
        evaluations[method] = evaluate_run(out / method, models[method])
        source = {"run": str(out / method), "split": "test", "checkpoint": "last"}
        write_report(evaluations[method], out / f"{method}-audit", source)
    step(5, f"segmenting one of them ({out / 'maps'}) and writing the page")
    held_out = Split.load(out / "split.json").test
    raw = next((out / "raw").glob(f"*/{held_out[0]}.nii.gz"))
    predict_images(models["crac"], [Image(held_out[0], (raw,))], out / "maps")
    draw_slices(store, held_out, models, out / "slices.png")
    found, seconds = scores(evaluations), time.perf_counter() - began
    write_page(out, settings, found, seconds)
    say(f"[{time.perf_counter() - began:5.0f} s] done: open {out / 'index.html'}")
    return {"page": str(out / "index.html"), "seconds": seconds, **found}


def _make_data(out: Path, settings: DemoSettings) -> Store:
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
    return store


def _config(out: Path, settings: DemoSettings, method: str) -> TrainConfig:
    return TrainConfig(
        data=out / "store",
        split=out / "split.json",
        recipe="paper",
        method=method,
        backbone="nnunet",
        width=settings.width,
        epochs=settings.epochs,
        batch_size=4,
        learning_rate=5e-3,  # a narrow network learns at a higher rate than the paper's
        late_learning_rate=5e-4,
        late_from=0.7,
        seed=settings.seed,
        accelerator="cpu",
    )
