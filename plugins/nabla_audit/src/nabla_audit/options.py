"""What a person declares about a training loop, under ``[tool.nabla.audit]``."""

from __future__ import annotations

from dataclasses import dataclass

from nabla_core.options import option

__all__ = ["AuditOptions"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditOptions:
    """Facts about the program that cannot be observed."""

    accumulation: int = option(
        0, "micro-batches per optimizer step, where they are meant to be one batch", minimum=0
    )
    causal: tuple[str, ...] = option((), "class names of modules that must not see the future")
    frozen: tuple[str, ...] = option((), "globs of parameter names that must never change")
    ema: tuple[str, ...] = option((), "class names of modules that follow a trained one")
    synchronised_buffers: bool = option(
        False, "buffers are meant to be equal on all ranks of a distributed run"
    )
    independent_samples: bool = option(
        False, "in evaluation mode no sample's output may depend on another sample"
    )
    oracles: bool = option(
        True, "run a copy of the model once, to see which inputs its outputs depend on"
    )
