"""Rules about nabla itself: unusable plugins, hooks that raise, facts that were dropped."""

from __future__ import annotations

from .rule import Rule
from .severity import Severity

__all__ = [
    "BAD_HOOK",
    "CONFIG_WITHOUT_PLUGIN",
    "CORE_VERSION",
    "EVENTS_DROPPED",
    "HOOK_RAISED",
    "ID_COLLISION",
    "PLUGIN_IMPORT_FAILED",
    "RULES",
    "RULE_RAISED",
    "SLOW_PLUGIN_IMPORT",
]

PLUGIN_IMPORT_FAILED = Rule(
    id="NAB001",
    name="plugin-import-failed",
    summary="A plugin could not be imported.",
    rationale=(
        "Its rules, commands and formats are missing from this run, so a clean report covers "
        "less than usual."
    ),
    fix=(
        "Run the import by hand to see the whole error, reinstall the plugin, or block it "
        "with -p no:NAME."
    ),
    limits="Says nothing about the other plugins; they are loaded as usual.",
    severity=Severity.MEDIUM,
    since="0.1",
    tags=("plugin",),
)

BAD_HOOK = Rule(
    id="NAB002",
    name="bad-hook",
    summary=(
        "A plugin implements a hook that does not exist or asks for an argument that it does "
        "not have."
    ),
    rationale="A misspelt hook is never called: the plugin looks installed and does nothing.",
    fix=(
        "Compare the name and the arguments with nabla_core.hookspecs; the message names the "
        "nearest one."
    ),
    limits="Only signatures are compared; what a hook returns is checked when it is used.",
    severity=Severity.MEDIUM,
    since="0.1",
    tags=("plugin",),
)

ID_COLLISION = Rule(
    id="NAB003",
    name="id-collision",
    summary=(
        "A plugin declares a rule whose ID, name or prefix is malformed or belongs to "
        "somebody else."
    ),
    rationale="Two meanings of one ID make baselines, ignores and reports wrong.",
    fix="Use a prefix of your own, three or four capitals, and an ID and a name that nobody uses.",
    limits="The first owner keeps the ID; distributions of the nabla project come first.",
    severity=Severity.MEDIUM,
    since="0.1",
    tags=("plugin",),
)

HOOK_RAISED = Rule(
    id="NAB004",
    name="hook-raised",
    summary="A plugin's hook raised an exception.",
    rationale="What this hook would have contributed is missing.",
    fix="Report the message to the plugin's authors, or block the plugin with -p no:NAME.",
    limits="The other plugins were called as usual.",
    severity=Severity.MEDIUM,
    since="0.1",
    tags=("plugin",),
)

CORE_VERSION = Rule(
    id="NAB005",
    name="core-version",
    summary="A plugin was made for another version of nabla-core.",
    rationale="Its hooks may misread the facts, so it is not loaded.",
    fix="Install a version of the plugin that allows the installed nabla-core.",
    limits="Decided from the plugin's declared requirement only.",
    severity=Severity.MEDIUM,
    since="0.1",
    tags=("plugin",),
)

CONFIG_WITHOUT_PLUGIN = Rule(
    id="NAB006",
    name="config-table-without-plugin",
    summary="The configuration has a table for a plugin that is not installed.",
    rationale="Its settings have no effect in this environment.",
    fix="Install the plugin, or remove the table.",
    limits="Not an error, since one configuration is often shared by several environments.",
    severity=Severity.LOW,
    since="0.1",
    tags=("config",),
)

SLOW_PLUGIN_IMPORT = Rule(
    id="NAB007",
    name="slow-plugin-import",
    summary="Loading a plugin imported torch or numpy, or took longer than its budget.",
    rationale="Every call of the command line pays for it, also those that do not use the plugin.",
    fix=(
        "Import heavy modules inside the functions that need them, and keep the package's "
        "__init__ lazy."
    ),
    limits="Time is measured once and includes the disk; the imported modules are exact.",
    severity=Severity.LOW,
    since="0.1",
    tags=("plugin",),
)

RULE_RAISED = Rule(
    id="NAB008",
    name="rule-raised",
    summary="A rule's detector raised an exception and was disabled.",
    rationale="Its rules were not evaluated from that point on; the training went on untouched.",
    fix="Report the message to the authors of the rule; ignore the rule until it is mended.",
    limits="Verdicts that the detector gave before remain.",
    severity=Severity.MEDIUM,
    since="0.1",
    tags=("plugin",),
)

EVENTS_DROPPED = Rule(
    id="NAB009",
    name="events-dropped",
    summary="More issues or events occurred than the session keeps.",
    rationale="The report shows the first issues and the latest events only.",
    fix="Raise max-issues or max-events, or mend the first issues first.",
    limits="Counts of issues that are kept remain exact.",
    severity=Severity.LOW,
    since="0.1",
    tags=("session",),
)

RULES = (
    PLUGIN_IMPORT_FAILED,
    BAD_HOOK,
    ID_COLLISION,
    HOOK_RAISED,
    CORE_VERSION,
    CONFIG_WITHOUT_PLUGIN,
    SLOW_PLUGIN_IMPORT,
    RULE_RAISED,
    EVENTS_DROPPED,
)
