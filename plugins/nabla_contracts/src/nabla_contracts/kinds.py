"""The kinds of contracts that a configuration file can declare."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields

from nabla_core.binder import closest, key_of
from nabla_core.declarations import Target
from nabla_core.errors import PluginError, UsageError

from .custom import Predicate, contract
from .declaration import Contract, Terms
from .gradient_contracts import gradient
from .loss_contracts import loss, training
from .parameter_contracts import parameter
from .settings import Entry
from .tensor_contracts import tensor
from .view import StepView

__all__ = ["KINDS", "contract_of"]

_TERMS = tuple(key_of(found.name) for found in fields(Terms) if found.name != "name")
_NUMBER, _COUNT, _GLOBS, _LIST = "a number", "a whole number", "a glob or a list", "a list"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kind:
    """One kind: what makes it, and the type of each of its own keys."""

    make: Callable[..., Contract]
    keys: Mapping[str, str]


KINDS: Mapping[str, _Kind] = {
    "loss.finite": _Kind(make=loss.finite, keys={}),
    "gradient.norm": _Kind(
        make=gradient.norm, keys={"max": _NUMBER, "min": _NUMBER, "parameters": _GLOBS}
    ),
    "tensor.finite": _Kind(make=tensor.finite, keys={"module": _GLOBS}),
    "parameter.change": _Kind(
        make=parameter.change,
        keys={"min-relative": _NUMBER, "max-relative": _NUMBER, "parameters": _GLOBS},
    ),
    "training.loss_not_exploding": _Kind(
        make=training.loss_not_exploding, keys={"max-ratio": _NUMBER, "window": _COUNT}
    ),
}
"""Kinds by the name that the library calls them."""

_CUSTOM = {"needs": _LIST}


def contract_of(name: str, table: Mapping[str, Entry]) -> Contract:
    """Return the contract that a table declares. Imports no predicate: that waits for the run.

    Args:
        name: what reports call it.
        table: ``kind`` and what belongs to it.

    Raises:
        UsageError: the kind or a key is wrong; all mistakes at once.
    """
    kind = table.get("kind")
    if not isinstance(kind, str) or (kind not in KINDS and ":" not in kind):
        hint = closest(str(kind), list(KINDS)) or f"; choose from {', '.join(KINDS)}"
        given = f"kind = {kind!r}" if "kind" in table else "kind is missing"
        raise UsageError(f"{given}{hint}, or module:predicate")
    own = KINDS[kind].keys if kind in KINDS else _CUSTOM
    values, mistakes = _values(table, own)
    if mistakes:
        raise UsageError("\n".join(mistakes))
    if kind in KINDS:
        return KINDS[kind].make(**values, name=name)
    return contract(name, _Loaded(kind), **values)  # type: ignore[arg-type]


def _values(
    table: Mapping[str, Entry], own: Mapping[str, str]
) -> tuple[dict[str, Entry | int], list[str]]:
    values: dict[str, Entry | int] = {}
    mistakes: list[str] = []
    for key, value in table.items():
        spelled = key_of(key)
        if spelled == "kind":
            continue
        if spelled not in own and spelled not in _TERMS:
            hint = closest(spelled, [*own, *_TERMS])
            mistakes.append(f"{key}: unknown key{hint}")
        elif spelled in own and not _fits(value, own[spelled]):
            mistakes.append(f"{key} = {value!r}: needs {own[spelled]}")
        else:
            values[spelled.replace("-", "_")] = _counted(value, own.get(spelled))
    return values, mistakes


def _counted(value: Entry, wanted: str | None) -> Entry | int:
    """Return a whole number as one, where none with a fraction is wanted."""
    if isinstance(value, float) and value.is_integer() and wanted != _NUMBER:
        return int(value)
    return value


def _fits(value: Entry, wanted: str) -> bool:
    if wanted in (_NUMBER, _COUNT):
        return isinstance(value, float) and (wanted == _NUMBER or value.is_integer())
    if wanted == _LIST:
        return isinstance(value, tuple)
    return isinstance(value, (str, tuple))


class _Loaded:
    """A predicate that is imported when it is asked for the first time."""

    def __init__(self, target: str) -> None:
        self._target = target
        self._predicate: Predicate | None = None

    def __call__(self, view: StepView) -> object:
        if self._predicate is None:
            self._predicate = _load(self._target)
        return self._predicate(view)


def _load(target: str) -> Predicate:
    try:
        found = Target(name=target, target=target).load()
    except PluginError as error:
        raise UsageError(str(error)) from error
    if not callable(found):
        raise UsageError(f"{target} is {type(found).__name__}, not a function of one step")
    return found
