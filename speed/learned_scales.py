"""A rival of the preset ``signed``: the scale of each region's target is learned, not the price of its constraint.

    crac benchmark signed_hippocampus --out bench
    python speed/learned_scales.py signed_hippocampus --out bench --jobs 3
    crac benchmark --render bench/results --out report

The penalty is NACL's, ``alpha * mean |scale * share - logit|``, with a scale for inside and one for boundaries. After
each epoch both are multiplied by ``exp(-pace * gap)``, with the gap of ``signed``: confidence minus accuracy over the
validation voxels predicted as foreground. A lower scale asks for smaller logits, and so for less confidence.

The row is trained and measured as all others of the suite and stands beside them on the page. Its result files name the
method ``nacl``, with the options ``scale`` and ``pace`` that NACL itself does not have.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import torch
from torch import Tensor

from crac import kernels
from crac.benchmark import Suite, run_benchmark
from crac.benchmark.suite import Method, Training
from crac.functional.priors import neighbourhood_proportions
from crac.functional.regions import region_map
from crac.losses import METHODS, NACLLoss
from crac.losses.base import ClassWeights, check_batch, masked_mean, widen
from crac.losses.signed import SignedMultipliers, gap_sums

ROW = "learned-scales"
OPTIONS = {"alpha": 0.1, "scale": 5.0, "pace": 3.0}
BOUNDS = 0.5, 20.0


class LearnedScalesLoss(NACLLoss):
    """NACL whose target is multiplied by a scale of the pixel's region, learned on the validation set.

    The scales take the place of prices: ``multipliers.lambda_``, the same for all classes, row 0 inner, row 1 outer.

    Args:
        alpha: Weight of the penalty.
        scale: Where the scales start.
        pace: A scale is multiplied by ``exp(-pace * gap)``.
        num_classes, ignore_index, class_weights, dice_weight: As for :class:`~crac.losses.base.SegmentationLoss`.
    """

    multipliers: SignedMultipliers

    def __init__(
        self,
        num_classes: int,
        alpha: float = OPTIONS["alpha"],
        scale: float = OPTIONS["scale"],
        pace: float = OPTIONS["pace"],
        *,
        ignore_index: int | None = None,
        class_weights: ClassWeights = None,
        dice_weight: float = 0.0,
    ) -> None:
        super().__init__(
            num_classes, alpha, ignore_index=ignore_index, class_weights=class_weights, dice_weight=dice_weight
        )
        self.multipliers = SignedMultipliers(num_classes, 2, (scale, *BOUNDS), pace, by_class=False)

    @property
    def scales(self) -> Tensor:
        """Scale of each region, ``(2,)``."""
        return self.multipliers.lambda_[:, 0].contiguous()

    def setting(self, logits: Tensor, labels: Tensor, fit: bool = True, penalty: bool = True) -> kernels.Setting | None:
        """Describe cross-entropy, distance or both to the kernel, which takes the number of regions from ``rho``."""
        found = super().setting(logits, labels, fit, penalty)
        if found is None or not penalty:
            return found
        return found._replace(rho=self.multipliers.rho, scales=self.scales)

    def penalty_term(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Return the weighted mean distance to the neighbours' scaled shares."""
        prior = neighbourhood_proportions(labels, self.num_classes, self.border, self.kernel_size, self.ignore_index)
        region = region_map(labels, self.border, (self.radius,), self.ignore_index)
        target = prior * self.scales[region.long()].unsqueeze(1)
        return self.alpha * masked_mean((target - logits).abs(), self.valid(labels))

    @torch.no_grad()
    def observe(self, logits: Tensor, labels: Tensor) -> None:
        """Take in one validation batch."""
        labels = check_batch(logits, labels, self.num_classes, self.ignore_index)
        sums, counts = gap_sums(
            *widen(logits, labels), "predicted", False, self.border, (self.radius,), self.ignore_index
        )
        sums[0].neg_()  # a scale falls where a price grows
        self.multipliers.accumulate(sums, counts)


def main() -> None:
    """Train and measure the row."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("suite", help="YAML file, or name of a suite of the package")
    parser.add_argument("--out", required=True, help="folder of the benchmark")
    parser.add_argument("--data", nargs="+", default=[], metavar="NAME=STORE", help="where a data set's store is")
    parser.add_argument("--splits", type=int, nargs="+", default=[], help="instead of the suite's")
    parser.add_argument("--seeds", type=int, nargs="+", default=[], help="instead of the suite's")
    parser.add_argument("--objectives", nargs="+", default=[], help="of the suite's, only these")
    parser.add_argument("--epochs", type=int, help="instead of the suite's")
    parser.add_argument("--settings", type=json.loads, default={}, help="JSON: settings over the suite's")
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time")
    parser.add_argument("--time-limit", type=float, help="begin no run that would end after so many seconds")
    options = parser.parse_args()
    stores = {name: Path(store) for name, _, store in (text.partition("=") for text in options.data)}
    suite = Suite.load(options.suite).changed(stores, options.seeds, options.splits, objectives=options.objectives)
    settings = {**suite.training.model_dump(exclude_unset=True), **options.settings}
    if not torch.cuda.is_available():
        settings |= {"compile": False, "cuda_graph": False}
    if options.epochs is not None:
        settings["epochs"] = options.epochs
    row = Method(method="nacl", options=OPTIONS, label="scales learned")
    suite = suite.model_copy(update={"methods": {ROW: row}, "training": Training(**settings)})
    summary = run_benchmark(suite, options.out, jobs=options.jobs, time_limit=options.time_limit)
    if summary.broken:
        sys.exit("\n".join(f"{name}: {problem}" for name, problem in summary.broken.items()))


if __name__ in ("__main__", "__mp_main__"):  # the latter in the processes of --jobs
    METHODS["nacl"] = LearnedScalesLoss
if __name__ == "__main__":
    main()
