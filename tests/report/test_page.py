"""The page as text: what is in it, in which order, and how much it costs."""

import re
import time
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

import nabla
import nabla_report
from nabla_core.cli.shell import run_shell
from nabla_core.errors import UsageError
from nabla_core.issue import Location
from nabla_core.plots import HeatMap
from nabla_core.report import Cause, Report, RunInfo, Section
from nabla_core.reporters.style import Style
from nabla_core.result import ResultMixin
from nabla_core.severity import Severity
from nabla_report.library import plotting_library
from nabla_report.page.document import MOST_BYTES, render
from nabla_report.page.document import page as page_of


class Outline(HTMLParser):
    def __init__(self):
        super().__init__()
        self.tags, self.ids, self.targets, self.headings = [], [], [], []

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        self.tags.append(tag)
        self.ids += [given["id"]] if "id" in given else []
        self.targets += [given["href"]] if given.get("href", "").startswith("#") else []
        self.targets += [f"#{name}" for name in given.get("aria-labelledby", "").split()]
        self.headings += [int(tag[1])] if re.fullmatch("h[1-6]", tag) else []


def outline(text):
    found = Outline()
    found.feed(text)
    return found


def test_verdict_comes_before_causes_before_evidence_before_the_rest(report):
    text = page_of(report, None)

    places = [
        text.index(f'id="{name}"') for name in ("verdict", "causes", "issues", "section-0", "rest")
    ]
    assert places == sorted(places)


def test_the_page_has_landmarks_headings_and_names(report):
    found = outline(page_of(report, None))

    for tag in ("header", "nav", "main", "footer"):
        assert found.tags.count(tag) == 1
    assert found.headings[0] == 1 and found.headings.count(1) == 1
    deeper = zip(found.headings, found.headings[1:], strict=False)
    assert all(after <= before + 1 for before, after in deeper)
    assert len(found.ids) == len(set(found.ids))
    assert {target.removeprefix("#") for target in found.targets} <= set(found.ids)


def test_the_page_names_no_address(report):
    text = page_of(report, None)

    assert re.findall(r"https?:|url\(|@import|=[\"']?//", text) == []
    assert "default-src &#x27;none&#x27;; base-uri &#x27;none&#x27;" in text


def test_every_kind_of_plot_has_a_drawing_a_name_and_its_numbers(report):
    text = page_of(report, None)

    assert text.count("<figure ") == 7
    assert text.count("<svg ") == text.count('role="img" aria-label="') - text.count('class="live"')
    assert text.count("<summary>Numbers</summary>") == 6


def test_the_number_of_plots_does_not_break_the_size(long_run):
    library = plotting_library()
    if library is None:
        pytest.skip("NO PLOTTING LIBRARY: install bokeh to measure pages with it")
    many = tuple(
        replace(long_run.issues[0], where=Location(module=f"layer.{number}"), message="x" * 200)
        for number in range(1000)
    )
    for one in (long_run, replace(long_run, issues=many)):
        assert len(page_of(one, library).encode()) <= MOST_BYTES == 1_500_000


def test_a_page_that_would_be_too_large_does_without_the_library(long_run):
    huge = replace(long_run.sections[0], lines=("x" * 1000,) * 1400)

    text = render(replace(long_run, sections=(huge,)), Style())

    assert "plot-library" not in text and "<svg " in text


def test_a_page_is_written_in_ten_times_the_time_of_json(long_run):
    nabla_report.html(long_run)  # packs the library, once per process

    ratios = []
    for _ in range(3):
        took = [seconds(nabla_report.html, long_run), seconds(nabla_report.dumps, long_run)]
        ratios.append(took[0] / took[1])

    assert sorted(ratios)[1] <= 10.0


def seconds(function, *arguments):
    start = time.process_time()
    function(*arguments)
    return time.process_time() - start


def test_the_library_is_not_imported():
    import subprocess
    import sys

    program = (
        "import sys, nabla_report; from nabla_core.report import Report; "
        "nabla_report.html(Report()); print(sorted({'bokeh', 'numpy', 'torch'} & set(sys.modules)))"
    )

    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)

    assert answer.stdout.strip() == "[]"


def test_without_the_library_the_page_is_whole(report, monkeypatch):
    monkeypatch.setattr("nabla_report.library.find_spec", lambda name: None)
    plotting_library.cache_clear()
    text = nabla_report.html(report)
    plotting_library.cache_clear()

    assert "plot-library" not in text
    assert text.count("<svg ") >= 5


def test_further_issues_are_listed_in_short(long_run):
    issues = tuple(
        replace(long_run.issues[0], where=Location(module=f"layer.{number}"))
        for number in range(250)
    )

    text = page_of(replace(long_run, issues=issues, sections=()), None)

    assert text.count("<article ") == 100
    assert "150 further issues, in short" in text
    assert text.count('data-severity="') == 250


def test_the_same_in_several_layers_is_not_shown_as_one_leading_to_the_other(make_rule):
    rule = make_rule("ACM101")
    layers = [rule.issue("Left out.", step=2, where=Location(module=name)) for name in "ab"]
    effect = make_rule("ACM102").issue("Still.", step=2)
    chain = tuple(issue.fingerprint for issue in (*layers, effect))
    cause = Cause(rule="CAU101", chain=chain, score=1.0, statement="Left out.", tests=())

    text = page_of(Report(issues=(*layers, effect), causes=(cause,)), None)

    (chain,) = re.findall(r'<ol class="chain".*?</ol>', text, re.S)
    assert re.findall(r"<li( class=\"alike\")?>", chain) == ["", ' class="alike"', ""]


@pytest.mark.parametrize(
    ("steps", "at", "reach"),
    [(100, 40, [0, 99]), (0, 40, [0, 40]), (100, 5000, None), (1, 0, None)],
)
def test_the_timeline_shows_the_whole_run_unless_its_steps_are_numbered_otherwise(
    make_rule, steps, at, reach
):
    issue = make_rule("ACM101").issue("Found.", step=at)
    report = Report(run=RunInfo(steps=steps), issues=(issue,), rules_used=("ACM101",))

    text = page_of(report, plotting_library())

    found = re.findall(r'"reach":(\[[^]]*\])', text)
    assert found == ([] if reach is None else [str(reach).replace(" ", "")])


def test_a_clean_run_says_so():
    text = page_of(Report(rules_used=("ACM101",)), None)

    assert "No issues; 1 rule evaluated" in text
    assert 'id="issues"' not in text


def test_every_command_with_a_report_writes_every_format(tmp_path, monkeypatch, report):
    monkeypatch.chdir(tmp_path)
    Path("report.json").write_text(nabla_report.dumps(report))
    wanted = {"html": "r.html", "junit": "r.xml", "sarif": "r.sarif", "markdown": "r.md"}

    formats = [word for name, path in wanted.items() for word in ("--format", f"{name}={path}")]
    assert run_shell(["report", "report.json", *formats]) == 1

    for name, path in wanted.items():
        assert Path(path).read_text() == nabla_report.dumps(report, name)
        assert run_shell(["report", "report.json", "--output", f"again-{path}"]) == 1
        assert Path(f"again-{path}").read_text() == Path(path).read_text()


def test_a_report_shows_itself_in_a_notebook(report):
    text = report._repr_html_()

    assert text.startswith("<iframe ") and 'sandbox="allow-scripts"' in text
    assert outline(text).tags == ["iframe"]


def test_the_facade_finds_the_functions():
    import nabla

    assert nabla.report.html is nabla_report.html
    assert set(nabla.report.__all__) >= {"dumps", "html", "junit", "sarif", "markdown", "compare"}


def test_an_evidence_without_limits_has_no_column_of_them_and_long_words_are_folded(report):
    path = "; ".join(f"step {step} layer 3 outputs exploding" for step in range(40))
    issue = replace(report.issues[0], evidence={"layers": 28, "path": path})

    page = page_of(replace(report, issues=(issue,), causes=()), None)

    body = page.partition('id="issues"')[2].partition("</article>")[0]
    assert ">limit<" not in body
    assert f"({len(path)} characters)</summary>{path}</details>" in body


def test_a_time_is_told_in_words(report):
    run = replace(report.run, started_utc="2026-11-30T19:46:05+00:00")

    assert "2026-11-30 19:46:05 UTC" in page_of(replace(report, run=run), None)


class Traced(ResultMixin):
    """A result that knows what a report shows of it."""

    fail_on = Severity.HIGH
    rules_used = ("ACM101", "ACM102")

    def __init__(self, *issues):
        self.issues = issues

    def sections(self):
        grid = HeatMap(title="Grid", rows=("a",), columns=("b",), values=((-1.0,),))
        return (Section(title="Losses", plots=(grid,)),)


def test_a_result_with_sections_is_shown_with_its_verdict(make_rule):
    assert "No issues; 2 rules evaluated" in nabla.report.html(Traced())

    text = nabla.report.html(Traced(make_rule().issue("Both oppose each other.")))

    assert "1 issue: 1 high; 2 rules evaluated" in text
    assert ">Losses</h2>" in text and ">Grid</h3>" in text


@pytest.mark.parametrize("wrong", [None, 3, [], object()])
def test_what_is_no_report_is_refused_with_what_is_one(wrong):
    with pytest.raises(UsageError, match="is no report: give what"):
        nabla.report.html(wrong)
