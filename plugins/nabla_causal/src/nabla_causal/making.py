"""Which detectors of causes a session gets."""

from __future__ import annotations

from collections.abc import Iterator

from nabla_core.detector import Detector
from nabla_core.session import Session

from .looking import CloseLooks, ShiftOfInputs
from .looks import EndsLook, FadingLook
from .rules import INPUT_SHIFT
from .trail import Layered, trails_for

__all__ = ["detectors_for"]

_MEASURED_ANYWAY = "layer_norms"
"""What nabla.watch measures: its RUN302 and RUN402 say the same as CAU106 and CAU107."""


def detectors_for(session: Session) -> Iterator[Detector]:
    """Yield what follows the findings of a session, and what looks at a live loop by itself."""
    yield from trails_for(session)
    source = session.source
    if not hasattr(source, "facts"):
        return
    from nabla_guard.facts import LoopSource

    from .closeup import Closeup
    from .input_sizes import InputSizes

    if not isinstance(source, LoopSource):
        return
    offers = getattr(source, "offers", ())
    wanted = any(map(session.selects, CloseLooks.rules)) and _MEASURED_ANYWAY not in offers
    if wanted and isinstance(source, Layered) and "layer_history" in offers:
        nearer = source.facts.gather(Closeup)
        layers = source.layers
        yield CloseLooks(session, FadingLook(nearer, layers), EndsLook(nearer, layers))
    if session.selects(INPUT_SHIFT):
        yield ShiftOfInputs(session, source.facts.gather(InputSizes))
