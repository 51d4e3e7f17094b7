"""``crac prepare``: from a data set as published to a store that training reads."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from crac.data import Store

NAME = "prepare"
HELP = "turn a data set into a store that training reads"
EXAMPLE = """examples:
  crac prepare acdc ACDC/training acdc-store
  crac prepare flare FLARE21 flare-store
  crac prepare nnunet nnUNet_raw/Dataset004_Hippocampus hippocampus-store
  crac prepare nnunet Task05_Prostate prostate-store --dims 2 --crop 24 320 320

RAW is only read. STORE is complete once it holds manifest.json, which is written last; look at STORE/contact_sheet.png
to see whether the labels fit. An interrupted run continues when the same command is given again."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Say what the command takes."""
    layout = "how RAW is laid out: ACDC's patient folders, FLARE21 or FLARE22, nnU-Net v2 or Decathlon"
    parser.add_argument("layout", choices=("acdc", "flare", "nnunet"), help=layout)
    parser.add_argument("raw", metavar="RAW", help="folder of the data set")
    parser.add_argument("store", metavar="STORE", help="folder to write; new or empty")
    parser.add_argument("--dims", type=int, choices=(2, 3), help="slices or volumes (default: 2; nnunet: 3)")
    axes: dict[str, Any] = {"nargs": 3, "metavar": ("D", "H", "W")}
    spacing = "millimetres between voxels (default: flare 8 2 2; nnunet: the median of the data set)"
    parser.add_argument("--spacing", type=float, help=spacing, **axes)
    crop = "voxels kept around the centre, padded where there are fewer (default: flare 30 192 192; nnunet: all)"
    parser.add_argument("--crop", type=int, help=crop, **axes)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes (default: one a core)")
    parser.add_argument("--json", action="store_true", help="print a summary as JSON")


def run(args: argparse.Namespace) -> int:
    """Prepare, then say what was found."""
    from crac.data import prepare
    from crac.progress import track

    start = time.perf_counter()
    recipe = {"dims": args.dims, "spacing": args.spacing, "crop": args.crop}
    try:
        store = prepare(args.layout, args.raw, args.store, **recipe, jobs=args.jobs, track=track)
    except KeyboardInterrupt:
        print("finished cases are kept; give the same command again to continue", file=sys.stderr)
        raise
    summary = summarise(store) | {"seconds": round(time.perf_counter() - start, 2)}
    print(json.dumps(summary, indent=2) if args.json else _in_words(summary))
    return 0


def summarise(store: Store) -> dict[str, Any]:
    """Return the store in numbers and what is odd about it, as plain data."""
    from crac.data.notes import store_notes

    cases = store.cases.values()
    worst = max(cases, key=lambda case: case.cropped_away)
    return {
        "store": str(store.path),
        "name": store.name,
        "cases": len(cases),
        "patients": len({case.patient for case in cases}),
        "slices": sum(case.prepared_shape[0] for case in cases),
        "voxels": {name: sum(case.voxels[index] for case in cases) for index, name in enumerate(store.class_names)},
        "prepared_voxels": {
            name: sum(case.prepared_voxels[index] for case in cases) for index, name in enumerate(store.class_names)
        },
        "recipe": store.manifest.recipe.name,
        "split": {part: len(names) for part, names in store.split()},
        "most_cropped_away": {"case": worst.name, "share": worst.cropped_away},
        "notes": store_notes(store),
    }


def _in_words(summary: dict[str, Any]) -> str:
    lines = ["{name}: {cases} cases of {patients} patients, {slices} slices".format(**summary)]
    prepared = summary["prepared_voxels"]
    lines += [
        f"  {name:16} {count:>14,} voxels, {prepared[name]:>14,} prepared" for name, count in summary["voxels"].items()
    ]
    worst, share = summary["most_cropped_away"].values()
    if share > 0:
        lines.append(f"note: the crop leaves out up to {share:.1%} of the labelled voxels ({worst})")
    lines += [f"note: {text}" for text in summary["notes"]]
    return "\n".join([*lines, "written to {store} in {seconds:.1f} s; see contact_sheet.png there".format(**summary)])
