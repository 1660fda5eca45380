"""The whole page: one file that needs nothing else, and that nothing in it can make fetch anything.

A content security policy names the scripts of the page by their hashes and forbids every address.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from nabla_core.report import Report
from nabla_core.reporters.style import Style

from ..library import Library, plotting_library, script_hash
from ..markup import Html, join, raw, tag
from ..redacting import redacted
from ..text import verdict, worst_first
from .issue_list import issue_section
from .plot_section import plot_data, plot_sections
from .remainder import footer, remainder_section
from .verdict import cause_section, run_header, verdict_section

__all__ = ["MOST_BYTES", "bare_page", "page", "render"]

MOST_BYTES = 1_500_000
"""A page that would be larger has drawings instead of interactive plots."""

_ASSETS = Path(__file__).parents[1] / "assets"


def render(report: Report, style: Style) -> str:
    """Return the report as one self-contained page."""
    del style  # the page follows the reader's settings
    library = plotting_library()
    text = page(report, library)
    if library is None or len(text.encode()) <= MOST_BYTES:
        return text
    return page(report, None)  # a page that can be sent is worth more than plots that can be zoomed


def page(report: Report, library: Library | None) -> str:
    """Return the page, with interactive plots where there is a library for them."""
    shown = redacted(report)
    sections, book = plot_sections(shown)
    issues = worst_first(shown)
    main = tag(
        "main",
        verdict_section(shown),
        cause_section(shown),
        issue_section(issues),
        sections,
        remainder_section(shown),
    )
    scripts = [_asset("page.js")]
    data = raw("")
    if library is not None and any(book.data):
        scripts.append(_asset("plots.js"))
        # base64 and escaped JSON: neither can hold the end of its element
        data = raw(
            f'<script type="text/plain" id="plot-library">{library.packed}</script>\n'
            f'<script type="application/json" id="plot-data">{plot_data(book)}</script>\n'
        )
    body = tag(
        "body", _skip_link(), run_header(shown), _contents(shown), main, footer(shown), data,
        *[raw(f"<script>{script}</script>") for script in scripts],
    )  # fmt: skip
    head = _head(f"nabla: {verdict(shown)}", _policy(scripts, library))
    return f"<!DOCTYPE html>\n{tag('html', head, body, lang='en')}\n"


def bare_page(title: str, *parts: Html) -> str:
    """Return a page of some parts, without plots."""
    script = _asset("page.js")
    body = tag("body", _skip_link(), *parts, raw(f"<script>{script}</script>"))
    head = _head(title, _policy([script], None))
    return f"<!DOCTYPE html>\n{tag('html', head, body, lang='en')}\n"


def _head(title: str, policy: str) -> Html:
    return tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("meta", name="referrer", content="no-referrer"),
        tag("title", title),
        raw(f"<style>{_asset('page.css')}</style>"),
    )


def _policy(scripts: list[str], library: Library | None) -> str:
    allowed = [script_hash(script) for script in scripts]
    if library is not None and len(scripts) > 1:
        allowed.append(library.hash)
    return (
        f"default-src 'none'; base-uri 'none'; form-action 'none'; script-src {' '.join(allowed)}; "
        "style-src 'unsafe-inline'; img-src data: blob:; font-src data:"
    )


def _skip_link() -> Html:
    return tag("a", "Skip to the verdict", href="#verdict", class_="skip")


def _contents(report: Report) -> Html:
    wanted = [("verdict", "Verdict")]
    wanted += [("causes", "Why")] if report.causes else []
    wanted += [("issues", "Issues")] if report.issues else []
    wanted += [
        (f"section-{number}", section.title) for number, section in enumerate(report.sections)
    ]
    if any(issue.step is not None for issue in report.issues):
        wanted.append((f"section-{len(report.sections)}", "Timeline"))
    links = [tag("li", tag("a", title, href=f"#{name}")) for name, title in wanted]
    return tag("nav", tag("ul", join(links)), aria_label="Parts of this report")


@lru_cache(maxsize=8)
def _asset(name: str) -> str:
    return (_ASSETS / name).read_text(encoding="utf-8").strip()
