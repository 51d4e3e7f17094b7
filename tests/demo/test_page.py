"""What the page of the demo says of how it came about."""

from crac.cli import build_parser
from crac.demo.page import _story
from crac.demo.settings import DemoSettings


def test_every_step_names_the_command_that_does_it_to_ones_own_data() -> None:
    steps = _story(DemoSettings())
    for line in "\n".join(step.command for step in steps).splitlines():
        program, command, *arguments = line.split()
        assert program == "crac"
        build_parser(command).parse_args([command, *arguments])
    assert "6 patients train" in steps[0].text
    assert "14 are held out" in steps[0].text
