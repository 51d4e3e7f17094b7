"""What holds for every method of the registry."""

import copy
import io
import pickle

import pytest
import torch
from tests.losses.batches import ALL, batch, build, gradient, make

import crac

every = pytest.mark.parametrize("name", ALL)
SHAPES = [(2, 5, 7), (1, 3, 4, 5)]


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
    options = {"border": "replicate"} if name.startswith(("nacl", "crac")) else {}
    loss = make(name, 5, class_weights=[1, 2, 3, 4, 5], **options)
    permuted = copy.deepcopy(loss)
    permuted.class_weights = loss.class_weights[order]
    if loss.multipliers is not None:
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


@every
def test_copies_and_pickles(name):
    logits, labels = batch()
    loss = make(name, class_weights=[1, 2, 3])
    expected = loss(logits, labels)
    memory = io.BytesIO()
    torch.save(loss.state_dict(), memory)
    memory.seek(0)
    restored = build(name, 3, class_weights=[1, 2, 3])
    restored.load_state_dict(torch.load(memory, weights_only=True))
    for other in (copy.deepcopy(loss), pickle.loads(pickle.dumps(loss)), restored):
        assert torch.equal(other(logits, labels), expected)


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
        ("ce", {"class_weights": [1, 2]}, r"class_weights must be 3 finite numbers, none negative; got \[1, 2\]"),
        (
            "ce",
            {"class_weights": [1, -2, 1]},
            r"class_weights must be 3 finite numbers, none negative; got \[1, -2, 1\]",
        ),
        ("ce", {"class_weights": "123"}, "class_weights must be 3 finite numbers, none negative; got '123'"),
        ("ce", {"class_weights": [1, 1, float("inf")]}, r"class_weights must be 3 finite numbers.* got \[1, 1, inf\]"),
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
        ("svls", {"sigma": 0}, "sigma must be a number of at least 0.3; got 0"),
        ("svls", {"kernel_size": 1}, "kernel_size must be an odd number of at least 3; got 1"),
        ("nacl", {"kernel_size": "3"}, "kernel_size must be an odd number of at least 1; got '3'"),
        ("nacl", {"border": "wrap"}, "border must be one of replicate, background; got 'wrap'"),
        ("bwcr", {"reach": 0}, "reach must be a whole number of at least 1; got 0"),
        ("ml1ace", {"bins": 0}, "bins must be a whole number of at least 1; got 0"),
        ("ml1ace", {"alpha": -1}, "alpha must be a number of at least 0; got -1"),
        ("crac", {"preset": "mine"}, "preset must be one of released, paper, signed; got 'mine'"),
        (
            "crac",
            {"signal": "all"},
            "option of preset 'released' must be one of inner_scale, .*rho_every; got 'signal'",
        ),
        (
            "crac",
            {"preset": "signed", "inner_scale": 1.0},
            "option of preset 'signed' must be one of border, .*smoothing; got 'inner_scale'",
        ),
        ("crac", {"preset": "signed", "signal": "label"}, "signal must be one of predicted, all; got 'label'"),
        ("crac", {"preset": "signed", "smoothing": 2}, "smoothing must be a number .* of at most 1; got 2"),
        ("crac", {"preset": "signed", "rho": 0}, "rho must be a number above 0; got 0"),
        ("crac", {"preset": "signed", "lambda_": 20}, "lambda_ must be a number of at least 0.001 and .*; got 20"),
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
