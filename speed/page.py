"""How long a page of 200 patients and 14 classes takes, and how large it is: ``speed/page.py --out FILE.json``."""

import argparse
import json
import os
import platform
import shutil
import tempfile
import time
from pathlib import Path

import numpy as np
import torch

from crac import __version__
from crac.evaluation import Case, Evaluation, LoadedCases, Protocol, evaluate
from crac.evaluation.views import View
from crac.report.folder import write_report

PATIENTS, CLASSES, SHAPE = 200, 14, (4, 24, 24)


def case(number: int) -> Case:
    """A small volume with every class; its size does not matter to the page."""
    generator = torch.Generator().manual_seed(number)
    labels = (torch.arange(SHAPE[1] * SHAPE[2]).view(SHAPE[1:]) * CLASSES // (SHAPE[1] * SHAPE[2])).expand(SHAPE)
    hot = torch.nn.functional.one_hot(labels, CLASSES).movedim(-1, 0)
    logits = 5 * hot + 2 * torch.randn((CLASSES, *SHAPE), generator=generator)
    return Case(f"patient_{number:03}", f"patient_{number:03}", logits, labels.contiguous(), (3.0, 1.0, 1.0), True)


def view(which: str) -> View:
    """The largest slices that are kept, with an image of pure noise: nothing is harder to compress."""
    rng = np.random.default_rng(0)
    shape = (40, 256, 256)
    label = np.broadcast_to((np.arange(256) * CLASSES // 256).astype(np.uint8)[:, None], shape)
    noise = rng.integers(0, 256, shape, dtype=np.uint8)
    return View(f"patient_{which}", which, 0.5, 1.0, list(range(40)), label, np.roll(label, 5, 1), noise, noise)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--page", type=Path, help="keep the page, to look at it")
    args = parser.parse_args()
    names = [f"organ {number}" for number in range(CLASSES)]
    cases = LoadedCases([case(number) for number in range(PATIENTS)])
    found: Evaluation = evaluate(cases, Protocol(names, masks=("band", "label_foreground")))
    found.views = [view("worst"), view("middle")]
    with tempfile.TemporaryDirectory() as folder:
        start, busy = time.perf_counter(), time.process_time()
        write_report(found, Path(folder) / "evaluated")
        seconds, busy = time.perf_counter() - start, time.process_time() - busy
        page = Path(folder) / "evaluated" / "report.html"
        size = page.stat().st_size
        if args.page:
            shutil.copy(page, args.page)
    about = {
        "command": f"python speed/page.py --out {args.out}",
        "date": time.strftime("%Y-%m-%d"),
        "cores": os.cpu_count(),
    }
    versions = {"crac": __version__, "torch": torch.__version__, "python": platform.python_version()}
    load = [round(value, 1) for value in os.getloadavg()]
    spent = {"seconds": round(seconds, 1), "cpu_seconds": round(busy, 1), "megabytes": round(size / 1e6, 2)}
    result = {"patients": PATIENTS, "classes": CLASSES, **spent}
    args.out.write_text(json.dumps({**result, **about, "load": load, "versions": versions}, indent=2) + "\n")
    print(args.out.read_text())


if __name__ == "__main__":
    main()
