"""Other spellings of signals that rules know by one name."""

from __future__ import annotations

from .naming import ColumnName, Quantity, Split, name_of
from .words import REWARDS

__all__ = ["known_signal"]

_SPELLINGS = {
    "d_loss": "d_loss loss_d discriminator_loss loss_discriminator disc_loss loss_disc dloss",
    "g_loss": "g_loss loss_g generator_loss loss_generator gen_loss loss_gen gloss",
    "kl": "kl kl_loss loss_kl kld kld_loss kl_div kl_divergence",
    "entropy": "entropy policy_entropy",
    "clip_coef": "clip_coef clip_coefficient clip_scale",
    "input_std": "input_std inputs_std",
    "input_mean": "input_mean inputs_mean",
    "label_entropy": "label_entropy",
}
_BY_CORE = {core: signal for signal, cores in _SPELLINGS.items() for core in cores.split()}
_RETURNS = frozenset({"return", "returns"})
_REWARDS = REWARDS - {"episode", "episodes", "episodic"} - _RETURNS
_NO_REWARD = frozenset(
    {"std", "min", "max", "chosen", "rejected", "margins", "accuracies", "length", "len"}
)


def known_signal(name: ColumnName) -> str | None:
    """Return the signal that a column of the training data is another spelling of, if any."""
    if name.split not in (Split.TRAIN, Split.UNSAID):
        return None
    grouped = name_of(name.raw.rsplit("/", 1)[-1])  # "charts/policy_entropy" is one of a group
    for core in (name.core, grouped.core):
        if core in _BY_CORE:
            return _BY_CORE[core]
    said = set(name.core.split("_"))
    if said & _NO_REWARD or grouped.quantity is not Quantity.METRIC:
        return None
    return "return" if said & _RETURNS else "reward" if said & _REWARDS else None
