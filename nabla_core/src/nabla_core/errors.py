"""Every exception that nabla raises on purpose.

::

    NablaError
    ├── UsageError            the person asked for something impossible (exit code 2)
    │   ├── ConfigError       a configuration file, variable or option is wrong
    │   ├── SelectorError     a rule selector matches nothing
    │   └── InputError        a file or value handed over cannot be used
    │       └── ReportFormatError   a stored report is damaged, foreign or too new
    ├── RuleDefinitionError   a Rule constant breaks the conventions
    ├── RuleCollisionError    an ID, name or prefix already belongs to somebody
    ├── PluginError           a plugin cannot be used
    └── CheckFailed           ``raise_if_failed()`` found issues (also an AssertionError)
"""

from __future__ import annotations

__all__ = [
    "CheckFailed",
    "ConfigError",
    "InputError",
    "NablaError",
    "PluginError",
    "ReportFormatError",
    "RuleCollisionError",
    "RuleDefinitionError",
    "SelectorError",
    "UsageError",
]


class NablaError(Exception):
    """Base of all errors raised by nabla."""


class UsageError(NablaError):
    """The request cannot be carried out as given; the message says what is allowed."""


class ConfigError(UsageError):
    """One or more configuration values are wrong; ``mistakes`` lists each of them."""

    def __init__(self, *mistakes: str) -> None:
        self.mistakes = mistakes
        super().__init__("\n".join(mistakes))


class SelectorError(UsageError):
    """A rule selector matches no rule."""


class InputError(UsageError):
    """A file or a value handed to nabla cannot be used."""


class ReportFormatError(InputError):
    """A stored report is not one that this version can read."""


class RuleDefinitionError(NablaError):
    """A Rule constant breaks the conventions of rule IDs, names or texts."""


class RuleCollisionError(NablaError):
    """A rule ID, rule name or prefix is already owned by another plugin."""


class PluginError(NablaError):
    """A plugin cannot be used; ``rule_id`` names the NAB rule and ``hint`` the next step."""

    def __init__(self, rule_id: str, message: str, hint: str) -> None:
        self.rule_id = rule_id
        self.hint = hint
        super().__init__(message)


class CheckFailed(NablaError, AssertionError):
    """Raised by ``raise_if_failed()``; the text is the formatted report."""
