"""What holds for every method of the registry."""

import copy
import io
import pickle

import pytest
import torch
import torch.nn.functional as F

import crac

ALL = sorted(crac.METHODS)
every = pytest.mark.parametrize("name", ALL)
SHAPES = [(2, 5, 7), (1, 3, 4, 5)]


def make(name, num_classes=3, **options):
    loss = crac.build_loss(name, num_classes, **options)
    if name == "crac":  # multipliers that matter: at their start they are 1e-6
        generator = torch.Generator().manual_seed(3)
        loss.lambda_.copy_(torch.rand(loss.lambda_.shape, generator=generator))
        loss.rho.copy_(torch.rand(loss.rho.shape, generator=generator) + 0.1)
    return loss


def batch(shape=(2, 8, 9), num_classes=3, dtype=torch.float32, seed=0):
    generator = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn(shape[0], num_classes, *shape[1:], dtype=dtype, generator=generator)
    return logits.requires_grad_(), torch.randint(num_classes, shape, generator=generator)


@pytest.fixture
def fresh_compiler():
    """All methods share one ``forward``, which the compiler would count as one function compiled too often."""
    torch.compiler.reset()


def gradient(loss, logits, labels):
    value = loss(logits, labels)
    (grad,) = torch.autograd.grad(value, logits)
    return value.detach(), grad


@every
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("options", [{}, {"ignore_index": 1}, {"class_weights": [0.5, 2, 1], "dice_weight": 0.7}])
def test_gradcheck(name, shape, options):
    logits, labels = batch(shape, dtype=torch.float64)
    loss = make(name, **options)
    assert torch.autograd.gradcheck(lambda x: loss(x, labels), logits)


@every
@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16, torch.int32])
def test_label_forms_are_equivalent(name, dtype):
    logits, labels = batch()
    loss = make(name)
    expected = gradient(loss, logits, labels)
    for form in (labels.to(dtype), labels[:, None], labels[:, None].to(dtype)):
        torch.testing.assert_close(gradient(loss, logits, form), expected, rtol=0, atol=0)


@every
def test_logits_are_read_in_any_memory_layout(name):
    logits, labels = batch()
    loss = make(name)
    last = logits.detach().contiguous(memory_format=torch.channels_last).requires_grad_()
    for found, expected in zip(gradient(loss, last, labels), gradient(loss, logits, labels), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-7)


@every
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_computed_in_single(name, dtype):
    logits, labels = batch()
    half = (100 * logits.detach()).to(dtype).requires_grad_()  # (lambda + rho h)^2 overflows fp16 here
    loss = make(name)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        value = loss(half, labels)
    assert value.dtype == torch.float32
    torch.testing.assert_close(value, loss(half.detach().float(), labels))
    value.backward()
    assert half.grad.dtype == dtype
    assert half.grad.isfinite().all()


@every
@pytest.mark.parametrize("ignore", [255, -1, 0, 2])
def test_ignored_pixels_have_no_say(name, ignore):
    logits, labels = batch()
    ignored = torch.rand(labels.shape, generator=torch.Generator().manual_seed(5)) < 0.3
    ignored |= labels == ignore
    labels = labels.masked_fill(ignored, ignore)
    loss = make(name, ignore_index=ignore, class_weights=[1, 2, 3], dice_weight=1.0)
    value, grad = gradient(loss, logits, labels)
    changed = logits.detach().masked_fill(ignored[:, None], 1e4).requires_grad_()
    torch.testing.assert_close(gradient(loss, changed, labels), (value, grad))
    assert not grad.movedim(1, -1)[ignored].any()
    assert grad.movedim(1, -1)[~ignored].abs().sum(-1).gt(0).all()


@every
def test_ignore_index_that_never_occurs_changes_nothing(name):
    logits, labels = batch()
    for options in ({}, {"class_weights": [1, 2, 3]}, {"dice_weight": 1.0}):
        expected = gradient(make(name, **options), logits, labels)
        found = gradient(make(name, ignore_index=-1, **options), logits, labels)
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-7)


@every
def test_every_pixel_ignored_is_zero_not_nan(name):
    logits, labels = batch()
    value, grad = gradient(make(name, ignore_index=9), logits, torch.full_like(labels, 9))
    assert value == 0
    assert not grad.any()


@every
@pytest.mark.parametrize("num_classes", [2, 3, 40])
@pytest.mark.parametrize("shape", [(1, 1, 1), (2, 2, 2), (1, 1, 30), (1, 1, 2, 3), (2, 12, 12)])
@pytest.mark.parametrize("content", ["random", "background", "missing class"])
def test_edge_cases_are_defined(name, num_classes, shape, content):
    logits, labels = batch(shape, num_classes)
    if content != "random":
        labels = labels * 0 if content == "background" else labels.clamp(max=num_classes - 2)
    value, grad = gradient(make(name, num_classes), logits, labels)
    assert value.isfinite()
    assert grad.isfinite().all()


@every
@pytest.mark.parametrize("size", [1e-4, 1e3])
def test_extreme_logits_are_finite(name, size):
    logits, labels = batch()
    value, grad = gradient(make(name), (size * logits).detach().requires_grad_(), labels)
    assert value.isfinite()
    assert grad.isfinite().all()


@every
def test_permuting_classes_permutes_the_gradient(name):
    logits, labels = batch(num_classes=5)
    order = torch.tensor([3, 0, 4, 1, 2])
    options = {"border": "replicate"} if name in ("nacl", "crac") else {}
    loss = make(name, 5, class_weights=[1, 2, 3, 4, 5], **options)
    permuted = copy.deepcopy(loss)
    permuted.class_weights = loss.class_weights[order]
    if name == "crac":
        permuted.lambda_, permuted.rho = loss.lambda_[:, order], loss.rho[:, order]
    value, grad = gradient(loss, logits, labels)
    found, found_grad = gradient(permuted, logits.detach()[:, order].requires_grad_(), order.argsort()[labels])
    torch.testing.assert_close(found, value)
    torch.testing.assert_close(found_grad, grad[:, order])


@pytest.mark.usefixtures("fresh_compiler")
@every
def test_compiles_to_one_graph(name):
    logits, labels = batch()
    loss = make(name, ignore_index=255, class_weights=[1, 2, 3])
    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(gradient(compiled, logits, labels), gradient(loss, logits, labels))


@pytest.mark.slow
@pytest.mark.usefixtures("fresh_compiler")
def test_crac_through_inductor_sees_updated_multipliers():
    logits, labels = batch()
    loss = crac.CRaCLoss(3)
    compiled = torch.compile(loss, fullgraph=True)
    for _ in range(3):
        torch.testing.assert_close(gradient(compiled, logits, labels), gradient(loss, logits, labels))
        loss.observe(logits, labels)
        loss.update_multipliers()


@every
def test_copies_and_pickles(name):
    logits, labels = batch()
    loss = make(name, class_weights=[1, 2, 3])
    expected = loss(logits, labels)
    memory = io.BytesIO()
    torch.save(loss.state_dict(), memory)
    memory.seek(0)
    restored = crac.build_loss(name, 3, class_weights=[1, 2, 3])
    restored.load_state_dict(torch.load(memory, weights_only=True))
    for other in (copy.deepcopy(loss), pickle.loads(pickle.dumps(loss)), restored):
        assert torch.equal(other(logits, labels), expected)


def test_class_weights_are_pytorchs():
    logits, labels = batch()
    weights = torch.tensor([0.2, 1.0, 3.0])
    found = crac.build_loss("ce", 3, class_weights=weights)(logits, labels)
    torch.testing.assert_close(found, F.cross_entropy(logits, labels, weights))


def test_focal_loss_with_gamma_zero_is_cross_entropy():
    logits, labels = batch()
    torch.testing.assert_close(crac.build_loss("fl", 3, gamma=0)(logits, labels), F.cross_entropy(logits, labels))


def test_label_smoothing_is_pytorchs():
    logits, labels = batch()
    expected = F.cross_entropy(logits, labels, label_smoothing=0.1)
    torch.testing.assert_close(crac.build_loss("ls", 3, alpha=0.1)(logits, labels), expected)


def test_dice_term_is_monais():
    monai = pytest.importorskip("monai.losses")
    logits, labels = batch()
    rival = monai.DiceLoss(include_background=False, to_onehot_y=True, softmax=True, batch=True, smooth_nr=1e-5)
    plain, with_dice = (crac.build_loss("ce", 3, dice_weight=w)(logits, labels) for w in (0, 1))
    torch.testing.assert_close(with_dice - plain, rival(logits, labels[:, None]))


def test_svls_targets_sum_to_one_and_keep_the_label_in_uniform_patches():
    _, labels = batch((2, 6, 7))
    targets = crac.build_loss("svls", 3).targets(labels)
    torch.testing.assert_close(targets.sum(1), torch.ones(labels.shape))
    uniform = crac.build_loss("svls", 3).targets(torch.ones(1, 4, 4, dtype=torch.int64))
    torch.testing.assert_close(uniform[:, 1], torch.ones(1, 4, 4))


def test_nacl_pulls_towards_the_prior_where_monais_border_does_not():
    # MONAI pads the one-hot with zeros, so its target sums to less than 1 on edges; ours sums to 1 everywhere.
    labels = torch.ones(1, 5, 5, dtype=torch.int64)
    at_prior = F.one_hot(labels, 2).movedim(-1, 1).float()
    penalty = crac.build_loss("nacl", 2, alpha=1.0)(at_prior, labels) - F.cross_entropy(at_prior, labels)
    assert penalty.abs() < 1e-6


def test_bwcr_consistency():
    loss = crac.build_loss("bwcr", 3)
    logits, labels = batch((2, 24, 24))
    other, mask = logits.detach() + 1, torch.zeros(labels.shape, dtype=torch.bool)
    torch.testing.assert_close(loss(logits, labels), F.cross_entropy(logits, labels))
    assert loss.consistency(logits, logits, labels) == 0
    assert loss.consistency(logits, other, labels, mask) == 0
    mask[:, :12] = True
    expected = loss.weights(labels)[mask].mean()
    torch.testing.assert_close(loss.consistency(logits, other, labels, mask).detach(), expected)
    whole = loss(logits, labels, other, mask)
    torch.testing.assert_close(whole, F.cross_entropy(logits, labels) + expected)
    assert torch.autograd.gradcheck(
        lambda a, b: loss.consistency(a, b, labels[:1, :4, :4]),
        [torch.randn(1, 3, 4, 4, dtype=torch.float64, requires_grad=True) for _ in range(2)],
    )
    with pytest.raises(ValueError, match="other must have the shape of logits"):
        loss.consistency(logits, other[:1], labels)
    with pytest.raises(ValueError, match="mask must be boolean"):
        loss.consistency(logits, other, labels, mask.float())


def test_ml1ace_is_the_mean_gap_of_filled_bins():
    logits, labels = batch((2, 6, 7))
    loss = crac.build_loss("ml1ace", 3, bins=5)
    probabilities, errors = logits.detach().softmax(1), []
    for image, target in zip(probabilities, labels, strict=True):
        for k in range(3):
            gaps = []
            for low in (0, 0.2, 0.4, 0.6, 0.8):
                inside = (image[k] > low) & (image[k] <= low + 0.2 + 1e-9)
                if inside.any():
                    gaps.append((image[k][inside].mean() - (target[inside] == k).float().mean()).abs())
            errors.append(torch.stack(gaps).mean())
    torch.testing.assert_close(loss.error(probabilities, labels).flatten(), torch.stack(errors))
    torch.testing.assert_close(loss(logits, labels), F.cross_entropy(logits, labels) + torch.stack(errors).mean())
    sure = 60 * F.one_hot(labels, 3).movedim(-1, 1).float()
    assert loss.error(sure.softmax(1), labels).max() < 1e-6


def test_deep_supervision():
    loss = make("crac")
    logits, labels = batch((2, 8, 12))
    coarse = [torch.randn(2, 3, 4, 6), torch.randn(2, 3, 2, 3)]
    wrapper = crac.DeepSupervision(loss)
    parts = [loss(logits, labels)]
    parts += [F.cross_entropy(x, labels[:, s // 2 :: s, s // 2 :: s]) for x, s in zip(coarse, (2, 4), strict=True)]
    expected = (parts[0] + parts[1] / 2 + parts[2] / 4) / 1.75
    torch.testing.assert_close(wrapper([logits, *coarse], labels), expected)
    torch.testing.assert_close(wrapper([logits, *coarse], labels[:, None].to(torch.uint8)), expected)
    before = loss.lambda_.clone()
    wrapper.observe([logits, *coarse], labels)
    wrapper.update_multipliers()
    assert (loss.lambda_ > before).any()
    with pytest.raises(ValueError, match="outputs must be 2 logit maps, one per weight; got 3"):
        crac.DeepSupervision(loss, [1, 0.5])([logits, *coarse], labels)


def test_deep_supervision_of_more_pixels_than_a_label_can_count():
    wrapper, labels = crac.DeepSupervision(make("crac")), torch.randint(3, (1, 600, 4))
    outputs = [torch.randn(1, 3, 600, 4), torch.randn(1, 3, 300, 2)]
    assert torch.equal(wrapper(outputs, labels.to(torch.uint8)), wrapper(outputs, labels))


@every
@pytest.mark.parametrize(
    ("logits", "labels", "sentence"),
    [
        ((2, 3), (2,), r"logits must have shape \(B, K, H, W\) or \(B, K, D, H, W\); got \(2, 3\)"),
        ((2, 4, 8, 8), (2, 8, 8), r"logits must have num_classes=3 channels; got \(2, 4, 8, 8\)"),
        ((2, 3, 8, 8), (2, 8, 9), r"labels must have shape \(2, 8, 8\) or \(2, 1, 8, 8\) .* got \(2, 8, 9\)"),
        ((2, 3, 8, 8), (2, 3, 8, 8), r"labels must have shape .* got \(2, 3, 8, 8\)"),
    ],
)
def test_wrong_shapes(name, logits, labels, sentence):
    with pytest.raises(ValueError, match=sentence):
        make(name)(torch.zeros(logits), torch.zeros(labels, dtype=torch.int64))


@every
def test_wrong_values(name):
    logits, labels = batch()
    with pytest.raises(ValueError, match=r"labels must lie in 0..2; got 3"):
        make(name)(logits, labels.clamp(min=1) + 1)
    with pytest.raises(ValueError, match=r"labels must lie in 0..2 or ignore_index=7; got -1"):
        make(name, ignore_index=7)(logits, labels - 1)
    with pytest.raises(ValueError, match="labels must hold integers; got dtype torch"):
        make(name)(logits, labels.float())
    with pytest.raises(ValueError, match="logits must be floating point; got dtype torch"):
        make(name)(logits.long(), labels)


@pytest.mark.parametrize(
    ("name", "options", "sentence"),
    [
        ("cracc", {}, "name must be one of ce, fl, ecp, ls, svls, mbls, nacl, bwcr, ml1ace, crac; got 'cracc'"),
        ("ce", {"num_classes": 1}, "num_classes must be a whole number of at least 2; got 1"),
        ("ce", {"num_classes": 2.5}, "num_classes must be a whole number of at least 2; got 2.5"),
        ("ce", {"class_weights": [1, 2]}, r"class_weights must be 3 numbers, none negative; got \[1, 2\]"),
        ("ce", {"class_weights": [1, -2, 1]}, r"class_weights must be 3 numbers, none negative; got \[1, -2, 1\]"),
        ("ce", {"class_weights": "123"}, "class_weights must be 3 numbers, none negative; got '123'"),
        ("ce", {"dice_weight": -1}, "dice_weight must be a number of at least 0; got -1"),
        ("ce", {"beta": 1}, "option of 'ce' must be one of ignore_index, class_weights, dice_weight; got 'beta'"),
        ("ce", {"ignore_index": "x"}, "ignore_index must be a whole number; got 'x'"),
        ("nacl", {"alpha": "0,1"}, "alpha must be a number; got '0,1'"),
        ("nacl", {"alpha": float("nan")}, "alpha must be a number; got nan"),
        ("nacl", {"alpha": True}, "alpha must be a number; got True"),
        ("ecp", {"alpha": "x"}, "alpha must be a number; got 'x'"),
        ("mbls", {"margin": None}, "margin must be a number; got None"),
        ("crac", {"rho": "abc"}, "rho must be a number .*; got 'abc'"),
        ("crac", {"inner_scale": "x"}, "inner_scale must be a number; got 'x'"),
        ("crac", {"outer_scale": "x"}, "outer_scale must be a number; got 'x'"),
        ("crac", {"regions": 3}, "option of 'crac' must be one of preset, inner_scale, .*dice_weight; got 'regions'"),
        ("fl", {"gamma": -1}, "gamma must be a number of at least 0; got -1"),
        ("ls", {"alpha": 2}, "alpha must be a number of at least 0 and of at most 1; got 2"),
        ("svls", {"sigma": 0}, "sigma must be a number above 0; got 0"),
        ("svls", {"kernel_size": 1}, "kernel_size must be an odd number of at least 3; got 1"),
        ("nacl", {"kernel_size": "3"}, "kernel_size must be an odd number of at least 1; got '3'"),
        ("nacl", {"border": "wrap"}, "border must be one of replicate, background; got 'wrap'"),
        ("bwcr", {"reach": 0}, "reach must be a whole number of at least 1; got 0"),
        ("ml1ace", {"bins": 0}, "bins must be a whole number of at least 1; got 0"),
        ("ml1ace", {"alpha": -1}, "alpha must be a number of at least 0; got -1"),
        ("crac", {"preset": "mine"}, "preset must be one of released, paper; got 'mine'"),
        ("crac", {"penalty": "l2"}, "penalty must be one of phr, p2, p3; got 'l2'"),
        ("crac", {"average": "mean"}, "average must be one of all, region; got 'mean'"),
        ("crac", {"tolerance": -1}, "tolerance must be a number of at least 0; got -1"),
        ("crac", {"rho": 0.01}, "rho must be a number of at least 0.1 and of at most 10.0; got 0.01"),
        ("crac", {"rho_min": 20}, "rho_max must be a number of at least 20; got 10.0"),
        ("crac", {"lambda_": -1.0}, "lambda_ must be a number of at least 1e-06 and .*; got -1.0"),
        ("crac", {"lambda_min": -1.0}, "lambda_min must be a number of at least 0; got -1.0"),
        ("crac", {"gamma": 0.5}, "gamma must be a number of at least 1; got 0.5"),
        ("crac", {"mu": 0}, "mu must be a number above 0; got 0"),
        ("crac", {"rho_every": 0}, "rho_every must be a whole number of at least 1; got 0"),
        ("crac", {"outer_scale": [1, 2]}, r"outer_scale must be one number or one per radius, 1; got \[1, 2\]"),
        ("crac", {"kernel_size": 2}, "kernel_size must be an odd number of at least 1; got 2"),
        ("crac", {"radii": 3}, "radii must be growing whole numbers of at least 1; got 3"),
        ("crac", {"radii": [1, 2.5]}, r"radii must be growing whole numbers of at least 1; got \[1, 2.5\]"),
    ],
)
def test_wrong_options(name, options, sentence):
    with pytest.raises(ValueError, match=sentence):
        crac.build_loss(name, **{"num_classes": 3, **options})


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@every
def test_no_synchronisation_on_a_gpu(name):
    logits, labels = batch()
    loss = make(name, ignore_index=255, class_weights=[1, 2, 3]).cuda()
    logits, labels = logits.detach().cuda().requires_grad_(), labels.cuda()
    loss(logits, labels).backward()  # warm-up may synchronise
    torch.cuda.set_sync_debug_mode("error")
    try:
        loss(logits, labels).backward()
        loss.observe(logits, labels)
    finally:
        torch.cuda.set_sync_debug_mode("default")
