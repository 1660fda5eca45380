"""Which tensor a loop was going to differentiate when it was left: read from its source.

A loop may look at its loss and leave, or go on, before it calls ``backward``. What that call would
have been given is what the loop's own code names there: only a value that is assigned to such a
name, on the way to the call, counts as a loss. A metric that is not finite is none.
"""

from __future__ import annotations

import ast
import linecache
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache

from torch import Tensor

from .parts import Uses, is_model, is_pass, uses_of
from .tape import Entry, Tape

__all__ = ["AwaitedLosses", "awaited", "awaited_in", "awaits", "passes_over"]

_Scope = ast.FunctionDef | ast.AsyncFunctionDef | ast.For | ast.AsyncFor | ast.While | ast.Module
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.For, ast.AsyncFor, ast.While)
_ASSIGNMENTS = (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.NamedExpr)


@dataclass(frozen=True, slots=True)
class AwaitedLosses:
    """Lines of one file on which the loss of a later ``backward`` is made or looked at.

    Attributes:
        made: lines of statements that assign to a name which the call uses.
        used: lines before the call on which such a name is read.
        passed_over: lines of both kinds where the loop goes on by ``continue`` if it dislikes it.
    """

    made: set[int] = field(default_factory=set)
    used: set[int] = field(default_factory=set)
    passed_over: set[int] = field(default_factory=set)


def awaited(tape: Tape, uses: Uses, made: Mapping[int, Sequence[Tensor]]) -> tuple[Tensor, ...]:
    """Return the losses after the last pass which no pass has followed, in order.

    Args:
        tape: the open step.
        uses: the entries that each refers to.
        made: what each entry made when it was executed again.
    """
    losses: list[Tensor] = []
    for number in _numbers(tape, uses):
        losses += filter(_is_loss, made.get(number, ()))
    return tuple(losses)


def awaits(tape: Tape) -> bool:
    """Whether a loss may have been made since the last pass, and not in an evaluation."""
    models = [entry for entry in _since_the_last_pass(tape) if is_model(entry)]
    training = all(entry.training and entry.ambient.grad for entry in models)
    return training and bool(_numbers(tape, uses_of(tape.entries)))


def passes_over(tape: Tape) -> bool:
    """Whether the loop that was left goes on by itself after a loss that it dislikes."""
    files = cache(awaited_in)
    lines = (entry.place for entry in _since_the_last_pass(tape) if entry.place is not None)
    return any(line.number in files(line.filename).passed_over for line in lines)


def _numbers(tape: Tape, uses: Uses) -> list[int]:
    """The entries that made what is assigned to the name of a loss, or is read by that name."""
    files = cache(awaited_in)
    found: set[int] = set()
    since = _since_the_last_pass(tape)
    for entry in since:
        place = entry.place
        if place is None or not entry.ambient.grad:
            continue
        lines = files(place.filename)
        if place.number in lines.made:
            found.add(entry.number)
        if place.number in lines.used:
            found |= uses[entry.number]
    return [entry.number for entry in since if entry.number in found]


def _since_the_last_pass(tape: Tape) -> list[Entry]:
    passed = max((entry.number for entry in tape.entries if is_pass(entry)), default=0)
    passed = max(passed, tape.passed)
    return [entry for entry in tape.entries if entry.number > passed]


def _is_loss(tensor: Tensor) -> bool:
    return tensor.requires_grad and tensor.numel() == 1


def awaited_in(filename: str) -> AwaitedLosses:
    """Return the lines of a file on which losses are made and looked at before their backward pass.

    Args:
        filename: of the source; one that cannot be read or parsed has none.
    """
    found = AwaitedLosses()
    try:
        tree = ast.parse("".join(linecache.getlines(filename)))
        passes = list(_passes(tree, tree))
    except (SyntaxError, ValueError, RecursionError):
        return found
    for scope, call in passes:
        names = {node.id for node in ast.walk(call) if isinstance(node, ast.Name)} - {"self"}
        made, used = _lines_of(scope, call.lineno, names)
        found.made.update(made)
        found.used.update(used)
        if any(_goes_on(node, names) for node in _before(scope, call.lineno)):
            found.passed_over.update(made, used)
    return found


def _lines_of(scope: ast.AST, line: int, names: set[str]) -> tuple[set[int], set[int]]:
    """The lines up to this one that assign to one of the names, and those that read one."""
    made: set[int] = set()
    used: set[int] = set()
    for node in _before(scope, line):
        if isinstance(node, _ASSIGNMENTS) and _targets(node) & names:
            made.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
        elif isinstance(node, ast.Name) and node.id in names:
            used.add(node.lineno)
    return made, used


def _goes_on(node: ast.AST, names: set[str]) -> bool:
    """Whether a statement leaves out the rest of a round because of one of these names."""
    if not isinstance(node, ast.If):
        return False
    tested = {found.id for found in ast.walk(node.test) if isinstance(found, ast.Name)}
    return bool(tested & names) and any(isinstance(found, ast.Continue) for found in node.body)


def _passes(node: ast.AST, scope: _Scope) -> Iterator[tuple[_Scope, ast.Call]]:
    """Yield each call of a method ``backward`` with the innermost loop or function around it."""
    if isinstance(node, ast.Call) and _is_pass(node.func):
        yield scope, node
    inner = node if isinstance(node, _SCOPES) else scope
    for child in ast.iter_child_nodes(node):
        yield from _passes(child, inner)


def _is_pass(function: ast.expr) -> bool:
    return isinstance(function, ast.Attribute) and function.attr == "backward"


def _before(scope: ast.AST, line: int) -> Iterator[ast.stmt | ast.expr]:
    for node in ast.walk(scope):
        if isinstance(node, (ast.stmt, ast.expr)) and node.lineno <= line:
            yield node


def _targets(node: ast.Assign | ast.AnnAssign | ast.AugAssign | ast.NamedExpr) -> set[str]:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    inside = (found for target in targets for found in ast.walk(target))
    return {found.id for found in inside if isinstance(found, ast.Name)}
