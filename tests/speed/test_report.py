"""The speed page shows what the result files say."""

import json

import pytest
import torch

import crac
from report import NAMES, PAGE, RESULTS, fill, table
from rivals import unfold

RESULT = {
    "gpu": None,
    "cpu": "a CPU",
    "threads": 2,
    "date": "2026-01-02",
    "command": "python speed/loss.py",
    "versions": {"torch": "2.0", "monai": None},
    "rows": [
        {"case": "small", "rival": "ours", "ms": [1.0, 0.9, 1.2], "graph_ms": [0.5, 0.4, 0.6]},
        {"case": "small", "rival": "theirs", "ms": [2.0, 1.9, 2.2]},
    ],
}
for row, extra in zip(RESULT["rows"], (3, 30), strict=True):
    row |= {"extra_mib": extra, "floor_ms": 0.25}


def test_table_and_caption() -> None:
    page = fill("before\n<!-- loss_gpu -->\nold\n<!-- /loss_gpu -->\nafter\n", {"loss_gpu": RESULT})
    assert "old" not in page
    assert "| small, floor 0.250 ms | ours | 1.000 ms (0.900 to 1.200) | 0.500 ms | 3 MiB | 2.0 |" in page
    assert "|  | theirs | 2.000 ms (1.900 to 2.200) |  | 30 MiB | 8.0 |" in page
    assert "a CPU, 2 threads, 2026-01-02, with torch 2.0: `python speed/loss.py`" in page
    assert page.startswith("before\n")
    assert page.endswith("after\n")
    assert fill(page, {"loss_gpu": RESULT}) == page


def test_profiles_follow_the_table() -> None:
    call = {"cpu_us": [50.0, 40.0, 60.0], "device_us": 12.0, "kernels": {"void at::native::softmax": 8.0, "fill": 4.0}}
    profiles = [{"shape": [1, 2, 8, 8], "cross-entropy alone": call, "crac, fused": call}]
    page = fill("<!-- loss_gpu -->\n<!-- /loss_gpu -->\n", {"loss_gpu": RESULT | {"profiles": profiles}})
    assert "| 1x2x8x8 | crac, fused | 50 µs (40 to 60) | 12 µs | softmax 8 µs, fill 4 µs |" in page


def test_every_row_has_as_many_cells_as_the_head() -> None:
    without = RESULT | {"rows": [row | {"graph_ms": None} for row in RESULT["rows"]]}
    for result in (RESULT, without):
        assert len({line.count("|") for line in table(result).splitlines()}) == 1


def test_a_page_without_marks_is_refused() -> None:
    with pytest.raises(ValueError, match="loss_gpu"):
        fill("nothing here", {"loss_gpu": RESULT})


def test_the_page_is_up_to_date() -> None:
    results = {path.stem: json.loads(path.read_text()) for path in [RESULTS / f"{name}.json" for name in NAMES]}
    page = PAGE.read_text()
    assert fill(page, results) == page, "run: python speed/report.py"


@pytest.mark.parametrize("shape", [(2, 4, 9, 7), (1, 3, 4, 5, 6)])
def test_the_unfold_rival_computes_the_same_loss(shape: tuple[int, ...]) -> None:
    loss = crac.CRaCLoss(shape[1], lambda_=0.5)
    logits = torch.randn(shape)
    labels = torch.randint(shape[1], (shape[0], *shape[2:]))
    # Channels of the other region hold z = 0, where every penalty is 0.
    assert unfold(loss)(logits, labels).item() == pytest.approx(loss(logits, labels).item(), rel=1e-5)
