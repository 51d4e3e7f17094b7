"""The one engine every command measures with. Needs the ``audit`` extra; runs of ``crac train`` need ``train``."""

from crac.errors import require

for _package in ("nibabel", "pydantic"):
    require(_package)

from crac.evaluation.audit import audit  # noqa: E402
from crac.evaluation.case import Case, CaseSource, LoadedCases  # noqa: E402
from crac.evaluation.engine import evaluate  # noqa: E402
from crac.evaluation.measure import Evaluation, measure  # noqa: E402
from crac.evaluation.protocol import PROTOCOLS, Protocol  # noqa: E402

__all__ = ["PROTOCOLS", "Case", "CaseSource", "Evaluation", "LoadedCases", "Protocol", "audit", "evaluate", "measure"]
