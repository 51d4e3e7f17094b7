"""How much the demo makes and trains."""

from dataclasses import dataclass

PRESET = "signed"
"""The preset of CRaC: the one whose likelihood, as trained, was never worse in the benchmark than without it."""
CHECKPOINT = "last"
"""The checkpoint of both: on few validation patients Dice can be highest while the learning rate is still high."""


@dataclass(frozen=True)
class DemoSettings:
    """How much is made and trained; the defaults take a few minutes on two cores.

    Few patients train, as is usual in medicine: that is what makes a network overconfident.

    Args:
        train: Patients that train, two volumes each.
        validation: Patients that drive the multipliers, calibrate, and that promises are fitted on; one of 90 % needs
            nine.
        test: Patients held out.
        size: Rows and columns of a prepared slice.
        slices: About how many slices a volume has.
        width: Filters of the network's first level.
        epochs: Epochs of each training.
        patches: How often an epoch shows a slice, each time changed in another way.
        alpha: The risk that the promises accept.
        seed: Seed of patients, weights and order.
    """

    train: int = 6
    validation: int = 16
    test: int = 16
    size: int = 64
    slices: int = 4
    width: int = 8
    epochs: int = 20
    patches: int = 3
    alpha: float = 0.1
    seed: int = 0

    @property
    def patients(self) -> int:
        """Patients of the three parts together."""
        return self.train + self.validation + self.test
