import json
import math

import pytest

from nabla_core import Location, Quantity, Severity
from nabla_core.errors import RuleDefinitionError
from nabla_core.issue import evidence_from_json


@pytest.mark.parametrize("bad", ["acm101", "AC101", "ACMEX101", "ACM1", "ACM1011"])
def test_a_rule_needs_a_well_formed_id(make_rule, bad):
    with pytest.raises(RuleDefinitionError, match="three or four capitals"):
        make_rule(bad, name="fine")


@pytest.mark.parametrize("text", ["summary", "rationale", "fix", "limits", "since"])
def test_a_rule_states_every_text(make_rule, text):
    with pytest.raises(RuleDefinitionError, match=text):
        make_rule(**{text: " "})


def test_a_rule_name_is_kebab_case(make_rule):
    with pytest.raises(RuleDefinitionError, match="kebab"):
        make_rule(name="Not_Kebab")


def test_an_issue_takes_its_texts_from_the_rule(make_rule):
    rule = make_rule(name="gradient-spike")
    issue = rule.issue("Ratio was 8.1, limit 8.", step=3, ratio=Quantity(value=8.1, limit=8.0))

    assert (issue.rule, issue.category, issue.severity) == (
        "ACM101",
        "GRADIENT_SPIKE",
        rule.severity,
    )
    assert (issue.suggestion, issue.limitation) == (rule.fix, rule.limits)
    assert (issue.step, issue.last_step) == (3, 3)


def test_the_fingerprint_ignores_step_line_value_and_sample(make_rule):
    rule = make_rule()
    first = rule.issue(
        "a", step=1, where=Location(module="m", file="a.py", line=3, sample=1), x=1.0
    )
    later = rule.issue(
        "b", step=9, where=Location(module="m", file="a.py", line=7, sample=2), x=2.0
    )
    other = rule.issue("a", where=Location(module="n", file="a.py"))

    assert first.fingerprint == later.fingerprint != other.fingerprint


def test_json_of_an_issue_is_strict(make_rule):
    issue = make_rule().issue(
        "m",
        where=Location(module="net.0", rank=0),
        worst=Quantity(value=math.nan, unit="ulp", limit=math.inf),
        plain=-math.inf,
        flag=True,
    )
    stored = json.loads(json.dumps(issue.to_dict(), allow_nan=False))

    assert stored["severity"] == "medium"
    assert stored["where"] == {"module": "net.0", "rank": 0}
    assert stored["evidence"]["worst"] == {"value": "nan", "unit": "ulp", "limit": "inf"}
    assert stored["evidence"]["plain"] == "-inf"
    assert stored["evidence"]["flag"] is True


@pytest.mark.parametrize("value", [Quantity(value=1.5, unit="s", limit=2.0), 3, 2.5, "text", True])
def test_evidence_survives_json(value):
    stored = value.to_dict() if isinstance(value, Quantity) else value
    assert evidence_from_json(stored) == value


@pytest.mark.parametrize("value", [None, [1], {"value": "many"}])
def test_evidence_of_another_kind_is_refused(value):
    with pytest.raises(ValueError):
        evidence_from_json(value)


def test_severities_map_to_other_formats():
    assert [s.sarif_level for s in Severity] == ["note", "note", "warning", "error", "error"]
    assert [s.github_level for s in Severity] == ["notice", "notice", "warning", "error", "error"]
    assert Severity.parse(" High ") is Severity.HIGH
    with pytest.raises(ValueError, match="choose one of info, low"):
        Severity.parse("fatal")


def test_locations_and_quantities_read_well():
    place = Location(file="train.py", line=4, module="net.0", parameter="net.0.weight")
    assert str(place) == "train.py:4, module net.0, parameter net.0.weight"
    assert str(Quantity(value=8.1234567, unit="steps", limit=8.0)) == "8.12346 steps (limit 8)"


def test_the_model_itself_is_a_place_with_a_name():
    assert str(Location(module="", op="exp")) == "module (the whole model), op exp"
    assert Location(module="").to_dict() == {"module": ""}
