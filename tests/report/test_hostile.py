"""Names that a program chooses are shown and do nothing, in every format."""

import json
import re
import unicodedata
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from html.parser import HTMLParser

import pytest

import nabla_report
from nabla_causal import explain
from nabla_core.issue import Location
from nabla_core.report import Report
from nabla_core.reporters.style import Style, printable
from nabla_report import comparing, comparison_text
from nabla_report.page.document import page as page_of

ALLOWED_CONTROLS = {"\n"}


class Elements(HTMLParser):
    """Collects elements with their attributes."""

    def __init__(self):
        super().__init__()
        self.found = []
        self.links = []

    def handle_starttag(self, tag, attrs):
        self.found.append(tag)
        for name, value in attrs:
            assert not name.startswith("on"), (tag, name)
            if name in ("href", "src", "action", "data", "srcdoc", "formaction", "background"):
                self.links.append(value)
            if name == "style":
                assert re.fullmatch(r"background:rgb\([\d, ]+\);color:#(000|fff)", value)


def elements(text):
    parser = Elements()
    parser.feed(text)
    parser.close()
    return parser


def steering(text):
    """Return the characters that steer a terminal or turn text around."""
    return {
        character
        for character in text
        if unicodedata.category(character) in ("Cc", "Cs")
        or unicodedata.bidirectional(character) in ("LRE", "RLE", "LRO", "RLO", "LRI", "RLI", "FSI")
    } - ALLOWED_CONTROLS


def test_html_has_the_elements_of_a_harmless_page(poisoned, hostile_name):
    harmless, hostile = (elements(page_of(poisoned(name), None)) for name in ("name", hostile_name))

    assert hostile.found == harmless.found
    assert all(link.startswith(("#", "data:image/png;base64,")) for link in hostile.links)
    assert steering(page_of(poisoned(hostile_name), None)) == set()


def test_data_for_scripts_cannot_end_its_element(poisoned, hostile_names):
    from nabla_report.page.plot_section import plot_data, plot_sections
    from nabla_report.redacting import redacted

    _, book = plot_sections(redacted(poisoned(*hostile_names)))
    text = plot_data(book)

    assert not set("<>&") & set(text)
    assert len(json.loads(text)["plots"]) == 41  # forty, and the timeline of the issues


def test_junit_is_well_formed(poisoned, hostile_name):
    harmless, hostile = (
        [node.tag for node in ElementTree.fromstring(nabla_report.junit(poisoned(name))).iter()]
        for name in ("name", hostile_name)
    )

    assert hostile == harmless
    assert steering(nabla_report.junit(poisoned(hostile_name))) == set()


def test_markdown_holds_no_link_picture_or_element_of_a_name(poisoned, hostile_name):
    markdown_it = pytest.importorskip("markdown_it", reason="markdown-it-py is not installed")
    text = nabla_report.markdown(poisoned(hostile_name))
    reader = markdown_it.MarkdownIt("gfm-like")

    made = elements(reader.render(text))

    assert made.links == []
    harmless = elements(reader.render(nabla_report.markdown(poisoned("name"))))
    assert made.found.count("tr") == harmless.found.count("tr")
    assert set(made.found) <= set(harmless.found)
    assert steering(text) == set()


@pytest.mark.parametrize("format", ["console", "github", "sarif"])
def test_nothing_steers_a_terminal(poisoned, hostile_name, format):
    text = nabla_report.dumps(poisoned(hostile_name), format)

    assert steering(text) == set()
    text.encode()


def test_annotations_are_not_forged(poisoned, hostile_name):
    lines = nabla_report.dumps(poisoned(hostile_name), "github").splitlines()

    assert len(lines) == 1


@pytest.mark.parametrize("format", ["console", "markdown", "junit", "sarif", "json"])
def test_no_line_is_a_command_to_a_ci_service(poisoned, hostile_name, format):
    lines = nabla_report.dumps(poisoned(hostile_name), format).split("\n")

    assert [line for line in lines if line.lstrip().startswith(("::", "##["))] == []


def test_json_stays_json(poisoned, hostile_name):
    text = nabla_report.dumps(poisoned(hostile_name))

    text.encode()
    assert json.loads(text)["issues"][0]["rule"]


def changes_of(report, format="html"):
    return comparison_text.FORMATS[format](comparing.compare(Report(), report), Style())


@pytest.mark.parametrize("format", sorted(comparison_text.FORMATS))
def test_comparisons_are_inert_too(poisoned, hostile_name, format):
    text = changes_of(poisoned(hostile_name), format)

    text.encode()
    if format == "json":
        assert json.loads(text)["new"]
    else:
        assert steering(text) == set()
    if format == "html":
        assert elements(text).found == elements(changes_of(poisoned("name"))).found


def test_explanations_are_inert_too(make_rule, hostile_name):
    where = Location(module=hostile_name, file=hostile_name, line=3)
    rule = make_rule("AUD401")
    found = replace(rule.issue(hostile_name, step=1, where=where), name=hostile_name)
    explanation = explain([found, make_rule("RUN302").issue(hostile_name, step=4, where=where)])

    for text in (explanation.format(), explanation.to_mermaid(), explanation._repr_html_()):
        text.encode()
        assert steering(text) == set()
        assert not any(line.lstrip().startswith(("::", "##[")) for line in text.split("\n"))
    assert elements(explanation._repr_html_()).found == ["pre"]


def test_text_of_people_is_kept():
    for text in ("naïve", "層.3", "модель", "Δw ≤ ε", "שלום", "🙂", "a\tb"):
        assert printable(text) == text
