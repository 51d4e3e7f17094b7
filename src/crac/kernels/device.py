"""Device functions shared by the kernels: a patch's labels, a pixel's multipliers, the penalties.

A tile is ``BLOCK_Y`` × ``BLOCK_X`` pixels of one plane of one image, one after the other in a vector; a 2-D image is
a volume of depth 1.
"""

import triton
import triton.language as tl


@triton.jit
def neighbour(
    labels, at, extent, strides, dz: tl.constexpr, dy: tl.constexpr, dx: tl.constexpr, REPLICATE: tl.constexpr
):
    """Return labels ``(dz, dy, dx)`` away from the pixels ``at``: beyond the border the edge goes on, or background."""
    z = at[0] + dz
    y = at[1] + dy
    x = at[2] + dx
    inner_z = tl.minimum(tl.maximum(z, 0), extent[0] - 1)
    inner_y = tl.minimum(tl.maximum(y, 0), extent[1] - 1)
    inner_x = tl.minimum(tl.maximum(x, 0), extent[2] - 1)
    plane = labels + inner_z.to(tl.int64) * strides[0]
    label = tl.load(plane + (inner_y * strides[1] + inner_x * strides[2])).to(tl.int32)
    if not REPLICATE:
        label = tl.where((inner_z == z) & (inner_y == y) & (inner_x == x), label, 0)
    return label


@triton.jit
def count_patch(
    labels, own, at, extent, strides, ignored, first,
    FIELDS: tl.constexpr, BITS: tl.constexpr, ALL: tl.constexpr,
    RADIUS_Z: tl.constexpr, RADIUS: tl.constexpr, NEAR: tl.constexpr, REPLICATE: tl.constexpr, IGNORE: tl.constexpr,
):  # fmt: skip
    """Count the labels of every pixel's patch, ``FIELDS`` classes from ``first`` on at once.

    The counts share one 32-bit word, ``BITS`` bits each: a neighbour costs a shift and an addition however many
    classes there are. ``ALL`` says that every class has a field.

    Returns:
        The packed counts, the number of labels that are not ignored, and whether one of them, no further than ``NEAR``,
        differs from the pixel's ``own``.
    """
    one = tl.full((1,), 1, tl.int32)
    packed = tl.zeros_like(own)
    known = tl.zeros_like(own)
    same = tl.zeros_like(own)
    others = tl.zeros_like(own)
    for dz in tl.static_range(-RADIUS_Z, RADIUS_Z + 1):
        for dy in tl.static_range(-RADIUS, RADIUS + 1):
            for dx in tl.static_range(-RADIUS, RADIUS + 1):
                label = neighbour(labels, at, extent, strides, dz, dy, dx, REPLICATE)
                number = label - first
                bit = one << ((number * BITS) & 31)
                if not ALL:
                    bit = tl.where((number >= 0) & (number < FIELDS), bit, 0)
                if IGNORE:
                    bit = tl.where(label != ignored, bit, 0)
                    known += (label != ignored).to(tl.int32)
                else:
                    known += 1
                packed += bit
                if NEAR == RADIUS:
                    same += (label == own).to(tl.int32)
                elif (dz * dz <= NEAR * NEAR) & (dy * dy <= NEAR * NEAR) & (dx * dx <= NEAR * NEAR):
                    other = label != own
                    if IGNORE:
                        other = other & (label != ignored)
                    others += other.to(tl.int32)
    if NEAR == RADIUS:
        if ALL:
            same = (packed >> ((own * BITS) & 31)) & ((1 << BITS) - 1)
        others = known - same
    return packed, known, others != 0


@triton.jit
def blur_patch(
    labels, at, extent, strides, k, rings, RADIUS_Z: tl.constexpr, RADIUS: tl.constexpr, REPLICATE: tl.constexpr
):
    """Return the weight of class ``k`` in the patch; a neighbour has that of its axis steps from the centre."""
    weight = 0.0
    for dz in tl.static_range(-RADIUS_Z, RADIUS_Z + 1):
        for dy in tl.static_range(-RADIUS, RADIUS + 1):
            for dx in tl.static_range(-RADIUS, RADIUS + 1):
                label = neighbour(labels, at, extent, strides, dz, dy, dx, REPLICATE)
                weight += tl.where(label == k, rings[dz * dz + dy * dy + dx * dx], 0.0)
    return weight


@triton.jit
def weigh_patch(
    labels, class_weights, at, extent, strides, ignored, rings,
    K: tl.constexpr, RADIUS_Z: tl.constexpr, RADIUS: tl.constexpr, REPLICATE: tl.constexpr,
):  # fmt: skip
    """Return the sum of :func:`blur_patch` over the classes: plain, and times their weights."""
    plain = 0.0
    weighted = 0.0
    for dz in tl.static_range(-RADIUS_Z, RADIUS_Z + 1):
        for dy in tl.static_range(-RADIUS, RADIUS + 1):
            for dx in tl.static_range(-RADIUS, RADIUS + 1):
                label = neighbour(labels, at, extent, strides, dz, dy, dx, REPLICATE)
                weight = tl.where(label != ignored, rings[dz * dz + dy * dy + dx * dx], 0.0)
                plain += weight
                if class_weights is not None:
                    known = (label >= 0) & (label < K)
                    weighted += weight * tl.load(class_weights + label, mask=known, other=0.0)
                else:
                    weighted += weight
    return plain, weighted


@triton.jit
def pick(table, region, k, K: tl.constexpr, R: tl.constexpr):
    """Return column ``k`` of a ``(R, K)`` table, in the row of each pixel's region."""
    value = tl.load(table + k)
    for r in tl.static_range(1, R):
        value = tl.where(region == r, tl.load(table + r * K + k), value)
    return value


@triton.jit
def penalty_terms(z, rho, lambda_, PENALTY: tl.constexpr, TOLERANT: tl.constexpr):
    """Return a penalty of the constraint ``z`` and its derivative, as in :mod:`crac.functional.penalty`.

    ``TOLERANT`` says that ``z`` may be negative.
    """
    if PENALTY == "phr" and not TOLERANT:
        value = z * (lambda_ + 0.5 * rho * z)
        derivative = lambda_ + rho * z
    elif PENALTY == "phr":
        slope = lambda_ + rho * z
        value = tl.where(slope >= 0, z * (lambda_ + 0.5 * rho * z), -lambda_ * lambda_ / (2 * rho))
        derivative = tl.maximum(slope, 0.0)
    else:
        slack = tl.minimum(z, 0.0)
        pole = 1 / (1 - rho * slack)
        value = lambda_ * z + lambda_ * rho * z * z
        derivative = lambda_ + 2 * lambda_ * rho * z
        if PENALTY == "p2":
            value += rho * rho * z * z * z / 6
            derivative += rho * rho * z * z / 2
        value = tl.where(z >= 0, value, lambda_ * slack * pole)
        derivative = tl.where(z >= 0, derivative, lambda_ * pole * pole)
    return value, derivative
