"""``nabla run --capture``: records a script that knows nothing of it.

Model and optimizer are known when the first step has been taken. The first checkpoint is that of
the moment after it, so that a replay begins with the second step.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Mapping, Sequence
from weakref import WeakSet

import torch
from torch import Tensor
from torch.nn import Module, ModuleDict
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from nabla_core.problem import Problem
from nabla_core.rules import HOOK_RAISED
from nabla_core.session import Session
from nabla_guard.taps.instrument import INSTRUMENT

from ..capture_settings import CaptureSettings
from .context import Capture
from .loaders import LoaderBook
from .options import CaptureOptions
from .parts import Parts, unwrapped
from .stateful import Stateful

__all__ = ["ProcessCapture"]


class ProcessCapture:
    """Waits for the end of the first step, then captures the rest of the run.

    Args:
        session: is told where the run is, and what went wrong.
        settings: how to capture.
    """

    def __init__(self, session: Session, settings: CaptureSettings) -> None:
        self._session = session
        self._settings = settings
        self._roots: WeakSet[Module] = WeakSet()
        self._optimizers: WeakSet[Optimizer] = WeakSet()
        self._stepped: dict[int, int] = {}
        self._capture: Capture | None = None
        self._book = LoaderBook()

    def start(self) -> None:
        """Begin to listen."""
        self._book.start()
        INSTRUMENT.attach(self)

    def finish(self) -> None:
        """Finish the run, if there is one."""
        INSTRUMENT.detach(self)
        self._book.stop()
        capture, self._capture = self._capture, None
        if capture is not None:
            capture.close()
            print(f"nabla: captured {capture.run_path}", file=sys.stderr)

    # ------------------------------------------------------------------ what the instrument tells
    def forward_ended(
        self, module: Module, args: tuple[object, ...], kwargs: Mapping[str, object], output: object
    ) -> None:
        """Remember what may be a model."""
        if self._capture is None and torch.is_grad_enabled():
            self._roots.add(module)

    def backward_started(self, roots: Sequence[Tensor]) -> None:
        """Nothing follows from it."""

    def backward_ended(self, roots: Sequence[Tensor]) -> None:
        """Nothing follows from it."""

    def gradients_cleared(self, owner: Optimizer | Module) -> None:
        """Nothing follows from it."""

    def optimizer_made(self, optimizer: Optimizer) -> None:
        """Remember it."""
        self._optimizers.add(optimizer)

    def step_started(self, optimizer: Optimizer, closure: bool) -> None:
        """Remember it."""
        self._optimizers.add(optimizer)

    def step_ended(self, optimizer: Optimizer, closure: bool) -> None:
        """Begin to capture when the last optimizer of the loop has stepped."""
        if self._capture is not None or INSTRUMENT.replaying:
            return
        known = id(optimizer)
        again = known in self._stepped
        count = self._stepped.pop(known, 0) + 1
        self._stepped[known] = count
        parts = self._parts()
        if parts is None:
            return
        one = len(parts.optimizers) == 1
        last = again and all(count >= other for other in self._stepped.values())
        if one or (last and len(set(self._stepped.values())) == 1):
            self._begin(parts, count)

    def loss_scaled(self, loss: Tensor, scaled: Tensor) -> None:
        """Nothing follows from it."""

    def state_loaded(self, module: Module, keys: frozenset[str]) -> None:
        """Nothing follows from it."""

    def failed(self, error: Exception) -> None:
        """Say that nothing is captured; the script goes on."""
        self._session.problem(
            Problem(
                rule=HOOK_RAISED.id,
                plugin="replay",
                message=f"the run is not captured: {type(error).__name__}: {error}",
                hint="report it with the program that shows it; the training itself went on",
            )
        )

    # ------------------------------------------------------------------ private
    def _begin(self, parts: Parts, done: int) -> None:
        budget = self._settings.budget or None
        options = CaptureOptions(
            root=self._settings.root,
            checkpoint_every=self._settings.checkpoint_every,
            budget=budget,
        )
        self._capture = Capture(parts, options, done=done, book=self._book)
        self._capture.__enter__()

    def _parts(self) -> Parts | None:
        """Return the program, as far as it can be seen."""
        optimizers = [one for one in self._optimizers if one.param_groups]
        held = {
            id(parameter)
            for optimizer in optimizers
            for group in optimizer.param_groups
            for parameter in group["params"]
        }
        roots = {
            id(model): model
            for model in map(unwrapped, self._roots)
            if any(id(parameter) in held for parameter in model.parameters())
        }
        models = _outermost(list(roots.values()))
        if not models:
            return None
        if len(models) == 1:
            model = models[0]
        else:
            names = {f"{index}_{type(one).__name__}": one for index, one in enumerate(models)}
            model = ModuleDict(names)
        owned = {id(parameter) for parameter in model.parameters()}
        mine = tuple(
            one
            for one in optimizers
            if any(id(p) in owned for group in one.param_groups for p in group["params"])
        )
        schedulers, scaler = _around(mine)
        return Parts(model=model, optimizers=mine, schedulers=schedulers, scaler=scaler)


def _outermost(models: list[Module]) -> list[Module]:
    """Leave out models that are part of another one."""
    inner = {id(part) for model in models for part in model.modules() if part is not model}
    return [model for model in models if id(model) not in inner]


def _around(optimizers: tuple[Optimizer, ...]) -> tuple[tuple[Stateful, ...], Stateful | None]:
    """Find schedulers and scaler, to which nothing in torch leads from an optimizer.

    Looks at all objects of the process, once.
    """
    found: list[LRScheduler] = []
    scaler: Stateful | None = None
    for thing in gc.get_objects():
        kind = type(thing)
        if issubclass(kind, LRScheduler) and getattr(thing, "optimizer", None) in optimizers:
            found.append(thing)
        elif issubclass(kind, torch.amp.GradScaler) and thing.is_enabled():
            scaler = thing
    inner = {id(part) for one in found for part in getattr(one, "_schedulers", ())}
    outer: list[object] = [one for one in found if id(one) not in inner]
    return tuple(one for one in outer if isinstance(one, Stateful)), scaler
