import pytest

from nabla_core import Location, Severity
from nabla_core.errors import RuleCollisionError, SelectorError
from nabla_core.registry import Registry, Tombstone
from nabla_core.selection import Selection, SelectionOptions, Selector


def selectors(*texts):
    return tuple(Selector(text=text, source="pyproject.toml: select") for text in texts)


@pytest.fixture
def registry(make_rule):
    registry = Registry()
    for rule_id, changes in {
        "ACM101": {"aliases": ("NG3002",)},
        "ACM102": {"aliases": ("ng3002", "GS001")},
        "ACM201": {"stability": "preview"},
        "ACM301": {"stability": "deprecated"},
    }.items():
        registry.add(make_rule(rule_id, **changes), "acme")
    registry.add(make_rule("OTH101", name="other"), "other")
    return registry


def ids(found):
    return [rule.id for rule in found]


def test_rules_are_found_by_id_name_and_any_case(registry):
    assert ids(registry.find("acm101")) == ids(registry.find("rule-acm101")) == ["ACM101"]


def test_one_old_code_may_mean_several_rules(registry):
    assert ids(registry.find("NG3002")) == ["ACM101", "ACM102"]
    assert ids(registry.find("GS001")) == ["ACM102"]


@pytest.mark.parametrize(
    ("rule_id", "plugin", "reason"),
    [
        ("ACM101", "acme", "declared twice"),
        ("ACM901", "thief", "belongs to plugin 'acme'"),
        ("NUM101", "thief", "belongs to plugin 'guard'"),
        ("ACM401", "acme", "never reused"),
    ],
)
def test_collisions_are_refused(registry, make_rule, rule_id, plugin, reason):
    registry.bury(Tombstone(id="ACM401", since="0.2", reason="merged into ACM101"))
    with pytest.raises(RuleCollisionError, match=reason):
        registry.add(make_rule(rule_id, name="new-name"), plugin)


def test_names_are_unique(registry, make_rule):
    with pytest.raises(RuleCollisionError, match="already belongs to OTH101"):
        registry.add(make_rule("ACM701", name="other"), "acme")


def test_removing_a_plugin_leaves_no_trace(registry, make_rule):
    registry.remove_plugin("acme")
    assert ids(registry) == ["OTH101"]
    assert registry.find("NG3002") == ()
    registry.add(make_rule("ACM101", name="again"), "new-owner")


def test_an_unknown_selector_names_its_source_and_the_nearest(registry):
    with pytest.raises(
        SelectorError, match=r"pyproject.toml: select: no rule matches 'ACN101'.*ACM101"
    ):
        Selection(registry, SelectionOptions(select=selectors("ACN101")))


def test_a_removed_rule_says_why(registry):
    registry.bury(Tombstone(id="ACM401", since="0.2", reason="merged into ACM101"))
    with pytest.raises(SelectorError, match="removed in 0.2: merged into ACM101"):
        Selection(registry, SelectionOptions(ignore=selectors("ACM401")))


def test_selectors_of_a_plugin_that_is_absent_are_no_error(registry):
    Selection(registry, SelectionOptions(ignore=selectors("GEO101", "RUN")))


def chosen(registry, **options):
    selection = Selection(registry, SelectionOptions(**options))
    return [rule.id for rule in registry if selection.selects(rule)]


def test_stable_rules_run_by_default(registry):
    assert chosen(registry) == ["ACM101", "ACM102", "OTH101"]


def test_preview_rules_run_when_asked_for(registry):
    assert "ACM201" in chosen(registry, preview=True)
    assert "ACM201" in chosen(registry, extend_select=selectors("ACM201"))
    assert "ACM201" not in chosen(registry, extend_select=selectors("ACM"))


@pytest.mark.parametrize(
    ("select", "ignore", "expected"),
    [
        (("ACM",), ("ACM1",), []),
        (("ACM101",), ("ACM",), ["ACM101"]),
        (("ACM101",), ("ACM101",), []),
        (("ALL",), ("OTH",), ["ACM101", "ACM102"]),
        (("ALL", "ACM102"), ("ACM1",), ["ACM102", "OTH101"]),
        (("NG3002",), ("rule-acm102",), ["ACM101"]),
    ],
)
def test_the_longest_selector_wins_and_ignore_wins_a_tie(registry, select, ignore, expected):
    assert chosen(registry, select=selectors(*select), ignore=selectors(*ignore)) == expected


def test_severity_is_overridden_by_the_longest_selector(registry):
    levels = {
        Selector(text="ACM"): Severity.LOW,
        Selector(text="ACM101"): Severity.CRITICAL,
    }
    selection = Selection(registry, SelectionOptions(severity=levels))
    found = {rule.id: selection.severity_of(rule) for rule in registry}

    assert found["ACM101"] is Severity.CRITICAL
    assert found["ACM102"] is Severity.LOW
    assert found["OTH101"] is Severity.MEDIUM


def test_rules_can_be_silent_in_some_modules(registry, make_rule):
    selection = Selection(registry, SelectionOptions(per_module={"head.*": selectors("ACM1")}))
    rule = registry.get("ACM101")

    assert selection.apply(rule.issue("m", where=Location(module="head.0"))) is None
    assert selection.apply(rule.issue("m", where=Location(module="body.0"))) is not None
    assert selection.apply(rule.issue("m")) is not None
