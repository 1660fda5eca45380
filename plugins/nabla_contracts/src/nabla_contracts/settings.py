"""``[tool.nabla.contracts]``: contracts of a project, held by everything that watches a run.

::

    [tool.nabla.contracts]
    raise-on-failure = true

    [tool.nabla.contracts.hold]
    loss-is-finite = { kind = "loss.finite" }
    calm-encoder = { kind = "gradient.norm", max = 10.0, parameters = "encoder.*" }
    it-learns = { kind = "parameter.change", min-relative = 1e-8, every = 100 }
    no-jumps = { kind = "training.loss_not_exploding", max-ratio = 10.0, window = 20 }
    small-loss = { kind = "checks:loss_is_small" }      # module:predicate, a custom contract
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from nabla_core.errors import ConfigError, UsageError
from nabla_core.options import option

if TYPE_CHECKING:
    from .declaration import Contract

__all__ = ["ContractSettings", "Entry", "configured_contracts"]

Entry = bool | str | float | tuple[str, ...]
"""A value of a contract's table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContractSettings:
    """Keys of ``[tool.nabla.contracts]``.

    Raises:
        ConfigError: a contract is declared wrongly; all mistakes of all contracts at once.
    """

    raise_on_failure: bool = option(False, "end the run at the first broken contract")
    hold: Mapping[str, Mapping[str, Entry]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.hold:
            configured_contracts(self)


def configured_contracts(settings: ContractSettings) -> tuple[Contract, ...]:
    """Return the contracts that a configuration declares.

    Raises:
        ConfigError: one is declared wrongly; all mistakes at once.
    """
    from .kinds import contract_of

    found: list[Contract] = []
    mistakes: list[str] = []
    for name, table in settings.hold.items():
        try:
            found.append(contract_of(name, table))
        except UsageError as error:
            place = f"[tool.nabla.contracts.hold] {name}"
            mistakes += [f"{place}: {line}" for line in str(error).splitlines()]
    if mistakes:
        raise ConfigError(*mistakes)
    return tuple(found)
