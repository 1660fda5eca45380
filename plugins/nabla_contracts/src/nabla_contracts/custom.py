"""``nabla.contract``: an invariant that no general rule knows."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Unpack

from nabla_core.binder import closest
from nabla_core.errors import UsageError

from .declaration import Contract, NamedTerms, read_terms
from .judgement import Judgement
from .rules import CUSTOM_CONTRACT
from .view import NEEDS, InputAbsent, Need, StepView

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["Predicate", "contract"]

Predicate = Callable[[StepView], "bool | Tensor | Judgement | None"]
"""Returns whether it holds, or a :class:`.judgement.Judgement` that says why it does not. An
AssertionError is a breach too, with its text as the message."""


def contract(
    name: str,
    predicate: Predicate,
    *,
    needs: Iterable[Need] = (),
    **terms: Unpack[NamedTerms],
) -> Contract:
    """Return a contract of your own (CON199).

    Args:
        name: what reports call it.
        predicate: looks at a :class:`.view.StepView` and says whether the contract holds. ``None``
            counts as holding.
        needs: ``loss``, ``gradients``, ``parameters``, ``updates``, ``activations``. What is named
            here must be there, or the contract is not evaluated; ``updates`` must be named, for
            they are measured only where somebody needs them, and then the predicate is asked after
            the step. Everything else may be read without being named.
        **terms: ``every``, ``consecutive``, ``severity``, ``raise_on_failure``.

    Raises:
        UsageError: an argument is wrong.

    Example::

        small = nabla.contract("loss below 10", lambda step: step.loss < 10)
        with nabla.guard(model, contracts=[small]):
            train()
    """
    if not isinstance(name, str) or not name.strip():
        raise UsageError(f"contract({name!r}): needs a name for the reports")
    if not callable(predicate):
        raise UsageError(
            f"contract({name!r}, {type(predicate).__name__}): needs a function of one step"
        )
    needed = _read_needs(name, needs)

    def judge(view: StepView) -> Judgement | None:
        return _verdict(name, predicate, view)

    return Contract(
        name=name,
        rule=CUSTOM_CONTRACT,
        begin=lambda: judge,
        needs=needed,
        terms=read_terms(f"contract({name!r})", terms, name),
    )


def _read_needs(name: str, given: Iterable[Need]) -> frozenset[Need]:
    wanted: list[object] = [given] if isinstance(given, str) else list(given)
    for need in wanted:
        if need not in NEEDS:
            hint = closest(str(need), NEEDS) or f"; choose from {', '.join(NEEDS)}"
            raise UsageError(f"contract({name!r}): needs {need!r}{hint}")
    return frozenset(need for need in NEEDS if need in wanted)


def _verdict(name: str, predicate: Predicate, view: StepView) -> Judgement | None:
    try:
        answer = predicate(view)
    except InputAbsent:
        raise
    except AssertionError as error:
        return Judgement(message=str(error) or "the predicate does not hold")
    except Exception as error:
        raise InputAbsent(f"its predicate raised {type(error).__name__}: {error}") from error
    if answer is None or isinstance(answer, Judgement):
        return answer
    return None if _truth(answer) else Judgement(message="the predicate does not hold")


def _truth(answer: object) -> bool:
    """Read a bool, or anything of one element that can be one, such as a tensor."""
    if isinstance(answer, bool):
        return answer
    is_flag = str(getattr(answer, "dtype", "")).rpartition(".")[2].startswith("bool")
    if is_flag and getattr(answer, "size", None) is not None:
        count = answer.numel() if hasattr(answer, "numel") else getattr(answer, "size", 0)
        if count == 1:
            return bool(answer)
    raise InputAbsent(
        f"its predicate returned {type(answer).__name__}; it must return one True or False"
    )
