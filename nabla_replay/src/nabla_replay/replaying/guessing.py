"""Finds out by trying what a recorded loop did around its steps."""

from __future__ import annotations

from collections.abc import Callable

from .comparing import cause_order, compare_step
from .habits import Habits, guesses
from .history import Segment
from .window import Window

__all__ = ["IDLE", "better_habits", "first_difference"]

IDLE = "idle"
"""Stands for a component where the replayed program took no step of its optimizer."""


def better_habits(
    now: Habits,
    segment: Segment,
    place: tuple[int, str],
    tried: Callable[[Habits], str | None],
) -> Habits | None:
    """Return habits with which a step gives more of its recorded bits; ``None`` if there are none.

    A guess counts only where the step matches, or where it is about batches and the loss does: bits
    that are equal by chance are as good as impossible.

    Args:
        now: what was assumed so far.
        segment: of the step.
        place: index of the step, and the component in which it differs first.
        tried: executes up to the step; see :func:`first_difference`.
    """
    index, component = place
    computed = cause_order("loss")
    reached = computed if component == IDLE else max(cause_order(component), computed)
    for guess in guesses(now, segment, index, component):
        found = tried(guess)
        # a rate that is wrong shows in the parameters, or in the next step
        partly = found and guess.rates == now.rates and cause_order(found) > reached
        if found == "" or partly:
            return guess
    return None


def first_difference(window: Window, first: int, index: int) -> str | None:
    """Execute the steps up to one; return the component in which that one differs first, empty for
    none; ``None`` if it is not reached.

    Args:
        window: executes them.
        first: index of the first step that was asked for.
        index: of the step.
    """
    try:
        start = window.restore(first)
        for one in window.run(start, index, lambda _: False):
            if one.recorded is None:
                continue
            if one.replayed is None:
                return None
            result = compare_step(
                one.recorded, one.replayed, window.fingerprinter, window.segment.number
            )
            if one.index == index:
                return "" if result.first is None else result.first.component
            if result.first is not None:
                return None
    except Exception:  # a wrong guess may hand a program what it cannot take
        return None
    return None
