"""Cases from files: pair them, list every defect, then measure."""

import re
from collections import Counter
from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from pathlib import Path

import torch

from crac.data.nifti import read_label
from crac.data.upright import Upright
from crac.errors import InputError, ProblemsError
from crac.evaluation.case import Case
from crac.evaluation.engine import evaluate
from crac.evaluation.measure import Evaluation
from crac.evaluation.nnunet import Orientation
from crac.evaluation.pairing import FilePair, find_image, find_pairs
from crac.evaluation.protocol import Protocol
from crac.evaluation.reading import inspect, load, read_on_grid
from crac.evaluation.realised import check_patients, realise
from crac.evaluation.views import Look, look_at
from crac.guarantees import Guarantees
from crac.parallel import Workers
from crac.progress import Track, silent


class FileCases:
    """Probability files and the label files of the same names.

    Args:
        pairs: As :func:`~crac.evaluation.pairing.find_pairs` finds them.
        patient: Regular expression for the part of a name that says whose volume it is; by default each volume is of
            another patient.

    Attributes:
        images: Folder of the images, ``NAME.nii.gz`` or ``NAME_0000.nii.gz``, if they are to be looked at.
    """

    on_gpu = False

    def __init__(self, pairs: Sequence[FilePair], patient: str | None = None) -> None:
        self._pairs = {pair.name: pair for pair in pairs}
        self.names = list(self._pairs)
        self.patients = {name: name if patient is None else _patient(name, patient) for name in self.names}

    def load(self, name: str) -> Case:
        """Read a case."""
        pair = self._pairs[name]
        read = load(pair)
        scores, labels = torch.from_numpy(read.probabilities), torch.from_numpy(read.labels)
        return Case(name, self.patients[name], scores, labels, read.spacing, ignore_index=pair.ignore_index)

    def look(self, name: str) -> Look:
        """Return the image of a case if there is one, and which way up it is shown."""
        label = read_label(self._pairs[name].label)
        upright = Upright.of_file(label.shape, label.affine)
        path = self._pairs[name].image
        return Look(None if path is None else read_on_grid(path, label).array[0], upright)


def file_cases(
    probabilities: Path,
    labels: Path,
    patient: str | None = None,
    *,
    orientation: Orientation | None = None,
    ignore_index: int | None = None,
    images: Path | None = None,
    jobs: int = 1,
    ray: str | None = None,
    track: Track = silent,
) -> tuple[FileCases, int]:
    """The cases of two folders, and their number of classes; the arguments are those of :func:`audit`.

    ``ignore_index`` is the label of voxels that nobody has labelled, if there is one.

    Raises:
        ProblemsError: Every defect of the two folders.
        InputError: ``ignore_index`` is a class.
    """
    if images is not None and not images.is_dir():
        raise InputError(f"--images must be a folder; got {images}")
    pairs, problems = find_pairs(probabilities, labels, orientation)
    pairs = [
        replace(pair, ignore_index=ignore_index, image=None if images is None else find_image(images, pair.name))
        for pair in pairs
    ]
    if images is not None and pairs and not any(pair.image for pair in pairs):
        example = pairs[0].name
        raise InputError(
            f"--images must hold images such as {example}.nii.gz or {example}_0000.nii.gz; {images} does not"
        )
    subject = f"{probabilities} against {labels}"
    return checked_cases(pairs, problems, subject, patient, jobs=jobs, ray=ray, track=track)


def checked_cases(
    pairs: Sequence[FilePair],
    problems: Sequence[str],
    subject: str,
    patient: str | None = None,
    *,
    jobs: int = 1,
    ray: str | None = None,
    track: Track = silent,
) -> tuple[FileCases, int]:
    """Cases of files that were found, and their number of classes; other arguments as for :func:`file_cases`.

    The ``problems`` of finding them are raised together with every defect of a file, under the name ``subject``.
    """
    with Workers(min(jobs, max(1, len(pairs))), ray) as workers:
        found = list(track(workers.map(inspect, pairs), "checking", len(pairs)))
    problems = [*problems, *(problem for one in found for problem in one.problems)]
    counts = {pair: one.num_classes for pair, one in zip(pairs, found, strict=True) if one.num_classes}
    problems += _unlike_the_rest(counts)
    if problems:
        raise ProblemsError(subject, problems)
    num_classes = next(iter(counts.values()))
    for ignored in {pair.ignore_index for pair in pairs}:
        if ignored is not None and 0 <= ignored < num_classes:
            raise InputError(f"ignore_index must be none of the classes, which are 0..{num_classes - 1}; got {ignored}")
    return FileCases(pairs, patient), num_classes


def audit(
    probabilities: Path,
    labels: Path,
    protocol: Protocol | None = None,
    patient: str | None = None,
    *,
    orientation: Orientation | None = None,
    guarantees: Guarantees | None = None,
    jobs: int = 1,
    ray: str | None = None,
    track: Track = silent,
    look: bool = False,
    images: Path | None = None,
) -> Evaluation:
    """Measure the probabilities in one folder against the labels in another.

    Args:
        probabilities: Folder of nnU-Net ``.npz``, of 4-D NIfTI with the classes first or last, or of one NIfTI a class.
        labels: Folder of NIfTI label maps; the file names pair them.
        protocol: What to measure; its class names must be as many as the classes. ``clinical`` if not given, with
            numbers for the classes. Voxels with its ``ignore_index`` as their label do not count.
        orientation: Orientation of ``.npz`` whose ``.pkl`` are missing: ``stored`` as in the images, or ``ras``.
        patient: Regular expression for the part of a name that says whose volume it is; by default each volume is of
            another patient.
        guarantees: Promises about this model, to be measured as well. Where only they or only the protocol names the
            classes, these names are used for both.
        jobs: Processes; each holds one volume at a time.
        ray: Ray cluster, see :func:`crac.evaluation.evaluate`.
        track: Shows progress.
        look: Keep slices of the worst and of a middle case.
        images: Folder of the images, to look at.

    Raises:
        ProblemsError: Every defect of the two folders, found before anything is measured.
    """
    protocol = protocol or Protocol.named("clinical")
    cases, num_classes = file_cases(
        probabilities, labels, patient,
        orientation=orientation, ignore_index=protocol.ignore_index, images=images, jobs=jobs, ray=ray, track=track,
    )  # fmt: skip
    if guarantees is not None:
        if guarantees.num_classes != num_classes:
            raise InputError(f"guarantees are for {guarantees.num_classes} classes; {probabilities} has {num_classes}")
        check_patients(guarantees, cases.patients.values(), cases.names)
    chosen = with_classes(protocol, num_classes)
    if guarantees is not None:
        chosen, guarantees = _named_alike(chosen, guarantees)
    evaluation = evaluate(cases, replace(chosen, grid="native"), jobs=jobs, ray=ray, track=track)
    if guarantees is not None:
        evaluation.realised = realise(guarantees, cases, jobs=jobs, ray=ray, track=track)
    evaluation.views = look_at(cases, evaluation) if look else []
    return evaluation


def _named_alike(protocol: Protocol, guarantees: Guarantees) -> tuple[Protocol, Guarantees]:
    """Both with the same names of classes: where one of the two has numbers only, those of the other."""
    own, names = list(protocol.class_names), guarantees.class_names
    numbers = [str(number) for number in range(len(own))]
    if own == numbers:
        return replace(protocol, class_names=names), guarantees
    if own != names and names != numbers:
        raise InputError(f"class_names must be those of the guarantees, {', '.join(names)}; got {', '.join(own)}")
    named = copy(guarantees)
    named.class_names = own
    return protocol, named


def _patient(name: str, pattern: str) -> str:
    try:
        found = re.search(pattern, name)
    except re.error as error:
        raise InputError(f"patient must be a regular expression; got {pattern!r} ({error})") from error
    if found is None:
        raise InputError(f"patient must match the name of every volume; {pattern!r} does not match {name!r}")
    if not found[0]:  # else all volumes would be of one patient without a name
        raise InputError(f"patient must match a part of every volume's name; {pattern!r} matches nothing of {name!r}")
    return found[0]


def _unlike_the_rest(counts: dict[FilePair, int]) -> list[str]:
    if not counts:
        return []
    usual = Counter(counts.values()).most_common(1)[0][0]
    return [
        f"{pair.probabilities[0]}: {number} classes, where most volumes have {usual}"
        for pair, number in counts.items()
        if number != usual
    ]


def with_classes(protocol: Protocol, num_classes: int) -> Protocol:
    """The protocol with as many class names as there are classes: numbers, if it has none."""
    if not protocol.class_names:
        return replace(protocol, class_names=[str(k) for k in range(num_classes)])
    if len(protocol.class_names) != num_classes:
        raise InputError(
            f"class_names must be {num_classes} names, background first; got {len(protocol.class_names)}: "
            + ", ".join(protocol.class_names)
        )
    return protocol
