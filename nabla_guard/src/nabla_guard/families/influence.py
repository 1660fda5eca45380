"""Oracles: which samples and positions of its input an output depends on.

Once, after the third step, a copy of the root module runs in evaluation mode on a few samples of
that step. One random cotangent on one sample (or position) of the output is pulled back to the
input: where the result is not exactly zero, the output depends on it. It costs a forward and at
most three backward passes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import Module

from ..loop.watch import EVERY_EVENT, Watch
from ..origin.naming import uncompiled
from ..origin.reach import functions_of, reach_kept
from .graph import name_of, nodes_from, saved_tensor
from .probing import Unsuitable, unnoticed
from .pulling import ModuleCall, Run, run_copy
from .saved_hooks import SavedHooksWatch

if TYPE_CHECKING:
    from torch.optim import Optimizer

    from ..loop.book import OptimizerRecord
    from ..loop.live import LiveLoop
    from ..loop.roots import RootRecord

__all__ = ["InfluenceFacts", "InfluenceWatch", "is_copied", "is_shifted"]

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
        copied: the targets are the input itself, position by position.
        recalls: the output at one position depends on earlier ones.
        leaking: later positions that the output at one position depends on; ``None`` when not
            measured.
        leak: largest derivative to a later position, relative to the largest to an earlier one.
        position: that position.
        judged: the positions that have a target, where the targets are the input shifted by one.
        elapsed_s: what the measurement cost.
    """

    module: str = ""
    why_not: str = ""
    batch: int = 0
    coupled: int | None = None
    coupling: float = 0.0
    lawful: str = ""
    causal: bool = False
    copied: bool = False
    recalls: bool = False
    leaking: int | None = None
    leak: float = 0.0
    position: int = 0
    judged: list[int] | None = None
    elapsed_s: float = 0.0


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
        self._call: ModuleCall | None = None
        self._roots: set[int] = set()
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
        self._call, self._targets, self._batches = None, [], []
        self._roots.clear()

    def forward_ended(
        self,
        root: RootRecord,
        module: Module,
        args: tuple[object, ...],
        kwargs: Mapping[str, object],
    ) -> None:
        """Keep the first call of the step; others of the same module are micro-batches or views."""
        if not self._idle and torch.is_grad_enabled() and root.facts.parameters:
            self._roots.add(id(module))
            if self._call is None:
                self._call = ModuleCall(module, args, kwargs)

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
        call, self._call = self._call, None
        roots, self._roots = len(self._roots), set()
        targets, self._targets = self._targets, []
        self._steps += 1
        if call is not None and call.tensors:
            self._batches.append(call.tensors[0].detach())
        if self._steps <= _AT_STEP:
            return
        started = time.perf_counter()
        batches, self._batches = self._batches, []
        self.facts = InfluenceFacts()
        try:
            if call is None or roots != 1:
                raise Unsuitable(f"{roots} root modules led to the step, one is needed")
            _measure(self.facts, call, _Data(targets, batches), self.causal)
        except Unsuitable as reason:
            self.facts.why_not = str(reason)
        except Exception as error:
            self.facts.why_not = f"the copy raised {type(error).__name__}: {error}"
        self.facts.elapsed_s = time.perf_counter() - started


@dataclass(slots=True)
class _Data:
    """Targets of the step's losses, and the inputs of the steps so far."""

    targets: list[Tensor]
    batches: list[Tensor]


def _measure(
    facts: InfluenceFacts, call: ModuleCall, data: _Data, declared: frozenset[str]
) -> None:
    facts.module = type(uncompiled(call.module)).__name__
    shifted = _target_of(call, data.targets, is_shifted)
    facts.judged = None if shifted is None else _judged(shifted, data.targets)
    facts.causal = shifted is not None or facts.module in declared
    copied = None if facts.causal else _target_of(call, data.targets, is_copied)
    facts.copied = copied is not None
    given = shifted if shifted is not None else copied
    given = next(iter(call.tensors), None) if given is None else given
    if given is None or not given.dim() or not 1 < given.shape[0] <= _MAX_BATCH:
        raise Unsuitable("the model's input has no batch of two or more samples")
    reach = reach_kept(functions_of([call.module]), [call.module])
    with unnoticed(), reach, torch.enable_grad():
        run = run_copy(call, given)
        facts.lawful = _lawful(call, given, data, run)
        _samples(facts, run, given.shape[0])
        if facts.causal or facts.copied:
            _positions(facts, run)


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


def is_copied(tokens: Tensor, target: Tensor) -> bool:
    """Whether the targets are the tokens themselves, none of them masked or ignored.

    Args:
        tokens: shape ``[N, T]``, integers that differ from one position to the next somewhere.
        target: ``N * T`` class indices in any shape.
    """
    if tokens.dim() != 2 or tokens.is_floating_point() or tokens.shape[1] < 3:
        return False
    if target.is_floating_point() or target.numel() != tokens.numel():
        return False
    varied = bool((tokens[:, 1:] != tokens[:, :-1]).any())
    return varied and bool((target.reshape(tokens.shape) == tokens).all())


def _judged(tokens: Tensor, targets: list[Tensor]) -> list[int]:
    """The positions with a target in any row: what is ignored, as a prefix is, may look ahead."""
    count, length = tokens.shape
    target = next(target for target in targets if is_shifted(tokens, target))
    known = (target.reshape(count, -1)[:, : length - 1] >= 0).any(0)
    found: list[int] = known.nonzero().flatten().tolist()
    return found


def _target_of(
    call: ModuleCall, targets: list[Tensor], related: Callable[[Tensor, Tensor], bool]
) -> Tensor | None:
    """The input to which a target is related in this way: of several the last one, because an
    encoder may read all of what a decoder is given piece by piece."""
    found = [
        tensor for tensor in call.tensors if any(related(tensor, target) for target in targets)
    ]
    return found[-1] if found else None


def _lawful(call: ModuleCall, given: Tensor, data: _Data, run: Run) -> str:
    """Say what speaks for samples that are coupled on purpose."""
    count, batches = given.shape[0], data.batches
    if not run.in_part and len(call.tensors) > 1:
        return "the model takes several tensors, as a graph network does"
    held = [*call.module.buffers(), *call.module.parameters()]
    if not run.in_part and any(tuple(tensor.shape[-2:]) == (count, count) for tensor in held):
        return "the model holds a square matrix of the batch's size"
    if any(torch.equal(batches[0], other) for other in batches[1:]):
        return "every step uses the same batch"
    if len({tuple(batch.shape[:1]) for batch in batches}) > 1:
        return "the number of samples varies from step to step, as the length of a sequence does"
    if run.unbatched:
        return "a layer for sequences is given one sequence, without a batch"
    labelled = [target for target in data.targets if target.dim() and target.shape[0] == count]
    if not any(bool((target != target[0]).any()) for target in labelled):
        return "no loss has a target of its own for each sample"
    return ""


def _samples(facts: InfluenceFacts, run: Run, batch: int) -> None:
    count = run.leaf.shape[0]
    if run.shape[0] != count or tuple(run.shape[1:]) in ((count,), (batch,)):
        return  # flattened positions, or a matrix of all pairs
    facts.batch = count
    middle = count // 2
    influence = run.pull((middle,)).reshape(count, -1).amax(1)
    own = float(influence[middle])
    influence[middle] = 0
    coupled = int((influence > 0).sum())
    if coupled and _is_batch_second(run):
        return
    facts.coupled = coupled
    facts.coupling = float(influence.max()) / own if own else float("inf")


def _is_batch_second(run: Run) -> bool:
    """Whether the second axis keeps its entries apart: then that is the batch."""
    width = run.leaf.shape[1] if run.leaf.dim() > 2 else 0
    if width < 2 or len(run.shape) < 2 or run.shape[1] != width:
        return False
    middle = width // 2
    influence = run.pull((slice(None), middle)).transpose(0, 1)
    rows = influence.reshape(width, -1).amax(1)
    rows[middle] = 0
    return not bool(rows.any())


def _positions(facts: InfluenceFacts, run: Run) -> None:
    if run.leaf.dim() < 3:
        return
    count, length = run.leaf.shape[:2]
    lined = _lined(run.shape, count, length)
    if lined is None or length < 2:
        return
    known = [at for at in facts.judged or range(length) if at < length - 1]
    if not known:
        return
    middle = (length - 1) // 2
    facts.position = min(known, key=lambda at: (abs(at - middle), at))
    for leaf in (run.leaf, *run.later):
        influence = run.pull((slice(None), facts.position), lined, leaf)
        by_position = influence.transpose(0, 1).reshape(leaf.shape[1], -1).amax(1)
        past = float(by_position[: facts.position + 1].max())
        facts.recalls = facts.recalls or bool(by_position[: facts.position].any())
        future = by_position[facts.position + 1 :]
        facts.leak = float(future.max()) / past if past else float(future.max())
        facts.leaking = int((future > _LEAK * past).sum())
        if not facts.leaking:
            return  # one of several reads of the input goes forward in time, as a decoder does


def _lined(shape: tuple[int, ...], count: int, length: int) -> tuple[int, ...] | None:
    """The output's shape with its positions on the second axis; a model may leave out the last."""
    for positions in (length, length - 1):
        if len(shape) > 1 and shape[:2] == (count, positions):
            return shape
        if shape[0] == count * positions:
            return (count, positions, *shape[1:])
    return None
