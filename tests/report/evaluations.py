"""Evaluations in memory for the tests of pages, with names that would break a careless one."""

import torch
from tests.evaluation.looked import LookedCases

from crac.evaluation import Case, Evaluation, Protocol, evaluate
from crac.evaluation.views import look_at

CLASSES = ["background", "<script>alert(1)</script>", "\"&'"]
NAUGHTY = "</script><b>\"&'{{ 7 * 7 }}"
"""Name of the first patient."""


def case(number: int, sharpness: float = 6.0, noise: float = 2.0, shape: tuple[int, ...] = (5, 20, 24)) -> Case:
    """Two organs and what a noisy network says of them; the noise is the patient's, whatever the sharpness."""
    generator = torch.Generator().manual_seed(number)
    labels = torch.zeros(shape, dtype=torch.long)
    labels[1:4, 3:12, 4:15], labels[3:, 10:18, 10:20] = 1, 2
    hot = torch.nn.functional.one_hot(labels, 3).movedim(-1, 0)
    logits = sharpness * (hot + noise * torch.randn((3, *shape), generator=generator) / 4)
    name = NAUGHTY if number == 0 else f"patient_{number:02}"
    return Case(f"{name}-scan", name, logits, labels, (5.0, 2.0, 1.0), from_logits=True)


def evaluation(patients: int = 8, sharpness: float = 6.0, look: bool = True) -> Evaluation:
    cases = LookedCases([case(number, sharpness) for number in range(patients)])
    found = evaluate(cases, Protocol(CLASSES, masks=["band", "all"]))
    chosen = {cases.names[0]: "worst", cases.names[-1]: "middle"}
    found.views = look_at(cases, found, chosen) if look else []
    return found
