"""Runs a person's unmodified program as ``__main__``, the way the interpreter itself would.

What the program can see is what it would see under ``python SCRIPT ARGS``: ``sys.argv``,
``sys.path[0]``, a real ``__main__`` module (so that pickling, dataclasses, ``inspect`` and spawned
workers find it), its own tracebacks, its own exit status. Known differences: frames of nabla lie
below its own on the stack, and ``sys.orig_argv`` is that of nabla.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.machinery import ModuleSpec, SourceFileLoader
from types import CodeType, ModuleType

from nabla_core.errors import InputError

__all__ = ["Program", "find_module", "find_script", "install_main", "set_search_folder"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A program that can be run as ``__main__``.

    Attributes:
        name: the script or module as the person typed it.
        folder: what ``python`` would put at ``sys.path[0]``.
        file: absolute path of a script; empty for a module, which is looked up when it runs,
            because that imports (and so runs) the packages around it.
    """

    name: str
    folder: str
    file: str = ""

    def load(self) -> tuple[CodeType, ModuleType, str]:
        """Compile the program.

        Returns:
            The code, an empty ``__main__`` module to run it in, and ``sys.argv[0]``.

        Raises:
            InputError: a module that does not exist or has no Python code.
            SyntaxError: as Python raises it for the same file.
        """
        if self.file:
            loader = SourceFileLoader("__main__", self.file)
            return _compile(self.file), _new_main(self.file, loader, None), self.name
        spec = _spec_to_run(self.name)
        code = _code_of(spec)
        return code, _new_main(spec.origin or "", spec.loader, spec), spec.origin or self.name


def find_script(path: str) -> Program:
    """Return the program in the file ``path``.

    Raises:
        InputError: there is no such file, or it cannot be read.
    """
    if path.endswith(".ipynb"):
        raise InputError(
            f"{path} is a notebook: write it as a script first (jupyter nbconvert --to script), "
            "or use nabla.guard in it"
        )
    if os.path.isdir(path):
        raise InputError(
            f"{path} is a folder: give the script in it, or use -m for a module or package"
        )
    # Python does not normalise this path either: tracebacks and __file__ show it as typed
    absolute = os.path.join(os.getcwd(), path)
    try:
        with open(absolute, "rb"):
            pass
    except OSError as error:
        raise InputError(f"cannot open the script {path}: {error.strerror}") from error
    return Program(name=path, folder=os.path.dirname(os.path.realpath(absolute)), file=absolute)


def find_module(name: str) -> Program:
    """Return the program ``python -m name`` would run.

    Raises:
        InputError: the top-level package cannot be found from the current folder.
    """
    folder = os.getcwd()
    top = name.partition(".")[0]
    set_search_folder(folder)
    try:
        found = importlib.util.find_spec(top) if top else None
    except ValueError:  # a module that is already imported and has no spec
        found = None
    if found is None:
        raise InputError(f"no module named {top!r}: -m looks in {folder} and on sys.path")
    return Program(name=name, folder=folder)


def set_search_folder(folder: str) -> None:
    """Put ``folder`` where ``python`` puts the folder of its script."""
    if not sys.flags.safe_path:
        sys.path[0] = folder


def install_main(main: ModuleType, program: Program, argv: Sequence[str]) -> None:
    """Make ``main`` the ``__main__`` of this process, with its arguments and search path.

    Nothing is restored: exit handlers of the program run later and need all of it.
    """
    set_search_folder(program.folder)
    sys.argv[:] = argv
    sys.modules["__main__"] = main


def _compile(path: str) -> CodeType:
    with open(path, "rb") as file:
        source = file.read()
    if b"\0" in source:
        line = source[: source.index(b"\0")].count(b"\n") + 1
        raise SyntaxError("source code cannot contain null bytes", (path, line, None, None))
    return compile(source, path, "exec", dont_inherit=True)


def _new_main(file: str, loader: object, spec: ModuleSpec | None) -> ModuleType:
    main = ModuleType("__main__")
    namespace = main.__dict__
    namespace["__package__"] = spec.parent if spec is not None else None
    namespace["__loader__"] = loader
    namespace["__spec__"] = spec
    if sys.version_info < (3, 14):
        namespace["__annotations__"] = {}
    namespace["__builtins__"] = sys.modules["builtins"]
    namespace["__file__"] = file
    namespace["__cached__"] = spec.cached if spec is not None else None
    return main


def _spec_to_run(name: str) -> ModuleSpec:
    spec = None
    try:
        spec = importlib.util.find_spec(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise  # the program's own missing dependency, not a wrong name
    if spec is None:
        raise InputError(f"no module named {name!r}: -m looks in {os.getcwd()} and on sys.path")
    if spec.submodule_search_locations is not None:
        return _spec_to_run(f"{name}.__main__")
    return spec


def _code_of(spec: ModuleSpec) -> CodeType:
    code = spec.loader.get_code(spec.name) if isinstance(spec.loader, SourceFileLoader) else None
    if code is None:
        raise InputError(f"{spec.name} has no Python source: nabla runs .py files only")
    return code
