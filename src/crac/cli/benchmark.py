"""``crac benchmark``: many methods, backbones, data sets and seeds; the paper's tables and figures."""

import argparse
import json
import sys
from pathlib import Path

from crac.cli.options import refuse
from crac.errors import InputError, MissingExtraError

SUITES = sorted(file.stem for file in (Path(__file__).parents[1] / "benchmark" / "suites").glob("*.yaml"))

NAME = "benchmark"
HELP = "compare methods; the paper's tables and figures"
EXAMPLE = f"""examples:
  crac benchmark phantom_smoke --out rehearsal                      a minute, artificial data
  crac benchmark paper_acdc --data acdc=acdc-store --out bench      the paper's ACDC tables
  crac benchmark my_suite.yaml --out bench --jobs 4                 four runs at a time, over the local GPUs
  crac benchmark my_suite.yaml --out bench --ray auto               on a running Ray cluster
  crac benchmark paper_acdc --out bench --only 'crac*' --seeds 0 --time-limit 540
  crac benchmark practical_acdc --out bench --backbones unet --splits 0 --seeds 0 --time-limit 540 --merge other/results
  crac benchmark --render bench/results --out report --paper        tables and figures again, from the results

Give the same command again to go on: finished runs are kept, broken ones are tried again. Suites that come with the
package: {", ".join(SUITES)}."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Say what the command takes."""
    parser.add_argument("suite", nargs="?", metavar="SUITE", help="YAML file, or name of a suite of the package")
    parser.add_argument("--out", metavar="DIR", required=True, help="folder of the benchmark, or of the report")
    parser.add_argument("--data", nargs="+", default=[], metavar="NAME=STORE", help="where a data set's store is")
    parser.add_argument("--only", nargs="+", default=[], metavar="METHOD", help="rows to run; * and ? match any")
    parser.add_argument("--seeds", nargs="+", type=int, metavar="N", help="instead of the suite's")
    parser.add_argument("--splits", nargs="+", type=int, metavar="N", default=[], help="of the suite's, only these")
    parser.add_argument("--backbones", nargs="+", metavar="NAME", default=[], help="of the suite's, only these")
    parser.add_argument("--objectives", nargs="+", metavar="NAME", default=[], help="of the suite's, only these")
    merged = "take over results of the same suite from other folders first"
    parser.add_argument("--merge", nargs="+", metavar="RESULTS", default=[], help=merged)
    parser.add_argument("--jobs", type=int, metavar="N", help="runs at a time (default: 1; on Ray: all it has)")
    ray = "run on a Ray cluster; without an address, start one"
    parser.add_argument("--ray", nargs="?", const="local", metavar="ADDRESS", help=ray)
    parser.add_argument("--time-limit", type=float, metavar="S", help="begin no run that would end later than this")
    parser.add_argument("--render", nargs="+", metavar="RESULTS", help="run nothing: write a report from results")
    parser.add_argument("--maps", metavar="DIR", help="with --render: slices for the pictures (bench/maps)")
    parser.add_argument("--paper", action="store_true", help="print the paper's values beside ours")
    parser.add_argument("--anonymous", action="store_true", help="no pictures and no names of volumes in the report")
    parser.add_argument("--json", action="store_true", help="print what is done, broken and left as JSON")


def run(args: argparse.Namespace) -> int:
    """Run a suite, or render results."""
    if (args.suite is None) == (args.render is None):
        raise InputError("name either a SUITE to run or --render RESULTS; got " + ("both" if args.suite else "neither"))
    if args.render is not None:
        of_suites = ("data", "only", "seeds", "splits", "backbones", "objectives", "merge", "jobs", "ray", "time_limit")
        refuse(args, "SUITE; --render runs nothing", *of_suites)
        from crac.benchmark.report import render

        written = render(args.render, args.out, args.maps, args.paper, args.anonymous)
        print(json.dumps([str(path) for path in written]) if args.json else f"{len(written)} files in {args.out}")
        return 0
    refuse(args, "--render; a SUITE has its own", "maps")
    from crac.benchmark import Suite, run_benchmark

    suite = Suite.load(args.suite).changed(
        dict(map(_pair, args.data)), args.seeds or (), args.splits, args.backbones, args.objectives
    )
    try:
        summary = run_benchmark(
            suite, args.out, jobs=args.jobs, ray=args.ray, only=args.only, time_limit=args.time_limit, merge=args.merge
        )
    except KeyboardInterrupt:
        print("finished runs are kept; give the same command again to go on", file=sys.stderr)
        raise
    if args.json:
        print(json.dumps(summary.__dict__, indent=2))
    else:
        print(f"{len(summary.done)} runs done, {len(summary.broken)} broken, {len(summary.left)} left")
        for name, problem in summary.broken.items():
            print(f"  {name}: {problem}")
    if summary.done:
        _report(Path(args.out), args.paper, args.anonymous, quiet=args.json)
    return 1 if summary.broken else 0


def _report(out: Path, paper: bool, anonymous: bool, quiet: bool) -> None:
    """Render, or say how to where the packages for it are missing: the numbers are safe either way."""
    try:
        from crac.benchmark.report import render

        render([out / "results"], out / "report", out / "maps", paper, anonymous)
    except MissingExtraError as error:
        hint = f"crac benchmark --render {out / 'results'} --maps {out / 'maps'} --out {out / 'report'}"
        print(f"no report: {error}; later: {hint}", file=sys.stderr)
        return
    if not quiet:
        print((out / "report" / "benchmark.html").as_posix())


def _pair(text: str) -> tuple[str, Path]:
    name, sign, path = text.partition("=")
    if not sign or not name or not path:
        raise InputError(f"--data must be NAME=STORE; got {text!r}")
    return name, Path(path)
