"""Whether several backward passes per step are meant as one batch: read off the user's source.

No observation of a running loop tells accumulation from a sum over tasks. Its source does: the step
stands under a condition on a counter, or the names say so.
"""

from __future__ import annotations

import ast
import linecache
import os
import re

from nabla_guard.facts import Place

__all__ = ["means_accumulation", "reads_gradients"]

_NAMED = re.compile(r"accum|micro|grad_acc|acc_steps", re.IGNORECASE)
_SHOUTED = re.compile(r"^ACC(_|$)")


def means_accumulation(backward: Place | None, step: Place | None) -> bool:
    """Whether the source around the two calls shows that micro-batches are accumulated.

    True where the step is made under a condition with a modulo, or where the function around either
    call uses a name such as ``accumulation_steps`` or ``micro``. False also when the source cannot
    be read.
    """
    return (step is not None and _is_periodic(step)) or any(
        _is_named(place) for place in (backward, step) if place is not None
    )


def reads_gradients(backward: Place | None) -> bool:
    """Whether the loop around a backward pass, or else the function, uses the value of a ``grad``.

    What is read behind the loop is the gradient of the last pass only.
    """
    tree = None if backward is None else _tree(backward)
    if tree is None or backward is None:
        return False
    function = _function_around(tree, backward)
    loops = [
        node
        for node in ast.walk(function)
        if isinstance(node, (ast.For, ast.AsyncFor, ast.While)) and _covers(node, backward.line)
    ]
    around = max(loops, key=lambda node: node.lineno, default=function)
    return any(
        isinstance(node, ast.Attribute) and node.attr == "grad" and isinstance(node.ctx, ast.Load)
        for node in ast.walk(around)
    )


def _is_periodic(place: Place) -> bool:
    tree = _tree(place)
    if tree is None:
        return False
    return any(
        isinstance(node, ast.If)
        and _covers(node, place.line)
        and any(isinstance(part, ast.Mod) for part in ast.walk(node.test))
        for node in ast.walk(tree)
    )


def _is_named(place: Place) -> bool:
    tree = _tree(place)
    if tree is None:
        return False
    around = _function_around(tree, place)
    names = {node.id for node in ast.walk(around) if isinstance(node, ast.Name)}
    names |= {node.attr for node in ast.walk(around) if isinstance(node, ast.Attribute)}
    names |= {node.arg for node in ast.walk(around) if isinstance(node, ast.arg)}
    return any(_says(name) for name in names)


def _says(name: str) -> bool:
    if name == "acc":  # usually the accuracy
        return False
    return bool(_NAMED.search(name) or _SHOUTED.search(name))


def _function_around(tree: ast.Module, place: Place) -> ast.AST:
    inside = [
        node
        for node in ast.walk(tree)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and _covers(node, place.line)
    ]
    return max(inside, key=lambda node: node.lineno, default=tree)


def _covers(node: ast.stmt, line: int) -> bool:
    return node.lineno <= line <= (node.end_lineno or node.lineno)


def _tree(place: Place) -> ast.Module | None:
    text = "".join(linecache.getlines(os.path.abspath(place.file)))
    try:
        return ast.parse(text) if text else None
    except SyntaxError:
        return None
