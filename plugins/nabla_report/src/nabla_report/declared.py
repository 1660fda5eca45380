"""Commands and formats as data: nothing is imported to list them."""

from __future__ import annotations

from nabla_core.declarations import Command, Reporter

__all__ = ["COMMANDS", "REPORTERS"]

COMMANDS = (
    Command(
        name="compare",
        target="nabla_report.cli:compare",
        summary="Say what is new, fixed and changed between two stored reports.",
    ),
)

REPORTERS = (
    Reporter(
        name="html",
        target="nabla_report.page.document:render",
        summary="one page to look at and to send, with plots",
        suffixes=(".html", ".htm"),
        notebook="nabla_report.page.notebook:embed",
    ),
    Reporter(
        name="junit",
        target="nabla_report.junit_xml:render",
        summary="JUnit XML, one test case per issue and rule",
        suffixes=(".xml",),
    ),
    Reporter(
        name="sarif",
        target="nabla_report.sarif_log:render",
        summary="SARIF 2.1.0 for code scanning",
        suffixes=(".sarif",),
    ),
    Reporter(
        name="markdown",
        target="nabla_report.markdown_text:render",
        summary="Markdown for step summaries and comments",
        suffixes=(".md", ".markdown"),
    ),
)
