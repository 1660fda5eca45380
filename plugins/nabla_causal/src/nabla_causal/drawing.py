"""The chain of a run as a diagram and as lines for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from nabla_core.reporters.style import printable, without_commands

from .grouping import alike, listed
from .hypotheses import Hypothesis
from .links import Links
from .meaning import Stage
from .rules import PROPAGATION
from .transitions import Transition

__all__ = ["for_a_terminal", "lines_of", "mermaid"]

_MOST_CHAIN = 8
_MOST_AGAINST = 2
_LONGEST = 70


def for_a_terminal(text: str) -> str:
    """Return the text without what steers a terminal or is a command to a CI service."""
    return without_commands(printable(text))


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
        yield from _chain(hypothesis)
        for text in hypothesis.contradicts[:_MOST_AGAINST]:
            yield f"     against it: {text}"
        for one in hypothesis.confirmations:
            yield f"     {one}"
        for text in hypothesis.tests:
            yield f"     would confirm it: {text}"


def _chain(hypothesis: Hypothesis) -> Iterator[str]:
    """Yield what followed from what; layers that only pass something on share a line."""
    whys = ("", *hypothesis.links)
    groups: list[tuple[list[Transition], str]] = []
    for transition, why in zip(hypothesis.chain, whys, strict=True):
        if len(groups) > 1 and alike(groups[-1][0][-1], transition):
            groups[-1][0].append(transition)
        else:
            groups.append(([transition], why))
    for number, (together, why) in enumerate(groups[:_MOST_CHAIN]):
        arrow, because = ("-> ", f", because {why}") if number else ("", "")
        yield f"     {arrow}step {together[0].first_step}: {_told(together)}{because}"
    if len(groups) > _MOST_CHAIN:
        yield f"     -> and {len(groups) - _MOST_CHAIN} more"


def _told(together: Sequence[Transition]) -> str:
    first = together[0]
    if len(together) == 1:
        line = f", {first.source}" if first.source and first.source not in first.text else ""
        return f"{first.text.rstrip('.')} ({first.rule}{line})"
    names = [transition.layer for transition in together]
    if first.rule != PROPAGATION.id:
        return f"{first.text.rstrip('.')} ({first.rule}); the same of {listed(names[1:])}"
    what = "outputs" if first.stage == Stage.FORWARD else "gradients"
    state = "zero" if first.to_state == "dead" else first.to_state
    return f"{state} {what} of {listed(names)} ({len(together)} layers, {first.rule})"


def _plain(text: str) -> str:
    """Return the text with nothing that Mermaid or HTML would read as a command."""
    kept = "".join(char if char.isalnum() or char in " ._-:,/+" else "?" for char in text)
    return kept if len(kept) <= _LONGEST else f"{kept[: _LONGEST - 1]}…"
