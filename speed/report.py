"""Tables of the speed page, made from the result files; ``python speed/report.py`` rewrites the page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "speed.md"
RESULTS = Path(__file__).parent / "results"
NAMES = ("loss_gpu", "train_gpu", "loss_cpu")


def table(result: dict[str, Any]) -> str:
    """Markdown: one row per rival and shape."""
    graphs = any(row.get("graph_ms") for row in result["rows"])
    head = ["batch", "loss", "forward + backward (20 to 80 %)", "in a CUDA graph", "extra memory", "times the floor"]
    rows = [head, ["---"] * len(head)]
    seen = ""
    for row in result["rows"]:
        median, low, high = row["ms"]
        graph = row["graph_ms"][0] if row.get("graph_ms") else None
        rows.append(
            [
                "" if row["case"] == seen else f"{row['case']}, floor {row['floor_ms']:.3f} ms",
                row["rival"],
                f"{median:.3f} ms ({low:.3f} to {high:.3f})",
                "" if graph is None else f"{graph:.3f} ms",
                f"{row['extra_mib']:.0f} MiB",
                f"{min(median, graph or median) / row['floor_ms']:.1f}",
            ]
        )
        seen = row["case"]
    if not graphs:
        rows = [row[:3] + row[4:] for row in rows]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def profile_table(result: dict[str, Any]) -> str:
    """Markdown: how long a call keeps the CPU and the device."""
    rows = [["one call", "loss", "the CPU starts it in (20 to 80 %)", "the device works", "on"], ["---"] * 5]
    for profile in result["profiles"]:
        for name in ("cross-entropy alone", "crac, fused"):
            (median, low, high), kernels = profile[name]["cpu_us"], profile[name]["kernels"]
            work = ", ".join(f"{kernel.split('::')[-1]} {time:.0f} µs" for kernel, time in kernels.items())
            cpu, device = f"{median:.0f} µs ({low:.0f} to {high:.0f})", f"{profile[name]['device_us']:.0f} µs"
            rows.append(["x".join(map(str, profile["shape"])), name, cpu, device, work])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def training_table(result: dict[str, Any]) -> str:
    """Markdown: where a step's time goes, then one row per training."""
    parts = "\n".join(f"| {name} | {value:.2f} ms |" for name, value in result["step_ms"].items())
    rows = []
    for run in result["runs"]:
        test, (low, high) = run["test"], run["epoch_s_range"]
        rows.append(
            f"| {run['variant']} | {run['seed']} | {run['training_s']:.1f} s | {run['one_off_s']:.1f} s "
            f"| {run['epoch_s']:.2f} s ({low:.2f} to {high:.2f}) "
            f"| {test['dsc']:.3f} | {test['ece']:.3f} | {test['tace']:.3f} |"
        )
    head = "| training | seed | 100 epochs | before that, once | median epoch (range) | DSC | ECE | TACE |"
    return "\n".join([head, "|---" * 8 + "|", *rows, "", "| part of a step | device time |", "|---|---|", parts])


def caption(result: dict[str, Any]) -> str:
    """Where and how a result was measured."""
    versions = ", ".join(f"{name} {version}" for name, version in result["versions"].items() if version)
    machine = result["gpu"] or f"{result['cpu']}, {result['threads']} threads"
    return f"Measured on {machine}, {result['date']}, with {versions}: `{result['command']}`"


def fill(page: str, results: dict[str, dict[str, Any]]) -> str:
    """Put each result's table between its marks, ``<!-- name -->`` and ``<!-- /name -->``."""
    for name, result in results.items():
        start, end = f"<!-- {name} -->", f"<!-- /{name} -->"
        before, _, rest = page.partition(start)
        _, found, after = rest.partition(end)
        if not found:
            raise ValueError(f"the page has no marks {start} and {end}")
        made = training_table(result) if "runs" in result else table(result)
        if "profiles" in result:
            made += f"\n\n{profile_table(result)}"
        page = f"{before}{start}\n{made}\n\n{caption(result.get('environment', result))}\n{end}{after}"
    return page


def main() -> None:
    """Rewrite the page from the result files there are."""
    results = {name: json.loads((RESULTS / f"{name}.json").read_text()) for name in NAMES}
    PAGE.write_text(fill(PAGE.read_text(), results))


if __name__ == "__main__":
    main()
