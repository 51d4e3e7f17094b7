"""``crac prepare``: from a data set as published to a store that training reads."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time

NAME = "prepare"
HELP = "turn a data set into a store that training reads"
EXAMPLE = """examples:
  crac prepare acdc ACDC/training acdc-store
  crac prepare flare FLARE21 flare-store
  crac prepare nnunet nnUNet_raw/Dataset004_Hippocampus hippocampus-store
  crac prepare nnunet Task05_Prostate prostate-store --dims 2 --crop 24 320 320

RAW is only read. STORE appears when everything is done; look at STORE/contact_sheet.png to see whether the labels
fit. An interrupted run continues when the same command is given again."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Say what the command takes."""
    parser.add_argument(
        "layout",
        choices=("acdc", "flare", "nnunet"),
        help="how RAW is laid out: ACDC's patient folders, FLARE21 or FLARE22, nnU-Net v2 or Decathlon",
    )
    parser.add_argument("raw", metavar="RAW", help="folder of the data set")
    parser.add_argument("store", metavar="STORE", help="folder to write; must not exist yet")
    parser.add_argument("--dims", type=int, choices=(2, 3), help="slices or volumes (default: 2; nnunet: 3)")
    parser.add_argument(
        "--spacing",
        type=float,
        nargs=3,
        metavar=("D", "H", "W"),
        help="millimetres between voxels (default: flare 8 2 2; nnunet: the median of the data set)",
    )
    parser.add_argument(
        "--crop",
        type=int,
        nargs=3,
        metavar=("D", "H", "W"),
        help="voxels kept around the centre, padded where there are fewer (default: flare 30 192 192; nnunet: all)",
    )
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes (default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="print a summary as JSON")


def run(args: argparse.Namespace) -> int:
    """Prepare, then say what was found."""
    from crac.data import prepare
    from crac.progress import track

    start = time.perf_counter()
    try:
        store = prepare(
            args.layout,
            args.raw,
            args.store,
            dims=args.dims,
            spacing=tuple(args.spacing) if args.spacing else None,
            crop=tuple(args.crop) if args.crop else None,
            jobs=args.jobs,
            track=track,
        )
    except KeyboardInterrupt:
        print("finished cases are kept; give the same command again to continue", file=sys.stderr)
        raise
    print_summary(store, time.perf_counter() - start, args.json)
    return 0


def print_summary(store: object, seconds: float, as_json: bool) -> None:
    """The store in a few lines, or as JSON."""
    from crac.data import Store

    assert isinstance(store, Store)
    cases = store.cases.values()
    voxels = {name: sum(case.voxels[index] for case in cases) for index, name in enumerate(store.class_names)}
    split = store.split()
    worst = max(cases, key=lambda case: case.cropped_away)
    summary = {
        "store": str(store.path),
        "name": store.name,
        "cases": len(cases),
        "patients": len({case.patient for case in cases}),
        "slices": sum(case.prepared_shape[0] for case in cases),
        "voxels": voxels,
        "recipe": store.manifest.recipe.name,
        "split": {part: len(getattr(split, part)) for part in ("train", "validation", "test")},
        "most_cropped_away": {"case": worst.name, "share": worst.cropped_away},
        "seconds": round(seconds, 2),
    }
    if as_json:
        print(json.dumps(summary, indent=2))
        return
    print(f"{store.name}: {summary['cases']} cases of {summary['patients']} patients, {summary['slices']} slices")
    for name, count in voxels.items():
        print(f"  {name:16} {count:>14,} voxels")
    if worst.cropped_away > 0:
        print(f"note: the crop leaves out up to {worst.cropped_away:.1%} of the labelled voxels ({worst.name})")
    print(f"written to {store.path} in {seconds:.1f} s; see contact_sheet.png there")
