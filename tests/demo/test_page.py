"""What the page of the demo says of how it came about."""

from crac.cli import build_parser
from crac.demo.page import _story
from crac.demo.settings import DemoSettings


def test_every_step_names_the_command_that_does_it_to_ones_own_data() -> None:
    steps = _story(DemoSettings(), "Of 15 promises, 15 in line with the promise.")
    for line in "\n".join(step.command for step in steps).splitlines():
        program, command, *arguments = line.split()
        assert program == "crac"
        build_parser(command).parse_args([command, *arguments])
    assert "6 patients train" in steps[0].text
    assert "16 are held out" in steps[0].text
    assert "risk of 10 %" in steps[4].text
    assert steps[4].text.endswith("Of 15 promises, 15 in line with the promise.")
