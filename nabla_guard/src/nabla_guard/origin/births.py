"""Sees every op of a re-execution and notes each whose output is worse than its inputs.

The descent of each bad tensor from births is followed, so that the verdict names a birth from which
the bad loss or gradient really descends, and none that a mask removed or that only a log line used.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode

from nabla_core.issue import Phase

from ..facts import TensorFault
from ..loop.exact import fault_in
from ..taps.hidden import CAN_HIDE, hidden_from_compiler
from .findings import FROM_OUTSIDE, Birth, Source
from .ledger import Ledger, Origin
from .measure import birth_index, mask_like, operands_at, range_of, sample_at
from .sites import Site, Sites
from .states import FINITE, INF, NAN, fresh_mask
from .tape import leaves
from .traits import (
    can_overflow,
    is_lift,
    is_meant,
    is_selection,
    name_of,
    writes,
)
from .undo import UndoLog

__all__ = ["BirthMode"]

_MAX_BIRTHS = 512


class BirthMode(TorchDispatchMode):
    """Notes births while it is entered.

    Args:
        sites: says where the user's code is.
        ledger: states and descent of tensors.
        undo: keeps what is about to be overwritten.
    """

    def __init__(self, sites: Sites, ledger: Ledger, undo: UndoLog) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.births: list[Birth] = []
        self.batch = 0
        self._sites = sites
        self._ledger = ledger
        self._undo = undo

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Whether torch wraps each op in a call that hides it, which costs more than the op."""
        return not CAN_HIDE

    @hidden_from_compiler
    def __torch_dispatch__(
        self,
        func: Callable[..., object],
        types: object,
        args: Sequence[object] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        kwargs = kwargs or {}
        if not isinstance(func, OpOverload):
            return func(*args, **kwargs)
        site = self._sites.here()
        if is_lift(func):
            return self._lift(func(*args, **kwargs))
        if func.is_view:
            return func(*args, **kwargs)  # shares the memory by which its descent is known
        call = self._begin(func, args, kwargs, site)
        outcome = func(*args, **kwargs)
        self._ledger.forget(call.written)
        outputs = list(leaves(outcome)) or call.written
        for tensor in outputs:
            if not any(tensor is given for given in call.written):
                self._undo.made(tensor)
        bad = [tensor for tensor in outputs if self._ledger.state(tensor) != FINITE]
        for tensor in bad:
            self._judge(call, tensor)
        if call.has_bad and not bad:
            self._note_removal(call)
        self._ledger.feed(outputs, call.fed | self._swallowed(call, bad))
        return outcome

    def _begin(
        self, op: OpOverload, args: Sequence[object], kwargs: Mapping[str, object], site: Site
    ) -> _Call:
        """Measure the inputs, before an op that works in place replaces them."""
        given = list(leaves((args, kwargs)))
        inputs = [tensor for tensor in given if not self._is_number(tensor)]
        written = writes(op, args, kwargs)
        bad = [tensor for tensor in inputs if self._ledger.state(tensor)]
        for tensor in written:
            self._undo.about_to_write(tensor)
        return _Call(
            op=op,
            name=name_of(op),
            args=args,
            kwargs=kwargs,
            site=site,
            written=written,
            inputs=[_unwritten(tensor, written) for tensor in inputs],
            has_bad=bool(bad),
            with_number=len(inputs) < len(given),
            worst=max((self._ledger.state(tensor) for tensor in bad), default=FINITE),
            fed=self._ledger.fed_by(inputs),
            parents=frozenset().union(*(self.descent(tensor, site) for tensor in bad)),
        )

    def descent(self, tensor: Tensor, site: Site | None = None) -> frozenset[int]:
        """Return the births of a bad tensor; one that was there before becomes a birth itself."""
        known = self._ledger.births(tensor)
        if known is not None:
            return known
        origin = self._ledger.origin(tensor)
        tensor = tensor if origin.tensor is None else origin.tensor  # not only a view of it
        fault = fault_in(origin.name, tensor)
        if fault is None:
            return frozenset()
        phase: Phase = "parameter" if origin.source in ("parameter", "buffer") else "data"
        if site is not None and origin.source == "constant":
            phase = site.phase
        where = replace(
            site or Site(phase), phase=phase, node="", model=origin.model, line=origin.line
        )
        births = self._add(where, origin.source, origin.name, tensor, fault)
        self._ledger.put(tensor, NAN if fault.nan else INF, births)
        return births

    def _judge(self, call: _Call, output: Tensor) -> None:
        state = self._ledger.state(output)
        fault = fault_in(call.name, output) if self._is_birth(call, output, state) else None
        if fault is None:
            self._ledger.put(output, state, call.parents)
            self._follow_into_batch(call, output)
            return
        fault = replace(fault, index=birth_index(call.inputs, output) or fault.index)
        has_nan = fault.nan > 0
        meant = is_meant(call.name, call.args, call.kwargs, has_nan=has_nan)
        constant = not call.in_backward and (meant or (call.with_number and not has_nan))
        source: Source = "constant" if constant else "op"
        births = self._add(call.site, source, call.name, output, fault, call)
        self._ledger.put(output, state, call.parents | births)

    def _follow_into_batch(self, call: _Call, output: Tensor) -> None:
        """Note where in the batch a row lands, or the part of a data set that is picked."""
        births = [self.births[n] for n in call.parents if self.births[n].source in FROM_OUTSIDE]
        loose = [birth for birth in births if not birth.in_batch and not self._is_batch(birth)]
        if not loose or call.in_backward or call.site.module is not None:
            return
        fault = fault_in(call.name, output) if output.dim() else None
        if fault is not None and self.batch in (0, output.shape[0]):
            for birth in loose:
                birth.in_batch = birth_index((), output) or fault.index

    def _is_batch(self, birth: Birth) -> bool:
        return bool(self.batch) and birth.shape[:1] == (self.batch,)

    def _lift(self, outcome: object) -> object:
        """``torch.tensor`` hands over what it made of Python numbers: a constant of the program.

        A single one is part of the op that uses it, as in ``x[0] = float("nan")``.
        """
        origin = Origin("constant", "tensor", line=self._sites.here().line)
        for tensor in leaves(outcome):
            self._ledger.declare(tensor, origin)
        return outcome

    def _is_number(self, tensor: Tensor) -> bool:
        return not tensor.dim() and self._ledger.origin(tensor).source == "constant"

    def _is_birth(self, call: _Call, output: Tensor, state: int) -> bool:
        if len(self.births) >= _MAX_BIRTHS:
            return False
        if state > call.worst:
            return True
        if call.in_backward and not any(self._born_in_backward(n) for n in call.parents):
            return True  # only a value that the forward pass had hidden was bad so far
        if self._has_only_masks(call, output):
            return True
        if not call.has_bad or torch.Tag.pointwise not in call.op.tags:
            return False
        return fresh_mask(call.inputs, output) is not None

    def _has_only_masks(self, call: _Call, output: Tensor) -> bool:
        """Whether a reduction gives an infinity because it was given nothing but masked values."""
        if call.in_backward or not call.parents or is_meant(call.name, (), {}, has_nan=False):
            return False
        smaller = all(output.numel() < found.numel() for found in call.inputs if found.dim())
        return smaller and all(self.births[number].is_mask for number in call.parents)

    def _born_in_backward(self, number: int) -> bool:
        return self.births[number].phase == "backward"

    def _note_removal(self, call: _Call) -> None:
        for number in call.parents:
            birth = self.births[number]
            if is_selection(call.name):
                birth.selected_away = True
            elif not birth.swallowed_by and not call.in_backward:
                birth.swallowed_by = call.name

    def _swallowed(self, call: _Call, bad: list[Tensor]) -> frozenset[int]:
        """The overflows that an op turned into finite numbers without selecting."""
        if bad or not call.has_bad or call.in_backward or is_selection(call.name):
            return frozenset()
        return frozenset(number for number in call.parents if self.births[number].overflow)

    def _add(
        self,
        site: Site,
        source: Source,
        name: str,
        tensor: Tensor,
        fault: TensorFault,
        call: _Call | None = None,
    ) -> frozenset[int]:
        birth = Birth(
            number=len(self.births),
            source=source,
            op=name,
            phase=site.phase,
            fault=fault,
            serial=site.serial,
            node=site.node,
            place=site.line.place if site.line else None,
            module=site.module,
            model=site.model,
            shape=tuple(tensor.shape),
            sample=self._sample(site, fault, tensor, call),
            in_hook=site.in_hook,
            call_place=site.call.place if site.call else None,
        )
        if call is not None:
            self._describe(birth, call, tensor)
        self.births.append(birth)
        return frozenset({birth.number})

    def _describe(self, birth: Birth, call: _Call, tensor: Tensor) -> None:
        """Add what the inputs of the op say that made a birth."""
        birth.operands = operands_at(call.inputs, tensor, birth.fault.index)
        birth.low, birth.high = range_of(call.inputs)
        birth.inputs_finite = not call.has_bad
        birth.parents, birth.fed_by = call.parents, call.fed
        birth.overflow = birth.inputs_finite and not birth.is_nan and can_overflow(birth.op)
        birth.masked = self._hidden(call) if call.in_backward else -1
        birth.mask_like = mask_like(call.inputs)
        birth.of_masks = not birth.is_nan and self._has_only_masks(call, tensor)

    def _sample(
        self, site: Site, fault: TensorFault, tensor: Tensor, call: _Call | None
    ) -> int | None:
        shape = tuple(tensor.shape)
        if site.node and shape[:1] != (self.batch,):
            return None  # gradients of weights have axes of any length
        return sample_at(fault.index, shape, self.batch, call.inputs if call else None)

    def _hidden(self, call: _Call) -> int:
        """The forward birth whose value a selection had hidden from the loss."""
        owners = {birth.number for birth in self.births if birth.serial == call.site.serial >= 0}
        known = [n for n in owners | call.parents if self.births[n].phase != "backward"]
        return min(known, default=-1)


def _unwritten(tensor: Tensor, written: list[Tensor]) -> Tensor:
    """A copy of a tensor that is about to be changed, else the tensor itself."""
    return tensor.clone() if any(tensor is given for given in written) else tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class _Call:
    """One op with what was measured of its inputs."""

    op: OpOverload
    name: str
    args: Sequence[object]
    kwargs: Mapping[str, object]
    site: Site
    written: list[Tensor]
    inputs: list[Tensor]
    has_bad: bool
    with_number: bool
    worst: int
    parents: frozenset[int]
    fed: frozenset[int]

    @property
    def in_backward(self) -> bool:
        """Whether a derivative is being computed by autograd."""
        return bool(self.site.node)
