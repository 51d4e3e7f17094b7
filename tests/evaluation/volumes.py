"""A volume with two organs and a noisy model, for the tests of this folder."""

import torch

from crac.evaluation import Case

NAMES = ["background", "a", "b"]


def volume(name, shape=(6, 20, 24), from_logits=True, seed=0):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.zeros(shape, dtype=torch.long)
    labels[1:4, 3:12, 4:15], labels[3:, 10:18, 10:20] = 1, 2
    hot = torch.nn.functional.one_hot(labels, 3).movedim(-1, 0)
    logits = 4 * hot + 2 * torch.randn((3, *shape), generator=generator)
    scores = logits if from_logits else logits.softmax(0)
    return Case(name, f"patient of {name}", scores, labels, (5.0, 1.0, 1.5), from_logits)
