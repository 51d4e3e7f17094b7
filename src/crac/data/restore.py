"""Probabilities back on the grid of the image they were predicted from, one plane at a time.

The planes of a volume with many classes together are larger than most memories; two or three of them are not.
"""

from collections.abc import Iterable, Iterator, Sequence

from torch import Tensor

from crac.data.grid import Shape, linear_weights, window

Where = tuple[slice, slice, slice]


class Restoration:
    """The way back from the prepared grid to an image's own; :meth:`crac.data.Recipe.restoration` makes it.

    Args:
        shape: Voxels of the image along ``(X, Y, Z)``.
        axes: Which of its axes became each of ``(D, H, W)``.
        flips: Which of its axes were flipped.
        resampled: Voxels along ``(D, H, W)`` after resampling.
        crop: Voxels along ``(D, H, W)`` that were kept around the centre; None where all were.
    """

    def __init__(
        self, shape: Shape, axes: Sequence[int], flips: Sequence[int], resampled: Shape, crop: Sequence[int | None]
    ) -> None:
        self.shape, self.axes, self.flips, self.resampled, self.crop = shape, list(axes), flips, resampled, crop
        self.original = [shape[axis] for axis in axes]

    @property
    def axis(self) -> int:
        """Axis of the image along which the planes follow each other."""
        return self.axes[0]

    def planes(self, slabs: Iterable[Tensor]) -> Iterator[tuple[Where, Tensor]]:
        """Yield every plane of the image: its place, and its probabilities ``(K, x, y, z)``, 1 voxel thick.

        Outside the recipe's crop every voxel is background.

        Args:
            slabs: Probabilities ``(K, d, H, W)`` in the prepared grid, from its first plane to its last.
        """
        weights = linear_weights(self.resampled[0], self.original[0])
        order = [0, *(self.axes.index(axis) + 1 for axis in range(3))]
        flipped = [axis + 1 for axis in self.flips if axis != self.axis]
        source = self._resampled(slabs)
        held: dict[int, Tensor] = {}
        for number, row in enumerate(weights):
            needed = row.nonzero().flatten().tolist()
            while needed[-1] not in held:
                index, plane = next(source)
                held[index] = plane
            held = {index: plane for index, plane in held.items() if index >= needed[0]}
            plane = held[needed[0]] * row[needed[0]]
            for index in needed[1:]:
                plane = plane + held[index] * row[index]
            at = self.original[0] - 1 - number if self.axis in self.flips else number
            where = [slice(None)] * 3
            where[self.axis] = slice(at, at + 1)
            yield (where[0], where[1], where[2]), plane[:, None].permute(order).flip(flipped)
        for _ in source:  # planes that only padded the image
            pass

    def whole(self, probabilities: Tensor) -> Tensor:
        """All planes at once: ``(K, X, Y, Z)`` from ``(K, D, H, W)``."""
        out = probabilities.new_empty((len(probabilities), *self.shape))
        for where, plane in self.planes([probabilities]):
            out[(slice(None), *where)] = plane
        return out

    def _resampled(self, slabs: Iterable[Tensor]) -> Iterator[tuple[int, Tensor]]:
        """Number the planes of the resampled grid, ``(K, H, W)`` with ``H`` and ``W`` those of the image."""
        (read, fill), *crossing = (
            window(voxels, crop or voxels) for voxels, crop in zip(self.resampled, self.crop, strict=True)
        )
        rows, columns = (
            linear_weights(source, target) if source != target else None
            for source, target in zip(self.resampled[1:], self.original[1:], strict=True)
        )
        cropped = any(crop not in (None, side) for crop, side in zip(self.crop[1:], self.resampled[1:], strict=True))
        background = None
        number = read.start - fill.start  # that of the first prepared plane in the resampled grid
        for slab in slabs:
            for plane in slab.unbind(1):
                if background is None:
                    background = plane.new_zeros((len(slab), *self.original[1:]))
                    background[0] = 1
                    yield from ((before, background) for before in range(read.start))
                if read.start <= number < read.stop:
                    if cropped:
                        full = plane.new_zeros((len(slab), *self.resampled[1:]))
                        full[0] = 1
                        (top, inner), (left, within) = crossing
                        full[:, top, left] = plane[:, inner, within]
                        plane = full
                    plane = plane if columns is None else plane @ columns.T
                    yield number, plane if rows is None else rows @ plane
                number += 1
        assert background is not None
        yield from ((after, background) for after in range(read.stop, self.resampled[0]))
