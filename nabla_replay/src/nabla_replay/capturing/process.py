"""``nabla run --capture``: records a script that knows nothing of it.

Model and optimizer are known when the first step has been taken. The first checkpoint is that of
the moment after it, so that a replay begins with the second step.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import cast
from weakref import WeakSet, ref

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
from ..wording import shown_from
from .context import Capture
from .loaders import LoaderBook
from .options import CaptureOptions
from .parts import Parts, compiled_wrappers, in_turn, unwrapped, with_inner
from .stateful import Stateful

__all__ = ["ProcessCapture"]

_UNEVEN_STEPS = 32  # of one optimizer, while another one does not step a second time


class ProcessCapture:
    """Waits for the end of the first step, then captures the rest of the run.

    Args:
        session: is told where the run is, and what went wrong.
        settings: how to capture.
    """

    def __init__(self, session: Session, settings: CaptureSettings) -> None:
        self._session = session
        self._settings = settings
        self._here = Path.cwd()  # the script may change its folder
        self._roots: dict[int, ref[Module]] = {}  # in the order of their first calls
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
            shown = shown_from(self._here, capture.run_path)
            print(f"nabla: captured {shown}", file=sys.stderr)
        elif self._stepped:
            steps = sum(self._stepped.values())
            print(f"nabla: nothing was captured: {self._why(steps)}", file=sys.stderr)

    # ------------------------------------------------------------------ what the instrument tells
    def forward_ended(
        self, module: Module, args: tuple[object, ...], kwargs: Mapping[str, object], output: object
    ) -> None:
        """Remember what may be a model."""
        if self._capture is None and torch.is_grad_enabled():
            known = self._roots.get(id(module))
            if known is None or known() is not module:
                self._roots[id(module)] = ref(module)

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
        """Begin to capture when the loop has come round: of several optimizers, the one that steps
        least often ends a step."""
        if self._capture is not None or INSTRUMENT.replaying:
            return
        known = id(optimizer)
        again = known in self._stepped
        count = self._stepped.pop(known, 0) + 1
        self._stepped[known] = count
        models, optimizers = self._trained()
        if not models:
            return
        known_all = all(id(each) in self._stepped for each in optimizers)
        rarest = again and known_all and count <= min(self._stepped.values())
        if len(optimizers) == 1 or rarest or count >= _UNEVEN_STEPS:
            self._begin(self._parts(models, optimizers), count, optimizer)

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
    def _why(self, steps: int) -> str:
        if not self._trained()[0]:
            return (
                f"{steps} optimizer steps were seen, and no call of a module whose parameters they "
                "move (calls inside torch.func are not seen); use nabla.capture and record_step"
            )
        return f"{steps} optimizer steps were seen, too few to tell where a step of the loop ends"

    def _begin(self, parts: Parts, done: int, ending: Optimizer) -> None:
        budget = self._settings.budget or None
        options = CaptureOptions(
            root=self._here / self._settings.root,
            checkpoint_every=self._settings.checkpoint_every,
            budget=budget,
        )
        self._capture = Capture(parts, options, done=done, book=self._book, ending=ending)
        self._capture.__enter__()

    def _alive(self) -> Iterator[Module]:
        for known in self._roots.values():
            module = known()
            if module is not None:
                yield module

    def _trained(self) -> tuple[list[Module], tuple[Optimizer, ...]]:
        """Return the models that are trained and the optimizers that do so, in order of steps."""
        optimizers = _without_inner([one for one in self._optimizers if one.param_groups])
        held = {known for optimizer in optimizers for known in _held(optimizer)}
        roots = {
            id(model): model
            for model in map(unwrapped, self._alive())
            if any(id(parameter) in held for parameter in model.parameters())
        }
        models = _outermost(list(roots.values()))
        owned = {id(parameter) for model in models for parameter in model.parameters()}
        turns = {known: turn for turn, known in enumerate(self._stepped)}
        ordered = sorted(optimizers, key=lambda one: turns.get(id(one), len(turns)))
        return models, tuple(one for one in ordered if owned & _held(one))

    def _parts(self, models: list[Module], optimizers: tuple[Optimizer, ...]) -> Parts:
        """Return the program, as far as it can be seen."""
        if len(models) == 1:
            model = models[0]
        else:
            names = {f"{index}_{type(one).__name__}": one for index, one in enumerate(models)}
            model = ModuleDict(names)
        mine = with_inner(optimizers)
        schedulers, scaler = _around(mine)
        current = self._book.current
        averages = _averages([model, *models])
        return Parts(
            model=model,
            optimizers=mine,
            schedulers=in_turn(schedulers, mine),
            scaler=scaler,
            extra=averages,
            loader=None if current is None else cast("Iterable[object]", current.loader),
            found=tuple(averages),
            wrappers=compiled_wrappers(self._alive()),
        )


def _held(optimizer: Optimizer) -> set[int]:
    return {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}


def _without_inner(optimizers: list[Optimizer]) -> list[Optimizer]:
    """Leave out optimizers that another one makes step inside it."""
    inner = {id(one) for outer in optimizers for one in with_inner((outer,))[1:]}
    return [one for one in optimizers if id(one) not in inner]


def _averages(models: list[Module]) -> dict[str, Stateful]:
    """Find averages of these models' weights: they may decide what a step computes.

    Looks at all objects of the process, once.
    """
    if "torch.optim.swa_utils" not in sys.modules:
        return {}
    from torch.optim.swa_utils import AveragedModel

    shapes = [[one.shape for one in model.parameters()] for model in models]
    found = [
        thing
        for thing in gc.get_objects()
        if issubclass(type(thing), AveragedModel)
        and [one.shape for one in thing.module.parameters()] in shapes
    ]
    if len(found) == 1:
        return {type(found[0]).__name__: found[0]}
    return {f"{index}_{type(one).__name__}": one for index, one in enumerate(found)}


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
