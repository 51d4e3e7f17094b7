"""One network measured in several ways."""

from pathlib import Path
from typing import NamedTuple

import pytest

import crac
from crac.data import Store
from crac.evaluation import Case, Protocol
from crac.evaluation.run import evaluate_run
from crac.evaluation.variants import measure_variants
from crac.metrics.masks import Mask
from crac.models.model import Model


class Way(NamedTuple):
    calibrator: str | None = None
    mirror: bool = False
    fitted_on: Mask = "band"


def test_each_way_is_measured_and_the_network_as_trained_is_shown(run: Path, store: Store) -> None:
    model = Model.load(run, "cpu", calibrated=False)
    protocol = Protocol.for_network("paper", model.card.dims, store.class_names)
    seen: list[str] = []

    def look(case: Case, _: object) -> None:
        seen.append(case.name)

    ways = [Way(mirror=True), Way(), Way("temperature"), Way("temperature", fitted_on="all")]
    ways.append(Way("class_region", fitted_on="all"))
    found = dict(measure_variants(ways, model, store, store.split(), protocol, seen=look))
    assert found.keys() == set(ways)
    plain = found[Way()]
    assert plain.evaluation.rows == evaluate_run(run, model).rows
    assert plain.calibrator is None
    assert seen == store.split().test
    mirrored = evaluate_run(run, crac.load(run, "cpu", mirror=True, calibrated=False))
    assert found[Way(mirror=True)].evaluation.rows == mirrored.rows != plain.evaluation.rows
    near, everywhere = found[Way("temperature")], found[Way("temperature", fitted_on="all")]
    assert near.calibrator is not None
    assert everywhere.calibrator is not None
    assert (near.calibrator["mask"], near.calibrator["weight"]) == ("band", "volume")
    assert (everywhere.calibrator["mask"], everywhere.calibrator["weight"]) == ("all", "voxel")
    finer = found[ways[-1]].calibrator
    assert finer is not None
    assert (finer["mask"], finer["weight"]) == ("all", "volume")
    for one in (near, everywhere):
        assert one.evaluation.rows[0]["dsc"] == plain.evaluation.rows[0]["dsc"]
        assert one.evaluation.rows[0]["nll[band]"] != pytest.approx(plain.evaluation.rows[0]["nll[band]"])


def test_a_network_of_slices_has_its_boundaries_in_slices() -> None:
    names = ["background", "a"]
    flat, solid = (Protocol.for_network("paper", dims, names) for dims in (2, 3))
    assert (flat.regions, solid.regions) == ("slice", "volume")
    other = Protocol.for_network("clinical", 2, names, 7, regions="volume", bins=10)
    assert (other.regions, other.ignore_index, other.name) == ("volume", 7, "clinical, but for bins")
