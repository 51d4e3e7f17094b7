"""CRaC in nnU-Net v2, on made-up hearts: plan, train, predict, evaluate. Needs nnunetv2.

Run: python examples/with_nnunet.py
"""

import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from crac.data import phantom
from crac.integrations.nnunet import trainers_folder

NAME = "Dataset900_Hearts"
DEVICE = "cpu"


def write_hearts(folder: Path, patients: int) -> None:
    """Made-up hearts the way nnU-Net wants its data."""
    for name in ("imagesTr", "labelsTr"):
        (folder / name).mkdir(parents=True)
    hearts = phantom.cardiac(folder.parent / "hearts", patients, size=64, slices=4)
    labels = sorted(hearts.glob("*/*_gt.nii.gz"))
    for label in labels:
        case = label.name.removesuffix("_gt.nii.gz")
        shutil.copy(label, folder / "labelsTr" / f"{case}.nii.gz")
        shutil.copy(label.with_name(f"{case}.nii.gz"), folder / "imagesTr" / f"{case}_0000.nii.gz")
    description = {
        "channel_names": {"0": "MRI"},
        "labels": {"background": 0, "right ventricle": 1, "muscle": 2, "left ventricle": 3},
        "numTraining": len(labels),
        "file_ending": ".nii.gz",
    }
    (folder / "dataset.json").write_text(json.dumps(description))
    shutil.rmtree(hearts)


def call(command: str, **variables: str) -> None:
    """Run a command of this environment, as one would type it."""
    name, *arguments = shlex.split(command)
    print("$", command, flush=True)
    subprocess.run([Path(sys.executable).with_name(name), *arguments], env=os.environ | variables, check=True)


def main() -> None:
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        raw = folder / "raw" / NAME
        write_hearts(raw, patients=3)
        trainers = [trainers_folder(), Path(__file__).parent / "nnunet_trainers"]
        variables = {
            "nnUNet_raw": str(folder / "raw"),
            "nnUNet_preprocessed": str(folder / "preprocessed"),
            "nnUNet_results": str(folder / "results"),
            "nnUNet_extTrainer": os.pathsep.join(map(str, trainers)),
            "nnUNet_def_n_proc": "1",  # few cases: more processes would only cost their start
            "nnUNet_n_proc_DA": "1",
        }
        for name in ("preprocessed", "results"):
            (folder / name).mkdir()
        call("crac nnunet check", **variables)
        call("nnUNetv2_plan_and_preprocess -d 900 -c 2d -np 1", **variables)
        call(f"nnUNetv2_train 900 2d 0 -tr nnUNetTrainerCRaCShort -device {DEVICE}", **variables)
        # Prediction needs none of our trainers: the checkpoint is one of the stock nnU-Net.
        del variables["nnUNet_extTrainer"]
        output = folder / "predicted"
        options = (
            f"-c 2d -f 0 -tr nnUNetTrainerCRaCShort -device {DEVICE} --save_probabilities --disable_tta -npp 1 -nps 1"
        )
        call(f"nnUNetv2_predict -i {raw / 'imagesTr'} -o {output} -d 900 {options}", **variables)
        call(f"crac evaluate --probabilities {output} --labels {raw / 'labelsTr'} --out {folder / 'report'} --jobs 1")


if __name__ == "__main__":
    main()
