"""Which parameters are trained: programs freeze some, and let them go later."""

from __future__ import annotations

from collections.abc import Iterable

from torch.nn import Module

__all__ = ["frozen_names", "put_frozen"]


def frozen_names(model: Module, modules: Iterable[Module] | None = None) -> list[str]:
    """Return the names of the parameters that get no gradient.

    Args:
        model: the model.
        modules: all of its modules, where they are at hand: asking for parameters walks over them.
    """
    known = model.modules() if modules is None else modules
    if all(one is None or one.requires_grad for part in known for one in part._parameters.values()):
        return []
    return [name for name, one in model.named_parameters() if not one.requires_grad]


def put_frozen(model: Module, names: object) -> None:
    """Freeze these parameters and no others; ``None``, if it was not recorded, changes nothing."""
    if not isinstance(names, Iterable):
        return
    frozen = frozenset(names)
    for name, parameter in model.named_parameters():
        wanted = name not in frozen
        if parameter.requires_grad is not wanted and (
            parameter.is_floating_point() or parameter.is_complex()
        ):
            parameter.requires_grad_(wanted)
