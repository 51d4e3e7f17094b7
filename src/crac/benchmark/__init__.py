"""Methods against each other: a matrix of trainings, and its tables and figures. Needs the ``train`` extra."""

from crac.errors import require

for _package in ("pydantic", "yaml", "safetensors", "nibabel"):
    require(_package)

from crac.benchmark.results import CellResult, load_results, merge_results  # noqa: E402
from crac.benchmark.runner import Summary, run_benchmark  # noqa: E402
from crac.benchmark.suite import Suite  # noqa: E402

__all__ = ["CellResult", "Suite", "Summary", "load_results", "merge_results", "run_benchmark"]
