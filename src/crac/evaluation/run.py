"""Cases from a run: what its model says about the volumes of its own split."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch

from crac.calibration.volume import calibrate_volume
from crac.data import Store
from crac.data.upright import Upright
from crac.errors import InputError, one_of
from crac.evaluation.case import Case
from crac.evaluation.crossfit import calibrated_case
from crac.evaluation.engine import evaluate
from crac.evaluation.measure import Evaluation
from crac.evaluation.protocol import Grid, Protocol
from crac.evaluation.realised import check_patients, realise
from crac.evaluation.views import Look, look_at
from crac.files import sha256
from crac.guarantees import Guarantees
from crac.models.model import Model
from crac.models.run import Run
from crac.progress import Track, silent

PARTS = ("train", "validation", "test")


class RunCases:
    """Prepared volumes and what a model says about them.

    Args:
        model: A trained network.
        store: Where the volumes are.
        names: Which of them.
        grid: ``"prepared"``: logits of the volume as the network sees it; ``"native"``: probabilities on the grid of
            the image, against the label as it was drawn.
    """

    def __init__(self, model: Model, store: Store, names: Sequence[str], grid: Grid = "prepared") -> None:
        model.card.check_store(store)
        self.model, self.store, self.names, self.grid = model, store, list(names), grid

    @classmethod
    def of(
        cls,
        run: str | Path,
        model: Model,
        split: str = "test",
        data: str | Path | None = None,
        grid: Grid = "prepared",
    ) -> Self:
        """The cases of a run's own split; the arguments are those of :func:`evaluate_run`."""
        if split not in PARTS:
            raise one_of("split", split, PARTS)
        folder = Run(run)
        folder.check()
        store = Store.open(data or folder.data())
        cases = folder.split()
        cases.check(store.cases, str(folder.path / "split.json"))
        names = getattr(cases, split)
        if not names:
            raise InputError(f"{folder.path / 'split.json'}: the {split} part is empty")
        return cls(model, store, names, grid)

    @property
    def on_gpu(self) -> bool:
        """Whether the model runs on a GPU."""
        return self.model.device.type != "cpu"

    @torch.inference_mode()
    def load(self, name: str) -> Case:
        """Let the model predict a volume."""
        about, ignored = self.store.cases[name], self.store.ignore_index
        logits = self.model.logits(torch.from_numpy(np.array(self.store.image(name), dtype=np.float32)))
        calibrator = self.model.calibrator
        if self.grid == "prepared":
            labels = torch.from_numpy(np.array(self.store.label(name))).to(logits.device)
            case = Case(name, about.patient, logits, labels, about.prepared_spacing, True, 0, ignored)
            return case if calibrator is None else calibrated_case(calibrator, case)
        probabilities = logits.softmax(0) if calibrator is None else calibrate_volume(calibrator, logits).float()
        restored = torch.from_numpy(self.model.restore(probabilities, about.geometry))
        labels = torch.from_numpy(self.store.original_label(name))
        axis = self.store.manifest.recipe.slice_axis_of(about.geometry)
        return Case(name, about.patient, restored, labels, about.spacing, slice_axis=axis, ignore_index=ignored)

    def look(self, name: str) -> Look:
        """Return the first channel of a case's image, and which way up it is shown."""
        image, recipe = np.array(self.store.image(name)[0], dtype=np.float32), self.store.manifest.recipe
        if self.grid == "prepared":
            return Look(image, Upright.prepared(recipe))
        geometry = self.store.cases[name].geometry
        # As the probability of a foreground class it comes back with zeros outside the crop.
        return Look(recipe.invert(np.stack([1 - image, image]), geometry)[1], Upright.native(recipe, geometry))


def evaluate_run(
    run: str | Path,
    model: Model,
    split: str = "test",
    data: str | Path | None = None,
    protocol: str = "paper",
    *,
    guarantees: Guarantees | None = None,
    jobs: int = 1,
    ray: str | None = None,
    track: Track = silent,
    look: bool = False,
    **changes: Any,
) -> Evaluation:
    """Measure a model on the volumes of its run's split.

    Args:
        run: Folder of the run, for its split and the place of its data.
        model: Loaded from that run.
        split: ``train``, ``validation`` or ``test``.
        data: Store, if it is no longer where the run found it.
        protocol: ``paper`` or ``clinical``.
        guarantees: Promises about this model, to be measured as well, on the grid of the images.
        jobs: Processes, see :func:`crac.evaluation.evaluate`.
        ray: Ray cluster, likewise.
        track: Shows progress.
        look: Keep slices of the worst and of a middle case.
        **changes: Settings that differ from the protocol's, see :class:`~crac.evaluation.Protocol`. Regions are those
            of slices if the network is 2-D.
    """
    chosen = Protocol.for_network(protocol, model.card.dims, model.card.class_names, **changes)
    cases = RunCases.of(run, model, split, data, chosen.grid)
    chosen = replace(chosen, ignore_index=cases.store.ignore_index)
    if guarantees is not None:
        check_patients(guarantees, (cases.store.cases[name].patient for name in cases.names))
    evaluation = evaluate(cases, chosen, jobs=jobs, ray=ray, track=track)
    if guarantees is not None:
        native = RunCases.of(run, model, split, data, "native")
        evaluation.realised = realise(guarantees, native, jobs=jobs, ray=ray, track=track)
    evaluation.views = look_at(cases, evaluation) if look else []
    return evaluation


def about_run(run: str | Path, model: Model, split: str = "test", checkpoint: str = "best") -> dict[str, Any]:
    """What a result says about the model it measured: where from, which weights and patients, how calibrated.

    The arguments are those of :func:`evaluate_run`, and which checkpoint of the run the model is.
    """
    card, folder = model.card, Run(run)
    about: dict[str, Any] = {
        "source": {"run": str(run), "split": split, "checkpoint": checkpoint},
        "model": {
            "network": f"{card.backbone}, {card.dims}-D, width {card.width}",
            "preparation": card.recipe.name,
            "weights_sha256": sha256(folder.path / f"{checkpoint}.safetensors"),
            "split_sha256": sha256(folder.path / "split.json"),
        },
    }
    if model.mirror:
        about["source"]["mirror"] = True
    if (calibrator := model.calibrator) is not None:
        about["source"]["calibration"] = calibrator.name
        if gain := calibrator.fitted.get("gain"):
            about["calibration"] = {"method": calibrator.name, "judged": calibrator.fitted.get("judged"), "gain": gain}
    return about
