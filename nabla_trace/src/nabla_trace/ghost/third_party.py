"""Rules that others give for layers of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

from torch import Tensor
from torch.nn import Module

from nabla_core.errors import InputError, UsageError

from .call import Call
from .contribution import Contribution
from .sources import DenseRows

__all__ = ["ModuleRule", "any_module_rule", "module_rule", "module_rows", "rule_for"]

ModuleRule = Callable[
    [Module, tuple[object, ...], Mapping[str, object], Tensor], Mapping[str, Tensor]
]
"""``rows(module, args, kwargs, grad_out)`` returns for each parameter, by its name in the module,
the gradient of each sample: shape ``[N, *parameter]``."""

RuleT = TypeVar("RuleT", bound=ModuleRule)

_RULES: dict[type[Module], ModuleRule] = {}


def rule_for(layer: type[Module]) -> Callable[[RuleT], RuleT]:
    """Register a rule for a layer type; its samples must lie along the first axis.

    The result is checked like any other: a rule that is wrong is reported and not used.

    Args:
        layer: exactly this class, not its subclasses.

    Raises:
        UsageError: ``layer`` is no class of modules.

    Example::

        @nabla.trace.rule_for(Scale)
        def scale_rows(module, args, kwargs, grad_out):
            return {"factor": (grad_out * args[0]).flatten(2).sum(2)}
    """
    if not (isinstance(layer, type) and issubclass(layer, Module)):
        raise UsageError(f"rule_for({layer!r}): needs a subclass of torch.nn.Module")

    def register(rule: RuleT) -> RuleT:
        _RULES[layer] = rule
        return rule

    return register


def any_module_rule() -> bool:
    """Whether any rule is registered."""
    return bool(_RULES)


def module_rule(module: Module) -> ModuleRule | None:
    """Return the rule for a module, if there is one."""
    return _RULES.get(type(module))


def module_rows(call: Call) -> Iterator[Contribution]:
    """Yield what the rule of a third party says.

    Raises:
        InputError: the rule leaves a parameter out or gives a wrong shape.
    """
    module, grad = call.func, call.outs[0].grad
    rule = module_rule(module) if isinstance(module, Module) else None
    if rule is None or not isinstance(module, Module) or grad is None:
        return
    found = rule(module, call.args, call.kwargs, grad)
    for path, origin in call.tracked.items():
        name = str(path[-1])
        wanted = (call.samples, *origin.tensor.shape)
        rows = found.get(name)
        if rows is None or tuple(rows.shape) != wanted:
            given = "nothing" if rows is None else f"shape {tuple(rows.shape)}"
            raise InputError(
                f"the rule for {type(module).__name__} gave {given} for {name!r}; "
                f"it needs shape {wanted}"
            )
        yield Contribution(origin, DenseRows(rows))
