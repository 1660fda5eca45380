"""What the live instrument knows about a training loop, as plain objects.

Detectors of other distributions read these facts from ``session.source`` (a :class:`LoopSource`)
and
never touch torch's hooks themselves. The instrument owns and updates the objects; a reader must not
change them. Nothing here holds a tensor, so a test can build any situation by hand.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Protocol, runtime_checkable

from nabla_core.issue import Location

if TYPE_CHECKING:
    from .loop.watch import WatchT
    from .origin.findings import Findings

__all__ = [
    "Call",
    "CallKind",
    "GradientState",
    "LoopFacts",
    "LoopSource",
    "ModuleFacts",
    "NumberFacts",
    "OptimizerFacts",
    "ParameterFacts",
    "Place",
    "TensorFault",
]

CallKind = Literal["write", "clear", "foreign-step"]
"""A backward wrote gradients, somebody cleared them, another optimizer stepped."""

GradientState = Literal["unknown", "none", "zero", "nonzero"]
"""Gradients at a step: not measured, all None, all exactly zero, some not zero."""


@dataclass(frozen=True, slots=True)
class Place:
    """A line of the user's source."""

    file: str
    line: int
    function: str

    def location(self, *, module: str | None = None, parameter: str | None = None) -> Location:
        """Return the place as the location of an issue."""
        return Location(
            file=self.file,
            line=self.line,
            function=self.function,
            module=module,
            parameter=parameter,
        )

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(slots=True, kw_only=True, eq=False)  # made in every step: frozen would cost three times
class Call:
    """One event in the life of an optimizer's gradients since its last step.

    Attributes:
        kind: see :data:`CallKind`.
        place: where it happened; only known in the first steps and while a pattern is pending.
        parameters: how many of this optimizer's parameters took part.
        nonzero: for a write, whether any gradient was exactly non-zero; ``None`` when not measured.
        by_hand: for a clear, whether it was no call of ``zero_grad``.
        backward: serial number of the backward pass that wrote.
    """

    kind: CallKind
    place: Place | None = None
    parameters: int = 0
    nonzero: bool | None = None
    by_hand: bool = False
    backward: int = 0


@dataclass(slots=True, kw_only=True, eq=False)
class ParameterFacts:
    """What is known about one parameter.

    Attributes:
        name: dotted path in the first root module that was called with it, ``""`` before that.
        root: that root module.
        shape: its shape.
        trainable: ``requires_grad`` at the last look.
        is_parameter: whether it is a :class:`torch.nn.Parameter` and no other leaf tensor.
        running: whether it belongs to a root module that was called with gradients on.
        optimizers: the optimizers that hold it.
        ever_held: whether any optimizer ever held it.
        writes: backward passes that wrote its gradient.
        nonzero_writes: those after which it was exactly non-zero; only counted in the first steps.
        moved: whether its values differ from those at its first gradient.
        loaded: whether ``load_state_dict`` set it.
        frozen_first: whether it took no gradients when a root module was first called with it.
        fresh: whether its values look like a fresh random initialisation; ``None`` when not
            examined.
    """

    name: str = ""
    root: ModuleFacts | None = field(default=None, repr=False)
    shape: tuple[int, ...] = ()
    trainable: bool = True
    is_parameter: bool = True
    running: bool = False
    optimizers: list[OptimizerFacts] = field(default_factory=list, repr=False)
    ever_held: bool = False
    writes: int = 0
    nonzero_writes: int = 0
    moved: bool = False
    loaded: bool = False
    frozen_first: bool = False
    fresh: bool | None = None

    @property
    def owner(self) -> str:
        """Path of the module that holds it; ``""`` for the root module itself."""
        return self.name.rpartition(".")[0]

    @property
    def size(self) -> int:
        """Number of elements."""
        count = 1
        for length in self.shape:
            count *= length
        return count


@dataclass(slots=True, kw_only=True, eq=False)
class OptimizerFacts:
    """What is known about one optimizer.

    Attributes:
        name: class name.
        made_at: where it was made, when that was seen.
        parameters: facts of its parameters, in group order.
        steps: its finished steps since the instrument was attached.
        calls: what happened to its gradients since its last step, oldest first (bounded).
        gradient: gradients at the step that is being closed.
        carried: whether every gradient written since the last step was added, untouched in between,
            onto the very gradient which that step had used.
        ever_cleared: whether its gradients were ever cleared.
        closure: whether the step that is being closed was given a closure.
        backward_at: where the backward pass that writes its gradients is called, as last seen.
        step_at: where the step is called; known as for :attr:`Call.place`.
        pending: set by a detector that wants exact places and counts in the coming steps.
        rates: learning rate of each group at the step that is being closed; empty when one of them
            is not on the host.
    """

    name: str = ""
    made_at: Place | None = None
    parameters: list[ParameterFacts] = field(default_factory=list)
    steps: int = 0
    calls: list[Call] = field(default_factory=list)
    gradient: GradientState = "unknown"
    carried: bool = False
    ever_cleared: bool = False
    closure: bool = False
    backward_at: Place | None = None
    step_at: Place | None = None
    pending: bool = False
    rates: tuple[float, ...] = ()

    @property
    def wrote(self) -> bool:
        """Whether a backward pass wrote gradients since the last step."""
        return any(call.kind == "write" for call in self.calls)


@dataclass(slots=True, kw_only=True, eq=False)
class ModuleFacts:
    """What is known about one root module: a module that the user's code called, not another
    module.

    Attributes:
        name: class name.
        parameters: facts of its parameters.
        mode_dependent: class names of the submodules that behave differently in evaluation mode.
        active_mode_dependent: how many of them were in training mode at the last call with
            gradients.
        trained_calls: calls with gradients in training mode since the last step.
        evaluated_calls: calls with gradients in evaluation mode since the last step.
        ever_trained: whether it was ever called with gradients in training mode.
        validated: whether it was called without gradients in evaluation mode after the last call
            with
            gradients in training mode.
        called_at: where it is called; known as for :attr:`Call.place`.
    """

    name: str = ""
    parameters: list[ParameterFacts] = field(default_factory=list)
    mode_dependent: tuple[str, ...] = ()
    active_mode_dependent: int = 0
    trained_calls: int = 0
    evaluated_calls: int = 0
    ever_trained: bool = False
    validated: bool = False
    called_at: Place | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorFault:
    """A tensor that exactly holds a NaN or an infinity.

    Attributes:
        name: dotted path of a parameter, or the argument of a module.
        nan: number of NaN.
        inf: number of infinities.
        size: number of elements.
        index: position of the first one.
        dtype: e.g. ``"float16"``.
    """

    name: str
    nan: int
    inf: int
    size: int
    index: tuple[int, ...] = ()
    dtype: str = ""

    @property
    def kind(self) -> str:
        """``"NaN"``, ``"Inf"`` or ``"NaN or Inf"``."""
        if self.nan and self.inf:
            return "NaN or Inf"
        return "NaN" if self.nan else "Inf"


@dataclass(frozen=True, slots=True, kw_only=True)
class NumberFacts:
    """Exact state of the numbers at a step at which something was not finite.

    Attributes:
        optimizer: the optimizer that is about to step (for a step with a closure: that has
            stepped).
        loss: value of the loss, before loss scaling; ``None`` when no backward was seen.
        loss_at: where backward was called, as far as known.
        gradients: gradients that are not finite.
        gradient_count: number of gradients.
        parameters: parameters that are not finite.
        param_norm: L2 norm of all parameters before the step; may be infinite.
        inputs: arguments of the root modules that are not finite and were finite in good steps.
        output: the first root output that is not finite and whose like was finite in good steps.
        outputs_seen: whether every root output of the step was measured.
        written_elsewhere: the parameters were changed between the last step and now.
        written_at: where the user's code did so, when that was seen.
        gradients_were_finite: whether the gradients of the last step were finite, if there was one.
        settings: learning rate, eps and the like of the optimizer's group that holds the parameter.
        findings: what executing the step again has shown; ``None`` when it was not done.
        usual: inputs that were not finite in steps that went well, as ``"Model argument 0"``.
    """

    optimizer: OptimizerFacts
    loss: float | None = None
    loss_at: Place | None = None
    gradients: tuple[TensorFault, ...] = ()
    gradient_count: int = 0
    parameters: tuple[TensorFault, ...] = ()
    param_norm: float = 0.0
    inputs: tuple[TensorFault, ...] = ()
    output: TensorFault | None = None
    outputs_seen: bool = False
    written_elsewhere: bool = False
    written_at: Place | None = None
    gradients_were_finite: bool | None = None
    settings: tuple[tuple[str, float], ...] = ()
    findings: Findings | None = None
    usual: frozenset[str] = frozenset()


class LoopFacts(Protocol):
    """The facts of one training loop, as of the step that is being closed."""

    @property
    def stepping(self) -> OptimizerFacts | None:
        """The optimizer whose step is being closed."""

    @property
    def optimizers(self) -> Iterable[OptimizerFacts]:
        """Optimizers that are alive and have parameters."""

    @property
    def parameters(self) -> Iterable[ParameterFacts]:
        """Parameters that are alive: those of optimizers and of root modules."""

    @property
    def modules(self) -> Iterable[ModuleFacts]:
        """Root modules that were called since the last step of any optimizer."""

    @property
    def numbers(self) -> NumberFacts | None:
        """Exact numbers, only while something is not finite."""

    @property
    def last_numbers(self) -> NumberFacts | None:
        """What the last step left in the parameters, if it is not finite; known after the loop."""

    def step_of(self, optimizer: OptimizerFacts) -> int:
        """Return the step of the loop at which ``optimizer`` last stepped; -1 before that."""

    def examine(self, parameters: Iterable[ParameterFacts]) -> None:
        """Bring the costly facts of these parameters up to date.

        These are ``moved``, ``trainable``, ``fresh``, and the optimizers that hold them, also those
        that were made before the loop was watched. Reads tensors.
        """

    def gather(self, family: type[WatchT]) -> WatchT:
        """Return a family of facts that is gathered from now on, only because it is asked for."""


@runtime_checkable
class LoopSource(Protocol):
    """A fact source that is a live loop."""

    @property
    def facts(self) -> LoopFacts:
        """The facts of the loop."""
