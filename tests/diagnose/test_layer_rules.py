"""Rules about layers: units, activations, weights and gradients by depth."""

import pytest

SHRINKING = ("inp", "mid.0", "mid.2", "head")


@pytest.fixture
def judge_layers(judge, healthy, sound_layers):
    """Judge a healthy run in which some measurements of layers are changed."""

    def run(change, *, hints=None, rows=120, frozen_rows=None):
        def layers(index):
            table = {name: dict(column) for name, column in sound_layers(index).items()}
            change(table, index)
            return table

        return judge(frozen_rows or healthy(rows), hints=hints, layers=layers)

    return run


# ---------------------------------------------------------------- RUN401, RUN410
@pytest.mark.parametrize(("share", "expected"), [(0.99, ["RUN401"]), (0.97, [])])
def test_dead_units_are_reported_with_the_layer_that_feeds_them(judge_layers, share, expected):
    def change(table, index):
        table["dead_fraction"]["mid.1"] = share

    found = judge_layers(change)

    assert found.rules == expected
    assert [issue.where.module for issue in found.issues] == ["mid.0"] * len(expected)


def test_two_measurements_are_no_verdict(judge_layers):
    def change(table, index):
        if index < 20:
            table["dead_fraction"]["mid.1"] = 1.0

    assert judge_layers(change).rules == []


def test_many_zeros_are_no_dead_units(judge_layers):
    def change(table, index):
        table["zero_fraction"].update({"mid.1": 0.95, "mid.3": 0.95})

    assert judge_layers(change).rules == []


def test_the_most_upstream_dead_layer_is_named_once(judge_layers):
    def change(table, index):
        table["dead_fraction"].update({"mid.1": 1.0, "mid.3": 1.0, "drop": 1.0})

    found = judge_layers(change)

    assert found.rules == ["RUN401"]
    assert found.issues[0].where.module == "mid.0"


def test_a_dropout_that_drops_all_is_told_from_dead_units(judge_layers):
    def change(table, index):
        table["dead_fraction"]["drop"] = table["zero_fraction"]["drop"] = 1.0

    found = judge_layers(change)

    assert found.rules == ["RUN410"]
    assert found.issues[0].where.module == "drop"


# ---------------------------------------------------------------- RUN402
@pytest.mark.parametrize(
    ("first", "share", "expected"),
    [(0, 0.55, ["RUN402"]), (0, 0.45, []), (30, 0.75, ["RUN402"]), (30, 0.65, [])],
)
def test_saturation_from_the_start_is_reported(judge_layers, first, share, expected):
    def change(table, index):
        if index >= first:
            table["saturated_fraction"]["inp_act"] = share

    assert judge_layers(change).rules == expected


def test_saturation_late_in_a_run_is_not(judge_layers):
    def change(table, index):
        table["saturated_fraction"]["inp_act"] = 0.95 if index > 100 else 0.1

    assert judge_layers(change, rows=300).rules == []


# ---------------------------------------------------------------- RUN302, RUN303
@pytest.mark.parametrize(("first", "expected"), [(1e-6, ["RUN302"]), (3e-4, [])])
def test_gradients_that_vanish_towards_the_input(judge_layers, first, expected):
    def change(table, index):
        table["grad_norm"] = {"inp": first, "mid.0": 1e-3, "mid.2": 2e-2, "head": 0.4}

    assert judge_layers(change).rules == expected


@pytest.mark.parametrize(("first", "expected"), [(1e5, ["RUN303"]), (1e3, [])])
def test_gradients_that_explode_towards_the_input(judge_layers, first, expected):
    def change(table, index):
        table["grad_norm"] = {"inp": first, "mid.0": 900.0, "mid.2": 20.0, "head": 0.4}

    assert judge_layers(change).rules == expected


def test_a_converged_run_loses_its_gradients_in_all_layers(judge_layers):
    def change(table, index):
        table["grad_norm"] = dict.fromkeys(table["grad_norm"], 1e-09)

    assert judge_layers(change).rules == []


# ---------------------------------------------------------------- RUN206 for layers
def test_a_layer_that_never_changes_is_reported(judge_layers):
    def change(table, index):
        table["update_ratio"]["mid.0"] = 0.0

    found = judge_layers(change)

    assert found.rules == ["RUN206"]
    assert found.issues[0].where.module == "mid.0"
    assert found.issues[0].severity.label == "high"


def test_without_a_gradient_it_may_be_frozen_on_purpose(judge_layers):
    def change(table, index):
        table["update_ratio"]["inp"] = table["grad_norm"]["inp"] = 0.0

    found = judge_layers(change)

    assert found.rules == ["RUN206"]
    assert found.issues[0].severity.label == "medium"


def test_a_gradient_lost_to_rounding_vanishes_and_is_not_forgotten(judge_layers):
    def change(table, index):
        table["update_ratio"]["inp"] = 0.0
        table["grad_norm"] = {"inp": 1e-8, "mid.0": 1e-4, "mid.2": 1e-2, "head": 0.4}

    assert judge_layers(change).rules == ["RUN302"]


def test_layers_below_dead_units_are_not_reported_besides(judge_layers):
    def change(table, index):
        table["dead_fraction"]["mid.3"] = 1.0
        for layer in ("inp", "mid.0", "mid.2"):
            table["update_ratio"][layer] = table["grad_norm"][layer] = 0.0

    assert judge_layers(change).rules == ["RUN401"]


def test_at_most_three_layers_are_named(judge_layers):
    def change(table, index):
        table["update_ratio"] = {f"layer.{i}": 0.0 for i in range(8)} | {"head": 0.1}

    assert judge_layers(change).rules == ["RUN206"] * 3


# ---------------------------------------------------------------- RUN404, RUN407, RUN408
def test_weights_of_zero_in_several_layers_are_reported(judge_layers):
    def change(table, index):
        table["weight_norm"].update({"inp": 0.0, "mid.0": 0.0})

    assert judge_layers(change).rules[0] == "RUN404"


def test_one_layer_of_zeros_may_be_an_adapter(judge_layers):
    def change(table, index):
        table["weight_norm"]["mid.2"] = 0.0 if index == 0 else 0.1

    assert judge_layers(change).rules == []


def test_units_that_are_zero_for_the_same_samples_are_copies(judge_layers):
    def change(table, index):
        table["zero_fraction"] = {"inp_act": 0.625, "mid.1": 0.375}
        table["dead_fraction"] = {"inp_act": 0.0, "mid.1": 0.0}

    found = judge_layers(change, hints={"batch_size": 32})

    assert found.rules == ["RUN404"]
    assert found.issues[0].where.module == "inp"


def test_other_shares_of_zeros_are_ordinary(judge_layers):
    def change(table, index):
        table["zero_fraction"] = {"inp_act": 0.625, "mid.1": 0.377}
        table["dead_fraction"] = {"inp_act": 0.0, "mid.1": 0.0}

    assert judge_layers(change, hints={"batch_size": 32}).rules == []


@pytest.mark.parametrize(("share", "expected"), [(0.04, ["RUN408"]), (0.06, [])])
def test_weights_that_shrink_to_nothing_are_reported(judge_layers, share, expected):
    def change(table, index):
        factor = share if index >= 60 else 1.0
        table["weight_norm"] = {
            layer: factor * norm for layer, norm in table["weight_norm"].items()
        }

    assert judge_layers(change).rules == expected


def growing(last):
    def change(table, index):
        table["weight_norm"]["head"] = last ** (index / 110)

    return change


@pytest.mark.parametrize(("last", "expected"), [(60.0, ["RUN407"]), (25.0, [])])
def test_weights_that_run_away_without_a_gain_are_reported(judge_layers, healthy, last, expected):
    rows = [{**row, "loss": 2.0 + 0.01 * (index % 7)} for index, row in enumerate(healthy(120))]

    assert judge_layers(growing(last), frozen_rows=rows).rules == expected


def test_weights_that_grow_while_the_loss_falls_are_right(judge_layers):
    assert judge_layers(growing(60.0)).rules == []


# ---------------------------------------------------------------- RUN403, RUN405, RUN406, RUN505
def test_a_spread_that_changes_by_ten_per_layer_is_reported(judge_layers):
    def change(table, index):
        table["activation_std"] = {"inp_act": 1.0, "mid.1": 0.05, "mid.3": 2e-3, "mid.5": 1e-4}

    assert judge_layers(change).rules == ["RUN403"]


def test_a_spread_that_changes_by_three_per_layer_is_not(judge_layers):
    def change(table, index):
        table["activation_std"] = {"inp_act": 1.0, "mid.1": 0.3, "mid.3": 0.1, "mid.5": 0.03}

    assert judge_layers(change).rules == []


@pytest.mark.parametrize(("entropy", "expected"), [(0.02, ["RUN405"]), (0.1, [])])
def test_attention_that_looks_at_one_place_is_reported(judge_layers, entropy, expected):
    def change(table, index):
        table["attention_entropy"] = {"mid.0": 3.0 if index < 50 else entropy}

    assert judge_layers(change).rules == expected


def test_an_output_without_spread_is_a_collapse_of_custom_losses(judge_layers):
    def change(table, index):
        if index >= 50:
            table["activation_std"]["head"] = 1e-3

    assert judge_layers(change, hints={"loss": "custom"}).rules == ["RUN406"]
    assert judge_layers(change).rules == []


def test_a_solved_loss_needs_half_of_the_spread_only(judge_layers, healthy):
    def change(table, index):
        if index >= 50:
            table["activation_std"]["head"] = 0.2

    rows = healthy(200, start=1.0, end=1e-4, noise=0.0, scale=10.0)
    hints = {"loss": "custom"}

    assert judge_layers(change, hints=hints, frozen_rows=rows).rules == ["RUN406"]
    assert judge_layers(change, hints=hints).rules == []  # the loss is not solved


@pytest.mark.parametrize(("spread", "expected"), [(30.0, ["RUN505"]), (6.0, [])])
def test_inputs_of_another_scale_are_seen_in_the_first_outputs(judge_layers, spread, expected):
    def change(table, index):
        table["activation_std"]["inp_act"] = spread

    assert judge_layers(change).rules == expected


# ---------------------------------------------------------------- cause and consequence
def test_what_follows_from_dead_units_is_told_as_information(judge_layers, healthy):
    def change(table, index):
        table["dead_fraction"]["mid.3"] = 1.0

    rows = [{**row, "loss": 2.079} for row in healthy(300)]
    found = judge_layers(change, frozen_rows=rows, hints={"loss": "cross_entropy", "classes": 8})

    assert found.rules == ["RUN401"]
    follower = found.one("RUN107")
    assert follower.evidence["follows_from"] == "RUN401"
    assert follower.related == (found.one("RUN401").fingerprint,)
