"""RUN404: units that are copies of one another, or weights that are all zero."""

from __future__ import annotations

from collections.abc import Iterable

from nabla_core.issue import Issue, Quantity

from ..chart import Chart, Moment
from ..layer_table import LayerTable
from ..rules.layers import SYMMETRIC_UNITS
from .check import Finding, LayerCheck, verdict

__all__ = ["SymmetryCheck"]

_LOOKS = 8
_HITS = 6
_DIGITS = 2e-5
"""Relative rounding of a logged share."""
_SAMPLES = 8
"""From so many samples on it is no accident that each unit treats all of them alike."""
_CANCELLED = 1e-6
"""Share of the last layer's gradient below which that of all others is but rounding."""
_CUT = 0.98
"""Share of dead or saturated units from which they, and no equal weights, hold a gradient back."""


class SymmetryCheck(LayerCheck):
    """Looks at the first measurements for what equal weights do to gradients and activations."""

    rules = (SYMMETRIC_UNITS,)

    def __init__(self) -> None:
        self._told = False
        self._hits = 0
        self._uncut = 0

    def layers(self, chart: Chart, table: LayerTable) -> Iterable[Issue]:
        """See :class:`LayerCheck`."""
        if self._told or table.count > _LOOKS or not table.column("weight_norm"):
            return
        for look in (self._all_zero, self._cancelled, self._unmoved, self._copies):
            found = look(chart, table)
            if found is not None:
                self._told = True
                yield found
                return

    @staticmethod
    def _all_zero(chart: Chart, table: LayerTable) -> Issue | None:
        zero = [layer for layer, norm in table.column("weight_norm").items() if norm == 0.0]
        if table.count != 2 or len(zero) < 2:
            return None
        return _symmetric(
            chart,
            zero[0],
            f"The weights of {len(zero)} layers, {zero[0]} first, are all exactly zero after "
            f"{chart.rows} rows: their units cannot become different (limit: one layer).",
            Quantity(value=len(zero), unit="layers", limit=1),
        )

    @staticmethod
    def _cancelled(chart: Chart, table: LayerTable) -> Issue | None:
        """The errors of all classes sum to nothing: equal rows of the last layer pass on that sum.

        What is left is rounding, not zero as behind weights of zero, and only at the very start.
        """
        gradients = table.column("grad_norm")
        layers = [layer for layer in table.weighted if layer in gradients]
        if table.count != 1 or len(layers) < 2 or _is_cut(table):
            return None
        last = gradients[layers[-1]]
        highest = max(gradients[layer] for layer in layers[:-1])
        if not 0.0 < highest < _CANCELLED * last:
            return None
        return _symmetric(
            chart,
            layers[-1],
            f"The gradients of the {len(layers) - 1} layers before {layers[-1]} are at most "
            f"{highest / last:.2g} times its own at step {chart.step} (limit {_CANCELLED:g}): they "
            "cancel out, as they do behind units with equal weights.",
            Quantity(value=highest / last, limit=_CANCELLED),
        )

    def _unmoved(self, chart: Chart, table: LayerTable) -> Issue | None:
        """No unit of the first activation tells two samples apart, nor did a gradient come so far.

        A last layer of zeros, which is meant, holds the gradient back once, but not the inputs.
        """
        gradients = table.column("grad_norm")
        shares = table.outputs("zero_fraction")
        dead = table.column("dead_fraction")
        if table.count > 2 or not shares or chart.options.batch_size < _SAMPLES or _is_cut(table):
            return None
        first = next(iter(shares))
        if not 0.0 < shares[first] < 1.0 or shares[first] != dead.get(first):
            return None
        layers = [layer for layer in table.weighted if layer in gradients]
        idle = layers and gradients[layers[-1]] > 0.0 and not any(map(gradients.get, layers[:-1]))
        self._uncut += 1 if table.count == 2 or (idle and len(layers) > 1) else -_LOOKS
        if self._uncut < 2:
            return None
        layer = table.source_of(first)
        return _symmetric(
            chart,
            layer,
            f"At step {chart.step} {shares[first]:.0%} of the units of {first} are zero for every "
            f"sample, and no other one for any (limit: {shares[first]:.0%} of the elements): the "
            f"weights of {layer} carry nothing, and no gradient reached them at first.",
            Quantity(value=shares[first], limit=shares[first]),
        )

    def _copies(self, chart: Chart, table: LayerTable) -> Issue | None:
        """Units that are copies of one another are zero for the same samples.

        Then the share of zeros is a whole number of samples, which a layer of different units hits
        about once per its width.
        """
        samples = chart.options.batch_size
        if samples < 4:
            return None
        dead = table.column("dead_fraction")
        shares = [
            share
            for layer, share in table.outputs("zero_fraction").items()
            if 0.0 < share < 1.0 and dead.get(layer) == 0.0
        ]
        if not shares:
            return None
        whole = [
            abs(share * samples - round(share * samples)) < 0.5 * samples * _DIGITS * 2.0
            for share in shares
        ]
        self._hits = self._hits + len(shares) if all(whole) else -1_000
        if self._hits < _HITS:
            return None
        return _symmetric(
            chart,
            table.source_of(next(iter(table.outputs("zero_fraction")))),
            f"In {self._hits} measurements of {len(shares)} layers the share of zeros is a "
            f"whole number of the {samples} samples (limit {_HITS}): the units are "
            "zero together, as copies are.",
            Quantity(value=self._hits, unit="measurements", limit=_HITS),
        )


def _is_cut(table: LayerTable) -> bool:
    """Whether an activation passes nothing on: dead, dropped or saturated throughout."""
    shares = (
        *table.outputs("dead_fraction").values(),
        *table.column("saturated_fraction").values(),
    )
    return any(share > _CUT for share in shares)


def _symmetric(chart: Chart, layer: str, message: str, measured: Quantity) -> Issue:
    return verdict(
        SYMMETRIC_UNITS,
        chart,
        Finding(message=message, onset=Moment(0, 0), where=layer, evidence={"measured": measured}),
    )
