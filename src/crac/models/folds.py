"""The folder of a cross-validation as those see it who use its models; :mod:`crac.training.folds` writes it."""

from pathlib import Path

from crac.errors import InputError
from crac.files import read_json
from crac.models.run import Run

FOLDS = "folds.json"


class Folds:
    """Runs whose test parts together hold every case once.

    Args:
        path: Their folder, with ``folds.json`` and one run a fold.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    @staticmethod
    def at(path: str | Path) -> bool:
        """Whether there is a cross-validation in a folder."""
        return (Path(path) / FOLDS).is_file()

    def names(self) -> list[str]:
        """The folders of the runs, in the order of the folds."""
        try:
            return list(read_json(self.path / FOLDS)["test"])
        except (LookupError, TypeError) as error:
            raise InputError(f"{self.path / FOLDS} does not name the runs of its folds: {error!r}") from error

    def runs(self) -> list[Run]:
        """The runs; one that is missing, or has learned nothing yet, is named with the command that trains it."""
        runs = [Run(self.path / name) for name in self.names()]
        if missing := [run.path.name for run in runs if not run.best.exists()]:
            raise InputError(f"{self.path}: {', '.join(missing)} is not trained yet; crac train --resume {self.path}")
        return runs
