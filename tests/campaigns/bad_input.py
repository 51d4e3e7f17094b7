"""Mutated files: a reader takes them or says in one sentence what is wrong, quickly, and does nothing else.

Every kind of file the package reads is damaged by bits and bytes, and by grammar: numbers, names and nesting of JSON
and YAML, cells of tables, headers of NIfTI, NRRD, npy and safetensors, contents of compressed files with a fresh
checksum. A trial fails where a reader raises anything but ``InputError``, asks for memory that no honest file of that
size needs, takes more than ten seconds, starts a process, opens a connection or writes.
"""

import contextlib
import functools
import gzip
import io
import json
import pickle
import re
import resource
import signal
import sys
import tempfile
import warnings
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import nibabel as nib
import numpy as np
import yaml
from tests.campaigns.campaign import FailureError, main

from crac.errors import InputError

SECONDS = 10
MEMORY = 2**31
FORBIDDEN = ("os.system", "os.exec", "os.fork", "os.posix_spawn", "os.spawn", "subprocess.Popen", "socket.connect",
             "os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.chmod", "os.truncate", "shutil.rmtree")  # fmt: skip
NUMBERS: tuple[Any, ...] = (
    0, -1, 1, 2, 3, 255, 256, 2**15, 2**31 - 1, -(2**31), 2**32, 2**63, 10**30, 1e308, -1e308, 1e-320, 0.5,
    float("nan"), float("inf"), True, None, "", "x", "1", [], {}, [[[]]], {"a": {}}, "\u0000", "../../x",
)  # fmt: skip

_watching, _seen = False, []


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    if not _watching:
        return
    if event in FORBIDDEN or (event == "open" and isinstance(arguments[1], str) and set(arguments[1]) & set("wax+")):
        _seen.append((event, str(arguments)[:200]))


@functools.cache
def _install() -> None:
    sys.addaudithook(_hook)  # cannot be taken back, so only a flag tells whether it watches


@contextlib.contextmanager
def guarded() -> Iterator[None]:
    """Let nothing happen but reading, in little memory and time."""
    global _watching
    _install()

    def late(*_: object) -> None:
        raise FailureError(f"it took more than {SECONDS} s")

    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    limits = resource.getrlimit(resource.RLIMIT_AS)
    before = signal.signal(signal.SIGALRM, late)
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, limits[1]))
    signal.alarm(SECONDS)
    _seen.clear()
    _watching = True
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        _watching = False
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
        resource.setrlimit(resource.RLIMIT_AS, limits)
    if _seen:
        raise FailureError(f"reading did more than read: {_seen[0]}")


def read(path: Path, reader: Callable[[Path], object]) -> str:
    """Read a damaged file; return how it ended."""
    try:
        with guarded():
            reader(path)
    except InputError as error:
        text = str(error)
        if re.search(r"allocate|MemoryError|Traceback", text):
            raise FailureError(f"memory was asked for: {text[:300]}") from error
        return "refused"
    return "taken"


def bytes_changed(content: bytes, draw: np.random.Generator) -> bytes:
    """Flip, set, cut, insert, repeat or move bytes."""
    changed = bytearray(content)
    for _ in range(int(draw.integers(1, 6))):
        size = len(changed)
        if not size:
            return bytes(draw.integers(0, 256, 20, dtype=np.uint8))
        # The first bytes decide most.
        place = int(draw.integers(0, min(size, 400) if draw.random() < 0.5 else size))
        match int(draw.integers(0, 7)):
            case 0:
                changed[place] ^= 1 << int(draw.integers(0, 8))
            case 1:
                changed[place] = int(draw.choice([0, 1, 127, 128, 255]))
            case 2:
                del changed[place:]
            case 3:
                changed[place:place] = bytes(draw.integers(0, 256, int(draw.integers(1, 9)), dtype=np.uint8))
            case 4:
                value = int(draw.choice([0, 1, 2**15, 2**16 - 1, 2**31 - 1, 2**31, 2**32 - 1, 2**63]))
                changed[place : place + 8] = value.to_bytes(8, str(draw.choice(["little", "big"])))[: size - place]
            case 5:
                length = int(draw.integers(1, 65))
                changed[place:place] = changed[place : place + length]
            case 6:
                del changed[place : place + int(draw.integers(1, 65))]
    return bytes(changed)


def header_changed(content: bytes, draw: np.random.Generator) -> bytes:
    """Put another number into the header of an array, or of anything else that begins with text."""
    numbers = list(re.finditer(rb"\d+", content[:400]))
    if not numbers:
        return bytes_changed(content, draw)
    chosen = numbers[int(draw.integers(len(numbers)))]
    value = str(draw.choice([0, 1, 7, 65536, 99999999, 10**12, 10**25])).encode()
    changed = content[: chosen.start()] + value + content[chosen.end() :]
    if content[:6] == b"\x93NUMPY":  # whose header has a fixed length, filled with blanks
        changed = changed[:60] + changed[60:].replace(b" " * (len(value) - len(chosen[0])), b"", 1)
    return changed


def plain_changed(value: Any, draw: np.random.Generator) -> Any:
    """Change one place of plain data: another value, a key less or more, deep nesting."""
    if isinstance(value, dict) and value and draw.random() < 0.85:
        key = str(draw.choice(list(value)))
        match int(draw.integers(0, 12)):
            case 0:
                return {name: part for name, part in value.items() if name != key}
            case 1:
                return {**value, "unknown": NUMBERS[int(draw.integers(len(NUMBERS)))]}
            case 2:
                return {(f"{name}\u00e9" if name == key else name): part for name, part in value.items()}
            case _:
                return {name: plain_changed(part, draw) if name == key else part for name, part in value.items()}
    if isinstance(value, list) and value and draw.random() < 0.8:
        place = int(draw.integers(len(value)))
        if draw.random() < 0.2:
            return value[:place] if draw.random() < 0.5 else value + value
        return [plain_changed(part, draw) if index == place else part for index, part in enumerate(value)]
    if draw.random() < 0.03:
        nested: Any = value
        for _ in range(int(draw.choice([50, 3000]))):
            nested = [nested]
        return nested
    return NUMBERS[int(draw.integers(len(NUMBERS)))]


def text_of(value: Any, ending: str) -> bytes:
    """Write plain data; what the format does not know is written as text."""
    with contextlib.suppress(RecursionError, ValueError, yaml.YAMLError):
        text = yaml.safe_dump(value, allow_unicode=True) if ending == ".yaml" else json.dumps(value)
        return text.encode("utf-8", "surrogatepass")
    return b"[" * 3000


def table_changed(content: bytes, draw: np.random.Generator) -> bytes:
    """Change one cell of a table, or leave out or repeat one of its lines or columns."""
    rows = [line.split(",") for line in content.decode().splitlines()]
    line, column = int(draw.integers(len(rows))), int(draw.integers(len(rows[0])))
    match int(draw.integers(0, 5)):
        case 0:
            del rows[line]
        case 1:
            rows.insert(line, rows[line])
        case 2:
            rows = [[*cells[:column], *cells[column + 1 :]] for cells in rows]
        case _:
            rows[line][column] = str(NUMBERS[int(draw.integers(len(NUMBERS)))])
    return "\n".join(",".join(cells) for cells in rows).encode()


def damaged(name: str, content: bytes, draw: np.random.Generator) -> bytes:
    """A file with something wrong with it, by its grammar or by its bytes."""
    by_grammar = draw.random() < 0.6
    if by_grammar and name.endswith((".json", ".yaml")):
        value = yaml.safe_load(content) if name.endswith(".yaml") else json.loads(content)
        for _ in range(int(draw.integers(1, 4))):
            value = plain_changed(value, draw)
        return text_of(value, Path(name).suffix)
    if (by_grammar and name.endswith(".gz")) or name.endswith(".mgz"):
        return gzip.compress(bytes_changed(gzip.decompress(content), draw), 1)
    if by_grammar and name.endswith(".npz"):
        out = io.BytesIO()
        with zipfile.ZipFile(io.BytesIO(content)) as old, zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as new:
            for member in old.namelist():
                name = member if draw.random() < 0.9 else "other.npy"
                change = header_changed if draw.random() < 0.5 else bytes_changed
                new.writestr(name, change(old.read(member), draw))
        return out.getvalue()
    if by_grammar and name.endswith(".safetensors"):
        size = int.from_bytes(content[:8], "little")
        header = json.loads(content[8 : 8 + size])
        if draw.random() < 0.5:
            about = json.loads(header["__metadata__"]["crac"])
            header["__metadata__"]["crac"] = text_of(plain_changed(about, draw), ".json").decode("utf-8", "replace")
            if draw.random() < 0.5:
                header["__metadata__"].pop("sha256", None)
        else:
            header = plain_changed(header, draw)
        text = text_of(header, ".json")
        return len(text).to_bytes(8, "little") + text + content[8 + size :]
    if by_grammar and name.endswith((".npy", ".nrrd")):
        return header_changed(content, draw)
    if by_grammar and name.endswith(".csv"):
        return table_changed(content, draw)
    if by_grammar and name.endswith(".pkl"):
        with contextlib.suppress(RecursionError):
            return pickle.dumps(plain_changed(pickle.loads(content), draw))
    return bytes_changed(content, draw)


@functools.cache
def corpus() -> list[tuple[str, bytes, Callable[[Path], object], dict[str, bytes]]]:
    """Sound files with their readers, and what must lie beside each."""
    from tests.campaigns.readers import sound_files

    return sound_files()


def trial(draw: np.random.Generator, number: int) -> str:
    """Damage one file and read it."""
    name, content, reader, beside = corpus()[number % len(corpus())]
    broken = damaged(name, content, draw)
    with tempfile.TemporaryDirectory(prefix="crac-bad-") as folder:
        for other, sound in beside.items():
            (Path(folder) / other).parent.mkdir(parents=True, exist_ok=True)
            (Path(folder) / other).write_bytes(sound)
        path = Path(folder) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(broken)
        before = {entry: entry.stat().st_mtime_ns for entry in Path(folder).rglob("*")}
        kind = read(path, reader)
        if {entry: entry.stat().st_mtime_ns for entry in Path(folder).rglob("*")} != before:
            raise FailureError("the folder has changed")
    return f"{name}: {kind}"


assert nib.__version__  # loaded before memory is limited

if __name__ == "__main__":
    sys.exit(main("bad_input", trial, __doc__, step=500))
