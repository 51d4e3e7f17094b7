"""Out-of-fold cases: what each network of a cross-validation says about the patients it never saw."""

from collections.abc import Callable
from pathlib import Path

from crac.data import Store
from crac.errors import InputError
from crac.evaluation.calibrate import Calibratable
from crac.evaluation.case import Case, RememberedCases
from crac.evaluation.crossfit import JUDGED
from crac.evaluation.protocol import Grid, Protocol
from crac.evaluation.run import RunCases
from crac.files import sha256
from crac.models.folds import Folds
from crac.models.model import Model


class FoldCases:
    """Every case of a data set once, predicted by the fold that left it out; one network is in memory at a time.

    Args:
        folds: Folder of the cross-validation.
        load: Loads the model of a run, given its folder.
        data: Store, if it is no longer where the runs found it.
        grid: As for :class:`~crac.evaluation.run.RunCases`.
    """

    def __init__(
        self,
        folds: str | Path,
        load: Callable[[Path], Model],
        data: str | Path | None = None,
        grid: Grid = "prepared",
    ) -> None:
        self._load = load
        self._data, self._grid = data, grid
        self._run_of: dict[str, Path] = {}
        for run in Folds(folds).runs():
            tested = run.split().test
            if twice := [name for name in tested if name in self._run_of]:
                raise InputError(
                    f"{folds}: {twice[0]} is left out by {self._run_of[twice[0]].name} and {run.path.name}"
                )
            self._run_of |= dict.fromkeys(tested, run.path)
        self.names = list(self._run_of)
        first = next(iter(self._run_of.values()))
        self._current = first, self._open(first)

    @property
    def model(self) -> Model:
        """The model in memory."""
        return self._current[1].model

    @property
    def store(self) -> Store:
        """The store of the cases."""
        return self._current[1].store

    @property
    def on_gpu(self) -> bool:
        """Whether the models run on a GPU."""
        return self._current[1].on_gpu

    def _open(self, run: Path) -> RunCases:
        return RunCases.of(run, self._load(run), "test", self._data, self._grid)

    def load(self, name: str) -> Case:
        """Let the fold that left a case out predict it."""
        run = self._run_of[name]
        if run != self._current[0]:
            self._current = run, self._open(run)
        return self._current[1].load(name)


def of_folds(
    folds: Path, load: Callable[[Path], Model], data: Path | None = None, checkpoint: str = "best"
) -> Calibratable:
    """All cases of a cross-validation, to fit a calibrator on; arguments as for :class:`FoldCases`.

    The models are loaded without a calibrator, from the checkpoint named.
    """
    cases = FoldCases(folds, load, data)
    card = cases.model.card
    protocol = Protocol.for_network("paper", card.dims, card.class_names, cases.store.ignore_index, masks=JUDGED)
    weights = [sha256(run.path / f"{checkpoint}.safetensors") for run in Folds(folds).runs()]
    about = {"checkpoint_sha256": weights, "mirror": cases.model.mirror}  # as the ensemble of the folds knows itself
    return Calibratable(RememberedCases(cases), len(card.class_names), protocol, cases.model.device, about)
