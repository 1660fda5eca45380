"""The answer: ranked hypotheses, with everything that one may ask about them."""

from __future__ import annotations

from dataclasses import dataclass

from nabla_core.errors import UsageError
from nabla_core.report import Cause

from .couplings import Coupling, couplings_in
from .drawing import for_a_terminal, lines_of, mermaid
from .hypotheses import Hypothesis
from .links import Links
from .meaning import FAILURES, KINDS
from .rules import COUPLED_FAILURES
from .transitions import Transition, collapse

__all__ = ["Explanation"]

_COUPLED_STEPS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """Why a run failed, as far as its findings tell.

    Attributes:
        links: the transitions, causes before consequences, and what followed from what.
        hypotheses: possible root causes, the most likely one first.
    """

    links: Links
    hypotheses: tuple[Hypothesis, ...]

    def __bool__(self) -> bool:
        return bool(self.hypotheses)

    def __str__(self) -> str:
        return self.format()

    @property
    def best(self) -> Hypothesis | None:
        """The most likely hypothesis, if there is any."""
        return self.hypotheses[0] if self.hypotheses else None

    def of(self, kind: str) -> tuple[Hypothesis, ...]:
        """Return the hypotheses whose chain holds a kind or a failure.

        Args:
            kind: e.g. ``"vanishing_gradients"`` or ``"activation_regime"``.

        Raises:
            UsageError: there is no such kind or failure.
        """
        _check(kind)
        return tuple(found for found in self.hypotheses if found.concerns(kind))

    def chain(self, kind: str) -> tuple[Transition, ...]:
        """Return how a kind of failure came about: from the root to its first occurrence.

        Raises:
            UsageError: there is no such kind or failure.
        """
        _check(kind)
        for place, transition in enumerate(self.links.transitions):
            if kind in (transition.kind, transition.failure):
                return self._path_to(place)
        return ()

    def couplings(self, window: int = _COUPLED_STEPS) -> tuple[Coupling, ...]:
        """Return failures of different kinds that began within ``window`` steps of each other.

        Those of which one is known to have led to the other are left out.
        """
        return couplings_in(self.links, window)

    def timeline(self, *, collapsed: bool = True) -> tuple[Transition, ...]:
        """Return the transitions in the order of time.

        Args:
            collapsed: join those of the same layer into the same state whose steps touch.
        """
        ordered = sorted(self.links.transitions, key=lambda found: (found.first_step, found.stage))
        return tuple(collapse(ordered)) if collapsed else tuple(ordered)

    def causes(self) -> tuple[Cause, ...]:
        """Return what a report keeps of it."""
        roots = [self.links.transitions[place] for place in self.links.roots]
        coupled = [
            Cause(
                rule=COUPLED_FAILURES.id,
                chain=(*coupling.one.fingerprints, *coupling.other.fingerprints),
                score=0.3,
                statement=_together(coupling),
                tests=("Look at what changed in that step: batch, learning rate, code.",),
                step=coupling.one.first_step,
            )
            for coupling in self.couplings()
            if coupling.one in roots and coupling.other in roots
        ]
        return (*(hypothesis.cause() for hypothesis in self.hypotheses), *coupled)

    def to_mermaid(self) -> str:
        """Return the chain as a Mermaid flow chart."""
        return mermaid(self.links)

    def to_dict(self) -> dict[str, object]:
        """Return a JSON-safe mapping."""
        return {
            "hypotheses": [hypothesis.to_dict() for hypothesis in self.hypotheses],
            "timeline": [transition.to_dict() for transition in self.timeline()],
            "couplings": [coupling.to_dict() for coupling in self.couplings()],
        }

    def format(self) -> str:
        """Return the text that :meth:`print` shows."""
        if not self.hypotheses:
            return "nothing to explain: no rule found a fault"
        return for_a_terminal("\n".join(lines_of(self.hypotheses)))

    def print(self) -> None:
        """Print the hypotheses to standard output."""
        print(self.format())

    def _repr_html_(self) -> str:
        from html import escape

        return f"<pre>{escape(self.format())}</pre>"

    # ------------------------------------------------------------------ private
    def _path_to(self, place: int) -> tuple[Transition, ...]:
        path = [place]
        while path[0] in self.links.parents:
            path.insert(0, self.links.parents[path[0]].cause)
        return tuple(self.links.transitions[one] for one in path)


def _together(coupling: Coupling) -> str:
    text = (
        f"{coupling} began within {coupling.distance_steps} steps of each other, and neither is "
        "known to cause the other."
    )
    return f"{text[0].upper()}{text[1:]}"


def _check(kind: str) -> None:
    if kind not in (*KINDS, *FAILURES):
        raise UsageError(
            f"unknown kind {kind!r}: choose from {', '.join(sorted({*KINDS, *FAILURES}))}"
        )
