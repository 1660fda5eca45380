"""Python source that brings an operator back in a fresh process: an import, or its own text."""

from __future__ import annotations

import ast
import builtins
import inspect
import os
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

__all__ = ["source_of"]

_MOST_DEPTH = 4


def source_of(function: Callable[..., object], label: str) -> str | None:
    """Return statements that define ``label`` as ``function``.

    What a module holds is imported, from its file when it is no installed package. Lambdas and
    local functions are written out with the constants, modules and helpers that they use.

    Returns:
        ``None`` when it can be neither imported nor written out, e.g. an instance with state.
    """
    if "__main__" in (getattr(function, "__module__", None), _owner_module(function)):
        # importing a script would run it
        return _written(function, label) or _import(function, label)
    return _import(function, label) or _written(function, label)


def _owner_module(function: Callable[..., object]) -> str:
    return str(getattr(getattr(function, "__self__", None), "__module__", ""))


def _written(function: Callable[..., object], label: str) -> str | None:
    text = _Text()
    expression = text.expression(function, label, 0)
    if expression is None:
        return None
    lines = [*text.lines, *([f"{label} = {expression}"] if expression != label else [])]
    return "\n".join(lines)


def _import(function: Callable[..., object], label: str) -> str | None:
    built_in = _built_in(function)
    if built_in is not None:
        return f"{label} = {built_in}"
    owner = getattr(function, "__self__", None)
    named = owner if isinstance(owner, type) else function
    path = getattr(named, "__qualname__", "")
    module = sys.modules.get(getattr(named, "__module__", None) or "")
    if module is None or not path or "<" in path or _walk(module, path) is not named:
        return None
    tail = f".{function.__name__}" if named is owner else ""
    if module.__name__.startswith("torch") or _is_installed(module):
        return f"import {module.__name__}\n{label} = {module.__name__}.{path}{tail}"
    file = getattr(module, "__file__", None)
    if not file:
        return None
    name = f"{label}_module"
    return "\n".join(
        (
            "import importlib.util",
            f"_file = {_place(file)}",
            f"_spec = importlib.util.spec_from_file_location({name!r}, _file)",
            "_module = importlib.util.module_from_spec(_spec)",
            f"sys.modules[{name!r}] = _module",
            "_spec.loader.exec_module(_module)",
            f"{label} = _module.{path}{tail}",
        )
    )


def _built_in(function: object) -> str | None:
    """Return the public place of a built-in function of torch, which names no module itself."""
    torch = sys.modules["torch"]
    name = getattr(function, "__name__", "")
    for place in ("torch", "torch.nn.functional", "torch.special", "torch.linalg", "torch.fft"):
        holder = _walk(torch, place.partition(".")[2]) if "." in place else torch
        if name and getattr(holder, name, None) is function:
            return f"{place}.{name}"
    return None


def _walk(module: object, path: str) -> object:
    found = module
    for part in path.split("."):
        found = getattr(found, part, None)
    return found


def _is_installed(module: ModuleType) -> bool:
    file = getattr(module, "__file__", None)
    if file is None:
        return module.__name__ in sys.builtin_module_names
    return "site-packages" in file or Path(file).is_relative_to(Path(os.__file__).parent)


def _place(file: str) -> str:
    """Spell a path without the home folder; relative to the working folder if it is there."""
    path, here, home = Path(file).resolve(), Path.cwd(), Path.home()
    absolute = repr(str(path))
    if path.is_relative_to(home):
        absolute = f"os.path.expanduser({'~/' + str(path.relative_to(home))!r})"
    if not path.is_relative_to(here):
        return absolute
    near = repr(str(path.relative_to(here)))
    return f"{near} if os.path.exists({near}) else {absolute}"


class _Text:
    """Collects definitions, dependencies first."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._names: set[str] = set()

    def expression(self, value: object, name: str, depth: int) -> str | None:
        """Define what ``value`` needs and return an expression for it; ``None`` if impossible."""
        if isinstance(value, (bool, int, float, str, type(None))):
            return repr(value)
        if isinstance(value, ModuleType):
            return self._define(name, f"import {value.__name__} as {name}")
        if str(value).startswith("torch.") and type(value).__module__ == "torch":
            return str(value)  # a dtype
        if depth > _MOST_DEPTH:
            return None
        if callable(value) and (built_in := _built_in(value)) is not None:
            return built_in
        owner = getattr(value, "__self__", None)
        if isinstance(owner, type):
            base = self.expression(owner, owner.__name__, depth)
            return None if base is None else f"{base}.{getattr(value, '__name__', '')}"
        if inspect.isfunction(value) or inspect.isclass(value):
            return self._written_out(value, depth)
        return None

    def _written_out(self, value: Callable[..., object], depth: int) -> str | None:
        source = _source(value)
        if source is None:
            return None
        if value.__name__ in self._names:
            return value.__name__
        self._names.add(value.__name__)
        for name, needed in _needs(value).items():
            expression = self.expression(needed, name, depth + 1)
            if expression is None:
                return None
            if expression != name:
                self._define(name, f"{name} = {expression}")
        if source.startswith("lambda"):
            return f"({source})"
        self.lines.append(source)
        return value.__name__

    def _define(self, name: str, line: str) -> str:
        if name not in self._names:
            self._names.add(name)
            self.lines.append(line)
        return name


def _source(value: Callable[..., object]) -> str | None:
    try:
        text = textwrap.dedent(inspect.getsource(value))
    except (OSError, TypeError):
        return None
    if value.__name__ == "<lambda>":
        return _only_lambda(text)
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return None
    first = tree.body[0]
    named = isinstance(first, (ast.FunctionDef, ast.ClassDef)) and first.name == value.__name__
    return text.rstrip() if named and len(tree.body) == 1 else None


def _only_lambda(text: str) -> str | None:
    """Return the lambda of a line of source, if it holds exactly one."""
    body = text.strip().rstrip(",")
    for attempt in (body, f"_({body})", f"_{body}", f"_({body}", body.rstrip(")"), body + ")"):
        try:
            tree = ast.parse(attempt)
        except SyntaxError:
            continue
        found = [node for node in ast.walk(tree) if isinstance(node, ast.Lambda)]
        return ast.unparse(found[0]) if len(found) == 1 else None
    return None


def _needs(value: Callable[..., object]) -> dict[str, object]:
    """Return the names from outside that a function, or the methods of a class, use."""
    methods = [value]
    if inspect.isclass(value):
        members = [getattr(x, "__func__", x) for x in vars(value).values()]
        methods = [x for x in members if inspect.isfunction(x)]
    found: dict[str, object] = {}
    if inspect.isclass(value):
        bases = [base for base in value.__bases__ if base.__module__.split(".")[0] == "torch"]
        found.update({"torch": sys.modules["torch"]} if bases else {})
    for method in methods:
        names = inspect.getclosurevars(method)
        found.update({**names.globals, **names.nonlocals})
    hidden = {value.__name__, *vars(builtins)}
    return {name: needed for name, needed in found.items() if name not in hidden}
