"""Stacks of planes in memory and in a file."""

from pathlib import Path

import pytest
import torch

from crac.errors import InputError
from crac.models import planes


def test_planes_come_back_as_they_went(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for most in (2**20, 0):
        monkeypatch.setattr(planes, "CPU_MOST", most)
        for dtype in (torch.float32, torch.float16, torch.uint8):
            values = (torch.rand(3, 7, 4, 5) * 200).to(dtype)
            stack = planes.Planes(values.shape, dtype, torch.device("cpu"), tmp_path)
            for start, stop in ((5, 7), (0, 2), (2, 5)):
                stack.write(start, values[:, start:stop])
            assert torch.equal(stack.read(1, 6), values[:, 1:6])
            assert torch.equal(stack.channel(2), values[2])
            assert torch.equal(torch.cat(list(stack.slabs()), 1), values)
            stack.close()
    with pytest.raises(InputError, match="cannot be written"):
        planes.Planes((1, 2, 3, 4), torch.float32, torch.device("cpu"), tmp_path / "absent")
