"""Every rule states all that a person needs, once."""

import ast
import importlib
from collections import Counter

import pytest

from nabla_core.rule import Rule


@pytest.fixture(scope="module")
def rule_modules(sources):
    names = [
        source.module
        for source in sources
        if (source.module.count(".") == 1 and source.path.name == "rules.py")
        or (source.module.count(".") == 2 and source.module.split(".")[1] == "rules")
    ]
    assert names
    return [importlib.import_module(name) for name in names]


@pytest.fixture(scope="module")
def rules(rule_modules):
    return [rule for module in rule_modules for rule in module.RULES]


def test_every_rule_constant_is_declared(rule_modules):
    for module in rule_modules:
        constants = {value.id for value in vars(module).values() if isinstance(value, Rule)}
        assert constants == {rule.id for rule in module.RULES}, module.__name__


@pytest.mark.parametrize("text", ["id", "name"])
def test_ids_and_names_are_unique(rules, text):
    seen = Counter(getattr(rule, text) for rule in rules)

    assert [value for value, times in seen.items() if times > 1] == []


def test_every_rule_states_its_limits_and_fix(rules):
    assert [rule.id for rule in rules if not (rule.limits.strip() and rule.fix.strip())] == []


def test_every_rule_about_programs_shows_a_bad_and_a_good_one(rules):
    # NAB rules are about nabla itself: there is no program to show
    without = [rule.id for rule in rules if rule.prefix != "NAB" and rule.example is None]
    same = [rule.id for rule in rules if rule.example and rule.example.bad == rule.example.good]

    assert without + same == []


def test_examples_are_python(rules):
    for rule in rules:
        if rule.example is not None:
            ast.parse(rule.example.bad, f"{rule.id} bad")
            ast.parse(rule.example.good, f"{rule.id} good")


def test_a_prefix_belongs_to_one_distribution(rule_modules):
    owners = {}
    for module in rule_modules:
        for rule in module.RULES:
            owners.setdefault(rule.prefix, set()).add(module.__name__.split(".")[0])

    assert {prefix: names for prefix, names in owners.items() if len(names) > 1} == {}
