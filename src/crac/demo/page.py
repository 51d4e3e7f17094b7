"""One self-contained page with everything the demo measured."""

from __future__ import annotations

import base64
import html
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from crac.demo.settings import DemoSettings
from crac.evaluation import Evaluation

__all__ = ["Shown", "write_page"]

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

STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; color: #222 }
img { max-width: 100% } .pair { display: flex; gap: 1rem; flex-wrap: wrap } .pair figure { flex: 1 1 24rem; margin: 0 }
table { border-collapse: collapse } th, td { padding: .3rem .8rem; text-align: right; border-bottom: 1px solid #ddd }
th:first-child, td:first-child { text-align: left } code { background: #f3f3f3; padding: .1rem .3rem }
figcaption { color: #555 }
"""


@dataclass(frozen=True)
class Shown:
    """What the page shows.

    Args:
        settings: Of the demo.
        evaluations: Held-out patients measured, by method.
        seconds: How long everything took.
    """

    settings: DemoSettings
    evaluations: Mapping[str, Evaluation]
    seconds: float

    def scores(self) -> dict[str, dict[str, float]]:
        """The table: means over the held-out volumes."""
        means = {method: evaluation.per_volume() for method, evaluation in self.evaluations.items()}
        return {method: {name: values[name]["mean"] for name in COLUMNS} for method, values in means.items()}


def verdict(scores: Mapping[str, Mapping[str, float]]) -> str:
    """What was found, in a sentence, whoever won."""
    plain, calibrated = (scores[method][f"ece[{MASK}]"] for method in ("ce", "crac"))
    boundary = [scores[method][f"gap.outer[{MASK}]"] for method in ("ce", "crac")]
    word = "lower" if calibrated < plain else "not lower"
    return (
        f"On patients neither network has seen, the calibration error (ECE) of crac is {word}: {calibrated:.4f} "
        f"against {plain:.4f}. On boundaries, confidence minus accuracy is {boundary[1]:+.3f} with crac "
        f"and {boundary[0]:+.3f} with cross-entropy."
    )


def write_page(out: Path, shown: Shown) -> None:
    """Write ``index.html``; the pictures are inside it, and as PNG in the folders beside it."""
    scores = shown.scores()
    settings = shown.settings
    body = [
        "<h1>Can these probabilities be trusted?</h1>",
        f"<p>{settings.patients} made-up patients, two volumes each: {settings.train} train, {settings.validation} "
        f"validate, {settings.test} are held out. The same small network was trained twice for {settings.epochs} "
        "epochs, and its last epoch taken: with cross-entropy (<code>ce</code>), and with <code>crac</code>, which "
        "also keeps its logits near what the neighbouring labels say. Everything below was measured on the held-out "
        f"patients. It all took {shown.seconds:.0f} s on this machine; seed {settings.seed}.</p>",
        f"<p><b>{html.escape(verdict(scores))}</b></p>",
        _table(scores),
        "<h2>Confidence against accuracy</h2>",
        "<p>On the diagonal, a voxel the network is 80 % sure of is right 8 times out of 10. Below it, the network "
        "is overconfident.</p>",
        _pair(out, f"reliability.{MASK}.png"),
        "<h2>Inside organs and on their boundaries</h2>",
        "<p>Annotators disagree at boundaries, so that is where a network should be less sure.</p>",
        _pair(out, f"reliability_regions.{MASK}.png"),
        "<h2>Where they are sure</h2>",
        _figure(
            out / "slices.png",
            "Held-out patients: labels, then the probability of whatever class each network predicts.",
        ),
        "<h2>The multipliers</h2>",
        "<p>After every epoch crac looks at the validation patients and adapts the weight of each constraint.</p>",
        _figure(out / "crac" / "multipliers.png", "One line per class and region."),
        "<h2>By hand</h2>",
        f"<pre>crac evaluate {out / 'crac'} --split test --checkpoint last --out audit\n"
        f"crac predict {out / 'crac'} {out / 'raw' / 'patient001'}/patient001_frame01.nii.gz --out maps</pre>",
    ]
    page = f"<!doctype html><html lang='en'><meta charset='utf-8'><title>crac demo</title><style>{STYLE}</style>"
    (out / "index.html").write_text(page + "\n".join(body) + "</html>\n", encoding="utf-8")


def _table(scores: Mapping[str, Mapping[str, float]]) -> str:
    head = "".join(f"<th title='{html.escape(why)}'>{html.escape(name)}</th>" for name, why in COLUMNS.values())
    rows = "".join(
        f"<tr><td><code>{method}</code></td>" + "".join(f"<td>{row[name]:.4f}</td>" for name in COLUMNS) + "</tr>"
        for method, row in scores.items()
    )
    explained = "; ".join(f"<b>{html.escape(name)}</b>: {html.escape(why)}" for name, why in COLUMNS.values())
    return f"<table><tr><th>trained with</th>{head}</tr>{rows}</table><p><small>{explained}.</small></p>"


def _pair(out: Path, name: str) -> str:
    return "<div class='pair'>" + "".join(_figure(out / f"{m}-audit" / name, m) for m in ("ce", "crac")) + "</div>"


def _figure(path: Path, caption: str) -> str:
    data = base64.b64encode(path.read_bytes()).decode()
    return f"<figure><img alt='{html.escape(caption)}' src='data:image/png;base64,{data}'>" + (
        f"<figcaption>{html.escape(caption)}</figcaption></figure>"
    )
