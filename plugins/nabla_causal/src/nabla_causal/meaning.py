"""What a rule says about a run, in the terms in which causes are told."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

__all__ = ["FAILURES", "KINDS", "Meaning", "Stage", "in_words", "meaning_of", "position_of"]


class Stage(IntEnum):
    """Where in a step something goes wrong; what stands earlier can cause what stands later.

    After the parameters the next forward pass begins, so a cause in an earlier step may stand at
    any stage.
    """

    DATA = 0
    LOOP = 1
    FORWARD = 2
    LOSS = 3
    BACKWARD = 4
    OPTIMIZER = 5
    PARAMETER = 6
    CURVE = 7


@dataclass(frozen=True, slots=True, kw_only=True)
class Meaning:
    """What a rule says.

    Attributes:
        kind: one of :data:`KINDS`.
        failure: one of :data:`FAILURES`.
        state: what it became; it was normal before.
        stage: where in a step.
    """

    kind: str
    failure: str
    state: str
    stage: Stage


_TABLE = """
NUM101 activation_regime   non_finite             non-finite      forward
NUM102 gradient_health     non_finite             non-finite      backward
NUM103 activation_regime   non_finite             non-finite      loss
NUM104 data_anomaly        data_anomaly           non-finite      data
NUM105 weight_health       non_finite             non-finite      parameter
NUM111 numerics            exploding_activations  near-overflow   forward
NUM112 numerics            vanishing_gradients    underflowing    backward
NUM121 numerics            precision_loss         inaccurate      forward
NUM122 numerics            precision_loss         cancelling      forward
NUM131 optimizer_stability scale_collapse         collapsing      optimizer
NUM141 weight_health       updates_stopped        rounded-away    parameter

RUN101 activation_regime   non_finite             non-finite      loss
RUN102 gradient_health     non_finite             non-finite      backward
RUN103 optimizer_stability optimizer_instability  spiking         curve
RUN104 optimizer_stability optimizer_instability  shifted         curve
RUN105 optimizer_stability optimizer_instability  diverging       curve
RUN106 optimizer_stability optimizer_instability  oscillating     curve
RUN107 optimizer_stability optimizer_instability  plateau         curve
RUN108 generalisation      overfitting            overfitting     curve
RUN109 loop                loop_fault             ascending       loss
RUN110 generalisation      overfitting            not-transferring curve
RUN111 generalisation      overfitting            frozen          curve
RUN112 loop                loop_fault             floored         loss
RUN201 optimizer_stability step_too_large         too-large       optimizer
RUN202 optimizer_stability step_too_small         too-small       optimizer
RUN203 optimizer_stability step_too_small         ended-early     loop
RUN204 optimizer_stability step_too_large         jumping         loop
RUN205 optimizer_stability step_too_small         over-clipped    optimizer
RUN206 weight_health       updates_stopped        stopped         parameter
RUN207 loop                step_too_large         summed          loss
RUN301 gradient_health     exploding_gradients    spiking         backward
RUN302 gradient_health     vanishing_gradients    vanishing       backward
RUN303 gradient_health     exploding_gradients    exploding       backward
RUN304 gradient_health     gradients_accumulating accumulating    backward
RUN401 activation_regime   dead_neurons           dead            forward
RUN402 activation_regime   saturated_activations  saturated       forward
RUN403 activation_regime   exploding_activations  drifting        forward
RUN404 weight_health       symmetric_units        symmetric       parameter
RUN405 activation_regime   saturated_activations  collapsed       forward
RUN406 activation_regime   dead_neurons           collapsed       forward
RUN407 weight_health       weight_growth          growing         parameter
RUN408 weight_health       weight_collapse        shrinking       parameter
RUN409 weight_health       bad_start              too-high        forward
RUN410 activation_regime   dead_neurons           dropped         forward
RUN501 data_anomaly        data_anomaly           shifted         data
RUN502 data_anomaly        data_anomaly           outlying        data
RUN503 data_anomaly        data_anomaly           unshuffled      data
RUN504 data_anomaly        data_anomaly           imbalanced      data
RUN505 data_anomaly        data_anomaly           unscaled        data
RUN506 data_anomaly        data_anomaly           repeating       data
RUN507 data_anomaly        data_anomaly           uninformative   data
RUN508 data_anomaly        data_anomaly           leaking         data
RUN601 optimizer_stability optimizer_instability  imbalanced      curve
RUN602 activation_regime   dead_neurons           collapsed       forward
RUN603 activation_regime   saturated_activations  collapsed       forward

AUD101 loop                gradients_lost         cleared         loop
AUD102 loop                gradients_accumulating accumulating    loop
AUD103 loop                step_too_large         not-divided     loop
AUD105 loop                gradients_lost         discarded       loop
AUD106 loop                gradients_accumulating repeated        loop
AUD107 loop                step_too_small         over-clipped    loop
AUD110 loop                gradients_accumulating foreign         loop
AUD201 loop                updates_stopped        left-out        loop
AUD202 loop                updates_stopped        foreign         loop
AUD203 loop                updates_stopped        unregistered    loop
AUD204 loop                gradients_lost         cut             forward
AUD205 weight_health       updates_stopped        unchanged       parameter
AUD206 loop                gradients_lost         detached        loss
AUD207 loop                gradients_lost         flat            forward
AUD208 weight_health       weights_edited         edited          parameter
AUD209 weight_health       weights_edited         untied          parameter
AUD303 loop                step_too_small         zero            loop
AUD304 loop                step_too_small         decayed-early   loop
AUD401 loop                loop_fault             squashed        loss
AUD402 loop                loop_fault             squashed        loss
AUD403 loop                loop_fault             unnormalised    loss
AUD404 loop                loop_fault             broadcast       loss
AUD405 loop                loop_fault             wrong-axis      loss
AUD408 data_anomaly        data_anomaly           out-of-range    data
AUD409 data_anomaly        data_anomaly           all-ignored     data
AUD701 loop                ranks_apart            apart           parameter
AUD702 loop                ranks_apart            apart           parameter
AUD703 loop                ranks_apart            apart           optimizer

AUD501 data_anomaly        data_anomaly           repeating       data
AUD502 data_anomaly        data_anomaly           repeating       data
AUD503 data_anomaly        data_anomaly           copied          data
AUD504 data_anomaly        data_anomaly           defective       data

GEO101 gradient_health     losses_in_conflict     opposing        backward
GEO102 gradient_health     optimizer_instability  cancelling      backward
GEO103 gradient_health     losses_in_conflict     dominated       backward
GEO104 gradient_health     losses_in_conflict     worsened        optimizer
GEO105 gradient_health     vanishing_gradients    dead            backward
GEO201 data_anomaly        data_anomaly           dominant        data
GEO203 data_anomaly        data_anomaly           repeating       data
GEO204 data_anomaly        data_anomaly           mislabelled     data
GEO301 optimizer_stability step_too_small         too-small       optimizer
GEO302 optimizer_stability step_too_large         too-large       optimizer
GEO303 optimizer_stability step_too_large         jumping         optimizer
GEO304 optimizer_stability step_too_large         uphill          optimizer
GEO501 activation_regime   vanishing_gradients    vanishing       forward
GEO502 activation_regime   exploding_activations  exploding       forward

CAU104 activation_regime   dead_neurons           dead            forward
CAU105 activation_regime   exploding_activations  jumping         forward
CAU106 gradient_health     vanishing_gradients    vanishing       backward
CAU107 activation_regime   saturated_activations  saturated       forward
CAU108 data_anomaly        data_anomaly           shifted         data

CON101 activation_regime   non_finite             non-finite      curve
CON102 gradient_health     exploding_gradients    outside         curve
CON103 activation_regime   non_finite             non-finite      curve
CON104 weight_health       weight_growth          outside         curve
CON105 optimizer_stability optimizer_instability  diverging       curve
"""

_FAMILIES = {
    "AUD": Meaning(kind="loop", failure="loop_fault", state="faulty", stage=Stage.LOOP),
    "GEO": Meaning(
        kind="gradient_health", failure="gradient_geometry", state="uneven", stage=Stage.BACKWARD
    ),
    "REP": Meaning(kind="loop", failure="not_reproducible", state="different", stage=Stage.LOOP),
    "CON": Meaning(
        kind="optimizer_stability", failure="contract_broken", state="broken", stage=Stage.CURVE
    ),
}
"""Rules of a family that the table does not name."""

_OTHER = Meaning(kind="other", failure="other", state="found", stage=Stage.CURVE)


def _read(table: str) -> dict[str, Meaning]:
    rows = [line.split() for line in table.splitlines() if line]
    return {
        rule: Meaning(kind=kind, failure=failure, state=state, stage=Stage[stage.upper()])
        for rule, kind, failure, state, stage in rows
    }


_MEANINGS = _read(_TABLE)
_POSITIONS = {rule: place for place, rule in enumerate(_MEANINGS)}
_ALL = (*_MEANINGS.values(), *_FAMILIES.values(), _OTHER)

KINDS: tuple[str, ...] = tuple(dict.fromkeys(meaning.kind for meaning in _ALL))
"""Kinds of transitions."""

FAILURES: tuple[str, ...] = tuple(dict.fromkeys(meaning.failure for meaning in _ALL))
"""Names of failures, by which explanations can be asked for."""


def meaning_of(rule: str) -> Meaning:
    """Return what a rule says, by its ID; rules of third parties are ``other``."""
    return _MEANINGS.get(rule) or _FAMILIES.get(rule[:3], _OTHER)


def position_of(rule: str) -> int:
    """Return the place of a rule in the table: of two that say the same, the earlier one leads."""
    return _POSITIONS.get(rule, len(_POSITIONS))


_WORDS = {
    "bad_start": "a bad start",
    "contract_broken": "a broken contract",
    "data_anomaly": "a data anomaly",
    "gradient_geometry": "uneven gradients",
    "gradients_accumulating": "accumulating gradients",
    "gradients_lost": "lost gradients",
    "loop_fault": "a fault of the training loop",
    "losses_in_conflict": "losses that fight each other",
    "non_finite": "non-finite numbers",
    "not_reproducible": "a difference between runs",
    "other": "another finding",
    "precision_loss": "lost precision",
    "ranks_apart": "ranks that drift apart",
    "scale_collapse": "a collapsing loss scale",
    "step_too_large": "too large a step",
    "step_too_small": "too small a step",
    "updates_stopped": "weights that do not move",
    "weight_collapse": "shrinking weights",
    "weight_growth": "growing weights",
    "weights_edited": "weights written from outside",
}


def in_words(failure: str) -> str:
    """Return a failure as a part of a sentence."""
    return _WORDS.get(failure, failure.replace("_", " "))
