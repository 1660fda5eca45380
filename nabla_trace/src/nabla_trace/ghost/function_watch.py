"""Watches the calls of torch in a forward pass for those in which a parameter meets the batch.

Working on functions and not on modules makes the way in which a parameter is used irrelevant: a
layer of torch, a raw parameter in a user's module, a weight that is computed from others, a weight
that several layers share.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from enum import Enum
from functools import partial
from typing import Protocol

import torch
from torch import Tensor
from torch.autograd import Function as AutogradFunction
from torch.autograd.graph import get_gradient_edge
from torch.overrides import TorchFunctionMode
from torch.utils.hooks import RemovableHandle

from .call import Call, Function, Origin, Out, Path, replaced, tensors_in
from .nested_outputs import told_apart
from .rng import rng_fingerprint
from .tensor_marks import TensorMarks

__all__ = ["FunctionWatch", "Receiver", "writes"]


_UPDATE_BUFFERS = frozenset({"batch_norm", "instance_norm"})
_FORM_OF_SECOND = frozenset({"expand_as", "reshape_as", "to", "type_as", "view_as"})


class _Batch(Enum):
    """Marks what depends on the batch."""

    IT = "the batch"


class Receiver(Protocol):
    """Told of the calls in which parameters meet the batch."""

    def knows(self, name: str, func: Function) -> bool:
        """Whether there is a rule for a function, so that its recorded graph is not needed."""

    def called(self, call: Call) -> bool:
        """A call was made; return whether its gradients are wanted."""

    def arrived(self, call: Call) -> None:
        """The gradients of its outputs are known."""

    def failed(self, call: Call, error: Exception) -> None:
        """Handling its gradients raised ``error``."""


class FunctionWatch(TorchFunctionMode):
    """A function mode that follows parameters and values of the batch through a forward pass.

    Args:
        parameters: the parameters to follow, by name.
        batch: tensors of the batch.
        samples: batch size.
        receiver: told of calls.
    """

    def __init__(
        self,
        parameters: Mapping[str, Tensor],
        batch: Iterable[Tensor],
        samples: int,
        receiver: Receiver,
    ) -> None:
        super().__init__()
        self.paused = False
        self.busy = False
        self.calls: list[Call] = []
        self.uses: dict[int, int] = {}
        self.samples = samples
        self._receiver = receiver
        self._marks: TensorMarks[Origin | _Batch] = TensorMarks()
        self._handles: list[RemovableHandle] = []
        for parameter in parameters.values():
            roots = frozenset({id(parameter)})
            self._marks[parameter] = Origin(parameter, roots, True)
        for tensor in batch:
            self._marks[tensor] = _Batch.IT

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Watch what happens inside the block, custom autograd functions included."""
        original = AutogradFunction.__dict__["apply"]

        def apply(cls: type[AutogradFunction], /, *args: object, **kwargs: object) -> object:
            call = partial(original.__func__, cls)
            if self.paused:
                return call(*args, **kwargs)
            return self._intercept(call, cls.__name__, args, kwargs)

        setattr(AutogradFunction, "apply", classmethod(apply))  # noqa: B010 - a method for a while
        try:
            with self:
                yield
        finally:
            setattr(AutogradFunction, "apply", original)  # noqa: B010

    def taint(self, value: object) -> None:
        """Note that ``value`` depends on the batch."""
        if isinstance(value, Tensor):
            self._marks[value] = _Batch.IT
        elif isinstance(value, (list, tuple)):
            for _, tensor in tensors_in((value,), {}):
                self._marks[tensor] = _Batch.IT

    def is_tainted(self, args: tuple[object, ...], kwargs: Mapping[str, object]) -> bool:
        """Whether any argument depends on the batch."""
        marks = (self._marks.get(tensor) for _, tensor in tensors_in(args, kwargs))
        return any(mark is _Batch.IT for mark in marks)

    def forget(self) -> None:
        """Let go of every tensor and hook."""
        for handle in self._handles:
            handle.remove()
        self._handles = []
        waiting, seen = list(self.calls), set[Call]()
        while waiting:  # what one maker made may have gone into many others
            call = waiting.pop()
            if call not in seen:
                seen.add(call)
                call.forget()
                waiting.extend(call.makers.values())
        self._marks.clear()

    def __torch_function__(
        self,
        func: Function,
        types: object,
        args: tuple[object, ...] = (),
        kwargs: dict[str, object] | None = None,
    ) -> object:
        """Let ``func`` run, and note what it is about."""
        given = kwargs or {}
        if self.paused:
            return func(*args, **given)
        name = getattr(func, "__name__", "function")
        if name == "__get__":  # most attributes are no tensors, and most calls read one
            found = func(*args, **given)
            if not isinstance(found, Tensor):
                return found
        return self._intercept(func, name, args, given)

    def meet(self, call: Call, raw_outs: list[Tensor]) -> None:
        """Take note of a call, and ask for its gradients if they are wanted."""
        self.calls.append(call)
        call.outs = [Out(tuple(out.shape)) for out in raw_outs]
        for origin in call.tracked.values():
            for root in origin.roots:
                self.uses[root] = self.uses.get(root, 0) + 1
        if self._receiver.called(call):
            self._await(call, raw_outs)

    # ------------------------------------------------------------------ private
    def _intercept(
        self, func: Function, name: str, args: tuple[object, ...], kwargs: dict[str, object]
    ) -> object:
        tracked: dict[Path, Origin] = {}
        tainted: set[Path] = set()
        for path, tensor in tensors_in(args, kwargs):
            mark = self._marks.get(tensor)
            if mark is _Batch.IT:
                if not _is_only_a_form(name, path):
                    tainted.add(path)
            elif mark is not None:
                tracked[path] = mark
        if not tracked or not torch.is_grad_enabled():
            out = self._unwatched(func, args, kwargs)
            if tainted:
                self._taint_results(name, args, out)
            return out
        if not tainted:
            return self._derive(func, name, (args, kwargs), tracked)
        return self._meeting(func, name, (args, kwargs), (tracked, frozenset(tainted)))

    def _unwatched(
        self, func: Function, args: tuple[object, ...], kwargs: Mapping[str, object]
    ) -> object:
        self.paused = True
        try:
            return func(*args, **kwargs)
        finally:
            self.paused = False

    def _taint_results(self, name: str, args: tuple[object, ...], out: object) -> None:
        self.taint(out)
        if name == "__setitem__" and args:
            self.taint(args[0])

    def _derive(
        self,
        func: Function,
        name: str,
        given: tuple[tuple[object, ...], dict[str, object]],
        tracked: dict[Path, Origin],
    ) -> object:
        """Compute something from parameters alone; it is followed as they are."""
        args, kwargs = given
        out = self._unwatched(func, args, kwargs)
        roots = frozenset[int]().union(*(origin.roots for origin in tracked.values()))
        maker = None
        if self._receiver.knows(name, func) and isinstance(out, Tensor):
            maker = self._record(func, name, given, (tracked, frozenset()))
            maker.outs = [Out(tuple(out.shape))]
        result = args[0] if name == "__setitem__" else out
        for _, tensor in tensors_in((result,), {}):
            if tensor.requires_grad and tensor.grad_fn is not None:
                self._marks[tensor] = Origin(tensor, roots, False, maker)
        return out

    def _record(
        self,
        func: Function,
        name: str,
        given: tuple[tuple[object, ...], dict[str, object]],
        places: tuple[dict[Path, Origin], frozenset[Path]],
    ) -> Call:
        updates = name in _UPDATE_BUFFERS  # running statistics will be written in place

        def keep(path: Path, tensor: Tensor) -> Tensor:
            is_buffer = updates and path not in places[0] and path not in places[1]
            return tensor.detach().clone() if is_buffer else tensor.detach()

        args, kwargs = replaced(*given, keep)
        return Call(
            func=func,
            name=name,
            args=args,
            kwargs=kwargs,
            tracked=places[0],
            tainted=places[1],
            shapes={path: tuple(t.shape) for path, t in tensors_in(*given)},
            samples=self.samples,
        )

    def _meeting(
        self,
        func: Function,
        name: str,
        given: tuple[tuple[object, ...], dict[str, object]],
        places: tuple[dict[Path, Origin], frozenset[Path]],
    ) -> object:
        args, kwargs = run_args, run_kwargs = given
        known = self._receiver.knows(name, func)
        aliases: dict[Path, Tensor] = {}
        if not known:  # paths through the arguments of this call only, not through earlier ones
            aliases = {path: o.tensor.view_as(o.tensor) for path, o in places[0].items()}
            run_args, run_kwargs = replaced(args, kwargs, lambda path, t: aliases.get(path, t))
        before = None if known else rng_fingerprint()
        call = self._record(func, name, given, places)
        out = self._unwatched(func, run_args, run_kwargs)
        if not known and not writes(name, kwargs):
            out = told_apart(out)
        self._taint_results(name, args, out)
        result = args[0] if name == "__setitem__" else out
        raw_outs = [t for _, t in tensors_in((result,), {}) if t.grad_fn is not None]
        if not raw_outs:
            return out
        call.recorded = not known and (writes(name, kwargs) or before != rng_fingerprint())
        call.aliases = aliases
        call.edges = [] if known else [get_gradient_edge(out) for out in raw_outs]
        self.meet(call, raw_outs)
        return out

    def _await(self, call: Call, raw_outs: list[Tensor]) -> None:
        def note(grads: Iterable[Tensor | None]) -> None:
            if self.busy:
                return  # the recorded graph is being asked
            for out, grad in zip(call.outs, grads, strict=True):
                out.grad = None if grad is None else grad.detach()
            self._deliver(call)

        node, place = raw_outs[0].grad_fn, raw_outs[0].output_nr
        if len(raw_outs) == 1 and node is not None:
            # on the node: a hook on a tensor that is written in place later would not follow
            self._handles.append(node.register_prehook(lambda grads: note([grads[place]])))
        else:
            register = torch.autograd.graph.register_multi_grad_hook
            self._handles.append(register(raw_outs, note, mode="all"))

    def _deliver(self, call: Call) -> None:
        self.busy, paused = True, self.paused
        self.paused = True
        try:
            with _plain_arithmetic():
                self._receiver.arrived(call)
        except Exception as error:  # the user's backward must go on
            self._receiver.failed(call, error)
        finally:
            self.busy, self.paused = False, paused


def _is_only_a_form(name: str, path: Path) -> bool:
    """Whether a function takes nothing but shape, dtype or device from an argument."""
    if name.endswith("_like") or name.startswith("new_"):
        return True
    return name in _FORM_OF_SECOND and path != (0,)


def writes(name: str, kwargs: Mapping[str, object]) -> bool:
    """Whether a function writes into an argument, so that it cannot be called again."""
    in_place = name.endswith("_") and not name.endswith("__")
    operator = name.startswith("__i") and name not in ("__invert__", "__index__", "__int__")
    return in_place or operator or name == "__setitem__" or kwargs.get("out") is not None


_PLAIN = nullcontext()


def _plain_arithmetic() -> AbstractContextManager[object]:
    """Neither record a graph nor narrow anything inside the block."""
    kinds = [kind for kind in ("cpu", "cuda") if torch.is_autocast_enabled(kind)]
    if not kinds and not torch.is_grad_enabled():
        return _PLAIN  # what a backward pass has anyway
    stack = ExitStack()
    stack.enter_context(torch.no_grad())
    for kind in kinds:
        stack.enter_context(torch.autocast(kind, enabled=False))
    return stack
