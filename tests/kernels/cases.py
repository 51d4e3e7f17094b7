"""The case that the tests of this folder change."""

from typing import Any

import torch

PLAIN: dict[str, Any] = {
    "method": ("crac", {}),
    "classes": 4,
    "batch": 2,
    "size": (9, 33),
    "border": "replicate",
    "ignore_index": None,
    "weighted": False,
    "dtype": torch.float32,
    "label_dtype": torch.int64,
    "layout": "contiguous",
    "upstream": 1.0,
    "part": "forward",
}
