"""Runs a person's script with its first training loop traced."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import torch
from torch.nn import Module
from torch.nn.modules.module import (
    register_module_forward_hook,
    register_module_forward_pre_hook,
)
from torch.optim import Optimizer
from torch.utils.hooks import RemovableHandle

from nabla_core.errors import InputError

from .delivery import count_steps
from .live.attachment import Attachment, AttachOptions, attach

__all__ = ["LoopFinder", "trace_script"]


class LoopFinder:
    """Finds the model of the first optimizer that makes a step, and attaches to both.

    The model is the outermost module that was called with gradients and holds what the optimizer
    moves. The step in which it is found is not traced.

    Attributes:
        attachment: ``None`` until a loop was found.
    """

    def __init__(self, options: AttachOptions) -> None:
        self.attachment: Attachment | None = None
        self._options = options
        self._stack = ExitStack()
        self._depth = 0
        self._called: dict[int, Module] = {}
        self._handles: list[RemovableHandle] = []

    @contextmanager
    def looking(self) -> Iterator[None]:
        """Look for a loop inside the block."""
        original = Optimizer.__init__
        finder = self

        def made(optimizer: Optimizer, *args: object, **kwargs: object) -> None:
            original(optimizer, *args, **kwargs)  # type: ignore[arg-type]
            finder._follow(optimizer)

        setattr(Optimizer, "__init__", made)  # noqa: B010 - a method for a while
        self._handles += [
            register_module_forward_pre_hook(self._enters),
            register_module_forward_hook(self._leaves, always_call=True),
        ]
        try:
            yield
        finally:
            setattr(Optimizer, "__init__", original)  # noqa: B010
            self._stop_looking()
            self._stack.close()

    # ------------------------------------------------------------------ private
    def _follow(self, optimizer: Optimizer) -> None:
        if self.attachment is None:
            self._handles.append(optimizer.register_step_post_hook(self._stepped))

    def _enters(self, module: Module, args: object) -> None:
        if self._depth == 0 and torch.is_grad_enabled():
            self._called[id(module)] = module
        self._depth += 1

    def _leaves(self, module: Module, args: object, output: object) -> None:
        self._depth = max(0, self._depth - 1)

    def _stepped(self, optimizer: Optimizer, args: object, kwargs: Mapping[str, object]) -> None:
        if self.attachment is not None:
            return
        held = {id(p) for group in optimizer.param_groups for p in group["params"]}
        sizes = {
            key: sum(p.numel() for p in module.parameters() if id(p) in held)
            for key, module in self._called.items()
        }
        best = max(sizes, key=lambda key: sizes[key], default=None)
        if best is None or not sizes[best]:
            return
        model = self._called[best]
        self._stop_looking()
        self.attachment = self._stack.enter_context(attach(model, optimizer, **self._options))

    def _stop_looking(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles, self._called = [], {}


def trace_script(
    script: str, arguments: Sequence[str], options: AttachOptions
) -> tuple[Attachment | None, int]:
    """Run ``script`` as ``__main__`` and trace its first training loop.

    Returns:
        The attachment (``None`` when no loop was found) and the script's exit status.

    Raises:
        InputError: there is no such file.
    """
    path = Path(script)
    if not path.is_file():
        raise InputError(f"{script}: there is no such file")
    finder, before, paths = LoopFinder(options), sys.argv[:], sys.path[:]
    status = 0
    sys.argv[:], sys.path[0:1] = [script, *arguments], [str(path.resolve().parent)]
    try:
        with finder.looking():
            runpy.run_path(script, run_name="__main__")
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    finally:
        sys.argv[:], sys.path[:] = before, paths
    if finder.attachment is not None:
        count_steps(finder.attachment.steps + 1)  # with the one in which the loop was found
    return finder.attachment, status
