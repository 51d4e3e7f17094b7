"""What the outer step needs of one validation batch, in one pass over logits and labels."""

import triton
import triton.language as tl

from crac.kernels.device import count_patch, penalty_terms, pick


@triton.jit
def fused_sums(
    logits, labels, regions, rho, lambda_, scales, partials,
    depth, height, width,
    logits_b, logits_k, logits_z, logits_y, logits_x,
    labels_b, labels_z, labels_y, labels_x,
    tolerance, ignored,
    K: tl.constexpr, R: tl.constexpr, PENALTY: tl.constexpr,
    RADIUS_Z: tl.constexpr, RADIUS: tl.constexpr, NEAR: tl.constexpr, REPLICATE: tl.constexpr, IGNORE: tl.constexpr,
    TOLERANT: tl.constexpr, FIELDS: tl.constexpr, BITS: tl.constexpr, BLOCK_Y: tl.constexpr, BLOCK_X: tl.constexpr,
):  # fmt: skip
    """One tile's row of ``partials``: ``2 R K`` sums of constraints and derivatives, then ``R`` pixel counts."""
    ALL: tl.constexpr = FIELDS >= K
    GROUPS: tl.constexpr = (K + FIELDS - 1) // FIELDS
    tiles_x = tl.cdiv(width, BLOCK_X)
    tile = tl.program_id(0)
    z = tl.program_id(1)
    b = tl.program_id(2).to(tl.int64)
    lane = tl.arange(0, BLOCK_Y * BLOCK_X)
    y = (tile // tiles_x) * BLOCK_Y + lane // BLOCK_X
    x = (tile % tiles_x) * BLOCK_X + lane % BLOCK_X
    live = (y < height) & (x < width)
    partials += (tile + tl.num_programs(0) * (z + tl.num_programs(1) * b)) * (2 * R * K + R)
    logits += b * logits_b + z.to(tl.int64) * logits_z
    labels += b * labels_b
    offset = y * logits_y + x * logits_x
    at = (z, y, x)
    extent = (depth, height, width)
    strides = (labels_z, labels_y, labels_x)
    own = tl.load(labels + z.to(tl.int64) * labels_z + (y * labels_y + x * labels_x), mask=live, other=0).to(tl.int32)
    valid = live
    if IGNORE:
        valid = live & (own != ignored)

    packed, known, mixed = count_patch(
        labels, own, at, extent, strides, ignored, 0, FIELDS, BITS, ALL, RADIUS_Z, RADIUS, NEAR, REPLICATE, IGNORE
    )
    if regions is not None:
        pixel = ((b * depth + z) * height + y) * width + x
        region = tl.load(regions + pixel, mask=live, other=0).to(tl.int32)
    else:
        region = mixed.to(tl.int32)
    scale = pick(scales, region, 0, 1, R)
    share = tl.div_rn(tl.full((BLOCK_Y * BLOCK_X,), 1.0, tl.float32), tl.maximum(known, 1).to(tl.float32))
    for r in tl.static_range(R):
        count = ((region == r) & valid).to(tl.float32)
        tl.store(partials + 2 * R * K + r, tl.sum(count, 0))

    for group in range(GROUPS):
        if not ALL:
            packed, _known, _mixed = count_patch(
                labels, own, at, extent, strides, ignored, group * FIELDS,
                FIELDS, BITS, ALL, RADIUS_Z, RADIUS, NEAR, REPLICATE, IGNORE,
            )  # fmt: skip
        for number in tl.static_range(FIELDS):
            k = tl.full((), number, tl.int32) + group * FIELDS
            if k < K:
                logit = tl.load(logits + k.to(tl.int64) * logits_k + offset, mask=live, other=0.0).to(tl.float32)
                count = ((packed >> (number * BITS)) & ((1 << BITS) - 1)).to(tl.float32)
                constraint = tl.abs(logit - scale * (count * share)) - tolerance
                _value, derivative = penalty_terms(
                    constraint, pick(rho, region, k, K, R), pick(lambda_, region, k, K, R), PENALTY, TOLERANT
                )
                for r in tl.static_range(R):
                    here = (region == r) & valid
                    first = tl.sum(tl.where(here, constraint, 0.0), 0)
                    second = tl.sum(tl.where(here, derivative, 0.0), 0)
                    tl.store(partials + r * K + k, first)
                    tl.store(partials + R * K + r * K + k, second)
