"""What a root module and the modules inside of it are called, whatever wraps the model."""

from __future__ import annotations

from torch.nn import Module
from torch.nn.parallel import DistributedDataParallel

__all__ = ["bare", "is_compiled", "model_name", "paths_of", "plain_path", "uncompiled"]

_COMPILED = "_orig_mod"


def bare(module: Module) -> Module:
    """Return the model itself, without what makes its processes communicate.

    Called directly, it computes the same outputs and starts no collective operation: the hooks of
    :class:`~torch.nn.parallel.DistributedDataParallel` wait for a call of that.
    """
    return module.module if isinstance(module, DistributedDataParallel) else module


def uncompiled(module: Module) -> Module:
    """Return the module that ``torch.compile`` wrapped, else the module itself."""
    inner = getattr(module, _COMPILED, module)
    return inner if isinstance(inner, Module) else module


def is_compiled(module: Module) -> bool:
    """Whether a call of a module runs compiled code; asks no attribute of the user's own."""
    state = vars(module)
    return state.get("_compiled_call_impl") is not None or _COMPILED in state.get("_modules", ())


def model_name(root: Module) -> str:
    """Return the class name of a root module: that of the model which was wrapped or compiled."""
    return type(uncompiled(bare(root))).__name__


def plain_path(name: str) -> str:
    """Return the dotted name of a module or parameter as if nothing in it was compiled."""
    return ".".join(part for part in name.split(".") if part != _COMPILED)


def paths_of(root: Module) -> list[tuple[str, Module]]:
    """Return what ``root.named_modules()`` yields, without a generator for each module."""
    found: dict[int, tuple[str, Module]] = {}
    waiting: list[tuple[str, Module | None]] = [("", root)]
    while waiting:
        path, module = waiting.pop()
        if module is not None and id(module) not in found:
            found[id(module)] = path, module
            if parts := module._modules:
                above = f"{path}." if path else ""
                waiting += [(above + name, part) for name, part in parts.items()][::-1]
    return [*found.values()]
