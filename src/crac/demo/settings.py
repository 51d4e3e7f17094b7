"""How much the demo makes and trains."""

from dataclasses import dataclass


@dataclass(frozen=True)
class DemoSettings:
    """How much is made and trained; the defaults take about two minutes on two cores.

    Few patients train, as is usual in medicine: that is what makes a network overconfident.

    Args:
        train: Patients that train, two volumes each.
        validation: Patients that drive the multipliers and calibrate; six are the fewest that can show a gain.
        test: Patients held out.
        size: Rows and columns of a prepared slice.
        slices: About how many slices a volume has.
        width: Filters of the network's first level.
        epochs: Of each training.
        seed: Of patients, weights and order.
    """

    train: int = 6
    validation: int = 6
    test: int = 14
    size: int = 64
    slices: int = 4
    width: int = 16
    epochs: int = 40
    seed: int = 0

    @property
    def patients(self) -> int:
        """Patients of the three parts together."""
        return self.train + self.validation + self.test
