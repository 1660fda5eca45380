"""Known mechanisms: what one failure leads to, and why. The only place of this knowledge."""

from __future__ import annotations

from collections.abc import Callable

from .meaning import Stage
from .transitions import Transition

__all__ = ["LEADS_TO", "Depth", "mechanism", "test_of"]

Depth = Callable[[str], int | None]

_LATE_STEPS = {"AUD": 50, "RUN": 15, "GEO": 50}
"""So many steps after it began a family may find a fault; exact numbers are found at once."""

_AGREEING_STEPS = 3
"""What is wrong from the start is told once so many steps agree."""

_CLEAR = 0.7
_CURVES = "optimizer_instability overfitting contract_broken"
_THROUGH_ALL = "NaN and Inf go through every op that follows"

LEADS_TO: dict[str, tuple[str, str]] = {
    "data_anomaly": (
        f"exploding_activations exploding_gradients non_finite dead_neurons saturated_activations "
        f"step_too_large step_too_small bad_start vanishing_gradients weight_growth "
        f"scale_collapse {_CURVES}",
        "the model is trained on what the batch holds",
    ),
    "bad_start": (
        f"exploding_activations exploding_gradients saturated_activations dead_neurons non_finite "
        f"step_too_large vanishing_gradients {_CURVES}",
        "the first weights set the scale of everything behind them",
    ),
    "symmetric_units": (f"updates_stopped {_CURVES}", "equal units get equal gradients"),
    "weights_edited": (
        f"exploding_activations shrinking_activations dead_neurons saturated_activations "
        f"exploding_gradients vanishing_gradients non_finite step_too_large {_CURVES}",
        "the next forward pass runs with the weights that were written",
    ),
    "exploding_activations": (
        f"saturated_activations non_finite exploding_gradients step_too_large dead_neurons "
        f"weight_growth precision_loss {_CURVES}",
        "a larger signal goes through the layers behind it and comes back as a larger gradient",
    ),
    "shrinking_activations": (
        f"vanishing_gradients step_too_small dead_neurons {_CURVES}",
        "the gradient of a weight is proportional to what the layer was given",
    ),
    "saturated_activations": (
        f"vanishing_gradients step_too_small updates_stopped {_CURVES}",
        "the slope at the end of the range is almost zero",
    ),
    "dead_neurons": (
        f"vanishing_gradients step_too_small updates_stopped shrinking_activations {_CURVES}",
        "a unit that gives zero passes no gradient back",
    ),
    "vanishing_gradients": (
        f"step_too_small updates_stopped {_CURVES}",
        "a step is proportional to the gradient",
    ),
    "exploding_gradients": (
        f"step_too_large weight_growth non_finite exploding_activations dead_neurons "
        f"saturated_activations scale_collapse {_CURVES}",
        "one step along a large gradient changes the weights by much",
    ),
    "gradients_accumulating": (
        f"exploding_gradients step_too_large weight_growth exploding_activations non_finite "
        f"dead_neurons saturated_activations {_CURVES}",
        "gradients of earlier batches are added to each step",
    ),
    "gradients_lost": (
        f"vanishing_gradients updates_stopped step_too_small {_CURVES}",
        "the optimizer is given no gradient",
    ),
    "step_too_large": (
        f"exploding_activations exploding_gradients dead_neurons saturated_activations non_finite "
        f"weight_growth weight_collapse precision_loss scale_collapse {_CURVES}",
        "a step beyond the range in which the gradient holds leaves the weights far from where "
        "they were",
    ),
    "step_too_small": (f"updates_stopped {_CURVES}", "weights that hardly move learn nothing"),
    "updates_stopped": (f"{_CURVES}", "weights that do not move learn nothing"),
    "weight_growth": (
        f"exploding_activations saturated_activations exploding_gradients non_finite {_CURVES}",
        "larger weights give larger outputs",
    ),
    "weight_collapse": (
        f"shrinking_activations vanishing_gradients updates_stopped {_CURVES}",
        "smaller weights give smaller outputs",
    ),
    "precision_loss": (
        f"non_finite exploding_gradients vanishing_gradients {_CURVES}",
        "a wrong number is passed on like a right one",
    ),
    "scale_collapse": (
        f"vanishing_gradients updates_stopped step_too_small {_CURVES}",
        "gradients below the smallest number of the type become zero",
    ),
    "non_finite": (
        f"scale_collapse updates_stopped exploding_gradients {_CURVES}",
        _THROUGH_ALL,
    ),
    "losses_in_conflict": (
        f"step_too_small updates_stopped {_CURVES}",
        "what one loss gains in a step the other one loses",
    ),
    "loop_fault": (
        f"vanishing_gradients step_too_small updates_stopped exploding_gradients step_too_large "
        f"saturated_activations dead_neurons non_finite {_CURVES}",
        "another function is trained than the one that was meant",
    ),
}

_TESTS = {
    "data_anomaly": "train the same steps without the batch, or with it replaced by another one",
    "bad_start": "start again with the layer's default initialisation",
    "symmetric_units": "start again with random weights in the layer",
    "weights_edited": "train the same steps without the write",
    "exploding_activations": "normalise the layer's input, or clamp its output, in the same steps",
    "shrinking_activations": "rescale the layer's weights in the same steps",
    "saturated_activations": "scale the layer's weights down, or normalise its input",
    "dead_neurons": "replace the activation by a leaky one, or reset the layer's bias",
    "vanishing_gradients": "look at the layer behind the last one that has a gradient",
    "exploding_gradients": "clip the gradient norm to its usual value in the same steps",
    "gradients_accumulating": "call zero_grad() before each backward pass",
    "gradients_lost": "read .grad of one parameter right before optimizer.step()",
    "step_too_large": "train the same steps with the learning rate divided by ten",
    "step_too_small": "train the same steps with the learning rate multiplied by ten",
    "updates_stopped": "compare one parameter before and after a step, bit by bit",
    "weight_growth": "train the same steps with weight decay",
    "weight_collapse": "train the same steps without weight decay",
    "precision_loss": "run the layer in float32 in the same steps",
    "scale_collapse": "run the same steps in float32",
    "non_finite": "execute the step again with nabla run --mode deep",
    "losses_in_conflict": "train the same steps with one of the losses left out, and compare the "
    "others",
    "gradient_geometry": "train the same steps with the sample, the loss or the batch size changed",
    "loop_fault": "repair the line and compare the first hundred losses",
}


_FADING = "train the same steps with residual connections, or with an activation that has a slope"

_TESTS_BY_RULE = {
    "AUD201": "give the parameters to the optimizer and see whether they change",
    "AUD204": "let the gradient through where the path is cut, and read .grad after one backward",
    "AUD301": "call train() before the step and train the same steps",
    "AUD401": "give the loss the scores before the softmax and train the same steps",
    "AUD404": "give predictions and targets one shape and compare the loss of one batch",
    "AUD701": "take out what runs on one rank only, and train the same steps",
    "CAU106": _FADING,
    "RUN302": _FADING,
    "CAU108": "train the same steps with the inputs scaled to the size they had before",
    "RUN204": "train the same steps with the learning rate as it was before",
    "RUN205": "train the same steps without clipping",
    "RUN503": "shuffle the data and train the same steps",
    "RUN504": "compare the losses of the classes",
    "RUN105": "train the same steps with the learning rate, then the weight decay, divided by ten",
    "RUN106": "train the same steps with the learning rate, then the momentum, lowered",
    "RUN505": "divide the inputs by their spread and train the same steps",
    "RUN506": "count how often each sample is drawn",
    "RUN507": "train a hundred steps on eight samples: the loss must fall",
}
"""Where the failure alone says too little."""


_WHY_THE_SAME = {
    "updates_stopped": "no optimizer moves it",
    "gradients_accumulating": "gradients of earlier batches are added to each step",
    "data_anomaly": "it is seen in the batches",
    "step_too_large": "the steps are of that size",
    "step_too_small": "the steps are of that size",
}
"""Why what is set up wrongly is seen again in the run, where that is one failure."""


_DIVERGING = ("RUN105", "RUN106")
_OF_A_DIVERGENCE = (
    "exploding_activations", "exploding_gradients", "non_finite", "weight_growth", "dead_neurons",
    "saturated_activations",
)  # fmt: skip
_RUNS_AWAY = "in a run that diverges each step drives the weights further away"
"""A loss that rose two steps or more before a layer shows anything did not begin in it."""


def mechanism(cause: Transition, effect: Transition, depth: Depth) -> str:
    """Return why one transition can have caused another; ``""`` when no mechanism is known.

    Time, the place in the step and the direction in which things travel must fit too: what goes
    forward reaches layers that run later, what goes backward those that ran before.

    Args:
        cause: not begun later than the other one, as far as rules can know.
        effect: the other one.
        depth: place of a layer in the order of execution, if it is known.
    """
    if cause.first_step > effect.first_step + _late_steps(cause, effect):
        return ""
    if cause.was_there and effect.failure == "non_finite":
        return _THROUGH_ALL
    if cause.first_step == effect.first_step and (
        cause.stage > effect.stage or (effect.was_there and cause.stage >= Stage.FORWARD)
    ):
        return ""
    if effect.stage <= Stage.LOOP and cause.stage is not effect.stage:
        return ""  # data, settings and wiring are given to a run, not made by it
    weak = cause.confidence < _CLEAR <= effect.confidence
    if weak and (effect.failure == "step_too_large" or effect.executed_again):
        return ""  # a layer that grew by a few times is what large steps and long runs do
    if cause.failure == effect.failure:
        return _passed_on(cause, effect, depth)
    if cause.rule in _DIVERGING and cause.first_step + 1 < effect.first_step:
        return _RUNS_AWAY if effect.failure in _OF_A_DIVERGENCE else ""
    leads_to, why = LEADS_TO.get(cause.failure, ("", ""))
    return why if effect.failure in leads_to.split() else ""


def _late_steps(cause: Transition, effect: Transition) -> int:
    """How many steps after its effect a cause may have been told."""
    if cause.failure != "non_finite" and not effect.rule.startswith("NUM10"):
        return _LATE_STEPS.get(cause.rule[:3], 0)
    given = cause.rule.startswith("AUD") and cause.stage <= Stage.LOOP
    return _AGREEING_STEPS if given else 0


def test_of(cause: Transition) -> str:
    """Return what would confirm that a transition is the cause."""
    general = _TESTS.get(cause.failure, "repair it and train the same steps again")
    return _TESTS_BY_RULE.get(cause.rule, general)


def _passed_on(cause: Transition, effect: Transition, depth: Depth) -> str:
    """Whether the same failure went from one layer to another."""
    if cause.stage <= Stage.LOOP and cause.failure in _WHY_THE_SAME:
        return _WHY_THE_SAME[cause.failure]
    if cause.failure == "loop_fault" and cause.rule != effect.rule:
        return ""  # each line of a program is wrong by itself
    if cause.stage > Stage.BACKWARD or effect.stage > Stage.BACKWARD:
        if cause.layer and cause.layer != effect.layer:
            return ""
        return "it goes on" if cause.layer == effect.layer else "there it is seen in one layer"
    if cause.stage == Stage.FORWARD == effect.stage:
        return _travels(cause, effect, depth, forward=True)
    if cause.stage == Stage.BACKWARD == effect.stage:
        return _travels(cause, effect, depth, forward=False)
    return "what the forward pass gives is what the backward pass starts from"


def _travels(cause: Transition, effect: Transition, depth: Depth, *, forward: bool) -> str:
    one, other = depth(cause.layer), depth(effect.layer)
    later = cause.first_step < effect.first_step
    if one is None or other is None:
        return "the layer passes it on" if later or cause.layer != effect.layer else ""
    right_way = one <= other if forward else one >= other
    if right_way or later:
        return f"the layers {'behind' if forward else 'before'} it pass it on"
    return ""
