"""The page of the demo: two networks, as they are and calibrated, how they came about, and what each part is for."""

import base64
import math
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from markupsafe import Markup

from crac.demo.settings import CHECKPOINT, PRESET, DemoSettings
from crac.evaluation import Evaluation
from crac.evaluation.crossfit import Gain
from crac.metrics.ranks import Interval
from crac.report.charts import tag
from crac.report.page import Block, Step, verdict, write_page
from crac.report.promises import promises
from crac.report.result import Result
from crac.report.words import gained

MASK = "label_foreground"
COLUMNS = (
    "dsc", "hd95", "nll[band]", f"ece[{MASK}]", f"tace[{MASK}]", "ece[all]", f"gap.inner[{MASK}]", f"gap.outer[{MASK}]",
)  # fmt: skip
"""What the demo returns of each network, means over volumes."""

LABELS = {
    "ce": "cross-entropy",
    "ce-calibrated": "cross-entropy, calibrated",
    "crac": "CRaC",
    "crac-calibrated": "CRaC, calibrated",
}

PARTS = (
    (
        "nnunet, deep supervision",
        "A normalised network whose coarser levels see the labels too learns from few images.",
    ),
    ("Dice beside cross-entropy", "Finds small structures sooner, and makes a network too sure of itself."),
    ("light augmentation", "Turned, scaled and brightened images: worth more than any loss, for Dice and calibration."),
    ("rate that rises, then falls", "Few epochs suffice; a gradient that is too long is shortened."),
    ("a third sure to show foreground", "Images without any structure do not fill the batches."),
    (
        "CRaC",
        "Pulls probabilities towards the shares of the neighbouring labels, as hard as validation patients ask for.",
    ),
    (
        "calibration",
        "Repairs the confidence that is left over, class by class, inside and on boundaries; no label changes.",
    ),
    ("promises", "Turn probabilities into thresholds, margins and intervals that hold for a stated share of patients."),
)
"""Parts of what was done, and what each is for."""


def scores(evaluations: Mapping[str, Evaluation]) -> dict[str, dict[str, float]]:
    """Means over the held-out volumes, by network."""
    means = {name: evaluation.per_volume() for name, evaluation in evaluations.items()}
    return {name: {column: values[column]["mean"] for column in COLUMNS} for name, values in means.items()}


def write_demo_page(
    out: Path,
    settings: DemoSettings,
    evaluations: Mapping[str, Evaluation],
    about: Mapping[str, dict[str, Any]],
    seconds: float,
) -> list[str]:
    """Write ``index.html`` and return what it says was found.

    Args:
        out: Folder of the demo.
        settings: How much was made and trained.
        evaluations: What was measured of each network on held-out patients, in the order of :data:`LABELS`.
        about: What is known about each of them.
        seconds: How long it all took.
    """
    results = {name: _result(evaluations[name], label, about[name]) for name, label in LABELS.items()}
    shown, kept = list(results.values()), _kept(results["crac-calibrated"])
    lead = verdict([results["ce"]], "The network trained with cross-entropy and Dice")[:1]
    write_page(
        out / "index.html",
        shown,
        title="Can these probabilities be trusted?",
        kicker=f"crac demo · made-up patients, seed {settings.seed}, {round(seconds)} s on this machine",
        lead=lead,
        story=story(settings, results),
        blocks=[
            Block("parts", "What each part is for", [_parts()]),
            Block(
                "training",
                "The trainings",
                [
                    _figure(
                        out / "ce" / "curves.png", "With cross-entropy: losses, Dice and calibration error by epoch."
                    ),
                    _figure(out / "crac" / "curves.png", "With CRaC: the same."),
                    _figure(
                        out / "crac" / "multipliers.png",
                        "What CRaC's constraint weighs, inside structures and on boundaries: after every epoch more "
                        "where the network is surer than right on validation patients, less where it is less sure.",
                    ),
                ],
            ),
        ],
    )
    return [*lead, *verdict(shown), kept]


def _result(evaluation: Evaluation, label: str, about: dict[str, Any]) -> Result:
    """A network as the page calls it, which says where calibration has left it as it is."""
    calibration = about.get("calibration")
    left = calibration is not None and calibration["method"] != calibration["judged"]
    return Result.of(evaluation, f"{label} (no change)" if left else label, **about)


def _parts() -> Markup:
    rows = [tag("tr", tag("th", name, scope="row"), tag("td", words, class_="verdict")) for name, words in PARTS]
    measured = "What the last three bring here is measured above; the others are the same in all networks of this page."
    table = tag("table", tag("tbody", *rows))
    return tag("p", measured) + tag("div", table, class_="scroll")


def _figure(path: Path, words: str) -> Markup:
    picture = base64.b64encode(path.read_bytes()).decode()
    shown = tag("img", src=f"data:image/png;base64,{picture}", alt=words, style="max-width:100%")
    return tag("figure", shown, tag("figcaption", words), style="margin:1.5rem 0 0")


def _kept(result: Result) -> str:
    """How many promises were kept on the held-out patients, in a sentence."""
    found = promises(result)
    verdicts = [row["verdict"] for row in found["rows"] if row["verdict"]] if found else []
    if not verdicts:
        return "Nothing was promised, for that needs more validation patients."
    counted = ", ".join(f"{number} {words}" for words, number in Counter(verdicts).items())
    return f"Of {len(verdicts)} promises, on patients nobody had seen before: {counted}."


def _calibrated(before: Result, after: Result) -> str:
    """What validation patients said of a network's calibration and, if it was taken, what it did to those held out."""
    about = after.summary["calibration"]
    measure, gain = next(iter(about["gain"].items()))
    interval = Interval(*(math.nan if end is None else end for end in gain["difference"]))
    decided = Gain(measure, gain["before"], gain["after"], interval)
    taken = about["method"] == about["judged"]
    sentences = [f"For {before.label}, {gained(about['judged'], decided, kept=taken)}"]
    return " ".join(sentences + verdict([before, after])[:1] * taken)


def story(settings: DemoSettings, results: Mapping[str, Result]) -> list[Step]:
    """Return what was done, what came of it on held-out patients, and the commands that do it to one's own data."""
    plain, plain_calibrated, own, own_calibrated = (results[name] for name in LABELS)
    last = f"--checkpoint {CHECKPOINT}"
    return [
        Step(
            f"{settings.patients} patients",
            f"Hearts whose annotator's outline wavers, two volumes each: {settings.train} patients train, as few as "
            f"many projects have, {settings.validation} validate, {settings.test} are held out. Where nothing else is "
            "said, this page shows what was measured on those held out.",
            "crac prepare nnunet RAW STORE",
        ),
        Step(
            "A network as most are trained",
            "The practical recipe, cross-entropy and Dice with augmentation: a small network after the last of "
            f"{settings.epochs} epochs. {' '.join(verdict([plain]))}",
            "crac train --data STORE --out RUN-CE",
        ),
        Step(
            "The same network trained with CRaC",
            "The same weights to begin with, the same data and epochs. CRaC also pulls the probabilities towards the "
            "shares of the neighbouring labels, inside structures and on their boundaries; how hard is learned on the "
            f"validation patients. {' '.join(verdict([plain, own]))}",
            f"crac train --data STORE --method crac --method-options preset={PRESET} --out RUN",
        ),
        Step(
            "Calibrated",
            "Both: temperatures by class and region, fitted on the validation patients. They change how sure a network "
            "is, not what it predicts; where validation patients left out of the fit show no gain, nothing is changed. "
            f"{_calibrated(plain, plain_calibrated)} {_calibrated(own, own_calibrated)}",
            f"crac calibrate RUN-CE {last}\ncrac calibrate RUN {last}",
        ),
        Step(
            "Its promises",
            f"Fitted on the validation patients for a risk of {100 * settings.alpha:g} %: thresholds, margins and "
            f"volumes with intervals. {_kept(own_calibrated)}",
            f"crac guarantee RUN {last} --alpha {settings.alpha:g}",
        ),
        Step(
            "Measured",
            "On the held-out patients, whoever wins; this page compares the results.",
            f"crac evaluate RUN-CE {last} --no-calibration --out ce\ncrac evaluate RUN-CE {last} --out ce-calibrated\n"
            f"crac evaluate RUN {last} --no-calibration --no-guarantees --out crac\n"
            f"crac evaluate RUN {last} --out crac-calibrated\n"
            "crac report ce ce-calibrated crac crac-calibrated --out page.html",
        ),
    ]
