"""The one thing that is changed in a counterfactual replay. Data only; :mod:`.applying` does it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from nabla_core.errors import UsageError

__all__ = [
    "Change",
    "ClipGradients",
    "DivideRate",
    "HoldRate",
    "RaisePrecision",
    "SkipBatches",
    "WithoutSamples",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class SkipBatches:
    """Take the batches of some steps from the loader, and do not train on them.

    Attributes:
        steps: as the run counts.
    """

    steps: tuple[int, ...]

    def __post_init__(self) -> None:
        if not self.steps:
            raise UsageError("SkipBatches(steps=()): needs at least one step")

    @property
    def since(self) -> int:
        """First step that differs."""
        return min(self.steps)

    def __str__(self) -> str:
        if len(self.steps) == 1:
            return f"the batch of step {self.steps[0]} skipped"
        return f"the batches of steps {', '.join(map(str, self.steps))} skipped"


@dataclass(frozen=True, slots=True, kw_only=True)
class WithoutSamples:
    """Leave samples out of the batch of one step.

    Attributes:
        step: as the run counts.
        samples: their places in the batch.
    """

    step: int
    samples: tuple[int, ...]

    def __post_init__(self) -> None:
        if not self.samples or min(self.samples) < 0:
            raise UsageError(f"WithoutSamples(samples={self.samples}): needs places from 0 on")

    @property
    def since(self) -> int:
        """First step that differs."""
        return self.step

    def __str__(self) -> str:
        places = ", ".join(map(str, self.samples))
        word = "sample" if len(self.samples) == 1 else "samples"
        return f"{word} {places} left out of the batch of step {self.step}"


@dataclass(frozen=True, slots=True, kw_only=True)
class DivideRate:
    """Divide the learning rate of every optimizer.

    Attributes:
        factor: by how much.
        since: first step, as the run counts.
    """

    since: int
    factor: float = 10.0

    def __post_init__(self) -> None:
        if not self.factor > 0.0:
            raise UsageError(f"DivideRate(factor={self.factor}): needs a positive number")

    def __str__(self) -> str:
        return f"the learning rate divided by {self.factor:g} from step {self.since} on"


@dataclass(frozen=True, slots=True, kw_only=True)
class HoldRate:
    """Let the learning rate of no optimizer exceed what it was in the step before.

    Attributes:
        since: first step, as the run counts; one step before it has to be executed too.
    """

    since: int

    def __str__(self) -> str:
        return f"the learning rate held at its value before step {self.since}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClipGradients:
    """Clip the gradient norm of every optimizer right before it steps.

    Attributes:
        since: first step, as the run counts.
        max_norm: limit; by default the median of the executed steps before ``since``.
    """

    since: int
    max_norm: float | None = None

    def __post_init__(self) -> None:
        if self.max_norm is not None and not self.max_norm > 0.0:
            raise UsageError(f"ClipGradients(max_norm={self.max_norm}): needs a positive number")

    def __str__(self) -> str:
        limit = "its usual value" if self.max_norm is None else f"{self.max_norm:.3g}"
        return f"the gradient norm clipped to {limit} from step {self.since} on"


@dataclass(frozen=True, slots=True, kw_only=True)
class RaisePrecision:
    """Compute one module in a wider type, without autocast.

    Attributes:
        since: first step, as the run counts.
        module: dotted path; the whole model when empty.
        dtype: type of its inputs, parameters and arithmetic.
    """

    since: int
    module: str = ""
    dtype: Literal["float32", "float64"] = "float32"

    def __str__(self) -> str:
        what = f"module {self.module}" if self.module else "the whole model"
        return f"{what} computed in {self.dtype} from step {self.since} on"


Change: TypeAlias = (
    SkipBatches | WithoutSamples | DivideRate | HoldRate | ClipGradients | RaisePrecision
)
