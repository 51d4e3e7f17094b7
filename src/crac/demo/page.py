"""The page of the demo: three networks compared, and how each came about."""

import base64
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from markupsafe import Markup

from crac.demo.settings import DemoSettings
from crac.evaluation import Evaluation
from crac.report.charts import tag
from crac.report.page import Block, Step, verdict, write_page
from crac.report.result import Result

MASK = "label_foreground"
COLUMNS = (
    "dsc", "hd95", f"ece[{MASK}]", f"tace[{MASK}]", "ece[all]", f"gap.inner[{MASK}]", f"gap.outer[{MASK}]",
)  # fmt: skip
"""What the demo returns of each network, means over volumes."""

LABELS = {"ce": "cross-entropy", "crac": "CRaC", "calibrated": "CRaC, calibrated"}


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
    picture = base64.b64encode((out / "crac" / "multipliers.png").read_bytes()).decode()
    words = "The weight of each constraint over the epochs, one line per class and region."
    shown = tag("img", src=f"data:image/png;base64,{picture}", alt=words, style="max-width:100%")
    figure = tag(
        "figure", shown, tag("figcaption", f"{words} After every epoch CRaC looks at the validation patients.")
    )
    write_page(
        out / "index.html",
        results,
        title="Can these probabilities be trusted?",
        kicker=f"crac demo · made-up patients, seed {settings.seed}, {round(seconds)} s on this machine",
        story=_story(settings),
        blocks=[Block("multipliers", "The multipliers", [Markup(figure)])],
    )
    return verdict(results)


def _story(settings: DemoSettings) -> list[Step]:
    train = "crac train --data STORE --backbone nnunet --epochs 100"
    return [
        Step(
            f"{settings.patients} patients",
            f"Hearts whose annotator's outline wavers, two volumes each: {settings.train} patients train, as few as "
            f"many projects have, {settings.validation} validate, {settings.test} are held out. All that this page "
            "shows was measured on those held out.",
            "crac prepare nnunet RAW STORE",
        ),
        Step(
            "A network trained with cross-entropy",
            f"{settings.epochs} epochs, the last one taken: what most networks are, and often too sure of themselves.",
            f"{train} --method ce --out RUN-CE",
        ),
        Step(
            "The same network trained with CRaC",
            "The same weights to begin with, the same data and epochs. CRaC also keeps the logits near what the "
            "neighbouring labels say, class by class, inside structures and on their boundaries.",
            f"{train} --method crac --out RUN",
        ),
        Step(
            "Calibrated",
            "Temperatures by class and region, fitted on the validation patients. They change how sure the network is, "
            "not what it predicts; where patients left out show no gain, nothing is changed.",
            "crac calibrate RUN",
        ),
        Step(
            "Measured",
            "On the held-out patients, whoever wins; this page compares the results.",
            "crac evaluate RUN-CE --out audit-ce\ncrac evaluate RUN --no-calibration --out audit\n"
            "crac evaluate RUN --out audit-calibrated\n"
            "crac report audit-ce audit audit-calibrated --out page.html",
        ),
    ]
