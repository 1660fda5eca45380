"""Sees every op of a re-execution and notes each whose output is worse than its inputs.

The descent of each bad tensor from births is followed, so that the verdict names a birth from which
the bad loss or gradient really descends, and none that a mask removed or that only a log line used.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from torch import Tensor
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode

from nabla_core.issue import Phase

from ..facts import TensorFault
from ..loop.exact import fault_in
from ..taps.hidden import CAN_HIDE, hidden_from_compiler
from .batch import PER_SAMPLE, Batch, sample_at
from .calls import Call, is_all_bad, tensors_of, unwritten
from .findings import Birth, Source
from .ledger import Ledger, Origin
from .measure import birth_index, index_in, mask_like, operands_at, range_of
from .nested import leaves
from .sites import Site, Sites, Spot
from .states import FINITE, INF, NAN, fresh_mask
from .traits import can_overflow, is_meant, is_selection, name_of, traits_of, writes
from .undo import UndoLog

__all__ = ["BirthMode"]

_MAX_BIRTHS = 512


class BirthMode(TorchDispatchMode):
    """Notes births while it is entered.

    Args:
        sites: says where the user's code is.
        ledger: states and descent of tensors.
        undo: keeps what is about to be overwritten.

    Attributes:
        births: all so far, in order.
        batch: the batch of the step.
        idle: nothing of the step runs now, and ops are let pass.
    """

    def __init__(self, sites: Sites, ledger: Ledger, undo: UndoLog) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.births: list[Birth] = []
        self.batch = Batch()
        self.idle = True
        self._sites = sites
        self._ledger = ledger
        self._undo = undo

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Whether torch wraps each op in a call that hides it, which costs more than the op."""
        return not CAN_HIDE

    def awake(self) -> _Awake:
        """Look at the ops of the block."""
        return _Awake(self)

    @hidden_from_compiler
    def __torch_dispatch__(
        self,
        func: Callable[..., object],
        types: object,
        args: Sequence[object] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        kwargs = kwargs or {}
        if self.idle or not isinstance(func, OpOverload):
            return func(*args, **kwargs)
        serial = self._sites.note()
        traits = traits_of(func)
        if traits.is_lift:
            return self._lift(func(*args, **kwargs), serial)
        if traits.is_view:
            return func(*args, **kwargs)  # shares the memory by which its descent is known
        written = writes(func, args, kwargs) if traits.written else []
        call = None
        if written or any(map(self._ledger.state, tensors_of(args, kwargs))):
            call = self._begin(func, args, kwargs, written, serial)
        outcome = func(*args, **kwargs)
        outputs = [outcome] if isinstance(outcome, Tensor) else list(leaves(outcome)) or written
        if written:
            self._ledger.forget(written)
        for tensor in outputs:
            if not written or not any(tensor is given for given in written):
                self._undo.made(tensor)
        bad = [tensor for tensor in outputs if self._ledger.state(tensor)]
        if call is not None or bad or self._ledger.is_fed:
            call = call or self._begin(func, args, kwargs, written, serial)
            self._end(call, outputs, bad)
        return outcome

    def _end(self, call: Call, outputs: Sequence[Tensor], bad: list[Tensor]) -> None:
        """Judge what an op has made."""
        for tensor in bad:
            self._judge(call, tensor)
        if call.has_bad and not bad:
            self._note_removal(call)
        self._ledger.feed(outputs, call.fed | self._swallowed(call, bad))

    def _begin(
        self,
        op: OpOverload,
        args: Sequence[object],
        kwargs: Mapping[str, object],
        written: list[Tensor],
        serial: int,
    ) -> Call:
        """Measure the inputs: of an op that works in place before it replaces them."""
        outs = traits_of(op).outs
        read = {name: kwargs[name] for name in kwargs if name not in outs} if outs else kwargs
        given = tensors_of(args, read)
        inputs = [tensor for tensor in given if not self._is_number(tensor)]
        states = [*map(self._ledger.state, inputs)]
        worst = max(states, default=FINITE)
        for tensor in written:
            self._undo.about_to_write(tensor)
        call = Call(
            op=op,
            name=name_of(op),
            args=args,
            kwargs=kwargs,
            spot=Spot(self._sites, serial),
            written=written,
            inputs=[unwritten(tensor, written) for tensor in inputs] if written else inputs,
            has_bad=worst > FINITE,
            with_number=len(inputs) < len(given),
            worst=worst,
            fed=self._ledger.fed_by(inputs),
        )
        if worst:
            bad = (tensor for tensor, state in zip(inputs, states, strict=True) if state)
            call.parents = frozenset().union(*(self.descent(tensor, call.spot) for tensor in bad))
        return call

    def descent(self, tensor: Tensor, spot: Spot | None = None) -> frozenset[int]:
        """Return the births of a bad tensor; one that was there before becomes a birth itself."""
        known = self._ledger.births(tensor)
        if known is not None:
            return known
        site = None if spot is None else spot.site
        origin = self._ledger.origin(tensor)
        tensor = tensor if origin.tensor is None else origin.tensor  # not only a view of it
        fault = fault_in(origin.name, tensor)
        if fault is None:
            return frozenset()
        phase: Phase = "parameter" if origin.source in ("parameter", "buffer") else "data"
        if site is not None and origin.source == "constant":
            phase = site.phase
        where = (site or Site(phase))._replace(
            phase=phase, node="", model=origin.model, line=origin.line
        )
        births = self._add(where, origin.source, origin.name, tensor, fault)
        self.births[-1].mask_like = origin.source == "buffer" and not bool(
            (tensor == math.inf).any()
        )
        self._ledger.put(tensor, NAN if fault.nan else INF, births)
        return births

    def _judge(self, call: Call, output: Tensor) -> None:
        state = self._ledger.state(output)
        fault = fault_in(call.name, output) if self._is_birth(call, output, state) else None
        if fault is None:
            self._ledger.put(output, state, call.parents)
            self._follow_into_batch(call, output)
            return
        index = birth_index(call.inputs, output) or fault.index
        whole = self._undo.whole(output) if call.written else output
        place = index_in(whole, output, index)
        source = self._source_of(call, fault)
        if source == "outside":  # what counts is all that the tensor holds now
            fault = replace(fault_in(call.name, whole) or fault, index=place)
            births = self._add(call.site, source, "a tensor", whole, fault)
        else:
            births = self._add(
                call.site, source, call.name, whole, replace(fault, index=place), call
            )
            self._describe(self.births[-1], call, output, index)
        self._ledger.put(output, state, call.parents | births)

    @staticmethod
    def _source_of(call: Call, fault: TensorFault) -> Source:
        """Whether arithmetic or the program itself made it; in data it counts as if given so."""
        has_nan = fault.nan > 0
        meant = is_meant(call.name, call.args, call.kwargs, has_nan=has_nan)
        if call.in_backward or not (meant or (call.with_number and not has_nan)):
            return "op"
        return "outside" if call.site.phase == "data" and call.written else "constant"

    def _follow_into_batch(self, call: Call, output: Tensor) -> None:
        """Note where in the batch a row lands, or the part of a data set that is picked."""
        births = [self.births[n] for n in call.parents if self.births[n].phase == "data"]
        loose = [birth for birth in births if not birth.in_batch and not self._is_batch(birth)]
        if not loose or call.in_backward or call.site.module is not None:
            return
        if traits_of(call.op).is_pointwise:
            return  # such as a vector of weights, which is no row of what it is multiplied with
        fault = fault_in(call.name, output) if output.dim() else None
        if fault is not None and self.batch.size in (0, output.shape[0]):
            for birth in loose:
                birth.in_batch = birth_index((), output) or fault.index

    def _is_batch(self, birth: Birth) -> bool:
        return self.batch.leads(birth.shape)

    def _lift(self, outcome: object, serial: int) -> object:
        """``torch.tensor`` hands over what it made of Python numbers: a constant of the program.

        A single one is part of the op that uses it, as in ``x[0] = float("nan")``.
        """
        origin = Origin("constant", "tensor", line=self._sites.here(serial).line)
        for tensor in leaves(outcome):
            self._ledger.declare(tensor, origin)
        return outcome

    def _is_number(self, tensor: Tensor) -> bool:
        """Whether a tensor is a single constant of the program."""
        return not tensor.dim() and self._ledger.origin(tensor).source == "constant"

    def _is_birth(self, call: Call, output: Tensor, state: int) -> bool:
        if len(self.births) >= _MAX_BIRTHS:
            return False
        if state > call.worst:
            return True
        if call.in_backward:
            # else only a value that the forward pass had hidden was bad so far
            return not any(map(self._born_in_backward, call.parents))
        if self._has_only_masks(call, output):
            return True
        if not call.has_bad or not traits_of(call.op).is_pointwise:
            return False
        return fresh_mask(call.inputs, output) is not None

    def _has_only_masks(self, call: Call, output: Tensor) -> bool:
        """Whether a reduction gives an infinity because it was given nothing but masked values."""
        if not call.parents or is_meant(call.name, (), {}, has_nan=False):
            return False
        sizes = [found.numel() for found in call.inputs if found.dim()]
        smaller = bool(sizes) and all(output.numel() < size for size in sizes)
        masks = [self.births[number] for number in call.parents]
        if not smaller or not all(birth.is_mask for birth in masks):
            return False
        # one infinite target makes a mean infinite: that is data, and no mask was forgotten
        given = all(birth.phase == "data" for birth in masks) and output.numel() == 1
        return not given or all(is_all_bad(tensor) for tensor in call.inputs)

    def _born_in_backward(self, number: int) -> bool:
        return self.births[number].phase == "backward"

    def _note_removal(self, call: Call) -> None:
        for number in call.parents:
            birth = self.births[number]
            if is_selection(call.name):
                birth.selected_away = True
            elif not birth.swallowed_by and not call.in_backward:
                birth.swallowed_by = call.name

    def _swallowed(self, call: Call, bad: list[Tensor]) -> frozenset[int]:
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
        call: Call | None = None,
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
        self.births.append(birth)
        return frozenset({birth.number})

    def _describe(self, birth: Birth, call: Call, tensor: Tensor, index: tuple[int, ...]) -> None:
        """Add what the inputs of the op say that made a birth."""
        birth.operands = operands_at(call.inputs, tensor, index)
        birth.low, birth.high = range_of(call.inputs)
        birth.inputs_finite = not call.has_bad
        birth.parents, birth.fed_by = call.parents, call.fed
        birth.overflow = birth.inputs_finite and not birth.is_nan and can_overflow(birth.op)
        birth.masked = self._hidden(call) if call.in_backward else -1
        birth.mask_like = mask_like(call.inputs)
        birth.of_masks = not birth.is_nan and self._has_only_masks(call, tensor)

    def _sample(
        self, site: Site, fault: TensorFault, tensor: Tensor, call: Call | None
    ) -> int | None:
        shape = tuple(tensor.shape)
        if call is None and not self.batch.leads(shape):
            return None  # such as a whole data set of which the batch is a part
        if call is not None and call.name in PER_SAMPLE and len(shape) == 1 and not site.node:
            return fault.index[0] if fault.index else None
        if site.node and not self.batch.leads(shape):
            return None  # gradients of weights have axes of any length
        inputs = None if call is None or call.written else call.inputs  # what is written keeps axes
        return sample_at(fault.index, shape, self.batch, inputs)

    def _hidden(self, call: Call) -> int:
        """The forward birth whose value a selection had hidden from the loss."""
        owners = {birth.number for birth in self.births if birth.serial == call.site.serial >= 0}
        known = [n for n in owners | call.parents if self.births[n].phase != "backward"]
        return min(known, default=-1)


class _Awake:
    """Lets a mode that is entered look at ops: cheaper than to enter it for each part of a step."""

    __slots__ = ("_mode",)

    def __init__(self, mode: BirthMode) -> None:
        self._mode = mode

    def __enter__(self) -> None:
        self._mode.idle = False

    def __exit__(self, *reason: object) -> None:
        self._mode.idle = True
