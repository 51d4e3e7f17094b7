"""A calibrator that changes nothing."""

import pytest

import crac


def test_identity_reads_nothing() -> None:
    calibrator = crac.build_calibrator("identity", 3).fit(lambda: pytest.fail("the data was read"), mask="all")
    assert calibrator.temperature == 1
    assert calibrator.fitted["notes"] == []
