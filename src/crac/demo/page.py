"""The page of the demo: two networks, as they are and calibrated, how they came about, and what each part is for."""

import base64
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from markupsafe import Markup

from crac.demo.settings import DemoSettings
from crac.evaluation import Evaluation
from crac.report.charts import tag
from crac.report.page import Block, Step, verdict, write_page
from crac.report.promises import promises
from crac.report.result import Result

MASK = "label_foreground"
COLUMNS = (
    "dsc", "hd95", f"ece[{MASK}]", f"tace[{MASK}]", "ece[all]", f"gap.inner[{MASK}]", f"gap.outer[{MASK}]",
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
    ("CRaC", "Keeps logits near what neighbouring labels say: less confidence on boundaries, where it is wrong."),
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
        evaluations: What was measured of each network on held-out patients.
        about: What is known about each of them.
        seconds: How long it all took.
    """
    results = [Result.of(evaluation, LABELS[name], **about[name]) for name, evaluation in evaluations.items()]
    kept = _kept(results[-1])
    write_page(
        out / "index.html",
        results,
        title="Can these probabilities be trusted?",
        kicker=f"crac demo · made-up patients, seed {settings.seed}, {round(seconds)} s on this machine",
        story=_story(settings, kept),
        blocks=[
            Block("parts", "What each part is for", [_parts()]),
            Block(
                "training",
                "The trainings",
                [
                    _figure(
                        out / "ce" / "curves.png", "With cross-entropy: losses, Dice and calibration error by epoch."
                    ),
                    _figure(
                        out / "crac" / "curves.png",
                        "With CRaC: the same. Its loss rises by design, for the weights of its constraints grow.",
                    ),
                    _figure(
                        out / "crac" / "multipliers.png",
                        "These weights, one line per class and region; after every epoch they learn from the "
                        "validation patients.",
                    ),
                ],
            ),
        ],
    )
    return [*verdict(results), kept]


def _parts() -> Markup:
    rows = [tag("tr", tag("th", name, scope="row"), tag("td", words, class_="verdict")) for name, words in PARTS]
    measured = "What the last three bring here is measured above; the others are the same in all networks of this page."
    table = tag("table", tag("tbody", *rows))
    return tag("div", tag("p", measured), tag("div", table, class_="scroll"))


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


def _story(settings: DemoSettings, kept: str) -> list[Step]:
    return [
        Step(
            f"{settings.patients} patients",
            f"Hearts whose annotator's outline wavers, two volumes each: {settings.train} patients train, as few as "
            f"many projects have, {settings.validation} validate, {settings.test} are held out. All that this page "
            "shows was measured on those held out.",
            "crac prepare nnunet RAW STORE",
        ),
        Step(
            "A network as most are trained",
            f"The practical recipe, cross-entropy and Dice with augmentation, {settings.epochs} epochs of a small "
            "network: what it finds is good, and it is often too sure of it.",
            "crac train --data STORE --out RUN-CE",
        ),
        Step(
            "The same network trained with CRaC",
            "The same weights to begin with, the same data and epochs. CRaC also keeps the logits near what the "
            "neighbouring labels say, class by class, inside structures and on their boundaries.",
            "crac train --data STORE --method crac --out RUN",
        ),
        Step(
            "Calibrated",
            "Both: temperatures by class and region, fitted on the validation patients. They change how sure a network "
            "is, not what it predicts; where patients left out show no gain, nothing is changed.",
            "crac calibrate RUN-CE\ncrac calibrate RUN",
        ),
        Step(
            "Its promises",
            f"Fitted on the validation patients for a risk of {100 * settings.alpha:g} %: thresholds, margins and "
            f"volumes with intervals. {kept}",
            f"crac guarantee RUN --alpha {settings.alpha:g}",
        ),
        Step(
            "Measured",
            "On the held-out patients, whoever wins; this page compares the results.",
            "crac evaluate RUN-CE --no-calibration --out ce\ncrac evaluate RUN-CE --out ce-calibrated\n"
            "crac evaluate RUN --no-calibration --out crac\ncrac evaluate RUN --out crac-calibrated\n"
            "crac report ce ce-calibrated crac crac-calibrated --out page.html",
        ),
    ]
