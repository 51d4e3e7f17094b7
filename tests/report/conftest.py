from collections.abc import Callable
from pathlib import Path

import pytest
from tests.report.evaluations import evaluation

from crac.report.folder import write_report


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Folders as ``crac evaluate`` writes them, by number of patients and sharpness; each is made once."""
    made: dict[tuple[int, float], Path] = {}

    def make(patients: int = 8, sharpness: float = 6.0) -> Path:
        key = patients, sharpness
        if key not in made:
            made[key] = tmp_path_factory.mktemp("evaluated") / f"of-{patients}-at-{sharpness:g}"
            write_report(evaluation(patients, sharpness), made[key], {"run": "runs/secret"})
        return made[key]

    return make
