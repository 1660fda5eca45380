"""Running a copy of a module once more, without a trace in the program."""

from __future__ import annotations

import contextlib
import copy
import dis
import functools
import io
import random
import sys
from collections.abc import Iterator
from types import CodeType

import torch
from torch.nn import Module
from torch.nn.parallel import DataParallel, DistributedDataParallel

from ..origin.naming import uncompiled
from ..taps.instrument import INSTRUMENT

__all__ = ["Unsuitable", "copy_of", "unnoticed"]

_MAX_BYTES = 1 << 29
_WRITES_GLOBAL = frozenset({"STORE_GLOBAL", "DELETE_GLOBAL"})


class Unsuitable(Exception):
    """A module cannot be probed; the message says why."""


def copy_of(module: Module) -> Module:
    """Return a copy of ``module`` in evaluation mode, without hooks and frozen.

    Raises:
        Unsuitable: it is too large, has hooks, writes to variables outside itself, or cannot be
            copied.
    """
    if isinstance(module, (DataParallel, DistributedDataParallel)):
        module = module.module
    inner = uncompiled(module)
    size_bytes = sum(p.nbytes for p in inner.parameters()) + sum(b.nbytes for b in inner.buffers())
    if size_bytes > _MAX_BYTES:
        raise Unsuitable(f"a copy of the model would take {size_bytes >> 20} MiB, allowed are 512")
    for part in inner.modules():
        if part._forward_hooks or part._forward_pre_hooks or part._backward_hooks:
            raise Unsuitable(f"{type(part).__name__} has hooks")
        if _writes_outside(type(part)):
            raise Unsuitable(f"{type(part).__name__}.forward writes to a variable outside it")
    try:
        copied = copy.deepcopy(inner)
    except Exception as error:
        raise Unsuitable(f"the model cannot be copied: {type(error).__name__}: {error}") from error
    return copied.eval().requires_grad_(False)


@contextlib.contextmanager
def unnoticed() -> Iterator[None]:
    """Hide calls from the listeners and put random states back; output is thrown away.

    Raises:
        Unsuitable: random numbers of torch were drawn inside the block.
    """
    python = random.getstate()
    numpy = getattr(sys.modules.get("numpy"), "random", None)
    numpy_state = numpy.get_state() if numpy is not None else None
    sink = io.StringIO()
    try:
        with INSTRUMENT.unheard(), torch.random.fork_rng(), contextlib.redirect_stdout(sink):
            before = torch.get_rng_state()
            yield
            if not torch.equal(before, torch.get_rng_state()):
                raise Unsuitable("the model draws random numbers in evaluation mode")
    finally:
        random.setstate(python)
        if numpy is not None:
            numpy.set_state(numpy_state)


def _writes_outside(kind: type[Module]) -> bool:
    code = getattr(kind.forward, "__code__", None)
    return code is not None and _code_writes_outside(code)


@functools.lru_cache(maxsize=256)
def _code_writes_outside(code: CodeType) -> bool:
    return any(
        step.opname in _WRITES_GLOBAL
        or (step.opname == "STORE_DEREF" and step.argval in code.co_freevars)  # else its own
        for step in dis.get_instructions(code)
    )
