"""Fits a live loop out for the chosen mode."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nabla_core.report import NotEvaluated

from .deep.watch import watch_ops
from .holding import declared_names
from .layers.roster import chooser
from .layers.watch import LayerWatch, watch_layers
from .options import GuardOptions

if TYPE_CHECKING:
    from nabla_core.session import Session

    from .loop.live import LiveLoop

__all__ = ["arm", "not_held", "options_of"]


def options_of(session: Session) -> GuardOptions:
    """Return the configured options; the defaults where this plugin is not loaded."""
    if GuardOptions not in session.host.options.values():
        return GuardOptions()
    return session.options(GuardOptions)


def arm(loop: LiveLoop, options: GuardOptions) -> LayerWatch | None:
    """Let a loop measure what its mode asks for; call it before the loop is connected.

    Returns:
        What looks inside the models; ``None`` in light mode.
    """
    loop.explainer.wanted = options.explain
    loop.shadows = options.mode != "light" and options.explain
    loop.every = options.every
    loop.shadow = options.shadow if loop.shadows else "off"
    if options.mode == "deep":
        return watch_ops(loop, options)
    if options.mode == "standard":
        return watch_layers(loop, chooser(options.modules, options.exclude))
    return None


def not_held(options: GuardOptions, session: Session) -> tuple[NotEvaluated, ...]:
    """Return what was asked for and cannot be given."""
    declared = declared_names(session.config)
    reason = "no installed plugin holds contracts"
    if declared is not None:
        reason = "[tool.nabla.contracts.hold] declares none of this name"
    missing = [
        NotEvaluated(rule="CON", reason=f"contract {name!r}: {reason}")
        for name in options.contracts
        if declared is None or name not in declared
    ]
    if options.shadow == "off" and options.mode != "light" and options.explain:
        reason = "shadow is off: the forward pass was compared with float64 only where asked for"
        missing += [NotEvaluated(rule=rule, reason=reason) for rule in ("NUM121", "NUM122")]
    return tuple(missing)
