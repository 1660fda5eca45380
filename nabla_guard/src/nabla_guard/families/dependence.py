"""An oracle: does the output of a module change when one of its parameters does?"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.autograd.graph import Node
from torch.nn import Module

from ..loop.exact import tensors_in
from ..taps.instrument import INSTRUMENT

__all__ = ["Call", "depends_on"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One call of a root module.

    Attributes:
        module: the module.
        args: its positional arguments.
        kwargs: its keyword arguments.
        output: tensors in what it returned, in order.
        used: positions of those that the loss was made from; ``None`` while not known.
    """

    module: Module
    args: tuple[object, ...]
    kwargs: Mapping[str, object]
    output: list[Tensor]
    used: tuple[int, ...] | None = None

    def feeding(self, nodes: set[Node]) -> Call:
        """Return the call with ``used`` set to the outputs that are in a graph of ``nodes``."""
        used = tuple(index for index, tensor in enumerate(self.output) if tensor.grad_fn in nodes)
        return replace(self, used=used)


def depends_on(call: Call, name: str) -> bool:
    """Whether the outputs that feed the loss change when the parameter ``name`` changes.

    The forward pass runs twice on copies of all parameters and buffers, without gradients, from the
    same state of the random generators, which is put back. Returns ``False`` when it raises.
    """
    if not call.used:
        return False
    try:
        with torch.no_grad(), INSTRUMENT.unheard():
            first = _outputs(call, name, shift=0.0)
            second = _outputs(call, name, shift=1.0)
    except Exception:
        return False  # no answer is better than a wrong one
    return any(
        first[index].shape != second[index].shape or not torch.equal(first[index], second[index])
        for index in call.used
    )


def _outputs(call: Call, name: str, shift: float) -> list[Tensor]:
    named = [*call.module.named_parameters(), *call.module.named_buffers()]
    state = {key: tensor.detach().clone() for key, tensor in named}
    if shift:
        value = state[name]
        state[name] = value + shift * value.abs().mean().clamp(min=1e-2)
    with _same_random_numbers():
        result = torch.func.functional_call(call.module, state, call.args, dict(call.kwargs))
    return [tensor for _, tensor in tensors_in(result)]


@contextmanager
def _same_random_numbers() -> Iterator[None]:
    python = random.getstate()
    try:
        with torch.random.fork_rng():
            torch.manual_seed(0)
            random.seed(0)
            yield
    finally:
        random.setstate(python)
