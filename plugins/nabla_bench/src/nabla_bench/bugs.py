"""All planted bugs, by the part of nabla that must find them."""

from __future__ import annotations

from .bug import Bug

__all__ = ["BUGS"]

_GUARD = ("guard",)
_AUDIT = ("guard", "audit")
_WATCH = ("watch",)
_LIVE = ("guard", "watch")
_HELD = ("guard", "contracts")

BUGS = (
    # numbers
    Bug(
        rule="NUM101",
        program="numbers:log_of_zero",
        summary="a logarithm of what ReLU made zero",
        needs=_GUARD,
    ),
    Bug(
        rule="NUM102",
        program="numbers:norm_of_zero_row",
        summary="the norm of a row of zeros has no derivative",
        needs=_GUARD,
    ),
    Bug(
        rule="NUM103",
        program="numbers:loss_of_nobody",
        summary="the mean loss of no sample at all",
        needs=_GUARD,
    ),
    Bug(
        rule="NUM104",
        program="numbers:nan_in_the_data",
        summary="one missing value in one sample",
        needs=_GUARD,
    ),
    Bug(
        rule="NUM105",
        program="numbers:eps_lost_in_half",
        summary="an eps of Adam that is zero in float16",
        needs=_GUARD,
    ),
    Bug(
        rule="NUM122",
        program="numbers:cancelling_variance",
        summary="the mean of squares minus the square of the mean",
        needs=_GUARD,
        also=("NUM121",),
    ),
    # the loop
    Bug(
        rule="AUD101",
        program="loops:cleared_before_step",
        summary="gradients cleared between backward and step",
        needs=_AUDIT,
    ),
    Bug(
        rule="AUD102",
        program="loops:never_cleared",
        summary="gradients of all steps add up",
        needs=_AUDIT,
    ),
    Bug(
        rule="AUD107",
        program="loops:clipped_while_scaled",
        summary="gradients clipped before they are unscaled",
        needs=_AUDIT,
    ),
    Bug(
        rule="AUD201",
        program="loops:part_left_out",
        summary="an optimizer that holds the head only",
        needs=_AUDIT,
    ),
    Bug(
        rule="AUD202",
        program="loops:head_replaced_late",
        summary="a head replaced after the optimizer was made",
        needs=_AUDIT,
    ),
    Bug(
        rule="AUD204",
        program="loops:body_detached",
        summary="a body cut off by detach",
        needs=_AUDIT,
    ),
    Bug(
        rule="AUD301",
        program="loops:kept_in_eval_mode",
        summary="a model left in eval mode after its evaluation",
        needs=_AUDIT,
    ),
    Bug(
        rule="AUD401",
        program="loops:softmax_before_loss",
        summary="probabilities in a loss that expects logits",
        needs=_AUDIT,
    ),
    Bug(
        rule="AUD404",
        program="loops:broadcast_target",
        summary="an output [N, 1] minus a target [N]",
        needs=_AUDIT,
    ),
    # the run
    Bug(
        rule="RUN201",
        program="courses:rate_too_high",
        summary="a learning rate a thousand times too high",
        needs=_LIVE,
    ),
    Bug(
        rule="RUN401",
        program="courses:layer_born_dead",
        summary="a layer that ReLU never lets through",
        needs=_LIVE,
    ),
    Bug(
        rule="RUN301",
        program="courses:one_bad_batch",
        summary="one batch in other units",
        needs=_WATCH,
        also=("RUN103", "RUN502"),
    ),
    Bug(
        rule="RUN108",
        program="courses:learnt_by_heart",
        summary="a validation loss that rises while the training loss falls",
        needs=_WATCH,
    ),
    Bug(
        rule="RUN203",
        program="courses:rate_zeroed",
        summary="a schedule that ends after a third of the run",
        needs=_WATCH,
    ),
    # operators
    Bug(
        rule="CHK201",
        program="operators:factor_forgotten",
        summary="a wrong constant in a derivative",
        needs=("check",),
    ),
    Bug(
        rule="CHK212",
        program="operators:strides_ignored",
        summary="a backward that ignores the strides of its cotangent",
        needs=("check",),
    ),
    Bug(
        rule="CHK231",
        program="operators:input_overwritten",
        summary="an operator that writes into its argument",
        needs=("check",),
    ),
    # gradients
    Bug(
        rule="GEO201",
        program="geometry:record_in_other_units",
        summary="one sample a thousand times too large",
        needs=("trace",),
    ),
    Bug(
        rule="GEO101",
        program="geometry:losses_in_conflict",
        summary="two losses that pull a layer apart",
        needs=("trace",),
        also=("GEO102",),
    ),
    Bug(
        rule="GEO301",
        program="geometry:steps_too_small",
        summary="a learning rate a thousand times too small",
        needs=("trace", "guard"),
    ),
    # records
    Bug(
        rule="REP101",
        program="records:code_changed",
        summary="code changed by a millionth since the run",
        needs=("capture", "replay"),
    ),
    Bug(
        rule="REP301",
        program="records:step_that_broke_it",
        summary="one sample that throws the loss far up",
        needs=("capture", "bisect"),
        also=("REP302",),
    ),
    # half precision
    Bug(
        rule="PRC101",
        program="half:digits_lost",
        summary="a module that subtracts what it has just added",
        needs=("precision",),
    ),
    Bug(
        rule="PRC102",
        program="half:range_left",
        summary="squares beyond the largest float16",
        needs=("precision",),
    ),
    # promises
    Bug(
        rule="CON102",
        program="promises:gradient_outside",
        summary="a bound of the gradient, broken by one batch",
        needs=_HELD,
    ),
    Bug(
        rule="CON104",
        program="promises:weights_that_stay",
        summary="a promise to learn, broken by the learning rate",
        needs=_HELD,
    ),
)
"""In the order in which they are run."""
