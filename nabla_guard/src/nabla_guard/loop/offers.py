"""Names of the facts that a live loop gives, and what each of them rests on in torch."""

from __future__ import annotations

import functools
from collections.abc import Iterable

__all__ = ["FACTS", "offered"]

FACTS = frozenset(
    {
        "loss",
        "lr",
        "grad_norm",
        "param_norm",
        "gradients",
        "parameters",
        "inputs",
        "outputs",
        "calls",
        "gradients.written",
        "gradients.carried",
        "wiring",
        "modes",
        "losses",
        "graph",
        "oracles",
        "batches",
        "loaders",
        "checkpoints",
        "recomputation",
        "evaluations",
        "replicas",
        "clipping",
        "scaling",
        "schedulers",
        "values",
        "ties",
        "copies",
    }
)
"""Signals of the step records, and facts of :class:`nabla_guard.facts.LoopFacts`."""

_RESTS_ON = {
    "torch.autograd._engine_run_backward": {
        "loss",
        "calls",
        "gradients.written",
        "gradients.carried",
        "wiring",
    },
    "Optimizer.zero_grad": {"calls", "gradients.carried"},
    "Module.zero_grad": {"calls", "gradients.carried"},
    "Optimizer.__init__": {"wiring"},
    "Optimizer.add_param_group": {"wiring"},
    "torch.nn.Module.__call__": {"layers", "layer_history"},
    "torch.nn.Module.load_state_dict": {"wiring"},
    "torch.amp.GradScaler.scale": {"loss"},
}


def offered(missing: Iterable[str], *, layers: bool = False, shadow: bool = True) -> frozenset[str]:
    """Return the facts that can be given although torch lacks the attributes ``missing``.

    Args:
        missing: names of attributes.
        layers: whether the loop looks at leaf modules, which it does not in light mode.
        shadow: whether steps may be executed again in float64, which they are not in light mode.
    """
    return _offered(tuple(missing), layers, shadow)


@functools.lru_cache(maxsize=16)
def _offered(missing: tuple[str, ...], layers: bool, shadow: bool) -> frozenset[str]:
    lost: set[str] = set()
    for name in missing:
        lost |= _RESTS_ON.get(name, set())
    given = (("layers", layers), ("layer_history", layers), ("shadow", shadow))
    more = {name for name, is_given in given if is_given}
    return (FACTS | more) - lost
