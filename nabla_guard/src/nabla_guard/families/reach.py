"""Which parameters the graph of a loss leads to, also those of no registered module."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from torch import Tensor, nn
from torch.nn import Module, Parameter
from torch.optim import Optimizer

from ..facts import Call, ParameterFacts
from ..loop.watch import Watch
from ..taps.patching import Patches, Replacement
from .graph import leaf_of, nodes_from

if TYPE_CHECKING:
    from ..loop.book import OptimizerRecord
    from ..loop.gradients import GradientRecord
    from ..loop.live import LiveLoop
    from ..loop.roots import RootRecord

__all__ = ["ReachWatch"]

_EARLY_PASSES = 6
_CLOSE_STEPS = 4
_READ_STEPS = 8
_MAX_DEPTH = 3
_MAX_ITEMS = 256
_REGISTERED = frozenset({"_parameters", "_buffers", "_modules"})


class ReachWatch(Watch):
    """Walks the graphs of the first backward passes and of the first steps of each optimizer.

    Attributes:
        passes: backward passes so far; counted up to the first few.
        newcomers: parameters of no optimizer whose first gradient was seen, until a detector takes
            them away.
    """

    def __init__(self, loop: LiveLoop) -> None:
        super().__init__(loop)
        self.newcomers: list[ParameterFacts] = []
        self._reached: set[int] = set()
        self._given: set[int] = set()
        self.passes = 0
        self._read_at = 0

    @property
    def patient(self) -> frozenset[str]:
        """See :class:`.watch.Watch`."""
        done = {"step_started", "backward_ended", "forward_ended"}
        return frozenset(done | {"backward_started"} if self.passes >= _EARLY_PASSES else done)

    def start(self, patches: Patches) -> None:
        """Note vectors that a table of embeddings is made from: nobody drew them for it."""
        for kind in (nn.Embedding, nn.EmbeddingBag):
            patches.replace(kind, "from_pretrained", self._wrap_vectors)

    def _wrap_vectors(self, original: Replacement) -> Replacement:
        def from_pretrained(*args: object, **kwargs: object) -> object:
            made = original(*args, **kwargs)
            if isinstance(made, Module):
                self.guarded(lambda: self._note_loaded(made))
            return made

        return from_pretrained

    def _note_loaded(self, module: Module) -> None:
        for parameter in module.parameters():
            self.loop.gradients.record(parameter).facts.loaded = True

    def reached(self, parameter: ParameterFacts) -> bool:
        """Whether a graph that was walked leads to ``parameter``."""
        return id(parameter) in self._reached

    def given(self, parameter: ParameterFacts) -> bool:
        """Whether ``parameter`` had a gradient when one of the first steps of an optimizer began,
        also one that was put there by hand, or is used up before its backward pass ends."""
        return id(parameter) in self._given

    def forward_ended(
        self,
        root: RootRecord,
        module: Module,
        args: tuple[object, ...],
        kwargs: Mapping[str, object],
    ) -> None:
        """Read now and then which parameters the root modules have: layers may be added."""
        if self.loop.index - self._read_at >= _READ_STEPS:
            self._read_at = self.loop.index
            self.loop.roots.refresh()

    def backward_ended(
        self, roots: Sequence[Tensor], written: Sequence[GradientRecord], call: Call
    ) -> None:
        """Look closely at parameters that join the training after its first steps."""
        new = [
            found.facts
            for found in written
            if found.facts.writes == 1 and not found.facts.ever_held
        ]
        if new:
            self.newcomers.extend(new)
            self.loop.calm.attend(_CLOSE_STEPS)

    def step_started(self, record: OptimizerRecord, optimizer: Optimizer) -> None:
        """See :class:`.watch.Watch`."""
        if not record.curious:
            return
        for found in record.records:
            parameter = found.ref()
            if parameter is not None and parameter.grad is not None:
                self._given.add(id(found.facts))

    def backward_started(self, roots: Sequence[Tensor]) -> None:
        """See :class:`.watch.Watch`."""
        if self.passes >= _EARLY_PASSES and not self.loop.book.curious:
            return
        self.passes += 1
        tops = [root.grad_fn for root in roots if root.grad_fn is not None]
        for node in nodes_from(tops):
            leaf = leaf_of(node)
            if isinstance(leaf, Parameter):
                self._reached.add(id(self.loop.gradients.record(leaf).facts))

    def is_constant(self, parameter: ParameterFacts) -> bool:
        """Whether all its values are one number, as nothing that was ever trained has; reads it."""
        found = self._tensor_of(parameter)
        return found is not None and bool((found == found.flatten()[0]).all())

    def replaced(self, held: Sequence[ParameterFacts]) -> list[ParameterFacts]:
        """Parameters of living root modules that have a gradient, no optimizer, and the shape of a
        held one that is in no module any more."""
        self.loop.roots.refresh()
        shapes = {facts.shape for facts in held if not facts.running}
        return [
            record.facts
            for record in self.loop.gradients
            if record.facts.running
            and record.facts.shape in shapes
            and not record.facts.ever_held
            and (parameter := record.ref()) is not None
            and parameter.grad is not None
        ]

    def _tensor_of(self, parameter: ParameterFacts) -> Tensor | None:
        found = (record.ref() for record in self.loop.gradients if record.facts is parameter)
        return next((tensor for tensor in found if tensor is not None and tensor.numel()), None)

    def holder(self, parameter: ParameterFacts) -> str | None:
        """Return the path of a plain attribute of a root module that holds ``parameter``."""
        wanted = self._tensor_of(parameter)
        if wanted is None:
            return None
        for root in self.loop.roots.living:
            for path, module in root.named_modules():
                found = _search(module, wanted)
                if found is not None:
                    return ".".join(filter(None, [type(root).__name__, path, found]))
        return None


def _search(module: Module, wanted: Tensor) -> str | None:
    for name, value in vars(module).items():
        if name not in _REGISTERED:
            for path, item in _items(value, name, 0):
                found = _inside(item, wanted)
                if found is not None:
                    return f"{path}.{found}".rstrip(".")
    return None


def _inside(item: object, wanted: Tensor) -> str | None:
    """Path of ``wanted`` inside ``item``: ``""`` for itself."""
    if item is wanted:
        return ""
    if not isinstance(item, Module):
        return None
    return next((name for name, own in item.named_parameters() if own is wanted), None)


def _items(value: object, path: str, depth: int) -> Iterator[tuple[str, object]]:
    if isinstance(value, (Module, Tensor)):
        yield path, value
    elif depth < _MAX_DEPTH and isinstance(value, (list, tuple)):
        for index, item in enumerate(value[:_MAX_ITEMS]):
            yield from _items(item, f"{path}[{index}]", depth + 1)
    elif depth < _MAX_DEPTH and isinstance(value, Mapping):
        for key, item in list(value.items())[:_MAX_ITEMS]:
            yield from _items(item, f"{path}[{key!r}]", depth + 1)
