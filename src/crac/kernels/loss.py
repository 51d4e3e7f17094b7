"""Cross-entropy, neighbours' shares, region, penalty and the gradient in one pass over logits and labels."""

import triton
import triton.language as tl

from crac.kernels.device import blur_patch, count_patch, penalty_terms, pick, weigh_patch


@triton.jit
def fused_loss(
    logits, labels, regions, rho, lambda_, scales, class_weights, totals,
    upstream, partials, counter, result, gradient,
    depth, height, width,
    logits_b, logits_k, logits_z, logits_y, logits_x,
    labels_b, labels_z, labels_y, labels_x,
    gradient_b, gradient_k, gradient_z, gradient_y, gradient_x,
    fit_weight, penalty_weight, tolerance, smoothing, ring_0, ring_1, ring_2, ring_3, ignored,
    K: tl.constexpr, R: tl.constexpr, FIT: tl.constexpr, PENALTY: tl.constexpr,
    RADIUS_Z: tl.constexpr, RADIUS: tl.constexpr, NEAR: tl.constexpr, REPLICATE: tl.constexpr, IGNORE: tl.constexpr,
    SOFT: tl.constexpr, TOLERANT: tl.constexpr, SKIP_UNIT: tl.constexpr, FIELDS: tl.constexpr, BITS: tl.constexpr,
    TOTALS: tl.constexpr, BLOCK_Y: tl.constexpr, BLOCK_X: tl.constexpr,
):  # fmt: skip
    """One tile: its part of the loss into ``partials``, its gradient into ``gradient``; either may be ``None``.

    - ``regions``: ``uint8`` map ``(B, *S)``, contiguous; ``None`` for inner and outer by the patch itself.
    - ``counter``, ``result``: if given, the program that ends last adds up ``partials`` into ``result``; the counter is
      0 before and after.
    - ``totals``: what ``count_labels`` summed; ``None`` when every pixel counts, and with the same weight.
    - ``upstream``: scalar the gradient is multiplied by, ``None`` for 1.
    - ``fit_weight``, ``penalty_weight``: weight of a pixel's cross-entropy, and of a pixel's and class's penalty; where
      there are ``totals``, before division by them.
    - ``FIT``: whether to compute the cross-entropy; without it, and without a divergence, no softmax is taken.
    - ``PENALTY``: of the distance between logit and target; for ``divergence``, the Kullback-Leibler divergence of the
      softmax from the target, times ``lambda_`` in the row of the pixel's region and the column of its label.
    - ``smoothing``: probability that the target of a divergence spreads over all classes in region 0.
    - ``SOFT``: the target is the patch's labels weighted by ``ring_0`` .. ``ring_3``, instead of the pixel's own.
    - ``SKIP_UNIT``: ``gradient`` already holds the gradient for ``upstream`` 1: leave it if that is the value.
    """
    # Few classes: their logits stay in registers, their counts in one word. Many: both come in groups.
    ALL: tl.constexpr = FIELDS >= K
    SOFTMAX: tl.constexpr = FIT or PENALTY == "divergence"
    GROUPS: tl.constexpr = (K + FIELDS - 1) // FIELDS
    LANES: tl.constexpr = BLOCK_Y * BLOCK_X
    SIZE: tl.constexpr = (2 * RADIUS_Z + 1) * (2 * RADIUS + 1) * (2 * RADIUS + 1)
    if totals is not None:
        programs = tl.arange(0, TOTALS)
        pixels = tl.maximum(tl.sum(tl.load(totals + programs), 0), 1.0)
        penalty_weight = penalty_weight / pixels
        if class_weights is not None and not SOFT:
            mass = tl.sum(tl.load(totals + TOTALS + programs), 0)
            # Without any weight it is 0 at once: the large number for it would be infinite times `upstream`.
            fit_weight = tl.where(mass > 0, fit_weight / tl.maximum(mass, 1.1754944e-38), 0.0)
        else:
            fit_weight = fit_weight / pixels
    if upstream is not None:
        factor = tl.load(upstream).to(tl.float32)
        if SKIP_UNIT and factor == 1.0:
            return
        fit_weight *= factor
        penalty_weight *= factor
    tiles_x = tl.cdiv(width, BLOCK_X)
    tile = tl.program_id(0)
    z = tl.program_id(1)
    b = tl.program_id(2).to(tl.int64)
    lane = tl.arange(0, LANES)
    y = (tile // tiles_x) * BLOCK_Y + lane // BLOCK_X
    x = (tile % tiles_x) * BLOCK_X + lane % BLOCK_X
    live = (y < height) & (x < width)

    logits += b * logits_b + z.to(tl.int64) * logits_z
    offset = y * logits_y + x * logits_x
    step = tl.full((), 0, tl.int64)
    top = tl.full((LANES,), float("-inf"), tl.float32)
    total = tl.zeros((LANES,), tl.float32)
    kept = ()
    powers = ()
    if ALL:
        for _ in tl.static_range(K):
            logit = tl.load(logits + step + offset, mask=live, other=0.0).to(tl.float32)
            kept = kept + (logit,)
            top = tl.maximum(top, logit)
            step += logits_k
        if SOFTMAX:
            for index in tl.static_range(K):
                power = tl.exp(kept[index] - top)
                powers = powers + (power,)
                total += power
    elif SOFTMAX:
        for _ in range(K):
            logit = tl.load(logits + step + offset, mask=live, other=0.0).to(tl.float32)
            higher = tl.maximum(top, logit)
            total = total * tl.exp(top - higher) + tl.exp(logit - higher)
            top = higher
            step += logits_k

    labels += b * labels_b
    at = (z, y, x)
    extent = (depth, height, width)
    strides = (labels_z, labels_y, labels_x)
    own = tl.load(labels + z.to(tl.int64) * labels_z + (y * labels_y + x * labels_x), mask=live, other=0).to(tl.int32)
    is_class = (own >= 0) & (own < K)
    valid = live
    if IGNORE:
        valid = live & (own != ignored)

    # The targets of a pixel sum to `whole`.
    whole = 1.0
    rings = (ring_0, ring_1, ring_2, ring_3)
    if FIT:
        if SOFT:
            plain, whole = weigh_patch(
                labels, class_weights, at, extent, strides, ignored, rings, K, RADIUS_Z, RADIUS, REPLICATE
            )
            known_share = 1 / tl.maximum(plain, 1e-6)
            whole *= known_share
        elif class_weights is not None:
            whole = tl.load(class_weights + own, mask=valid & is_class, other=0.0)
        pull = fit_weight * whole
        spread = pull / total
    chosen = tl.zeros((LANES,), tl.float32)
    spent = tl.zeros((LANES,), tl.float32)

    region = tl.zeros((LANES,), tl.int32)
    packed = region
    scale = 1.0
    price = 1.0
    if PENALTY != "none":
        packed, known, mixed = count_patch(
            labels, own, at, extent, strides, ignored, 0, FIELDS, BITS, ALL, RADIUS_Z, RADIUS, NEAR, REPLICATE, IGNORE
        )
        if regions is not None:
            pixel = ((b * depth + z) * height + y) * width + x
            region = tl.load(regions + pixel, mask=live, other=0).to(tl.int32)
        elif R > 1:
            region = mixed.to(tl.int32)
        # As the eager path multiplies, so that a logit on its target is exactly there.
        if IGNORE:
            share = tl.div_rn(tl.full((LANES,), 1.0, tl.float32), tl.maximum(known, 1).to(tl.float32))
        else:
            share = 1.0 / SIZE
        if scales is not None:
            scale = pick(scales, region, 0, 1, R)
        if PENALTY == "divergence":
            price = tl.load(lambda_ + region * K + own, mask=valid & is_class, other=0.0)

    gradient_offset = y * gradient_y + x * gradient_x
    for group in range(GROUPS):
        if PENALTY != "none" and not ALL:
            packed, _known, _mixed = count_patch(
                labels, own, at, extent, strides, ignored, group * FIELDS,
                FIELDS, BITS, ALL, RADIUS_Z, RADIUS, NEAR, REPLICATE, IGNORE,
            )  # fmt: skip
        for number in tl.static_range(FIELDS):
            k = tl.full((), number, tl.int32) + group * FIELDS
            if ALL:
                here = live
                logit = kept[number]
            else:
                here = live & (tl.full((LANES,), number, tl.int32) + group * FIELDS < K)
                logit = tl.load(logits + k.to(tl.int64) * logits_k + offset, mask=here, other=0.0).to(tl.float32)
            slope = tl.zeros((LANES,), tl.float32)
            if SOFTMAX:
                power = powers[number] if ALL else tl.exp(logit - top)
            if FIT:
                slope = spread * power
                # `where` rather than products: a class that is not the target may hold an infinity.
                if SOFT:
                    blurred = blur_patch(labels, at, extent, strides, k, rings, RADIUS_Z, RADIUS, REPLICATE)
                    target = known_share * blurred
                    if class_weights is not None:
                        target *= tl.load(class_weights + k, mask=k < K, other=0.0)
                    chosen += tl.where(target > 0, target * (logit - top), 0.0)
                    slope -= fit_weight * target
                else:
                    chosen = tl.where(own == k, logit - top, chosen)
                    slope -= tl.where(own == k, pull, 0.0)
            if PENALTY == "divergence":
                count = ((packed >> (number * BITS)) & ((1 << BITS) - 1)).to(tl.float32)
                inside = tl.where(own == k, 1 - smoothing, 0.0) + smoothing / K
                wanted = tl.where(region == 0, inside, count * share)
                value = tl.where(wanted > 0, wanted * (tl.log(wanted) - (logit - top)), 0.0)
                spent += value if ALL else tl.where(here, value, 0.0)
                slope += penalty_weight * price * (power / total - wanted)
            elif PENALTY != "none":
                count = ((packed >> (number * BITS)) & ((1 << BITS) - 1)).to(tl.float32)
                distance = logit - scale * (count * share)
                constraint = tl.abs(distance) - tolerance
                if PENALTY == "distance":
                    value = constraint
                    derivative = tl.full((LANES,), 1.0, tl.float32)
                else:
                    entry = tl.minimum(k, K - 1)
                    weight = pick(rho, region, entry, K, R)
                    multiplier = pick(lambda_, region, entry, K, R)
                    value, derivative = penalty_terms(constraint, weight, multiplier, PENALTY, TOLERANT)
                spent += value if ALL else tl.where(here, value, 0.0)
                signed = tl.where(distance > 0, derivative, -derivative)
                slope += penalty_weight * tl.where(distance == 0, 0.0, signed)
            if gradient is not None:
                if IGNORE:
                    slope = tl.where(valid, slope, 0.0)
                to = b * gradient_b + z.to(tl.int64) * gradient_z + k.to(tl.int64) * gradient_k
                tl.store(gradient + to + gradient_offset, slope, mask=here)

    if partials is not None:
        if PENALTY == "divergence":
            spent = price * (spent + tl.log(total))
        value = penalty_weight * spent
        if FIT:
            value += fit_weight * (whole * tl.log(total) - (chosen if SOFT else whole * chosen))
        # A label that is no class must not pass for one.
        value = tl.where(is_class, value, float("nan"))
        program = tile + tl.num_programs(0) * (z + tl.num_programs(1) * b)
        tl.store(partials + program, tl.sum(tl.where(valid, value, 0.0), 0))
        if counter is not None:
            last = tl.num_programs(0) * tl.num_programs(1) * tl.num_programs(2) - 1
            if tl.atomic_add(counter, 1, sem="acq_rel") == last:
                sums = tl.zeros((LANES,), tl.float32)
                for first in range(0, last + 1, LANES):
                    sums += tl.load(partials + first + lane, mask=first + lane <= last, other=0.0, cache_modifier=".cg")
                tl.store(result, tl.sum(sums, 0))
                tl.store(counter, 0)
