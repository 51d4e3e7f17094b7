"""The page of a calibration: patients as the model is, and calibrated by a fit that left them out."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from crac.calibration import Calibrator
from crac.evaluation.calibrate import Calibration
from crac.report import words
from crac.report.charts import tag
from crac.report.page import Block, Step, write_page
from crac.report.result import Result

BEFORE, AFTER = "as it is", "calibrated"


def write_calibration_page(
    path: Path, found: Calibration, source: Mapping[str, str], use: str, *, anonymous: bool = False
) -> Path:
    """Write the page that compares a model before and after calibration, patients left out.

    Args:
        path: File to write.
        found: The calibration.
        source: What it was fitted on, name by name.
        use: How to use what was written.
        anonymous: Leave out the names of patients, volumes and folders.
    """
    calibrator, judged = found.calibrator, found.calibrator.fitted["judged"]
    gained = {"method": calibrator.name, "judged": judged, "gain": calibrator.fitted["gain"]}
    results = [
        Result.of(found.crossed.before, BEFORE, source=dict(source)),
        Result.of(found.crossed.after, AFTER, source=dict(source), calibration=gained),
    ]
    return write_page(
        path,
        results,
        title="Does calibration help?",
        kicker="crac calibrate · every patient was left out of the fit that calibrated them",
        anonymous=anonymous,
        lead=[words.gained(judged, found.gains[0], kept=calibrator.name == judged)],
        story=_story(found, use),
        blocks=[_temperatures(calibrator, results[0].classes)] if calibrator.fitted.get("voxels") else [],
    )


def _story(found: Calibration, use: str) -> list[Step]:
    patients = len({row["patient"] for row in found.crossed.before.rows})
    judged = (
        f"{patients} patients were divided into groups. Each group was measured with a calibrator fitted on the "
        f"others, “{AFTER}” on this page, and without one, “{BEFORE}”."
    )
    fitted = found.calibrator.fitted
    notes = " ".join(f"{note[0].upper()}{note[1:]}." for note in fitted["notes"])
    if "voxels" not in fitted:
        return [Step("Judged", judged), Step("Left alone", notes)]
    about = f"On {fitted['batches']} volumes, {fitted['voxels']:,} voxels ({words.MASKS[fitted['mask']]}). {notes}"
    return [Step("Judged", judged), Step(f"Fitted: {found.calibrator.name}", about), Step("Use", use)]


def _temperatures(calibrator: Calibrator, classes: Sequence[str]) -> Block:
    """What was found on all patients, by predicted class and region as far as the calibrator tells them apart."""
    own = calibrator.temperature.cpu()
    if calibrator.keeps_labels:
        own = own.view(len(classes) if calibrator.by_class else 1, -1)
    rows = classes if len(own) == len(classes) else ["all classes"]
    columns = _regions(calibrator) if calibrator.by_region else ["temperature"]
    head = tag("tr", *(tag("th", name) for name in ("predicted class", *columns)))
    body = [
        tag("tr", tag("th", name), *(tag("td", f"{value:.3g}") for value in values.reshape(-1).tolist()))
        for name, values in zip(rows, own, strict=True)
    ]
    table = tag("div", tag("table", tag("thead", head), tag("tbody", *body)), class_="scroll")
    return Block("temperatures", "The temperatures", [tag("p", words.TEMPERATURES), table])


def _regions(calibrator: Calibrator) -> list[str]:
    if len(calibrator.radii) == 1:
        return list(words.REGIONS.values())
    near = [f"within {radius} of a boundary" for radius in reversed(calibrator.radii)]
    return [f"further than {calibrator.radii[-1]} voxels from a boundary", *near]
