import math

import pytest

from nabla_causal.frames import ABSENT, Frames, largest
from nabla_causal.onsets import onsets
from nabla_causal.propagation import propagation_of
from nabla_causal.propagation_issue import issue_of, propagation_in


def later(step, layers, steps, change):
    """From a step on, these layers are changed by a function of their place."""
    return {(at, layer): change(layer) for at in range(step, steps) for layer in layers}


def test_a_steady_model_has_no_onset(frames):
    assert onsets(frames(6, 40)) == []


@pytest.mark.parametrize("origin", range(6))
def test_the_first_layer_that_explodes_is_the_origin(frames, origin):
    changed = later(20, range(origin, 6), 24, lambda layer: 1e6 * (1.0 + layer))

    found = propagation_of(frames(6, 24, outputs=changed))

    first = found.onsets[0]
    assert (first.layer, first.step, first.state) == (origin, 20, "exploding")
    assert not found.spread
    assert [onset.layer for onset in found.onsets] == list(range(origin, 6))
    assert found.transitions()[0].failure == "exploding_activations"


def test_a_rise_just_below_the_limit_is_none(frames):
    # the limit is 8 times the median, which lies between the smallest and the largest value
    assert onsets(frames(3, 30, outputs={(25, 1): 2.0 * 7.2}, wobble=0.0)) == []
    assert onsets(frames(3, 30, outputs={(25, 1): 2.0 * 8.8}, wobble=0.0)) != []


def test_what_varies_by_itself_needs_a_larger_change(frames):
    noisy = {(step, 0): 2.0 ** (6 * (step % 3 - 1)) for step in range(30)}

    assert onsets(frames(2, 30, outputs=noisy)) == []


@pytest.mark.parametrize("origin", range(5))
def test_a_gradient_that_explodes_begins_at_the_layer_nearest_to_the_loss(frames, origin):
    changed = later(15, range(origin + 1), 18, lambda layer: 1e5)

    found = propagation_of(frames(5, 18, gradients=changed))

    assert (found.onsets[0].layer, found.onsets[0].quantity) == (origin, "gradients")
    assert found.transitions()[0].failure == "exploding_gradients"


def test_the_forward_pass_comes_before_the_backward_pass_of_the_same_step(frames):
    found = propagation_of(
        frames(4, 12, outputs={(11, 3): math.inf}, gradients={(11, 0): math.inf})
    )

    assert [(o.layer, o.quantity) for o in found.onsets] == [(3, "outputs"), (0, "gradients")]


def test_a_layer_that_becomes_zero_is_dead(frames):
    found = propagation_of(frames(4, 30, outputs=later(12, [2], 30, lambda layer: 0.0)))

    assert (found.onsets[0].layer, found.onsets[0].step) == (2, 12)
    assert found.transitions()[0].to_state == "dead"


def test_a_layer_that_was_never_anything_but_zero_is_dead_from_the_start(frames):
    found = propagation_of(frames(4, 6, outputs=later(0, [1], 6, lambda layer: 0.0)))

    assert (found.onsets[0].layer, found.onsets[0].step) == (1, 0)


def test_layers_that_change_of_themselves_point_to_the_step_before(frames):
    changed = {(20, layer): 10.0 ** (layer + 2) for layer in range(8)}

    found = propagation_of(frames(8, 21, outputs=changed))

    assert found.spread
    root = found.transitions()[0]
    assert (root.failure, root.first_step, root.layer) == ("step_too_large", 19, "")


def test_layers_that_are_not_measured_are_passed_over(frames):
    seen = frames(3, 10)
    absent = {(step, 1): ABSENT for step in range(10)}

    assert onsets(frames(3, 10, outputs=absent)) == []
    assert onsets(Frames(seen.layout, ())) == []


def test_the_largest_magnitude_of_a_range():
    ranges = {
        "out_min": [-3.0, math.inf, math.nan, -math.inf],
        "out_max": [2.0, -math.inf, math.nan, 1.0],
    }

    assert largest(ranges, "out_min", "out_max") == [3.0, ABSENT, math.inf, math.inf]
    assert largest({}, "out_min", "out_max") == []


@pytest.mark.parametrize(
    ("last", "since"),
    [((4.0, 9.0, 20.0), 20), ((1.0, 1.1, 20.0), None), ((2.5, 2.6, 20.0), None)],
    ids=["rises", "jumps", "drifts, then jumps"],
)
def test_a_rise_over_several_steps_is_that_of_the_optimizer(frames, last, since):
    rising = {(20 + place, 0): value for place, value in enumerate(last)}

    found = propagation_of(frames(3, 23, outputs=rising, wobble=0.01))

    root = found.transitions()[0]
    assert found.rising_since == since
    assert (root.failure, root.layer) == (
        ("step_too_large", "") if since else ("exploding_activations", "body.0")
    )
    assert propagation_in(issue_of(found)).rising_since == since
