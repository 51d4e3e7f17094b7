"""The definitions, spelt out pixel by pixel in float64: slow, and too plain to be wrong."""

import itertools
import math

import numpy as np


def patches(labels: np.ndarray, radius: int, border: str):
    """Yield ``(index, labels of the patch)`` for every pixel of one image."""
    mode = {"mode": "edge"} if border == "replicate" else {"mode": "constant", "constant_values": 0}
    padded = np.pad(labels, radius, **mode)
    for index in np.ndindex(labels.shape):
        yield index, padded[tuple(slice(i, i + 2 * radius + 1) for i in index)]


def proportions(labels, num_classes, border="replicate", radius=1, ignore=None):
    out = np.zeros((len(labels), num_classes, *labels.shape[1:]))
    for number, image in enumerate(labels):
        for index, patch in patches(image, radius, border):
            known = patch[patch != ignore] if ignore is not None else patch.ravel()
            for k in range(num_classes):
                out[(number, k, *index)] = np.mean(known == k) if known.size else 0.0
    return out


def regions(labels, border="replicate", radii=(1,), ignore=None):
    out = np.zeros(labels.shape, dtype=int)
    for radius, (number, image) in itertools.product(radii, enumerate(labels)):
        for index, patch in patches(image, radius, border):
            if ignore is not None and image[index] == ignore:
                continue
            out[(number, *index)] += len(set(patch.ravel().tolist()) - {ignore}) > 1
    return out


def phr(z, rho, lam):
    return lam * z + rho * z * z / 2 if lam + rho * z >= 0 else -lam * lam / (2 * rho)


def crac(logits, labels, lambda_, rho, scales, border="replicate", radii=(1,), ignore=None, tolerance=0.0):
    """Value of the objective, and per region the sums of h and of PHR' over its pixels, and its pixel count."""
    num_classes, n_regions = logits.shape[1], len(radii) + 1
    prior = proportions(labels, num_classes, border, 1, ignore)
    region = regions(labels, border, radii, ignore)
    pixels = [i for i in np.ndindex(labels.shape) if ignore is None or labels[i] != ignore]
    entropy = penalty = 0.0
    sums, counts = np.zeros((2, n_regions, num_classes)), np.zeros(n_regions)
    for number, *index in pixels:
        values = [float(logits[(number, k, *index)]) for k in range(num_classes)]
        top = max(values)
        log_sum = top + math.log(sum(math.exp(v - top) for v in values))
        entropy += log_sum - values[labels[(number, *index)]]
        r = region[(number, *index)]
        counts[r] += 1
        for k in range(num_classes):
            z = abs(scales[r] * prior[(number, k, *index)] - values[k]) - tolerance
            penalty += phr(z, rho[r, k], lambda_[r, k])
            sums[:, r, k] += z, max(0.0, lambda_[r, k] + rho[r, k] * z)
    n = max(len(pixels), 1)
    return entropy / n + penalty / (n * num_classes * n_regions), sums, counts
