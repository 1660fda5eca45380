"""Oracles: which samples and positions of its input an output depends on.

Once, after the third step, a copy of the root module runs on the batch of that step in evaluation
mode. One random cotangent on one sample (or position) of the output is pulled back to the input:
where the result is not exactly zero, the output depends on it. It costs a forward and at most three
backward passes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import Module

from ..loop.exact import tensors_in
from ..loop.watch import EVERY_EVENT, Watch
from ..origin.reach import functions_of, reach_kept
from .graph import name_of, nodes_from, saved_tensor
from .probing import Unsuitable, copy_of, unnoticed
from .saved_hooks import SavedHooksWatch

if TYPE_CHECKING:
    from torch.optim import Optimizer

    from ..loop.book import OptimizerRecord
    from ..loop.live import LiveLoop
    from ..loop.roots import RootRecord

__all__ = ["InfluenceFacts", "InfluenceWatch", "is_shifted"]

_AT_STEP = 2
_LEAK = 1e-6
_MAX_BATCH = 4096


@dataclass(slots=True, kw_only=True, eq=False)
class InfluenceFacts:
    """What was measured on one root module.

    Attributes:
        module: its class name.
        why_not: why nothing could be measured; empty when something was.
        batch: samples in the batch.
        coupled: other samples that the output of one sample depends on; ``None`` when not measured.
        coupling: largest derivative to another sample, relative to the largest to its own.
        lawful: why samples may be coupled on purpose; empty when nothing speaks for it.
        causal: the targets are the input shifted by one position.
        leaking: later positions that the output at one position depends on; ``None`` when not
            measured.
        leak: largest derivative to a later position, relative to the largest to an earlier one.
        position: that position.
        elapsed_s: what the measurement cost.
    """

    module: str = ""
    why_not: str = ""
    batch: int = 0
    coupled: int | None = None
    coupling: float = 0.0
    lawful: str = ""
    causal: bool = False
    leaking: int | None = None
    leak: float = 0.0
    position: int = 0
    elapsed_s: float = 0.0


LeafMaker = Callable[[Module, tuple[object, ...], Tensor], "Tensor | None"]


@dataclass(slots=True)
class _Call:
    module: Module
    args: tuple[object, ...]
    kwargs: Mapping[str, object]


class InfluenceWatch(Watch):
    """Measures once.

    Attributes:
        facts: the result; ``None`` before.
        wanted: cleared by a detector whose oracles are switched off.
        causal: class names of modules that are declared causal.
    """

    def __init__(self, loop: LiveLoop) -> None:
        super().__init__(loop)
        self.facts: InfluenceFacts | None = None
        self.wanted = True
        self.causal: frozenset[str] = frozenset()
        self._hooks = loop.watches.gather(SavedHooksWatch)
        self._calls: list[_Call] = []
        self._targets: list[Tensor] = []
        self._batches: list[Tensor] = []
        self._steps = 0

    @property
    def patient(self) -> frozenset[str]:
        """See :class:`.watch.Watch`."""
        return EVERY_EVENT if self._idle else frozenset()

    @property
    def _idle(self) -> bool:
        return self.facts is not None or not self.wanted

    def stop(self) -> None:
        """Let go of the batch."""
        self._calls, self._targets, self._batches = [], [], []

    def forward_ended(
        self,
        root: RootRecord,
        module: Module,
        args: tuple[object, ...],
        kwargs: Mapping[str, object],
    ) -> None:
        """Keep the calls of the step."""
        if not self._idle and torch.is_grad_enabled() and root.facts.parameters:
            self._calls.append(_Call(module, args, kwargs))

    def backward_started(self, roots: Sequence[Tensor]) -> None:
        """Keep the targets of the step's losses."""
        if self._idle or self._steps != _AT_STEP or self._hooks.hooked:
            return
        tops = [root.grad_fn for root in roots if root.grad_fn is not None]
        for node in nodes_from(tops):
            if name_of(node) in ("NllLoss", "NllLoss2D", "MseLoss"):
                target = saved_tensor(node, "target")
                if target is not None:
                    self._targets.append(target.detach())

    def step_ended(self, record: OptimizerRecord, optimizer: Optimizer) -> None:
        """Measure after the third step."""
        if self._idle:
            return
        calls, self._calls = self._calls, []
        targets, self._targets = self._targets, []
        self._steps += 1
        if calls and calls[0].args and isinstance(calls[0].args[0], Tensor):
            self._batches.append(calls[0].args[0].detach())
        if self._steps <= _AT_STEP:
            return
        started = time.perf_counter()
        batches, self._batches = self._batches, []
        self.facts = InfluenceFacts()
        try:
            _measure(self.facts, calls, targets, batches, self.causal)
        except Unsuitable as reason:
            self.facts.why_not = str(reason)
        except Exception as error:
            self.facts.why_not = f"the copy raised {type(error).__name__}: {error}"
        self.facts.elapsed_s = time.perf_counter() - started


def _measure(
    facts: InfluenceFacts,
    calls: list[_Call],
    targets: list[Tensor],
    batches: list[Tensor],
    declared: frozenset[str],
) -> None:
    if len(calls) != 1:
        raise Unsuitable(f"{len(calls)} calls of root modules led to the step, one is needed")
    call = calls[0]
    facts.module = type(getattr(call.module, "_orig_mod", call.module)).__name__
    shifted = _shifted_input(call, targets)
    facts.causal = shifted is not None or facts.module in declared
    given = shifted if shifted is not None else _first_tensor(call)
    if given is None or not given.dim() or not 1 < given.shape[0] <= _MAX_BATCH:
        raise Unsuitable("the model's input has no batch of two or more samples")
    facts.batch = given.shape[0]
    facts.lawful = _lawful(call, given, targets, batches)
    reach = reach_kept(functions_of([call.module]), [call.module])
    with unnoticed(), reach, torch.enable_grad():
        leaf, output = _run(call, given)
        _samples(facts, leaf, output)
        if facts.causal:
            _positions(facts, leaf, output)


def _first_tensor(call: _Call) -> Tensor | None:
    return next((tensor for _, tensor in tensors_in((call.args, dict(call.kwargs)))), None)


def is_shifted(tokens: Tensor, target: Tensor) -> bool:
    """Whether the targets are the tokens, one position later.

    Args:
        tokens: shape ``[N, T]``, integers.
        target: ``N * T`` or ``N * (T - 1)`` class indices in any shape.
    """
    if tokens.dim() != 2 or tokens.is_floating_point() or tokens.shape[1] < 3:
        return False
    count, length = tokens.shape
    if target.is_floating_point() or target.numel() not in (count * length, count * (length - 1)):
        return False
    lined = target.reshape(count, -1)[:, : length - 1]
    known = lined >= 0
    return bool(known.any()) and bool((lined == tokens[:, 1:])[known].all())


def _shifted_input(call: _Call, targets: list[Tensor]) -> Tensor | None:
    for _, tensor in tensors_in((call.args, dict(call.kwargs))):
        if any(is_shifted(tensor, target) for target in targets):
            return tensor
    return None


def _lawful(call: _Call, given: Tensor, targets: list[Tensor], batches: list[Tensor]) -> str:
    """Say what speaks for samples that are coupled on purpose."""
    count = given.shape[0]
    tensors = [tensor for _, tensor in tensors_in((call.args, dict(call.kwargs)))]
    held = [*call.module.buffers(), *call.module.parameters()]
    if len(tensors) > 1:
        return "the model takes several tensors, as a graph network does"
    if any(tuple(tensor.shape[-2:]) == (count, count) for tensor in held):
        return "the model holds a square matrix of the batch's size"
    if any(torch.equal(batches[0], other) for other in batches[1:]):
        return "every step uses the same batch"
    labelled = [target for target in targets if target.dim() and target.shape[0] == count]
    if not any(bool((target != target[0]).any()) for target in labelled):
        return "no loss has a target of its own for each sample"
    return ""


def _run(call: _Call, given: Tensor) -> tuple[Tensor, Tensor]:
    """Run a copy; return the leaf that stands for the input, and the output."""
    module = copy_of(call.module)
    leaves: list[Tensor] = []
    if given.is_floating_point():
        leaves.append(given.detach().clone().requires_grad_())
        args = tuple(leaves[0] if value is given else value for value in call.args)
        kwargs = {key: leaves[0] if v is given else v for key, v in call.kwargs.items()}
    else:
        args, kwargs = call.args, dict(call.kwargs)
        for part in module.modules():
            if isinstance(part, nn.Embedding):
                part.register_forward_hook(_leaf_maker(given, leaves))
    result = module(*args, **kwargs)
    if not leaves:
        raise Unsuitable("no embedding of the model reads its input")
    for _, output in tensors_in(result):
        if output.requires_grad and output.dim() and not output.shape[0] % given.shape[0]:
            return leaves[0], output
    raise Unsuitable("no output has the batch's size")


def _leaf_maker(given: Tensor, leaves: list[Tensor]) -> LeafMaker:
    def make_leaf(module: Module, args: tuple[object, ...], output: Tensor) -> Tensor | None:
        read = args[0] if args else None
        if leaves or not isinstance(read, Tensor) or read.shape != given.shape:
            return None
        if not torch.equal(read, given):
            return None
        leaves.append(output.detach().requires_grad_())
        return leaves[0]

    return make_leaf


def _pull(output: Tensor, leaf: Tensor, index: tuple[slice | int, ...]) -> Tensor:
    generator = torch.Generator(device=output.device).manual_seed(0)
    cotangent = torch.zeros_like(output)
    part = cotangent[index]
    noise = torch.randn(part.shape, generator=generator, device=output.device)
    cotangent[index] = noise.to(output.dtype)
    (found,) = torch.autograd.grad(output, leaf, cotangent, retain_graph=True, allow_unused=True)
    return torch.zeros_like(leaf) if found is None else found.detach().abs()


def _samples(facts: InfluenceFacts, leaf: Tensor, output: Tensor) -> None:
    count = leaf.shape[0]
    if output.shape[0] != count or tuple(output.shape[1:]) == (count,):
        return  # flattened positions, or a matrix of all pairs
    middle = count // 2
    influence = _pull(output, leaf, (middle,)).reshape(count, -1).amax(1)
    own = float(influence[middle])
    influence[middle] = 0
    coupled = int((influence > 0).sum())
    if coupled and _is_batch_second(leaf, output):
        return
    facts.coupled = coupled
    facts.coupling = float(influence.max()) / own if own else float("inf")


def _is_batch_second(leaf: Tensor, output: Tensor) -> bool:
    """Whether the second axis keeps its entries apart: then that is the batch."""
    if leaf.dim() < 3 or output.dim() < 2 or output.shape[1] != leaf.shape[1]:
        return False
    if leaf.shape[1] < 2:
        return False
    middle = leaf.shape[1] // 2
    influence = _pull(output, leaf, (slice(None), middle)).transpose(0, 1)
    rows = influence.reshape(leaf.shape[1], -1).amax(1)
    rows[middle] = 0
    return not bool(rows.any())


def _positions(facts: InfluenceFacts, leaf: Tensor, output: Tensor) -> None:
    if leaf.dim() < 3:
        return
    count, length = leaf.shape[:2]
    lined = output
    if output.shape[0] == count * length:
        lined = output.reshape(count, length, -1)
    if lined.dim() < 2 or tuple(lined.shape[:2]) != (count, length) or length < 2:
        return
    facts.position = (length - 1) // 2
    influence = _pull(lined, leaf, (slice(None), facts.position))
    by_position = influence.transpose(0, 1).reshape(length, -1).amax(1)
    past = float(by_position[: facts.position + 1].max())
    future = by_position[facts.position + 1 :]
    facts.leak = float(future.max()) / past if past else float(future.max())
    facts.leaking = int((future > _LEAK * past).sum())
