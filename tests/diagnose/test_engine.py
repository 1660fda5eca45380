"""A run as a whole: live and afterwards, the order of causes, hints, mutes, what is not said."""

import math

import pytest

import nabla
from nabla_core.errors import ConfigError, SelectorError, UsageError
from nabla_core.records import StepRecord
from nabla_core.rule import Rule
from nabla_core.severity import Severity
from nabla_diagnose.consequences import EXPLAINS
from nabla_diagnose.engine import lint_records
from nabla_diagnose.ranking import CAUSAL_ORDER, rank
from nabla_diagnose.rules import RULES


@pytest.fixture(autouse=True)
def _no_configuration(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def jumping(healthy):
    rows = healthy(300)
    for row in rows[200:]:
        row["lr"] *= 30.0
        row["loss"] += 2.0
    for row in rows[260:]:
        row["loss"] = math.nan
    return rows


def records_of(rows):
    return [
        StepRecord(step=index, time_s=float(index), signals=row) for index, row in enumerate(rows)
    ]


def told(issues):
    return [(issue.rule, issue.step, issue.message) for issue in issues]


# ---------------------------------------------------------------- live and afterwards
def test_live_and_afterwards_say_the_same_row_by_row(jumping):
    run = nabla.watch(quiet=True)
    live = [issue for index, row in enumerate(jumping) for issue in run.log(index, **row)]
    afterwards = nabla.lint(records_of(jumping))

    assert told(live) == told(run.finish().issues) == told(afterwards.issues)
    assert [issue.rule for issue in live] == ["RUN204", "RUN101"]


def test_a_prefix_of_a_run_says_what_the_run_had_said_by_then(jumping):
    whole = nabla.watch(quiet=True)
    said = [[issue.rule for issue in whole.log(i, **row)] for i, row in enumerate(jumping)]
    first = next(index for index, rules in enumerate(said) if rules)

    assert not lint_records(records_of(jumping[:first])).issues
    assert lint_records(records_of(jumping[: first + 1])).issues


def test_each_issue_is_returned_once(jumping):
    run = nabla.watch(quiet=True)
    found = [issue.fingerprint for i, row in enumerate(jumping) for issue in run.log(i, **row)]

    assert len(found) == len(set(found))


def test_layers_may_come_and_go(sound_layers, healthy):
    run = nabla.watch(quiet=True)
    for index, row in enumerate(healthy(120)):
        table = sound_layers(index)
        table["update_ratio"]["mid.0"] = 0.0
        run.log(index, layers=table if index % 10 == 0 else None, **row)

    assert [issue.where.module for issue in run.finish().issues] == ["mid.0"]


# ---------------------------------------------------------------- hints, mutes, alerts
def test_an_unknown_hint_is_named_with_the_nearest():
    with pytest.raises(ConfigError, match="batch-size"):
        nabla.watch(hints={"batch_sise": 4})


def test_hints_may_be_none():
    nabla.watch(hints={"loss": "custom", "classes": None}, quiet=True).log(0, loss=1.0)


@pytest.mark.parametrize("mute", ["RUN101", "GS001", "non-finite-loss-logged"])
def test_rules_are_muted_by_any_of_their_names(jumping, mute):
    assert "RUN101" not in [
        issue.rule for issue in nabla.lint(records_of(jumping), mute={mute}).issues
    ]


def test_muting_what_does_not_exist_is_an_error():
    with pytest.raises(SelectorError, match="GS999"):
        nabla.watch(mute={"GS999"})


def test_alerts_come_at_once(jumping):
    heard = []
    run = nabla.watch(on_alert=heard.append, quiet=True)

    for index, row in enumerate(jumping):
        assert heard == [*run.issues]
        run.log(index, **row)

    assert [issue.rule for issue in heard] == ["RUN204", "RUN101"]


def test_verdicts_go_to_stderr_and_the_report_to_stdout(jumping, capsys):
    with nabla.watch() as run:
        for index, row in enumerate(jumping):
            run.log(index, **row)
    during = capsys.readouterr()
    run.report()

    assert during.out == ""
    assert "RUN204" in during.err
    assert "RUN204" in capsys.readouterr().out


def test_lint_needs_a_log_or_records():
    with pytest.raises(UsageError, match="path of a log"):
        nabla.lint(3)


# ---------------------------------------------------------------- what is not said
def test_rules_without_their_signals_are_not_evaluated(falling):
    report = lint_records(records_of([{"loss": loss} for loss in falling(100)]))
    skipped = {entry.rule: entry.reason for entry in report.not_evaluated}

    assert report.passed
    assert not set(skipped) & set(report.rules_used)
    assert "grad_norm" in skipped["RUN301"]
    assert "RUN105" not in skipped


def test_an_empty_run_has_too_little_evidence():
    report = lint_records([])

    assert report.passed
    assert [issue.rule for issue in report.issues] == ["RUN901"]


def test_rows_without_a_loss_are_no_evidence():
    report = lint_records(records_of([{"accuracy": 0.5}] * 100))

    assert [issue.rule for issue in report.issues] == ["RUN901"]


def test_odd_numbers_raise_nothing(healthy):
    odd = [math.inf, -math.inf, math.nan, 0.0, -1.0, 1e308, -1e308, 5e-324]
    for name in ("loss", "val_loss", "lr", "grad_norm", "update_ratio", "clip_coef", "d_loss"):
        rows = healthy(120)
        for index, value in enumerate(odd * 10):
            rows[20 + index][name] = value
        report = lint_records(records_of(rows))
        assert [problem for problem in report.problems if problem.rule == "NAB008"] == [], name


# ---------------------------------------------------------------- order of causes
def test_the_cause_comes_before_what_follows_from_it(jumping):
    ranked = lint_records(records_of(jumping)).ranked

    assert [issue.rule for issue in ranked] == ["RUN204", "RUN101"]


def issue_of(rule_id, row, severity=None):
    rule = next((rule for rule in RULES if rule.id == rule_id), None) or Rule(
        id=rule_id, name=rule_id.lower(), summary="s", rationale="r", fix="f", limits="l",
        severity=Severity.HIGH, since="0.1",
    )  # fmt: skip
    return rule.issue("m", step=row, row=row, severity=severity)


def test_the_deeper_of_two_at_the_same_time_comes_first():
    shuffled = [issue_of("RUN105", 100), issue_of("RUN401", 108), issue_of("RUN107", 0)]

    assert [issue.rule for issue in rank(shuffled)] == ["RUN107", "RUN401", "RUN105"]


def test_exact_facts_come_first_and_information_last():
    shuffled = [
        issue_of("RUN507", 0),
        issue_of("RUN105", 1, Severity.INFO),
        issue_of("RUN401", 50),
        issue_of("AUD101", 90),
    ]

    assert [issue.rule for issue in rank(shuffled)] == ["AUD101", "RUN401", "RUN507", "RUN105"]


def test_every_rule_has_its_place_in_the_causal_order():
    assert sorted(CAUSAL_ORDER) == sorted(rule.id for rule in RULES)


def test_causes_and_what_they_explain_are_rules():
    known = {rule.id for rule in RULES}

    assert set(EXPLAINS) <= known
    assert set().union(*EXPLAINS.values()) <= known
    assert all(cause not in follows for cause, follows in EXPLAINS.items())


def test_the_codes_of_the_old_linter_are_known():
    aliases = {alias for rule in RULES for alias in rule.aliases}

    assert aliases == {f"GS{number:03}" for number in range(1, 11)}
