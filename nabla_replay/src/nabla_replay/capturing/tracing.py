"""The modules' calls of the first step after a checkpoint, so that a difference can be placed."""

from __future__ import annotations

from nabla_core.artifacts.strict_json import JsonObject

from ..fingerprints.call_record import pack_trace
from ..fingerprints.fingerprinter import Algorithm
from ..fingerprints.module_trace import ModuleTrace, can_be_traced
from .parts import Parts

__all__ = ["StepTracing"]


class StepTracing:
    """Traces one step at a time.

    Args:
        parts: the program; modules of a compiled one are not seen.
        algorithm: hashes what the calls give.
        wanted: whether anything is traced at all.
    """

    def __init__(self, parts: Parts, algorithm: Algorithm, *, wanted: bool) -> None:
        self._model = parts.model
        self._algorithm = algorithm
        self._wanted = wanted and not parts.wrappers and can_be_traced(parts.model)
        self._trace: ModuleTrace | None = None
        self._seen: JsonObject | None = None

    def begin(self) -> None:
        """Trace the step that begins."""
        if self._wanted and self._trace is None:
            self._trace = ModuleTrace(self._model, self._algorithm)
            self._trace.start()

    def end(self) -> None:
        """The traced step is over: let go of the modules, and keep what was seen."""
        if self._trace is None:
            return
        trace, self._trace = self._trace, None
        seen = trace.stop()
        self._seen = None if trace.spoilt else pack_trace(seen, trace.paths)

    def drop(self) -> None:
        """Let go of the modules, and keep nothing."""
        if self._trace is not None:
            self._trace.abandon()
            self._trace = None

    def take(self) -> JsonObject | None:
        """Return what was seen, once."""
        seen, self._seen = self._seen, None
        return seen
