"""No alarm on torch's own operators, one sample each, apart from a list with reasons."""

import functools
import random
from dataclasses import dataclass, replace

import pytest
import torch
from torch.utils import _pytree as pytree

from nabla_check import operator

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

MOST_ELEMENTS = 128
MOST_SAMPLES = 9

DEFECTS = {
    "cholesky_inverse": "the JVP differs from the exact derivative, which the VJP returns",
    "logcumsumexp": "in float32 the gradient loses ten bits that a direct sum keeps",
    "native_group_norm": "the gradient of mean and rstd is None when only they are used",
    "nn.functional.hardsigmoid": "the slope 1/6 is rounded to float32",
    "nn.functional.linear_cross_entropy.chunked": "the second derivative is silently detached",
    "nn.functional.softshrink": "for lambd=0 it is the identity, but its slope at 0 is 0",
    "polar": "for a negative abs, which it accepts, the gradient of abs has the wrong sign",
}
"""Operators of which torch returns a wrong derivative; the check must say so.

The first was decided with exact fractions, the second against the direct sum in float32, the third
against the same formula written out, the fifth also by gradgradcheck, the others by hand.
"""

LOW_DEFECTS = {
    ("matrix_exp", torch.bfloat16): "every element is NaN where float32 keeps two digits",
    ("nn.functional.soft_margin_loss", torch.float16): "exp(11) overflows before its logarithm",
}
"""Operators that fail in low precision only."""

_UNDEFINED = "the sample writes one element twice, for which the result is undefined"
_STORAGE = "what it returns is defined by the memory of its input and not by the values"
_DRAWN = "the gradient of a random draw is zero by definition"
EXEMPT = {
    "as_strided": _STORAGE,
    "as_strided.partial_views": _STORAGE,
    "as_strided_copy": _STORAGE,
    "as_strided_scatter": _UNDEFINED,
    "nn.functional.max_unpool1d": _UNDEFINED,
    "nn.functional.max_unpool2d": _UNDEFINED,
    "nn.functional.max_unpool3d": _UNDEFINED,
    "normal": _DRAWN,
    "normal.number_mean": _DRAWN,
    "to_sparse": "its gradient is masked by the pattern on purpose, also where the value is 0",
}
"""Operators that cannot be judged as called here, with the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One operator with arguments as torch's own tests call it."""

    name: str
    call: object
    args: tuple
    kwargs: dict

    def differentiable(self):
        leaves = pytree.tree_leaves((self.args, self.kwargs))
        return [x for x in leaves if isinstance(x, torch.Tensor) and x.requires_grad]

    def size(self):
        return sum(x.numel() for x in self.differentiable())

    def outputs(self, seed=0):
        torch.manual_seed(seed)
        returned = pytree.tree_leaves(self.call(*self.args, **self.kwargs))
        tensors = [x for x in returned if isinstance(x, torch.Tensor)]
        return [x for x in tensors if x.is_floating_point() or x.is_complex()]


def operators():
    pytest.importorskip("expecttest", reason="torch's list of operators imports it")
    from torch.testing._internal.common_methods_invocations import op_db

    return [x for x in op_db if x.supports_autograd and torch.float64 in x.supported_dtypes("cpu")]


@pytest.fixture(scope="module")
def samples():
    """Take the largest small sample of every operator that has one."""
    chosen = []
    for info in operators():
        torch.manual_seed(0)
        random.seed(0)
        found = [sample for sample in first_samples(info) if is_usable(sample)]
        chosen += [max(found, key=Sample.size)] if found else []
    return chosen


def first_samples(info):
    name = f"{info.name}.{info.variant_test_name}".rstrip(".")
    given = iter(info.sample_inputs("cpu", torch.float64, requires_grad=True))
    for _ in range(MOST_SAMPLES):
        try:
            sample = next(given)
        except (StopIteration, RuntimeError):
            return
        yield Sample(
            name=name,
            call=caller(info, sample),
            args=(sample.input, *sample.args),
            kwargs=sample.kwargs,
        )


def caller(info, sample):
    function, wrapper, post = info.get_op(), info.gradcheck_wrapper, sample.output_process_fn_grad

    @functools.wraps(function)
    def call(*args, **kwargs):
        out = wrapper(function, *args, **kwargs)
        return out if post is None else post(out)

    return call


def is_usable(sample):
    leaves = sample.differentiable()
    if not leaves or not 0 < sample.size() <= MOST_ELEMENTS:
        return False
    plain = [x.dtype is torch.float64 and x.layout is torch.strided and x.numel() for x in leaves]
    if not all(plain) or any(0 in x.stride() and x.numel() > 1 for x in leaves):
        return False
    try:
        first, second = sample.outputs(0), sample.outputs(1)
        repeats = all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
        finite = all(bool(torch.isfinite(x).all()) for x in first)
    except (RuntimeError, TypeError, ValueError):
        return False
    sizes = [x.numel() for x in first]
    live = any(x.requires_grad for x in first)
    return live and repeats and finite and min(sizes) > 0 and sum(sizes) <= 2 * MOST_ELEMENTS


def check(sample, reference):
    return operator(
        candidate=sample.call,
        inputs=list(sample.args),
        kwargs=sample.kwargs,
        reference=reference,
        seed=1,
    )


def accused(samples, *, beside_itself=False):
    """Return what was said about each sample that fails; it may be its own reference."""
    found = {}
    for sample in samples:
        result = check(sample, sample.call if beside_itself else None)
        if not result.passed:
            found[sample.name] = result.format()
    return found


def in_dtype(sample, dtype):
    """Return the sample with all float64 tensors in ``dtype``, or nothing where torch refuses."""

    def cast(x):
        is_wide = isinstance(x, torch.Tensor) and x.dtype is torch.float64
        return x.detach().to(dtype).requires_grad_(x.requires_grad) if is_wide else x

    args, kwargs = pytree.tree_map(cast, (sample.args, sample.kwargs))
    low = replace(sample, args=args, kwargs=kwargs)
    try:
        outputs = low.outputs()
        sums = [x.sum() for x in outputs if x.requires_grad]
        torch.autograd.grad(sums, low.differentiable(), allow_unused=True)
    except RuntimeError:
        return None
    return low if all(x.dtype is dtype for x in outputs) else None


def test_no_operator_of_torch_is_accused_without_a_reason(samples):
    found = accused(samples)

    assert len(samples) >= 400
    assert len(EXEMPT) <= 0.04 * len(samples)
    assert {k: v for k, v in found.items() if k not in {*EXEMPT, *DEFECTS}} == {}
    assert set(DEFECTS) - set(found) == set()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_no_operator_of_torch_is_accused_in_low_precision(samples, dtype):
    healthy = (x for x in samples if x.name not in {*EXEMPT, *DEFECTS})
    low = [x for x in (in_dtype(sample, dtype) for sample in healthy) if x is not None]
    found = accused(low)
    beside = accused(low, beside_itself=True)

    expected = {name for name, where in LOW_DEFECTS if where is dtype}
    assert len(low) >= 60
    assert {k: v for k, v in found.items() if k not in expected} == {}
    assert expected - set(found) == set()
    assert beside == {}
