"""Logs that training scripts print: what is read of them, and what is not taken for a loss."""

import json
import math

import pytest

import nabla
from nabla_core.severity import Severity
from nabla_diagnose.readers.log import read_runs

ROWS = 12
LOSSES = [round(2.0 - 0.1 * row, 3) for row in range(ROWS)]
HELD_OUT = [round(2.5 - 0.1 * row, 3) for row in range(ROWS)]


def lines(make):
    return "".join(make(row, LOSSES[row], HELD_OUT[row]) + "\n" for row in range(ROWS))


def runs_of(path):
    return [list(run.records) for run in read_runs(path)]


BOTH = {
    "results of phases": (
        lambda i, a, b: f"2024-01-01 10:00:00,1 engine INFO: Training Results - Epoch: {i}  "
        f"Avg accuracy: 0.5 Avg loss: {a}\nengine INFO: Validation Results - Epoch: {i}  "
        f"Avg accuracy: 0.5 Avg loss: {b}",
        1,
    ),
    "sections without a count": (
        lambda i, a, b: f"=== Epoch {i} ===\nTraining...\n  loss: {a}\n  accuracy: 0.5\n"
        f"Validating...\n  loss: {b}\n  accuracy: 0.5",
        1,
    ),
    "a line for each number": (
        lambda i, a, b: f"2024-01-01 10:00:00.1: Epoch {i}\nCurrent learning rate: 0.01\n"
        f"train_loss {a}\nval_loss {b}\nPseudo dice [0.71, 0.8]\nEpoch time: 50.1 s",
        1,
    ),
    "dictionaries of splits": (
        lambda i, a, b: f"epoch {i} metrics: {{'train': {{'loss': {a}}}, 'val': {{'loss': {b}}}}}",
        1,
    ),
    "printed scalars": (
        lambda i, a, b: f"{{'epoch': {i}, 'train_loss': np.float32({a}), "
        f"'val_loss': np.float64({b})}}",
        1,
    ),
    "arrows": (lambda i, a, b: f"epoch {i} train loss -> {a}  valid loss → {b}", 1),
    "news of the best": (
        lambda i, a, b: f"[{i:3d}/ 40] train_loss: {a} valid_loss: {b} | best val loss: 0.01\n"
        f"Validation loss decreased ({'inf' if i == 0 else b + 0.1} --> {b}).  Saving model ...",
        1,
    ),
    "decimal commas in text": (
        lambda i, a, b: f"Epoche epoch={i} train_loss={a:.4f} val_loss={b:.4f}".replace(".", ","),
        1,
    ),
    "thousands": (
        lambda i, a, b: f"Step: {i * 1000:,} | Loss: {a} | Tokens: {i * 2048:,} | val_loss: {b}",
        1000,
    ),
    "minutes that are no minimum": (
        lambda i, a, b: f"Epoch {i} - 2 min - loss {a} - val loss {b}",
        1,
    ),
    "steps in thousands": (lambda i, a, b: f"step {i}k: loss {a} val_loss {b}", 1000),
    "wide punctuation": (lambda i, a, b: f"第{i}步 step：{i}，loss：{a}，val_loss：{b}", 1),
    "value of the loss and its power": (
        lambda i, a, b: f" iteration {i * 100:8d}/ 1300 | learning rate: 1E-04 | lm loss: {a:E} |\n"
        f" validation loss at iteration {i * 100} | lm loss value: {b:E} | lm loss PPL: 9.1E+00 |",
        100,
    ),
    "messages in JSON": (
        lambda i, a, b: json.dumps(
            {"log": f"epoch {i} train_loss {a}, val_loss {b}\n", "stream": "stdout"}
        ),
        1,
    ),
    "messages in a table": (
        lambda i, a, b: ("" if i else "timestamp,message\n")
        + f'{1700000000 + i},"step {i}: loss {a}, val_loss {b}"',
        1,
    ),
    "counts of their own": (
        lambda i, a, b: json.dumps({"mode": "train", "epoch": i // 4, "iter": i % 4 + 1, "loss": a})
        + "\n"
        + json.dumps({"mode": "val", "epoch": i // 4, "iter": 625, "loss": b}),
        1,
    ),
}  # fmt: skip


@pytest.mark.parametrize("script", BOTH)
def test_both_losses_and_the_steps_are_found(tmp_path, script):
    make, stride = BOTH[script]
    path = tmp_path / ("log.csv" if "table" in script else "log.txt")
    path.write_text(lines(make), encoding="utf-8")

    (records,) = runs_of(path)
    steps = [record.step for record in records]

    assert [record.signals["loss"] for record in records] == pytest.approx(LOSSES)
    assert [record.signals["val_loss"] for record in records] == pytest.approx(HELD_OUT)
    assert {after - before for before, after in zip(steps, steps[1:], strict=False)} == {stride}


LOSS_ONLY = {
    "epoch and batch behind the phase": (
        lambda i, a, b: f"Train: {i // 4} [{i % 4 * 50:>4d}/200 ({i % 4 * 25}%)]  Loss: {a} "
        f"({a})  Time: 0.3s, 820.1/s  LR: 1.0e-03"
    ),
    "indices in brackets": (
        lambda i, a, b: f"INFO:root:Epoch[{i // 4}] Batch [{i % 4 * 20}]\tSpeed: 12.5 samples/sec"
        f"\taccuracy=0.5\tloss={a}"
    ),
    "the count before the value": (
        lambda i, a, b: f"Train loss {i} {a:.6f} Grad Norm 1.2 0.31s/it"
    ),
    "three names of one count": (
        lambda i, a, b: f"[Rank 0] step={i * 10}, skipped=0, lr=[0.01, 0.01], mom=[(0.9, 0.99)]\n"
        f"epoch=0/micro_step={i * 40}/global_step={i * 10}, SamplesPerSec=12.3\n"
        f"steps: {i * 10} loss: {a} iter time (s): 0.3"
    ),
    "every line twice": (lambda i, a, b: "\n".join([f"step {i * 10} loss {a}"] * 2)),
    "a header in the log": (
        lambda i, a, b: "\n Epoch   GPU_mem   box_loss   cls_loss   Size\n"
        f"  {i}/12     4.51G   {a / 2}   {a / 2}   640: 100%|####| 8/8 [00:03<00:00,  2.3it/s]"
    ),
    "a total behind the numbers": (
        lambda i, a, b: f"Learning iteration {i}/1500\n   Mean total loss: {a}\n"
        f"   Learning rate: 0.001\n   Total timesteps: {i * 64}"
    ),
}  # fmt: skip


@pytest.mark.parametrize("script", LOSS_ONLY)
def test_the_loss_is_found_and_the_steps_rise(tmp_path, script):
    path = tmp_path / "log.log"
    path.write_text(lines(LOSS_ONLY[script]), encoding="utf-8")

    (records,) = runs_of(path)
    steps = [record.step for record in records]

    assert [record.signals["loss"] for record in records] == pytest.approx(LOSSES)
    assert all(after >= before for before, after in zip(steps, steps[1:], strict=False))


FILES = {
    "loss": lambda i, a, b: f"{1700000000000 + i} {a!r} {i}",
    "loss.csv": lambda i, a, b: ("" if i else "Unnamed: 0,step,value\n") + f"{i},{i}.0,{a}",
    "train_loss.plx": lambda i, a, b: (
        ("" if i else "timestamp|step|metric\n") + f"2024-01-01|{i}|{a}"
    ),
    "power.dat": lambda i, a, b: ("" if i else "iter loss\n") + f"{i:4d} {a:.6E}".replace("E", "D"),
}


@pytest.mark.parametrize("name", FILES)
def test_a_single_curve_is_called_after_its_file(tmp_path, name):
    path = tmp_path / name
    path.write_text(lines(FILES[name]), encoding="utf-8")

    (records,) = runs_of(path)

    assert [(record.step, record.signals["loss"]) for record in records] == list(enumerate(LOSSES))


def test_a_curve_of_time_step_and_value_is_read(tmp_path):
    path = tmp_path / "run-a-tag-train_loss.json"
    path.write_text(json.dumps([[1.7e9 + row, row, LOSSES[row]] for row in range(ROWS)]))

    (records,) = runs_of(path)

    assert [record.signals["loss"] for record in records] == LOSSES


@pytest.mark.parametrize(
    "header",
    ["step,runA/loss,runB/loss", "step,seed0_loss,seed1_loss", "Step,loss (run 1),loss (run 2)"],
)
def test_columns_of_named_runs_are_not_summed(tmp_path, header):
    path = tmp_path / "runs.csv"
    path.write_text(f"{header}\n" + lines(lambda i, a, b: f"{i},{a},{b}"), encoding="utf-8")

    found = [[record.signals["loss"] for record in run] for run in runs_of(path)]

    assert found == [LOSSES, HELD_OUT]


@pytest.mark.parametrize("prefix", ["[rank{}]: ", "{}: ", "[{}] ", "[Rank {}] "])
def test_lines_of_several_ranks_are_told_apart(tmp_path, prefix):
    path = tmp_path / "job.out"
    text = lines(
        lambda i, a, b: (
            f"{prefix.format(0)}step {i} | loss: {a}\n{prefix.format(1)}step {i} | loss: {b}"
        )
    )
    path.write_text(text, encoding="utf-8")

    found = [[record.signals["loss"] for record in run] for run in runs_of(path)]

    assert found == [LOSSES, HELD_OUT]


def test_epochs_before_a_colon_are_no_ranks(tmp_path):
    path = tmp_path / "job.out"
    path.write_text(2 * lines(lambda i, a, b: f"{i}: train_loss {a} lr 0.1"), encoding="utf-8")

    found = [[record.step for record in run] for run in runs_of(path)]

    assert found == [list(range(ROWS))] * 2


def verdicts(path, rows):
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")
    return {issue.rule for issue in nabla.lint(str(path)).issues if issue.severity > Severity.INFO}


def falling(row):
    return 0.5 + 2.0 * math.exp(-row / 20) + 0.02 * math.sin(7.0 * row)


def test_nan_after_a_blank_is_not_taken_for_a_name(tmp_path):
    losses = [falling(row) if row < 60 else math.nan for row in range(80)]
    path = tmp_path / "job.out"

    rows = [f"step {row} train_loss {loss:.4f} lr 1e-3" for row, loss in enumerate(losses)]

    assert verdicts(path, rows) == {"RUN101"}


@pytest.mark.parametrize(
    "told",
    [
        "Validation loss decreased (inf --> {b:.4f}).  Saving model ...",
        "Epoch {i}: val_loss improved from inf to {b:.4f}, saving model to best.h5",
        "EarlyStopping counter: {i} out of 100, best loss: inf",
    ],
)
def test_what_is_told_of_the_best_so_far_is_no_measurement(tmp_path, told):
    rows = [
        f"epoch {i}: train_loss={falling(i):.4f} val_loss={falling(i) + 0.1:.4f}\n"
        + told.format(i=i, b=falling(i) + 0.1)
        for i in range(60)
    ]

    assert not verdicts(tmp_path / "es.txt", rows)


def test_a_loss_of_a_lone_generator_may_rise(tmp_path):
    rows = [f"Steps : {i}, Gen Loss Total : {20 + i}, Mel Error : 0.3" for i in range(80)]

    assert not verdicts(tmp_path / "gan.log", rows)
