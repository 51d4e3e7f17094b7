"""One self-contained page with everything the demo measured."""

import base64
from collections.abc import Mapping
from pathlib import Path

from crac.demo.settings import DemoSettings
from crac.errors import require
from crac.evaluation import Evaluation
from crac.files import write_text

MASK = "label_foreground"
COLUMNS = {
    "dsc": ("Dice", "overlap with the labels; 1 is perfect"),
    "hd95": ("HD95 (voxels)", "how far outlines stray; 0 is perfect"),
    f"ece[{MASK}]": ("ECE", "how far confidence is from accuracy on voxels labelled foreground; 0 is perfect"),
    f"tace[{MASK}]": ("TACE", "the same, of every class's probability"),
    "ece[all]": ("ECE, all voxels", "the same with the background, most of which is easy"),
    f"gap.inner[{MASK}]": ("gap, inner", "confidence - accuracy inside organs; above 0 is overconfident"),
    f"gap.outer[{MASK}]": ("gap, outer", "the same on boundaries"),
}


def scores(evaluations: Mapping[str, Evaluation]) -> dict[str, dict[str, float]]:
    """The table of the page: means over the held-out volumes, by method."""
    means = {method: evaluation.per_volume() for method, evaluation in evaluations.items()}
    return {method: {name: values[name]["mean"] for name in COLUMNS} for method, values in means.items()}


def verdict(scores: Mapping[str, Mapping[str, float]]) -> str:
    """What was found, in two sentences, whoever won."""
    plain, calibrated = (scores[method][f"ece[{MASK}]"] for method in ("ce", "crac"))
    boundary = [scores[method][f"gap.outer[{MASK}]"] for method in ("ce", "crac")]
    word = "lower" if calibrated < plain else "not lower"
    return (
        f"On patients neither network has seen, the calibration error (ECE) of crac is {word}: {calibrated:.4f} "
        f"against {plain:.4f}. On boundaries, confidence minus accuracy is {boundary[1]:+.3f} with crac "
        f"and {boundary[0]:+.3f} with cross-entropy."
    )


def write_page(out: Path, settings: DemoSettings, scores: Mapping[str, Mapping[str, float]], seconds: float) -> None:
    """Write ``index.html``; the pictures are inside it, and as PNG in the folders beside it."""
    environment = require("jinja2").Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    template = environment.from_string(Path(__file__).with_name("page.html.j2").read_text(encoding="utf-8"))
    page = template.render(
        settings=settings,
        scores=scores,
        columns=COLUMNS,
        mask=MASK,
        verdict=verdict(scores),
        seconds=round(seconds),
        out=out,
        picture=lambda path: base64.b64encode((out / path).read_bytes()).decode(),
    )
    write_text(out / "index.html", page)
