"""One pass over the labels alone, where a mean needs its denominator first or the labels are wide."""

import triton
import triton.language as tl


@triton.jit
def count_labels(
    labels, codes, class_weights, totals,
    pixels, depth, height, width,
    stride_b, stride_z, stride_y, stride_x,
    ignored,
    K: tl.constexpr, IGNORE: tl.constexpr, CONTIGUOUS: tl.constexpr, PROGRAMS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Narrow the labels to a byte, and sum what the means are divided by.

    A code is the class, 254 for an ignored pixel, 255 for a label that is neither. Every program leaves its number
    of valid pixels, and their summed class weight, in ``totals``, ``(2, PROGRAMS)``.
    """
    program = tl.program_id(0)
    count = tl.zeros((BLOCK,), tl.float32)
    mass = tl.zeros((BLOCK,), tl.float32)
    for start in range(program * BLOCK, pixels, PROGRAMS * BLOCK):
        pixel = start + tl.arange(0, BLOCK)
        live = pixel < pixels
        if CONTIGUOUS:
            label = tl.load(labels + pixel, mask=live, other=0).to(tl.int64)
        else:
            row = pixel // width
            plane = row // height
            offset = (plane // depth).to(tl.int64) * stride_b + (plane % depth).to(tl.int64) * stride_z
            offset += row % height * stride_y + pixel % width * stride_x
            label = tl.load(labels + offset, mask=live, other=0).to(tl.int64)
        valid = live
        code = tl.where((label >= 0) & (label < K), label, 255).to(tl.int32)
        if IGNORE:
            valid = live & (label != ignored)
            code = tl.where(label != ignored, code, 254)
        if codes is not None:
            tl.store(codes + pixel, code.to(tl.uint8), mask=live)
        count += valid.to(tl.float32)
        if class_weights is not None:
            mass += tl.load(class_weights + code, mask=valid & (code < K), other=0.0)
    if totals is not None:
        tl.store(totals + program, tl.sum(count, 0))
        tl.store(totals + PROGRAMS + program, tl.sum(mass, 0))
