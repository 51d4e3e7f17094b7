"""Stacks of planes that may be larger than memory: kept in an unnamed file then, which vanishes with the process."""

import math
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from torch import Tensor

from crac.files import writing

CPU_MOST, GPU_MOST = 2**28, 2**31
"""Bytes of a stack that are kept in memory."""
SLAB = 2**24
"""Numbers that are worked on at a time."""


class Planes:
    """``(C, N, *S)`` values, written and read some of the ``N`` planes at a time.

    Args:
        shape: Shape of the whole.
        dtype: Type of the values.
        device: Where planes come from and go to.
        folder: Where the file is, if one is needed; by default that of temporary files.
    """

    def __init__(
        self, shape: Sequence[int], dtype: torch.dtype, device: torch.device, folder: Path | None = None
    ) -> None:
        self.shape, self.dtype, self.device = tuple(shape), dtype, device
        channels, _, *plane = shape
        self._part = math.prod(plane) * dtype.itemsize
        self._plane = channels * self._part
        self._folder = Path(tempfile.gettempdir()) if folder is None else folder
        self._memory = self._file = None
        if self._plane * shape[1] <= (CPU_MOST if device.type == "cpu" else GPU_MOST):
            self._memory = torch.empty(self.shape, dtype=dtype, device=device)
        else:
            with writing(self._folder):
                self._file = tempfile.TemporaryFile(dir=self._folder)  # noqa: SIM115 (closed with this object)

    def write(self, start: int, planes: Tensor) -> None:
        """Set the planes from number ``start`` on to ``(C, n, *S)``."""
        if self._memory is not None:
            self._memory[:, start : start + planes.shape[1]] = planes
            return
        assert self._file is not None
        ordered = planes.to("cpu", self.dtype).movedim(1, 0).contiguous()
        with writing(self._folder):  # planes after each other, so that few of them are one piece of the file
            self._file.seek(start * self._plane)
            self._file.write(ordered.numpy().data)

    def read(self, start: int, stop: int) -> Tensor:
        """Planes ``start`` to ``stop``, ``(C, n, *S)``."""
        if self._memory is not None:
            return self._memory[:, start:stop]
        assert self._file is not None
        channels, _, *plane = self.shape
        planes = torch.empty((stop - start, channels, *plane), dtype=self.dtype)
        self._file.seek(start * self._plane)
        self._file.readinto(planes.numpy().data)
        return planes.movedim(0, 1).to(self.device)

    def channel(self, number: int) -> Tensor:
        """All planes of one channel, ``(N, *S)``."""
        if self._memory is not None:
            return self._memory[number]
        assert self._file is not None
        found = torch.empty(self.shape[1:], dtype=self.dtype)
        for index, plane in enumerate(found):
            self._file.seek(index * self._plane + number * self._part)
            self._file.readinto(plane.numpy().data)
        return found.to(self.device)

    def slabs(self) -> Iterator[Tensor]:
        """Yield all planes in order, as many at a time as :data:`SLAB` numbers are."""
        for start, stop in steps(self.shape[1], self._plane // self.dtype.itemsize):
            yield self.read(start, stop)

    def close(self) -> None:
        """Forget the values."""
        self._memory = None
        if self._file is not None:
            self._file.close()


def steps(planes: int, size: int) -> Iterator[tuple[int, int]]:
    """Yield start and stop of slabs of ``planes`` that have ``size`` numbers each."""
    step = max(1, SLAB // max(1, size))
    for start in range(0, planes, step):
        yield start, min(start + step, planes)
