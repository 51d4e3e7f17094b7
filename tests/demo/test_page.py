"""What the page of the demo says of how it came about."""

import pytest
from tests.report.evaluations import evaluation

from crac.cli import build_parser
from crac.demo.page import LABELS, story
from crac.demo.settings import DemoSettings
from crac.report.result import Result

SHARP, SOFT = 12.0, 3.0


def results(plain: float, own: float, kept: bool = True, patients: int = 8) -> dict[str, Result]:
    """Four results of networks that are as sharp as this; their calibration was kept or not."""
    gain = {"before": 0.5, "after": 0.4, "difference": [-0.1, -0.2, -0.05] if kept else [-0.1, -0.2, 0.05]}
    told = {"method": "class_region" if kept else "identity", "judged": "class_region", "gain": {"nll[band]": gain}}
    sharpness = {"ce": plain, "ce-calibrated": plain, "crac": own, "crac-calibrated": own}
    made = {value: evaluation(patients, value, look=False) for value in {plain, own}}
    return {name: Result.of(made[sharpness[name]], label, calibration=told) for name, label in LABELS.items()}


def test_every_step_names_the_command_that_does_it_to_ones_own_data() -> None:
    steps = story(DemoSettings(), results(SHARP, SOFT))
    for line in "\n".join(step.command for step in steps).splitlines():
        program, command, *arguments = line.split()
        assert program == "crac"
        build_parser(command).parse_args([command, *arguments])
    assert "6 patients train" in steps[0].text
    assert "16 are held out" in steps[0].text
    assert "risk of 10 %" in steps[4].text
    assert steps[4].text.endswith("Nothing was promised, for that needs more validation patients.")


@pytest.mark.parametrize(
    ("plain", "own", "kept", "words"),
    [
        (SHARP, SOFT, True, ("is overconfident", ": better.", "gain by it, and it was written")),
        (SOFT, SHARP, False, ("is underconfident", ": worse.", "show no gain, so probabilities stay as they are")),
    ],
)
def test_the_story_says_what_was_found(plain: float, own: float, kept: bool, words: tuple[str, ...]) -> None:
    found = results(plain, own, kept)
    steps = story(DemoSettings(), found)
    for step, said in zip(steps[1:4], words, strict=True):
        assert said in step.text
    for name in ("ce", "crac"):
        assert f"{found[name].over_patients('ece[band]')[0]:.3f} for {LABELS[name]}" in steps[2].text
    assert "from 0.5000 to 0.4000" in steps[3].text


def test_of_few_patients_the_story_claims_nothing() -> None:
    told = " ".join(step.text for step in story(DemoSettings(), results(SHARP, SOFT, patients=5)))
    assert "too few" in told
    for claim in ("better", "worse", "overconfident", "underconfident"):
        assert claim not in told
