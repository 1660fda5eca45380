"""Averaged copies of trained modules: whether their weights and buffers keep up."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor, nn
from torch.nn import Module
from torch.optim.swa_utils import AveragedModel

from ..facts import Place
from ..loop.exact import sample_of
from ..loop.watch import Watch
from ..taps.place import user_place

if TYPE_CHECKING:
    from ..loop.live import LiveLoop
    from ..loop.roots import RootRecord

__all__ = ["CopyFacts", "CopyWatch"]

CopyFault = Literal[
    "untouched-buffers",
    "stale-buffers",
    "never-averaged",
    "stale-weights",
    "written-unchanged",
    "own-buffers",
]
_MAX_LOOKS = 64
_MANY = 3
_VAIN_LOOKS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyFacts:
    """An averaged copy that was evaluated although a part of it is stale.

    Attributes:
        fault: what is stale.
        module: class name of the copy.
        place: where it was called.
        tracked: batches that the source's normalisation layers have tracked.
        layers: number of normalisation layers.
        steps: optimizer steps of the source so far.
    """

    fault: CopyFault
    module: str
    place: Place | None
    tracked: int = 0
    layers: int = 0
    steps: int = 0


@dataclass(slots=True, eq=False)
class _Seen:
    """What a copy and its source looked like at the last evaluation of the copy."""

    weights: list[Tensor]
    buffers: list[Tensor]
    source: list[Tensor]
    tracked: int
    writes: int
    looks: int = 1
    vain: int = 0
    told: set[str] = field(default_factory=set)


class CopyWatch(Watch):
    """Looks at modules that are called without gradients, in no optimizer, and built like a
    trained one.

    Attributes:
        found: stale copies since they were last asked for.
        declared: class names that are averaged copies because the user says so.
    """

    patient = frozenset({"forward_ended"})

    def __init__(self, loop: LiveLoop) -> None:
        super().__init__(loop)
        self.found: list[CopyFacts] = []
        self.declared: frozenset[str] = frozenset()
        self._seen: dict[int, _Seen] = {}
        self._foreign: dict[int, int] = {}
        self._own: set[int] = set()

    def take(self) -> list[CopyFacts]:
        """Return what was found since the last call."""
        found, self.found = self.found, []
        return found

    def forward_ended(
        self,
        root: RootRecord,
        module: Module,
        args: tuple[object, ...],
        kwargs: Mapping[str, object],
    ) -> None:
        """See :class:`.watch.Watch`."""
        if torch.is_grad_enabled() or module.training or not root.facts.parameters:
            return
        if any(facts.optimizers for facts in root.facts.parameters):
            self._look_at_own(root, module)
            return
        seen = self._seen.get(id(root))
        if seen is not None and seen.looks >= _MAX_LOOKS:
            return
        source = self._source(root, module)
        if source is not None:
            self._look(root, module, source)

    def stop(self) -> None:
        """See :class:`.watch.Watch`."""
        self._seen.clear()

    # ------------------------------------------------------------------ private
    def _source(self, root: RootRecord, module: Module) -> Module | None:
        """The trained root module that ``module`` is a copy of."""
        living = self.loop.roots.living
        if self._foreign.get(id(root)) == len(living):
            return None
        copied = module.module if isinstance(module, AveragedModel) else module
        shape = _build(copied)
        for other in living:
            trained = self.loop.roots.called_before(other)
            if other is module or trained is None or not trained.facts.ever_trained:
                continue
            held = any(facts.optimizers for facts in trained.facts.parameters)
            if held and type(other) is type(copied) and _build(other) == shape:
                return other
        self._foreign[id(root)] = len(living)
        return None

    def _look(self, root: RootRecord, module: Module, source: Module) -> None:
        copies, originals = _norms(module), _norms(source)
        tracked = min((_tracked(layer) for layer in originals), default=0)
        now = _Seen(
            weights=[sample_of(parameter) for parameter in module.parameters()],
            buffers=[sample_of(buffer) for layer in copies for buffer in _statistics(layer)],
            source=[sample_of(parameter) for parameter in source.parameters()],
            tracked=tracked,
            writes=sum(parameter._version for parameter in module.parameters()),
        )
        before = self._seen.get(id(root))
        if before is not None:
            now.looks, now.told = before.looks + 1, before.told
            now.vain = before.vain + 1 if _is_vain(now, before) else 0
        self._seen[id(root)] = now
        moved = not _equal(now.weights, now.source)
        steps = self._steps_of(source)
        for fault in _faults(module, now, before, moved and bool(steps), self.declared):
            if fault not in now.told:
                now.told.add(fault)
                self.found.append(
                    CopyFacts(
                        fault=fault,
                        module=root.facts.name,
                        place=user_place(),
                        tracked=tracked,
                        layers=len(copies),
                        steps=steps,
                    )
                )

    def _look_at_own(self, root: RootRecord, module: Module) -> None:
        """Say once that the statistics of a trained model have tracked batches and never moved."""
        layers = [] if id(root) in self._own else _norms(module)
        still = [layer for layer in layers if _tracked(layer) >= _MANY and _is_initial(layer)]
        if still:
            self._own.add(id(root))
            tracked, steps = min(map(_tracked, still)), self._steps_of(module)
            self.found.append(
                CopyFacts(
                    fault="own-buffers",
                    module=root.facts.name,
                    place=user_place(),
                    tracked=tracked,
                    layers=len(still),
                    steps=steps,
                )
            )

    def _steps_of(self, source: Module) -> int:
        known = self.loop.gradients.known(list(source.parameters()))
        owners = [facts.steps for record in known for facts in record.facts.optimizers]
        return max(owners, default=0)


def _faults(
    module: Module, now: _Seen, before: _Seen | None, moved: bool, declared: frozenset[str]
) -> list[CopyFault]:
    found: list[CopyFault] = []
    layers = _norms(module)
    if layers and now.tracked > 0 and moved:
        if all(map(_is_untouched, layers)):
            if _has_followed(layers, now, before):
                found.append("untouched-buffers")
        elif (
            before is not None
            and now.tracked > before.tracked
            and _equal(now.buffers, before.buffers)
            and not _equal(now.weights, before.weights)
        ):
            found.append("stale-buffers")
    if isinstance(module, AveragedModel) and moved and int(module.n_averaged) == 0:
        found.append("never-averaged")
    if now.vain >= _VAIN_LOOKS:
        found.append("written-unchanged")
    follows = type(module).__name__ in declared or isinstance(module, AveragedModel)
    if follows and before is not None and _stands_still(now, before):
        found.append("stale-weights")
    return found


def _has_followed(
    layers: list[nn.modules.batchnorm._BatchNorm], now: _Seen, before: _Seen | None
) -> bool:
    """Whether weights of the copy were ever changed: a random target network never is.

    Affine weights of normalisation layers begin at exactly one and zero.
    """
    if before is not None and not _equal(now.weights, before.weights):
        return True
    return any(
        layer.affine and (bool((layer.weight != 1).any()) or bool((layer.bias != 0).any()))
        for layer in layers
    )


def _stands_still(now: _Seen, before: _Seen) -> bool:
    return _equal(now.weights, before.weights) and not _equal(now.source, before.source)


def _is_vain(now: _Seen, before: _Seen) -> bool:
    """Whether every weight was written since the last look, and none has another value."""
    return now.writes - before.writes >= len(now.weights) and _stands_still(now, before)


def _build(module: Module) -> list[tuple[str, tuple[int, ...]]]:
    return [(name, tuple(parameter.shape)) for name, parameter in module.named_parameters()]


def _norms(module: Module) -> list[nn.modules.batchnorm._BatchNorm]:
    return [
        layer
        for layer in module.modules()
        if isinstance(layer, nn.modules.batchnorm._BatchNorm) and layer.track_running_stats
    ]


def _statistics(layer: nn.modules.batchnorm._BatchNorm) -> list[Tensor]:
    return [found for found in (layer.running_mean, layer.running_var) if found is not None]


def _tracked(layer: nn.modules.batchnorm._BatchNorm) -> int:
    return 0 if layer.num_batches_tracked is None else int(layer.num_batches_tracked)


def _is_untouched(layer: nn.modules.batchnorm._BatchNorm) -> bool:
    return not _tracked(layer) and _is_initial(layer)


def _is_initial(layer: nn.modules.batchnorm._BatchNorm) -> bool:
    mean, variance = layer.running_mean, layer.running_var
    if mean is None or variance is None:
        return False
    return not bool(mean.any()) and bool((variance == 1).all())


def _equal(first: list[Tensor], second: list[Tensor]) -> bool:
    same_size = len(first) == len(second)
    return same_size and all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
