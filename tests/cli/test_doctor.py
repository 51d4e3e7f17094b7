"""What the doctor says of a machine."""

import json

import crac
from crac.cli import main


def test_doctor(capsys):
    assert main(["doctor", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["crac"] == crac.__version__
    assert report["packages"]["torch"]
    assert main(["doctor"]) == 0
    assert "device" in capsys.readouterr().out
