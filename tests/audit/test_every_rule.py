"""Each rule has two faulty programs of different styles among the tests.

Their healthy twins are other parameters of the same tests, or stand beside them; the programs of
``test_odd_but_healthy`` and ``test_lawful_programs`` must pass under all rules at once.
"""

import importlib

import pytest

from nabla_audit.rules import RULES

FAULTY = {
    "AUD101": (
        "protocol.zero_grad_between_backward_and_step",
        "nothing_written.closures",
    ),
    "AUD102": (
        "protocol.a_loop_that_never_clears",
        "nothing_written.closures",
    ),
    "AUD103": (
        "accumulation.undivided_losses_in_a_plain_loop",
        "accumulation.undivided_losses_in_a_trainer",
    ),
    "AUD104": (
        "accumulation.mean_of_means_over_unequal_token_counts",
        "accumulation.a_loss_divided_by_three_passes_is_meant_as_one_batch",
    ),
    "AUD105": ("accumulation.clearing_per_micro_batch",),
    "AUD106": (
        "accumulation.a_lasting_change_of_the_count_is_told",
        "accumulation.a_trainer_that_doubles_its_passes",
    ),
    "AUD107": ("mixed_precision.clipping_scaled_gradients",),
    "AUD108": (
        "late_edits.gradients_that_are_changed_behind_the_step",
        "unused_calls.clipping_that_no_step_feels",
    ),
    "AUD109": (
        "mixed_precision.a_direct_step_on_scaled_gradients",
        "mixed_precision.one_of_two_losses_is_not_scaled",
    ),
    "AUD110": (
        "mixed_precision.gradients_of_the_other_player",
        "mixed_precision.a_regulariser_with_its_own_optimizer",
    ),
    "AUD111": (
        "freezing.an_optimizer_that_is_made_again",
        "freezing.a_trainer_that_makes_one_in_its_step",
    ),
    "AUD201": (
        "wiring.a_fresh_parameter_that_nobody_holds",
        "wiring.a_body_that_is_unfrozen_beside_another_optimizer",
    ),
    "AUD202": (
        "wiring.an_optimizer_of_another_object",
        "later_and_elsewhere.a_parameter_that_is_made_anew_in_every_step",
    ),
    "AUD203": (
        "made_inside.a_layer_that_is_made_in_forward",
        "reaching.parameters_in_a_plain_container",
    ),
    "AUD204": (
        "reaching.a_cut_in_the_graph",
        "cut_by_torch.a_reentrant_checkpoint_needs_an_input_with_a_gradient",
    ),
    "AUD205": (
        "upkeep.an_optimizer_that_writes_nothing",
        "upkeep.weights_that_are_put_back",
    ),
    "AUD206": (
        "gradient.a_penalty_of_detached_weights",
        "gradient.a_penalty_under_no_grad_in_a_trainer",
    ),
    "AUD207": (
        "dead_and_unreachable_losses.what_has_no_derivative_whatever_the_values",
        "gradient.a_second_derivative_of_a_piecewise_linear_net",
    ),
    "AUD208": (
        "upkeep.weights_that_are_put_back",
        "upkeep.weight_clipping_is_information",
    ),
    "AUD209": (
        "upkeep.a_broken_tie",
        "upkeep.a_tie_that_the_config_declares",
    ),
    "AUD210": (
        "upkeep.buffers_of_an_averaged_copy",
        "vain_upkeep.an_average_of_itself",
    ),
    "AUD211": ("upkeep.a_parameter_held_twice",),
    "AUD212": (
        "freezing.a_freeze",
        "freezing.a_freeze_in_mid_run",
    ),
    "AUD301": (
        "mode.validation_that_does_not_switch_back",
        "mode.a_trainer_that_never_switches_on",
    ),
    "AUD302": (
        "dropout_left_on.dropout_in_evaluation_mode",
        "evaluation.a_validation_in_training_mode",
    ),
    "AUD303": (
        "schedule.a_schedule_that_ran_out",
        "schedule.a_rate_that_never_rises",
    ),
    "AUD304": (
        "schedule.stepping_a_decay_per_micro_batch",
        "schedule.stepping_a_schedule_of_known_length_per_micro_batch",
    ),
    "AUD305": (
        "schedule.stepping_the_schedule_first",
        "schedule.stepping_the_schedule_first_in_each_epoch",
    ),
    "AUD306": (
        "schedule.a_cosine_past_its_end",
        "schedule.a_schedule_in_steps_that_is_stepped_per_epoch",
    ),
    "AUD307": (
        "evaluation.a_checkpoint_that_draws_a_new_mask",
        "vain_upkeep.draws_that_a_checkpoint_does_not_repeat",
    ),
    "AUD308": ("vain_upkeep.rates_that_nobody_reads",),
    "AUD401": (
        "losses.softmax_before_cross_entropy",
        "dead_and_unreachable_losses.probabilities_as_logits_of_a_distribution",
    ),
    "AUD402": (
        "losses.sigmoid_before_a_loss_with_logits",
        "alignment_losses.one_sigmoid_stands_before_a_binary_cross_entropy",
    ),
    "AUD403": (
        "losses.probabilities_into_a_likelihood",
        "alignment_losses.a_ctc_loss_takes_log_probabilities",
    ),
    "AUD404": (
        "losses.a_target_that_is_broadcast",
        "unused_calls.a_product_of_a_column_and_a_flat_tensor",
    ),
    "AUD405": (
        "losses.log_softmax_over_the_batch",
        "losses_by_hand.a_likelihood_by_hand",
    ),
    "AUD406": (
        "influence.a_recurrent_net_that_runs_over_the_batch",
        "influence.a_reshape_that_mixes_samples",
    ),
    "AUD407": (
        "influence.attention_that_sees_the_future",
        "influence.a_loss_inside_the_model",
    ),
    "AUD408": (
        "dead_and_unreachable_losses.targets_that_should_be_signs",
        "losses.labels_of_minus_one",
    ),
    "AUD409": (
        "losses.all_targets_ignored_in_a_sum",
        "losses.all_targets_ignored_in_a_mean_is_reported_at_once",
    ),
    "AUD501": (
        "loading.a_new_iterator_in_each_step",
        "loading.a_new_iterator_inside_a_method",
    ),
    "AUD502": (
        "loading.set_epoch_is_forgotten",
        "kept_passes.a_pass_that_is_kept",
    ),
    "AUD503": (
        "loading.workers_that_copy_a_generator",
        "loading.two_processes_that_draw_the_same",
    ),
    "AUD504": (
        "loading.a_constant_feature_divided_by_its_deviation",
        "loading.an_infinite_column",
    ),
    "AUD601": (
        "own_states.the_best_weights_are_the_last_ones",
        "restored_then_lost.the_optimizer_that_goes_on_is_the_restored_one",
    ),
    "AUD602": (
        "restoring.a_prefix_hides_every_weight",
        "discarded_loads.loaded_and_thrown_away",
    ),
    "AUD603": (
        "restoring.assigned_weights_are_no_longer_tied",
        "restoring.the_file_has_two_weights_for_one",
    ),
    "AUD604": (
        "restoring.a_vocabulary_that_changes",
        "restoring.classes_that_change",
    ),
    "AUD701": (
        "replicas.parameters_part",
        "ranks.two_processes",
    ),
    "AUD702": (
        "replicas.buffers_part",
        "ranks.other_faults_of_one_rank",
    ),
    "AUD703": (
        "replicas.scales_part",
        "ranks.other_faults_of_one_rank",
    ),
    "AUD704": (
        "replicas.equal_batches",
        "ranks.two_processes",
    ),
}
"""For each rule the tests of its faulty programs: two, or one that is given several."""


def programs(name):
    """How many programs a test is given; raises AttributeError where there is no such test."""
    module, _, test = name.partition(".")
    found = getattr(importlib.import_module(f"tests.audit.test_{module}"), f"test_{test}")
    marks = [mark for mark in getattr(found, "pytestmark", ()) if mark.name == "parametrize"]
    return max([1, *(len(mark.args[1]) for mark in marks)])


def test_no_rule_is_left_out():
    assert set(FAULTY) == {rule.id for rule in RULES}


@pytest.mark.parametrize("rule", FAULTY)
def test_a_rule_has_two_faulty_programs(rule):
    names = FAULTY[rule]
    assert len(set(names)) == len(names)
    assert sum(map(programs, names)) >= 2
