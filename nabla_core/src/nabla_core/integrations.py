"""``nabla.integrations``: one watched training per framework, over one shared attachment."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from importlib.util import find_spec
from typing import Protocol, cast

from .facade import public_name
from .host import default_host
from .issue import Issue
from .report import Report

__all__ = ["INTEGRATIONS", "Attached", "Attachment", "Integrations"]

_KNOWN = ("hf", "lightning", "keras")


class WatchedRun(Protocol):
    """What ``nabla.watch`` returns, as far as adapters use it."""

    @property
    def issues(self) -> tuple[Issue, ...]:
        """Distinct issues so far."""

    def log(self, step: int | None = None, **signals: float | None) -> list[Issue]:
        """Take in what cannot be measured from the model."""

    def finish(self) -> Report:
        """Judge the whole run."""


class Attachment:
    """Watches the training of one model for a framework's callback; may be started again.

    Args:
        options: arguments of ``nabla.watch`` besides the model and the optimizer.
    """

    def __init__(self, options: Mapping[str, object]) -> None:
        self._options = dict(options)
        self._run: WatchedRun | None = None
        self.report: Report | None = None

    @property
    def issues(self) -> tuple[Issue, ...]:
        """Distinct issues of the training that is watched, or that was watched last."""
        if self._run is not None:
            return self._run.issues
        return () if self.report is None else self.report.issues

    def start(self, model: object, optimizers: Iterable[object] | None = None) -> None:
        """Begin to watch; a training that still is watched ends first.

        Args:
            model: a ``torch.nn.Module``.
            optimizers: judge the steps of these; by default those that hold its parameters.
        """
        self.finish()
        watch = cast("Callable[..., WatchedRun]", public_name("watch"))
        self._run = watch(model, optimizers, **self._options)

    def row(self, step: int, signals: Mapping[str, object]) -> None:
        """Take in what the framework logs: numbers of any type, everything else is left out."""
        if self._run is None:
            return
        numbers = {name: _number(value) for name, value in signals.items()}
        known = {name: value for name, value in numbers.items() if value is not None}
        if known:
            self._run.log(step, **known)

    def finish(self) -> Report | None:
        """Stop watching and judge the whole run; the same report until the next start."""
        if self._run is not None:
            run, self._run = self._run, None
            self.report = run.finish()
        return self.report


class Attached:
    """What the callbacks of all frameworks share; it stands before the framework's own class.

    Args:
        options: arguments of ``nabla.watch`` besides the model and the optimizer.
    """

    def __init__(self, options: Mapping[str, object]) -> None:
        super().__init__()
        self.attachment = Attachment(options)

    @property
    def issues(self) -> tuple[Issue, ...]:
        """Distinct issues so far."""
        return self.attachment.issues

    @property
    def report(self) -> Report | None:
        """The report of the last training; ``None`` before its end."""
        return self.attachment.report


class Integrations:
    """Adapters by name: ``nabla.integrations.hf()``, ``.lightning()``, ``.keras()``."""

    def __getattr__(self, name: str) -> Callable[..., object]:
        if name.startswith("_"):
            raise AttributeError(name)
        for adapter in default_host().adapters:
            if adapter.name == name:
                if adapter.requires and find_spec(adapter.requires) is None:
                    raise ModuleNotFoundError(
                        f"nabla.integrations.{name} needs {adapter.requires}, which is not "
                        f"installed; run: pip install {adapter.requires}",
                        name=adapter.requires,
                    )
                return cast("Callable[..., object]", adapter.load())
        if name in _KNOWN:
            raise ModuleNotFoundError(
                f'nabla.integrations.{name} is not installed; run: pip install "nabla[{name}]"',
                name=f"nabla.integrations.{name}",
            )
        raise AttributeError(f"nabla.integrations has no adapter {name!r}; there are {self!r}")

    def __dir__(self) -> list[str]:
        return sorted(adapter.name for adapter in default_host().adapters)

    def __repr__(self) -> str:
        return f"<nabla.integrations: {', '.join(dir(self)) or 'none installed'}>"


INTEGRATIONS = Integrations()
"""What ``nabla.integrations`` is."""


def _number(value: object) -> float | None:
    if isinstance(value, (bool, str, bytes)) or value is None:
        return None
    try:
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, RuntimeError):
        return None
