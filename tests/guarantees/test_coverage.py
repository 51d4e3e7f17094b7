"""Realised risk keeps its promise, on fewer calibration sets than ``speed/coverage.py`` draws."""

import importlib.util
import json
import sys

import pytest

from common import ROOT

# By its path: a package of the same name may be installed.
_spec = importlib.util.spec_from_file_location("speed_coverage", ROOT / "speed" / "coverage.py")
coverage = sys.modules["speed_coverage"] = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(coverage)


@pytest.fixture(scope="module")
def pool():
    return coverage.make_pool(250)


@pytest.mark.parametrize("patients", [10, 50])
@pytest.mark.parametrize("unit", ["mean", "worst"])
def test_every_promise_is_kept_with_uneven_patients(pool, patients: int, unit: str) -> None:
    found = coverage.simulate(pool, patients, 300, unit)
    assert set(found) == {"fnr", "fdr", "margin outwards", "margin inwards", "volume", "referral"}
    for name, realised in found.items():
        assert realised.kept(), (name, realised)
        assert realised.risk > 0, (name, realised)
    if patients == 50:  # and is not bought by sets that hold everything
        assert min(found[name].risk for name in ("fnr", "fdr", "volume")) > 0.05


def test_two_volumes_of_a_patient_are_not_two_patients() -> None:
    pool = coverage.make_pool(100, seed=1, two=1.0)
    together, apart = (coverage.counted_twice(pool, 10, 300, split) for split in (False, True))
    assert together.void == 300  # ten patients cannot promise 0.05, and nothing is
    assert apart.void == 0
    assert apart.risk > 0.05 + 3 * apart.error


def test_the_committed_result_shows_the_same() -> None:
    found = json.loads((ROOT / "speed" / "results" / "coverage.json").read_text())
    assert found["sets"] >= 2000
    assert {row["patients"] for row in found["realised"]} == {10, 20, 50, 200}
    assert all(row["kept"] for row in found["realised"])
    assert not found["two_volumes_counted_as"]["two patients"]["kept"]
    assert found["alpha"] == coverage.ALPHA
