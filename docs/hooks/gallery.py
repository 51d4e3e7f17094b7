"""The gallery: examples and the notebook are run when the site is built, and their output and pictures shown.

What was run is kept in ``build/gallery`` under a name that depends on every source, so that a second build is quick.
"""

import ast
import hashlib
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import nbformat
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from nbconvert import MarkdownExporter
from nbconvert.preprocessors import ExecutePreprocessor

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
ENVIRONMENT = {"PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1", "COLUMNS": "100"}
ELSEWHERE = {"with_nnunet.py": "make test-nnunet"}
"""Scripts that need an environment of their own, and the command that runs them there."""
AUDIT = (
    ("python", "examples/audit_data.py", "example"),
    (
        *("crac", "evaluate", "--probabilities", "example/probabilities", "--labels", "example/labels"),
        *("--out", "audit", "--class-names", "background", "liver", "tumour", "--jobs", "1", "--anonymous"),
    ),
)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages and pictures, made now if a source has changed."""
    sources = sorted(path for folder in (EXAMPLES, ROOT / "src") for path in folder.rglob("*") if path.is_file())
    sources = [path for path in sources if path.suffix in (".py", ".ipynb", ".yaml")] + [Path(__file__)]
    name = hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()[:16]
    folder = ROOT / "build" / "gallery" / name
    if not folder.is_dir():
        shutil.rmtree(folder.parent, ignore_errors=True)
        part = folder.with_name("part")
        part.mkdir(parents=True)
        run(part)
        part.rename(folder)
    for path in sorted(folder.iterdir()):
        files.append(File.generated(config, f"gallery/{path.name}", content=path.read_bytes()))
    return files


def run(folder: Path) -> None:
    """Fill the folder: two at a time, one thread each."""
    scripts = sorted(EXAMPLES.glob("with_*.py"))
    with ThreadPoolExecutor(2) as pool:
        jobs = [pool.submit(notebook, EXAMPLES / "calibration.ipynb", folder), pool.submit(audit, folder)]
        jobs += [pool.submit(script, path, folder) for path in scripts]
        titles = [job.result() for job in jobs]
    lines = [
        "# Gallery",
        "",
        "Every page here was run when this site was built; what it shows is what it printed and drew.",
        "",
    ]
    for page, title, sentence, picture in titles:
        lines += [f"## [{title}]({page})", "", sentence, ""]
        lines += [f"[![{title}]({picture})]({page})", ""] if picture else []
    (folder / "index.md").write_text("\n".join(lines), encoding="utf-8")


def call(command: tuple[str, ...], folder: Path) -> str:
    """Run a command as one would type it and return what it printed."""
    start = {"python": [sys.executable], "crac": [sys.executable, "-m", "crac"]}[command[0]]
    arguments = [str(ROOT / text) if text.startswith("examples/") else text for text in command[1:]]
    environment = os.environ | ENVIRONMENT
    done = subprocess.run(
        [*start, *arguments], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise PluginError(f"{' '.join(command)}: {done.stderr[-2000:]}")
    return done.stdout


def notebook(path: Path, folder: Path) -> tuple[str, str, str, str]:
    """Run the notebook; its pictures become files beside its page."""
    content = nbformat.read(path, as_version=4)
    os.environ.update(ENVIRONMENT)  # the kernel inherits it
    runner = ExecutePreprocessor(timeout=600, extra_arguments=["--log-level=ERROR"])
    runner.preprocess(content, {"metadata": {"path": str(EXAMPLES)}})
    text, resources = MarkdownExporter().from_notebook_node(content)
    for name, data in resources["outputs"].items():
        (folder / f"{path.stem}_{name}").write_bytes(data)
        text = text.replace(f"({name})", f"({path.stem}_{name})")
    (folder / f"{path.stem}.md").write_text(text, encoding="utf-8")
    picture = f"{path.stem}_{list(resources['outputs'])[1]}"
    title = text.splitlines()[0].removeprefix("# ")
    sentence = "A notebook that explains calibration with two small trainings, cross-entropy and CRaC."
    return f"{path.stem}.md", title, sentence, picture


def audit(folder: Path) -> tuple[str, str, str, str]:
    """Audit the made-up model of docs/audit.md."""
    work = folder / "work"
    work.mkdir()
    title = "An audit of a model's probabilities"
    lines = [f"# {title}", "", "Twelve volumes of a made-up model that is too sure of itself at boundaries.", ""]
    for command in AUDIT:
        lines += ["```console", f"$ {' '.join(command)}", call(command, work).rstrip(), "```", ""]
    shutil.copy(work / "audit" / "report.html", folder / "audit_report.html")
    lines += ["[The page it wrote](audit_report.html) shows the same in pictures, patient by patient.", ""]
    lines += ["What the numbers mean: [Metrics](../metrics.md). What to do about it: [Calibrate](../calibrate.md).", ""]
    (folder / "audit.md").write_text("\n".join(lines), encoding="utf-8")
    shutil.rmtree(work)
    return "audit.md", title, "Files in, a table and one page with everything on it out.", ""


def script(path: Path, folder: Path) -> tuple[str, str, str, str]:
    """Run one script and show its source and what it printed."""
    source = path.read_text(encoding="utf-8")
    sentence = (ast.get_docstring(ast.parse(source)) or "").partition("\n\n")[0].replace("\n", " ")
    title = sentence.partition(", on made-up hearts")[0]
    lines = [f"# {title}", "", sentence, "", "```python", source.rstrip(), "```", ""]
    if path.name in ELSEWHERE:
        lines += [f"It needs an environment of its own, where `{ELSEWHERE[path.name]}` runs it.", ""]
    else:
        work = folder / path.stem
        work.mkdir()
        printed = call(("python", f"examples/{path.name}"), work)
        shutil.rmtree(work)
        lines += ["It printed", "", "```text", printed.rstrip(), "```", ""]
    (folder / f"{path.stem}.md").write_text("\n".join(lines), encoding="utf-8")
    return f"{path.stem}.md", title, sentence, ""
