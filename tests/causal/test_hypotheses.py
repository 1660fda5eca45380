import json

import pytest

from nabla_causal import explain
from nabla_causal.meaning import FAILURES, KINDS
from nabla_causal.mechanisms import LEADS_TO
from nabla_causal.propagation import propagation_of
from nabla_causal.propagation_issue import issue_of, propagation_in
from nabla_core.errors import ReportFormatError, UsageError
from nabla_core.report import Report
from nabla_core.reporters.json import render
from nabla_core.reporters.style import Style
from nabla_core.severity import Severity


def rules(hypothesis):
    return [transition.rule for transition in hypothesis.chain]


def test_nothing_found_explains_nothing():
    explanation = explain([])

    assert not explanation
    assert explanation.best is None
    assert "nothing to explain" in explanation.format()


@pytest.mark.parametrize(
    ("cause", "effects"),
    [
        ("RUN204", ["RUN401", "RUN105", "RUN301"]),
        ("RUN501", ["RUN104", "RUN301"]),
        ("AUD102", ["RUN303", "RUN105"]),
        ("RUN402", ["RUN302", "RUN107"]),
        ("RUN403", ["NUM101", "RUN105"]),
    ],
)
def test_symptoms_do_not_outrank_their_cause(finding, cause, effects):
    issues = [finding(rule, step=30 + number) for number, rule in enumerate(effects)]

    explanation = explain([*issues, finding(cause, step=29)])

    assert explanation.best.root.rule == cause
    assert set(rules(explanation.best)) == {cause, *effects}
    assert len(explanation.hypotheses) == 1


def test_what_began_long_after_is_no_cause(finding):
    explanation = explain([finding("RUN204", step=300), finding("NUM101", step=100)])

    assert [hypothesis.root.rule for hypothesis in explanation.hypotheses] == ["NUM101", "RUN204"]


def test_a_layer_named_from_the_root_on_is_the_same_layer(finding):
    left_out = finding("AUD201", step=2, layer="Net.head")
    still = finding("RUN206", step=1, layer="head", severity=Severity.MEDIUM)

    (best,) = explain([still, left_out]).hypotheses

    assert rules(best) == ["AUD201", "RUN206"]
    assert (best.root.layer, best.root.first_step) == ("head", 1)


@pytest.mark.parametrize(("told", "first"), [(3, "AUD409"), (4, "NUM103")])
def test_targets_told_after_three_steps_were_ignored_from_the_first_on(finding, told, first):
    explanation = explain([finding("NUM103", step=0), finding("AUD409", step=told)])

    assert explanation.best.root.rule == first


def test_a_known_consequence_stays_one(finding):
    from dataclasses import replace

    cause = finding("RUN507", step=50)
    effect = replace(
        finding("RUN401", step=10, severity=Severity.INFO), related=(cause.fingerprint,)
    )

    assert rules(explain([effect, cause]).best) == ["RUN507", "RUN401"]


def test_two_causes_stand_side_by_side_and_speak_against_each_other(finding):
    explanation = explain([finding("AUD401", step=0), finding("RUN408", step=2, layer="head")])

    assert len(explanation.hypotheses) == 2
    assert "RUN408" in explanation.best.contradicts[0]
    assert len(explanation.couplings()) == 1
    assert explanation.couplings(window=1) == ()
    assert {cause.rule for cause in explanation.causes()} == {"CAU101", "CAU103"}


def test_a_finding_gets_the_layer_in_which_it_began(finding, frames):
    changed = {(step, layer): 1e9 for step in (20, 21) for layer in (2, 3, 4)}
    shown = issue_of(propagation_of(frames(5, 22, outputs=changed)))

    explanation = explain([finding("RUN105", step=21), shown])

    best = explanation.best
    assert (best.root.layer, best.root.first_step) == ("body.2", 20)
    assert [step.layer for step in explanation.chain("optimizer_instability")][:1] == ["body.2"]
    assert "body.2" in best.description
    assert best.cause().rule == "CAU102"
    assert best.cause().where.module == "body.2"


def test_ranges_alone_accuse_nobody(frames):
    shown = issue_of(propagation_of(frames(5, 22, outputs={(20, 2): 1e9})))

    assert not explain([shown])


def test_a_propagation_survives_a_report(frames):
    changed = {(step, layer): 1e9 for step in (20, 21) for layer in (2, 3, 4)}
    found = propagation_of(frames(5, 22, outputs=changed, gradients={(21, 1): 0.0}))

    back = propagation_in(issue_of(found))

    assert [onset.order for onset in back.onsets] == [onset.order for onset in found.onsets]
    assert [step.failure for step in back.transitions()] == [
        step.failure for step in found.transitions()
    ]


HOSTILE_PATHS = (
    *("", "x", "step 2 layer 3", "a" * 9999),
    "step 1 layer 9999999999 a outputs zero from 0 to 0",
    "step 1 layer -1 a outputs zero from 0 to 0",
)


@pytest.mark.parametrize("path", HOSTILE_PATHS)
def test_a_damaged_path_is_passed_over(frames, path):
    from dataclasses import replace

    issue = issue_of(propagation_of(frames(5, 22, outputs={(20, 2): 1e9})))

    assert propagation_in(replace(issue, evidence={**issue.evidence, "path": path})) is None


def test_a_stored_report_explains_as_the_live_one(finding, tmp_path):
    issues = (finding("RUN204", step=3), finding("RUN105", step=9))
    path = tmp_path / "report.json"
    path.write_text(render(Report(issues=issues), Style()))

    assert explain(path).to_dict() == explain(issues).to_dict()


def test_hypotheses_of_one_kind(finding):
    issues = [finding("RUN402", step=0), finding("RUN302", step=5), finding("RUN108", step=0)]

    assert [h.root.rule for h in explain(issues, "gradient_health").hypotheses] == ["RUN402"]
    assert [step.rule for step in explain(issues).chain("vanishing_gradients")] == [
        "RUN402",
        "RUN302",
    ]
    with pytest.raises(UsageError, match="choose from"):
        explain(issues, "bad_luck")


def test_what_cannot_be_explained_is_said(tmp_path):
    with pytest.raises(UsageError, match="needs a monitor"):
        explain(3)
    with pytest.raises(UsageError, match="needs a monitor"):
        explain([3])
    (tmp_path / "x.json").write_text("[")
    with pytest.raises(ReportFormatError):
        explain(tmp_path / "x.json")


def test_the_timeline_joins_what_touches(finding):
    issues = [finding("RUN301", step=step, layer=f"{step}") for step in (3, 4)]
    issues += [finding("RUN103", step=7)]

    timeline = explain(issues).timeline()

    assert [transition.first_step for transition in timeline] == [3, 4, 7]


def test_names_cannot_steer_the_diagram(finding):
    issues = [
        finding("RUN401", step=0, layer='a"] --> evil[<script>alert(1)</script>]\n click x'),
        finding("RUN107", step=0),
    ]

    text = explain(issues).to_mermaid()

    assert "<script>" not in text
    assert text.count("\n") == 4
    assert json.dumps(explain(issues).to_dict())


def test_the_tables_use_names_that_exist():
    for cause, (effects, why) in LEADS_TO.items():
        assert {cause, *effects.split()} <= set(FAILURES) | {"shrinking_activations"}
        assert why
    assert "gradient_health" in KINDS


def test_settings_are_not_made_by_data(finding):
    roots = explain([finding("RUN502", step=9), finding("RUN204", step=9)]).hypotheses

    assert len(roots) == 2


def test_what_is_wrong_with_the_loop_is_seen_in_a_layer(finding):
    issues = [finding("AUD202", step=2), finding("RUN206", step=1, layer="head")]

    (only,) = explain(issues).hypotheses

    assert rules(only) == ["AUD202", "RUN206"]
    assert only.root.first_step == 1  # a cause began no later than what followed from it
    assert (only.root.layer, only.cause().where.module) == ("head", "head")


def test_what_is_seen_in_several_layers_names_none(finding):
    issues = [finding("RUN206", step=1, layer=layer) for layer in ("body", "head")]

    (only,) = explain([finding("AUD202", step=2), *issues]).hypotheses

    assert only.root.layer == ""


def test_an_exact_number_does_not_wait_for_a_statistical_cause(finding):
    issues = [finding("RUN201", step=1), finding("NUM105", step=0)]

    assert explain(issues).best.root.rule == "NUM105"


@pytest.mark.parametrize(("reexecuted", "root"), [(True, "NUM105"), (False, "CAU102")])
def test_a_buffer_that_was_not_finite_before_the_step_is_the_origin(
    finding, frames, reexecuted, root
):
    from dataclasses import replace

    bad = {(20, layer): float("inf") for layer in range(1, 4)}
    shown = issue_of(propagation_of(frames(4, 21, outputs=bad)))
    found = finding("NUM105", step=20, layer="body.2")  # whose module had run before, too
    if reexecuted:
        found = replace(found, evidence={**found.evidence, "inputs_finite": True})

    explanation = explain([found, shown])

    assert explanation.best.root.rule == root
    assert len(explanation.hypotheses) == 1


def test_a_gradient_that_the_last_layer_was_given_may_come_from_the_loss(finding, frames):
    shown = issue_of(propagation_of(frames(4, 21, gradients={(20, 3): 1e6})))

    best = explain([finding("RUN105", step=20), shown]).best

    assert "began in body.3 or in the loss behind it at step 20" in best.description


def test_a_layer_that_grew_a_little_does_not_explain_large_steps(finding, frames):
    changed = {(step, 2): 3.0 * 10.0 for step in (20, 21)}
    shown = issue_of(propagation_of(frames(5, 22, outputs=changed)))

    assert explain([finding("RUN201", step=21), shown]).best.root.rule == "RUN201"


def test_layers_that_pass_something_on_share_a_line(finding, frames):
    changed = {(step, layer): 1e9 for step in (20, 21) for layer in range(2, 12)}
    shown = issue_of(propagation_of(frames(12, 22, outputs=changed)))

    text = explain([finding("RUN105", step=21), shown]).format()

    assert "exploding outputs of body.3, body.4, body.5, … body.11 (9 layers, CAU102)" in text
    assert "body.2, or between body.1 and body.2 at step 20" in text


def test_the_same_of_several_layers_shares_a_line(finding):
    issues = [finding("RUN302", step=0, layer="0")]
    issues += [finding("RUN206", step=1, layer=layer) for layer in "024"]

    assert "the same of 2, 4" in explain(issues).format()


def test_what_the_first_layer_was_given_is_to_be_looked_at(finding, frames):
    changed = {(20, layer): 1e3 * (1.0 + layer) for layer in range(4)}
    shown = issue_of(propagation_of(frames(4, 21, outputs=changed)))

    best = explain([finding("RUN103", step=20), shown]).best

    assert "began in body.0 or in what it was given at step 20" in best.description
    assert best.tests[0].startswith("Train the same steps without the batch of step 20")


@pytest.mark.parametrize(("step", "root"), [(5, "RUN105"), (4, "CAU105")])
def test_a_loss_that_rose_before_did_not_begin_in_the_layer(finding, step, root):
    found = [finding("RUN105", step=3), finding("CAU105", step=step, layer="0")]

    assert explain(found).best.root.rule == root


def test_what_has_no_step_is_not_dated(finding):
    (found,) = explain([finding("GEO101", step=None, severity=Severity.MEDIUM)]).hypotheses

    assert found.description.startswith("Losses that fight each other began (GEO101")
    assert found.cause().step is None
    assert "one of the losses left out" in found.tests[0]


def test_two_faults_of_the_loop_are_two_causes(finding):
    found = explain([finding("AUD704", step=2), finding("AUD701", step=25, layer="head")])

    assert [one.root.rule for one in found.hypotheses] == ["AUD704", "AUD701"]
    assert all(len(one.chain) == 1 for one in found.hypotheses)


def test_ranks_that_drift_apart_are_called_so(finding):
    (only,) = explain([finding("AUD701", step=25, layer="head")]).hypotheses

    assert only.description.startswith("Ranks that drift apart began in head at step 25")
    assert "one rank only" in only.tests[0]


def test_a_fault_began_where_its_rule_says_and_not_where_it_was_told(finding):
    from dataclasses import replace

    told = finding("AUD301", step=62)
    told = replace(told, evidence={"since_step": 60})

    (only,) = explain([told, finding("RUN201", step=61)]).hypotheses

    assert (only.root.rule, only.root.first_step, only.root.last_step) == ("AUD301", 60, 62)
