"""The audit from the command line: real labels, an independent computation, and folders full of defects."""

import csv
import json
import shutil

import medpy.metric.binary as medpy
import nibabel as nib
import numpy as np
import pytest
from scipy import ndimage

from crac.cli import main

CLASSES = 3


def blurred(labels: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Probabilities (X, Y, Z, K) made from labels by blurring and noise."""
    hot = [ndimage.gaussian_filter((labels == k).astype(float), 1.0) for k in range(CLASSES)]
    logits = np.log(np.stack(hot, -1) + 1e-4) * 2 + rng.normal(size=(*labels.shape, CLASSES))
    powers = np.exp(logits - logits.max(-1, keepdims=True))
    return (powers / powers.sum(-1, keepdims=True)).astype(np.float32)


def write(path, array, affine=None):
    nib.Nifti1Image(array, np.diag([1.0, 2.0, 3.0, 1.0]) if affine is None else affine).to_filename(path)


@pytest.fixture
def folders(tmp_path):
    for name in ("p", "l"):
        (tmp_path / name).mkdir()
    return tmp_path / "p", tmp_path / "l", tmp_path / "out"


def run(folders, *more):
    probabilities, labels, out = folders
    arguments = ["--probabilities", str(probabilities), "--labels", str(labels), "--out", str(out), "--jobs", "1"]
    return main(["evaluate", *arguments, *more])


def reference(p: np.ndarray, y: np.ndarray, threshold=1e-3, bins=15) -> dict[str, float]:
    """Calibration of voxels (N, K) against labels (N,), by loops over bins in float64."""
    p = p.astype(np.float64)

    def error(confidence, hits):
        part = np.digitize(confidence, np.linspace(0, 1, bins + 1)[1:-1], right=True)
        return sum(abs((confidence - hits)[part == b].sum()) for b in range(bins)) / len(confidence)

    top = p.argmax(1)
    kept = [p[:, k] > threshold for k in range(CLASSES)]
    return {
        "ece": error(p.max(1), top == y),
        "cece": np.mean([error(p[:, k], y == k) for k in range(CLASSES)]),
        "tace": np.mean([error(p[m, k], (y == k)[m]) if m.any() else 0 for k, m in enumerate(kept)]),
        "nll": -np.log(p[np.arange(len(y)), y]).mean(),
        "brier": ((p - np.eye(CLASSES)[y]) ** 2).sum(1).mean(),
        "gap": p.max(1).mean() - (top == y).mean(),
    }


@pytest.mark.realdata
def test_real_labels_against_an_independent_computation(folders, real_data, capsys):
    rng = np.random.default_rng(0)
    per_volume, pooled = [], []
    for path in sorted((real_data / "Dataset004_Hippocampus" / "labelsTr").iterdir())[:6]:
        image = nib.load(path)
        labels = np.asarray(image.dataobj).astype(int)
        probabilities = blurred(labels, rng)
        shutil.copy(path, folders[1] / path.name)
        write(folders[0] / path.name, probabilities, image.affine)
        pairs = probabilities[labels > 0], labels[labels > 0]
        row = reference(*pairs)
        predicted = probabilities.argmax(-1)
        shares = [
            2 * np.sum((predicted == k) & (labels == k)) / (np.sum(predicted == k) + np.sum(labels == k))
            for k in (1, 2)
        ]
        zooms = image.header.get_zooms()
        distances = [medpy.hd95(predicted == k, labels == k, zooms) for k in (1, 2)]
        name = path.name.removesuffix(".nii.gz")
        per_volume.append(row | {"dsc": np.mean(shares), "hd95": np.mean(distances), "volume": name})
        pooled.append(pairs)
    assert run(folders, "--class-names", "background", "anterior", "posterior") == 0
    assert "ece [label_foreground]" in capsys.readouterr().out

    with (folders[2] / "per_volume.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["volume"] for row in rows] == [row["volume"] for row in per_volume]
    for row, expected in zip(rows, per_volume, strict=True):
        for name in ("ece", "cece", "tace", "nll", "brier", "gap"):
            assert float(row[f"{name}[label_foreground]"]) == pytest.approx(expected[name], abs=1e-6)
        for name in ("dsc", "hd95"):
            assert float(row[name]) == pytest.approx(expected[name])
    summary = json.loads((folders[2] / "summary.json").read_text())
    assert summary["volumes"] == 6
    for name in ("ece", "tace", "nll", "gap"):
        mean = np.mean([row[name] for row in per_volume])
        assert summary["per_volume"][f"{name}[label_foreground]"]["mean"] == pytest.approx(mean, abs=1e-6)
    whole = reference(np.concatenate([p for p, _ in pooled]), np.concatenate([y for _, y in pooled]))
    for name, value in whole.items():
        assert summary["pooled"]["label_foreground"][name] == pytest.approx(value, abs=1e-6)
    assert set(summary["pooled"]["band"]["by_class"]) == {"background", "anterior", "posterior"}
    assert set(summary["pooled"]["band"]["by_region"]) == {"inner", "outer"}
    settings = summary["settings"]
    assert [settings[name] for name in ("name", "empty", "unit", "grid", "regions")] == [
        *("clinical", "diagonal", "mm", "native", "volume"),
    ]


def small_case(folders, name="good", change=lambda p, y: (p, y), affine=None):
    rng = np.random.default_rng(len(name))
    labels = np.zeros((6, 7, 8), dtype=np.uint8)
    labels[1:4, 1:4, 1:6], labels[4:, 4:, 2:5] = 1, 2
    probabilities, labels = change(blurred(labels, rng), labels)
    if probabilities is not None:
        write(folders[0] / f"{name}.nii.gz", probabilities, affine)
    if labels is not None:
        write(folders[1] / f"{name}.nii.gz", labels)


def test_page_and_json(folders, capsys):
    for name in ("a", "b"):
        small_case(folders, name)
    assert (
        run(folders, "--json", "--mask", "all", "--empty", "diagonal", "--hd95", "directed_max", "--unit", "voxel") == 0
    )
    printed = json.loads(capsys.readouterr().out)
    assert printed["settings"]["masks"] == ["all"]
    assert printed["settings"]["hd95"] == "directed_max"
    assert printed["settings"]["name"] == "clinical, but for hd95, unit, masks"
    names = {path.name for path in folders[2].iterdir()}
    assert names == {"per_volume.csv", "summary.json", "cases.npz", "report.html"}
    assert "2 patients are too few" in (folders[2] / "report.html").read_text()
    assert sorted(path.name for path in folders[2].parent.iterdir()) == ["l", "out", "p"]


def test_an_earlier_evaluation_is_replaced_and_nothing_else(folders, capsys):
    small_case(folders, "a")
    assert run(folders, "--mask", "all", "band") == 0
    first = {path.name for path in folders[2].iterdir()}
    assert run(folders, "--mask", "band", "--anonymous") == 0
    assert {path.name for path in folders[2].iterdir()} == first - {"cases.npz"}
    summary = json.loads((folders[2] / "summary.json").read_text())
    assert "unfinished" not in summary
    assert set(summary["files"]) == {path.name for path in folders[2].iterdir()}

    # 0.1.0 listed no files; a kill leaves a summary that lists those of both.
    del summary["files"]
    (folders[2] / "summary.json").write_text(json.dumps(summary))
    (folders[2] / "report.html").unlink()
    (folders[2] / "gap.all.png").write_text("old")
    assert run(folders, "--mask", "band") == 0
    assert not (folders[2] / "gap.all.png").exists()
    half = {"crac": "0.2.0", "unfinished": True, "files": ["gap.all.png", "../p/a.nii.gz"]}
    for path in folders[2].iterdir():
        path.unlink()
    (folders[2] / "summary.json").write_text(json.dumps(half))
    (folders[2] / "gap.all.png").write_text("old")
    assert run(folders, "--mask", "band") == 0
    assert not (folders[2] / "gap.all.png").exists()
    assert len(list(folders[0].iterdir())) > 0

    (folders[2] / "thesis.tex").write_text("mine")
    before = {path.name: path.read_bytes() for path in folders[2].iterdir()}
    capsys.readouterr()
    assert run(folders, "--mask", "all") == 2
    assert "--out must be a new folder or one that crac evaluate wrote; " in (error := capsys.readouterr().err)
    assert "holds thesis.tex" in error
    assert {path.name: path.read_bytes() for path in folders[2].iterdir()} == before
    for path in folders[2].iterdir():
        path.unlink()
    (folders[2] / "summary.json").write_text('{"mine": 1}')
    assert run(folders) == 2
    assert "holds summary.json" in capsys.readouterr().err


def test_binary_tasks_leave_out_what_says_nothing(folders, capsys):
    """Where all voxels have one label, class-wise errors are the mean probability of the other class, and no more."""
    rng = np.random.default_rng(0)
    labels = (ndimage.gaussian_filter(rng.normal(size=(12, 12, 8)), 2) > 0).astype(np.uint8)
    foreground = np.clip(labels * 0.6 + 0.4 * rng.random(labels.shape), 0, 1).astype(np.float32)
    write(folders[0] / "a.nii.gz", foreground)
    write(folders[1] / "a.nii.gz", labels)
    assert run(folders) == 0
    shown = capsys.readouterr().out
    assert "cece [label_foreground]" not in shown
    assert "ece [label_foreground]" in shown
    assert "cece [band]" in shown
    assert (
        "left out: cece[label_foreground], tace[label_foreground], tace_adaptive[label_foreground]: all vox"
        in " ".join(shown.split())
    )
    summary = json.loads((folders[2] / "summary.json").read_text())
    assert set(summary["left_out"]) == {f"{name}[label_foreground]" for name in ("cece", "tace", "tace_adaptive")}
    assert summary["per_volume"]["cece[label_foreground]"]["mean"] is None
    expected = reference_binary(foreground[labels > 0])
    assert summary["per_volume"]["ece[label_foreground]"]["mean"] == pytest.approx(expected)


def reference_binary(foreground: np.ndarray, bins=15) -> float:
    confidence, hits = np.maximum(foreground, 1 - foreground).astype(np.float64), foreground > 0.5
    part = np.digitize(confidence, np.linspace(0, 1, bins + 1)[1:-1], right=True)
    return sum(abs((confidence - hits)[part == b].sum()) for b in range(bins)) / len(confidence)


def test_two_processes_measure_the_same(folders, tmp_path):
    for name in ("a", "b", "c"):
        small_case(folders, name)
    assert run(folders) == 0
    alone = (folders[2] / "summary.json").read_text()
    rows = (folders[2] / "per_volume.csv").read_text()
    assert run(folders, "--jobs", "2") == 0
    assert (folders[2] / "per_volume.csv").read_text() == rows
    assert json.loads((folders[2] / "summary.json").read_text()) == json.loads(alone)


def test_an_absent_class_and_a_single_slice(folders):
    """A class no voxel has gives an empty field, a slice stored as a volume is measured in 2-D."""
    small_case(folders, "slice", lambda p, y: (p[:, :, 3:4], np.where(y == 2, 0, y)[:, :, 3:4]))
    assert run(folders, "--empty", "nan") == 0
    summary = json.loads((folders[2] / "summary.json").read_text())
    assert summary["per_volume"]["hd95.2"]["mean"] is None
    assert np.isfinite(summary["per_volume"]["hd95.1"]["mean"])


def test_thirteen_different_defects_are_all_reported_and_nothing_is_written(folders, capsys):
    p, _, out = folders
    small_case(folders, "good")
    small_case(folders, "good2")
    small_case(folders, "label_only", lambda s, y: (None, y))
    small_case(folders, "probabilities_only", lambda s, y: (s, None))
    small_case(folders, "shape", lambda s, y: (s[1:], y))
    small_case(folders, "affine", affine=np.diag([1.0, 2.0, 4.0, 1.0]))
    small_case(folders, "range", lambda s, y: (s, y + 1))
    small_case(folders, "sum", lambda s, y: (s * 0.9, y))
    small_case(folders, "nan", lambda s, y: (np.where(s > 0.999, np.nan, s), y))
    small_case(folders, "negative", lambda s, y: (s + np.float32([0.5, -0.5, 0]), y))
    small_case(folders, "fraction", lambda s, y: (s, y + np.float32(0.5)))
    small_case(folders, "classes", lambda s, y: (np.concatenate([s, s * 0], -1), y))
    small_case(folders, "cut", lambda s, y: (s, y))
    whole = (p / "cut.nii.gz").read_bytes()
    (p / "cut.nii.gz").write_bytes(whole[: len(whole) // 2])
    small_case(folders, "gap", lambda s, y: (None, y))
    for k in (0, 2):
        write(p / f"gap_{k}.nii.gz", np.zeros((6, 7, 8), np.float32))
    small_case(folders, "archive", lambda s, y: (None, y))
    (p / "archive.npz").write_bytes(b"not an archive")

    assert run(folders) == 2
    message = capsys.readouterr().err
    lines = [line for line in message.splitlines() if line.startswith("  - ")]
    expected = {
        "label_only": "has no probabilities",
        "probabilities_only": "has no label file",
        "shape": "does not fit the label's (6, 7, 8)",
        "affine": "affine",
        "range": "labels must lie in 0..2",
        "sum": "sum to 1",
        "nan.nii": "NaN",
        "negative": "negative",
        "fraction": "integers",
        "classes": "6 classes, where most volumes have 3",
        "cut": "damaged",
        "gap": "classes 0, 2",
        "archive": "damaged",
    }
    for name, reason in expected.items():
        assert any(f"/{name}" in line and reason in line for line in lines), (name, message)
    assert len(lines) == len(expected)
    assert not any("good" in line for line in lines)
    assert "Traceback" not in message
    assert not out.exists()
    assert sorted(path.name for path in out.parent.iterdir()) == ["l", "p"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--class-names", "a", "b"], "class_names must be 3 names"),
        (["--class-names", "a", "b", "b"], "different names"),
        (["--bins", "0"], "bins"),
        (["--jobs", "0"], "jobs"),
        (["--tolerance", "-1"], "tolerance"),
        (["--labels", "nowhere"], "--labels must be a folder"),
    ],
)
def test_bad_arguments_are_one_sentence(folders, capsys, arguments, message):
    small_case(folders)
    assert run(folders, *arguments) == 2
    error = capsys.readouterr().err
    assert message in error
    assert not folders[2].exists()


def test_missing_arguments_and_help(folders, capsys):
    assert main(["evaluate", "--out", str(folders[2])]) == 2
    assert "both --probabilities and --labels" in capsys.readouterr().err
    with pytest.raises(SystemExit) as leave:
        main(["evaluate", "--help"])
    assert leave.value.code == 0
    assert "crac evaluate --probabilities predictions --labels labelsTs --out audit" in capsys.readouterr().out
    assert run(folders) == 2
    assert "holds none" in capsys.readouterr().err


def test_images_are_looked_at_and_must_lie_on_the_grid_of_the_labels(folders, tmp_path, capsys):
    small_case(folders, "a")
    images = tmp_path / "images"
    images.mkdir()
    write(images / "a_0000.nii.gz", np.arange(6 * 7 * 8, dtype=np.float32).reshape(6, 7, 8))
    assert run(folders, "--images", str(images)) == 0
    with np.load(folders[2] / "cases.npz") as kept:
        assert kept["0.image"].shape == kept["0.label"].shape
        assert kept["0.image"].max() == 255
    capsys.readouterr()
    write(images / "a_0000.nii.gz", np.zeros((6, 7, 9), np.float32))
    assert run(folders, "--images", str(images)) == 2
    said = capsys.readouterr().err
    assert "a_0000.nii.gz: shape (6, 7, 9), not (6, 7, 8), unlike the label" in said
    assert "measuring" not in said  # before the long work
    (images / "a_0000.nii.gz").rename(images / "b_0000.nii.gz")
    assert run(folders, "--images", str(images)) == 2
    assert "--images must hold images such as a.nii.gz or a_0000.nii.gz" in capsys.readouterr().err
    assert run(folders, "--images", "nowhere") == 2
    assert "--images must be a folder; got nowhere" in capsys.readouterr().err
