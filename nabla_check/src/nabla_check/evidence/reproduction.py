"""A script that shows a fault again in a fresh process, with the values written out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import torch

from .source_code import source_of

__all__ = ["ScriptCase", "code_of", "operator_script", "reproduction_script", "tensor_code"]

_MOST_ELEMENTS = 512

_HEAD = '''"""{title}

Exits with status 1 while the fault is there.
"""

import os
import sys

import torch

{candidate}
{reference}
'''

_RUN = """

def fresh(x):
    return x.detach().requires_grad_(x.requires_grad)


def run(function):
    leaves = [fresh(x) if torch.is_tensor(x) else x for x in inputs]
    returned = function(*leaves, **keywords)
    outputs = [returned] if torch.is_tensor(returned) else list(returned)
    live = [(y, u) for y, u in zip(outputs, cotangents) if y.requires_grad]
    wanted = [x for x in leaves if torch.is_tensor(x) and x.requires_grad]
    found = [None] * len(wanted)
    if live and wanted:
        ys, us = zip(*live)
        found = torch.autograd.grad(ys, wanted, us, allow_unused=True)
    return [*outputs, *(torch.zeros_like(x) if g is None else g for x, g in zip(wanted, found))]


worst = 0.0
for got, expected in zip(run(candidate), run(reference)):
    error = torch.nan_to_num((got - expected).detach().abs().double(), nan=float("inf"))
    if error.numel() and float(error.max()) > limit:
        worst = max(worst, float(error.max()))
        print("got     ", got.detach())
        print("expected", expected.detach())
print(f"largest error {worst:.6g}, limit {limit:.6g}")
sys.exit(1 if worst else 0)
"""

_CHECK = """
import nabla

result = nabla.check.operator(
    candidate=candidate, reference=reference, inputs=inputs, seed={seed}, kwargs=keywords
)
result.print()
sys.exit(0 if result.passed else 1)
"""

_OPERATOR = """
import nabla

result = nabla.check.operator(
    candidate=candidate,
    reference=reference,
    {arguments}
)
result.print()
sys.exit(0 if result.passed else 1)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptCase:
    """What a script is written for.

    Attributes:
        title: first line.
        candidate: the operator.
        reference: its truth, if any.
        inputs: positional arguments; tensors are written out with their memory layout.
        kwargs: keyword arguments.
        cotangents: incoming gradients; with a limit the script compares by torch alone.
        limit: largest error that passes.
        seed: of the operator check, when there is no limit.
    """

    title: str
    candidate: Callable[..., object]
    reference: Callable[..., object] | None
    inputs: Sequence[object]
    kwargs: Mapping[str, object] = field(default_factory=dict)
    cotangents: Sequence[torch.Tensor] = ()
    limit: float | None = None
    seed: int = 0


def reproduction_script(case: ScriptCase) -> str | None:
    """Return Python source that exits with 1 while the fault is there.

    Returns:
        ``None`` when an operator or argument cannot be written out, or a tensor has more than 512
        elements.
    """
    candidate = source_of(case.candidate, "candidate")
    reference = "reference = None"
    if case.reference is not None:
        reference = source_of(case.reference, "reference") or ""
    inputs = _list_code(case.inputs)
    keywords = _keywords(case.kwargs)
    if candidate is None or not reference or inputs is None or keywords is None:
        return None
    text = _HEAD.format(title=case.title, candidate=candidate, reference=reference)
    text += f"inputs = {inputs}\nkeywords = {keywords}\n"
    cotangents = _list_code(case.cotangents)
    if case.limit is None or case.reference is None or cotangents is None:
        return text + _CHECK.format(seed=case.seed)
    return text + f"cotangents = {cotangents}\nlimit = {case.limit!r}\n" + _RUN


def operator_script(title: str, candidate: str, reference: str, arguments: str) -> str:
    """Return a script that repeats a call of the operator check.

    Args:
        title: first line.
        candidate: statements that define ``candidate``.
        reference: statements that define ``reference``.
        arguments: further keyword arguments of the call, as source.
    """
    head = _HEAD.format(title=title, candidate=candidate, reference=reference)
    return head + _OPERATOR.format(arguments=arguments)


def tensor_code(tensor: torch.Tensor) -> str | None:
    """Return an expression for ``tensor``: the same values, strides and need of a gradient."""
    source = tensor.detach()
    if source.layout != torch.strided or source.numel() > _MOST_ELEMENTS:
        return None
    if source.is_conj() or source.is_neg() or source.dtype is torch.complex32:
        return None
    span = 1 + sum((n - 1) * s for n, s in zip(source.shape, source.stride(), strict=True))
    if source.numel() == 0:
        made = f"torch.zeros({tuple(source.shape)}, dtype={source.dtype})"
    else:
        if span > 4 * _MOST_ELEMENTS:
            return None
        memory = torch.as_strided(source, (span,), (1,)).cpu().tolist()
        made = f"torch.tensor([{', '.join(map(_literal, memory))}], dtype={source.dtype})"
        if not (source.dim() == 1 and source.is_contiguous()):
            made += f".as_strided({tuple(source.shape)}, {source.stride()})"
    return made + (".requires_grad_()" if tensor.requires_grad else "")


def _literal(value: object) -> str:
    text = repr(value)
    if isinstance(value, float) and text in ("nan", "inf", "-inf"):
        return f'float("{text}")'
    if isinstance(value, complex) and ("nan" in text or "inf" in text):
        return f'complex("{text.strip("()")}")'
    return text


def _list_code(values: Sequence[object]) -> str | None:
    parts = [code_of(value) for value in values]
    known = [part for part in parts if part is not None]
    if len(known) != len(parts):
        return None
    return "[\n" + "".join(f"    {part},\n" for part in known) + "]" if known else "[]"


def _keywords(kwargs: Mapping[str, object]) -> str | None:
    parts = {name: code_of(value) for name, value in kwargs.items()}
    if any(part is None for part in parts.values()):
        return None
    return "{" + ", ".join(f"{name!r}: {part}" for name, part in parts.items()) + "}"


def code_of(value: object) -> str | None:
    """Return source for a value; ``None`` when it cannot be written out."""
    if isinstance(value, torch.Tensor):
        return tensor_code(value)
    if isinstance(value, torch.dtype):
        return str(value)
    if value is None or isinstance(value, (bool, int, str)):
        return repr(value)
    if isinstance(value, (float, complex)):
        return _literal(value)
    if isinstance(value, (list, tuple)):
        parts = [code_of(item) for item in value]
        if any(part is None for part in parts):
            return None
        inner = ", ".join(str(part) for part in parts)
        return f"[{inner}]" if isinstance(value, list) else f"({inner},)" if parts else "()"
    return None
