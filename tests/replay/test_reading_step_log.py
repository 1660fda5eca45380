"""A captured run as step records, and what ``nabla.lint`` says of it."""

import math
import random
from dataclasses import dataclass, field

import pytest

import nabla
from nabla_core.errors import InputError
from nabla_replay.reading.step_log import read_steps, sniff
from nabla_replay.store.entries import StepEntry


@dataclass
class Options:
    columns: dict = field(default_factory=dict)


@pytest.fixture
def captured(store):
    """Return the log of a run with these rows: loss, and other signals."""

    def make(rows, run_id="run"):
        with store.create(run_id) as writer:
            for step, (loss, signals) in enumerate(rows):
                writer.append(StepEntry(step=step, loss=loss, signals=signals))
        return store.log(writer.folder)

    return make


def healthy(rows=200):
    source = random.Random(0)
    return [
        (0.3 + 2.0 * math.exp(-row / 40.0) + 0.02 * source.gauss(0.0, 1.0), {"lr": 1e-3})
        for row in range(rows)
    ]


def test_steps_come_as_they_were_captured(captured):
    log = captured([(1.5, {}), (None, {"accuracy": 0.5}), (math.nan, {})])

    records = list(read_steps(log))

    assert [record.step for record in records] == [0, 1, 2]
    assert records[0].signals == {"loss": 1.5}
    assert records[1].signals == {"accuracy": 0.5}
    assert math.isnan(records[2].signals["loss"])


def test_a_rate_holds_until_it_changes(captured):
    log = captured([(1.0, {"lr": 0.1}), (1.0, {}), (1.0, {"lr": 0.01}), (1.0, {})])

    assert [record.signals["lr"] for record in read_steps(log)] == [0.1, 0.1, 0.01, 0.01]


def test_a_damaged_line_hides_no_other(store, captured):
    log = captured(healthy(9))
    lines = log.read_bytes().splitlines(keepends=True)
    lines[4] = lines[4][:-9] + b"0000000}\n"
    log.write_bytes(b"".join(lines) + lines[-2][:20])

    assert len(list(read_steps(log))) == 8


def test_signals_can_be_chosen(captured):
    log = captured([(1.0, {"train/total": 3.0})])

    (record,) = read_steps(log, Options({"loss": "train/total"}))

    assert record.signals == {"loss": 3.0}
    with pytest.raises(InputError, match="captured no 'nope'; captured was: train/total, loss"):
        list(read_steps(log, Options({"loss": "nope"})))


def test_only_such_a_log_is_recognised(captured):
    head = captured(healthy(3)).read_bytes()

    assert sniff(head) == 1.0
    assert sniff(b'{"step": 0, "loss": 1.0}\n') == 0.0
    assert sniff(head.replace(b"head", b"haed", 1)) == 0.0
    assert sniff(b"") == 0.0


def test_no_link_is_followed(captured, tmp_path):
    link = tmp_path / "steps.r0.jsonl"
    link.symlink_to(captured(healthy(3)))

    with pytest.raises(InputError):
        list(read_steps(link))


def test_lint_judges_a_captured_run(captured):
    rows = healthy()
    rows[150:] = [(math.nan, {"lr": 1e-3})] * 50
    folder = captured(rows).parent

    report = nabla.lint(str(folder))

    (found,) = [issue for issue in report.issues if issue.severity > nabla.Severity.INFO]
    assert (found.rule, found.step) == ("RUN101", 150)


def test_lint_says_nothing_of_a_healthy_one(captured):
    report = nabla.lint(str(captured(healthy()).parent))

    assert not report.issues
    assert report.run.steps == 200


def test_what_was_captured_of_a_training_is_judged(tmp_path):
    import torch

    torch.manual_seed(0)
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    capture = nabla.capture(model, optimizer=optimizer, root=tmp_path / "runs")
    losses = []
    with capture:
        for _ in range(50):
            inputs = torch.randn(8, 4)
            loss = (model(inputs) - inputs.sum(1, keepdim=True)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    (log,) = (tmp_path / "runs").glob("*/steps.r0.jsonl")

    records = list(read_steps(log))

    assert [record.signals["loss"] for record in records] == losses
    assert {record.signals["lr"] for record in records} == {0.05}
    assert nabla.lint(str(log.parent)).run.steps == 50
