"""The chain of a run as a diagram and as lines for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from .hypotheses import Hypothesis
from .links import Links

__all__ = ["lines_of", "mermaid"]

_MOST_CHAIN = 8
_LONGEST = 70


def mermaid(links: Links) -> str:
    """Return the transitions and their links as a Mermaid flow chart.

    Names of layers are reduced to characters that have no meaning there.
    """
    lines = ["flowchart TD"]
    for place, transition in enumerate(links.transitions):
        layer = f"{transition.layer}: " if transition.layer else ""
        text = _plain(f"{layer}{transition.failure} {transition.to_state}")
        lines.append(f'    t{place}["{text}<br/>step {transition.first_step}"]')
    for parent in links.parents.values():
        lines.append(f"    t{parent.cause} -->|{_plain(parent.why)}| t{parent.effect}")
    return "\n".join(lines) + "\n"


def lines_of(hypotheses: Sequence[Hypothesis]) -> Iterator[str]:
    """Yield the hypotheses for a person, the most likely one first."""
    for number, hypothesis in enumerate(hypotheses, 1):
        yield f"{number}. {hypothesis.description}"
        for place, transition in enumerate(hypothesis.chain[:_MOST_CHAIN]):
            why = f"  [{hypothesis.links[place - 1]}]" if place else ""
            yield f"     {'-> ' if place else ''}{transition}{why}"
        hidden = len(hypothesis.chain) - _MOST_CHAIN
        if hidden > 0:
            yield f"     -> and {hidden} more"
        for text in hypothesis.contradicts[:2]:
            yield f"     against it: {text}"
        for text in hypothesis.tests:
            yield f"     would confirm it: {text}"


def _plain(text: str) -> str:
    """Return the text with nothing that Mermaid or HTML would read as a command."""
    kept = "".join(char if char.isalnum() or char in " ._-:,/+" else "?" for char in text)
    return kept if len(kept) <= _LONGEST else f"{kept[: _LONGEST - 1]}…"
