"""Logs as training tools write them: the loss, its validation and the steps come out right."""

import gzip
import json

import pytest

from nabla_core.errors import InputError
from nabla_diagnose.readers.log import read_runs

ROWS = 12
LOSSES = [round(2.0 - 0.1 * row, 3) for row in range(ROWS)]
HELD_OUT = [round(2.5 - 0.1 * row, 3) for row in range(ROWS)]


def lines(make):
    return "".join(make(row, LOSSES[row], HELD_OUT[row]) + "\n" for row in range(ROWS))


TEXTS = {
    "nanogpt": (
        lambda i, a, b: f"step {i * 10}: train loss {a:.4f}, val loss {b:.4f}\n"
        f"iter {i * 10}: loss {a:.4f}, time 300.2ms, mfu 12.30%",
        10,
    ),
    "llm.c": (
        lambda i, a, b: f"step {i * 10:4d}/120 | loss {a:7.6f} (+0.1z)| norm 1.2 (+0.10z)"
        f"| lr 6.0e-04 | 240.1 ms\nval loss {b:.6f}",
        10,
    ),
    "fairseq": (
        lambda i, a, b: f"2021-01-01 10:00:00 | INFO | train_inner | epoch 001: {i} / 50 loss={a}, "
        f"nll_loss=9.1, ppl=7.1, num_updates={i * 10}, lr=5e-05, gnorm=1.1\n"
        f"2021-01-01 10:00:00 | INFO | valid | epoch 001 | valid on 'valid' subset | loss {b} | "
        f"nll_loss 9.2 | ppl 5.1 | num_updates {i * 10}",
        10,
    ),
    "litgpt": (
        lambda i, a, b: f"Epoch 1 | iter {i} step {i} | loss train: {a:.3f}, val: {b:.3f} | "
        "iter time: 300.12 ms (step)",
        1,
    ),
    "lightgbm": (
        lambda i, a, b: f"[{i}]\ttraining's binary_logloss: {a}\tvalid_1's binary_logloss: {b}",
        1,
    ),
    "sagemaker xgboost": (
        lambda i, a, b: f"[{i}]#011train-rmse:{a}#011validation-rmse:{b}",
        1,
    ),
    "two phases in a line": (
        lambda i, a, b: f"[Epoch {i:03d}] train: loss={a:.4e} acc=50% | "
        f"valid: loss={b:.4e} acc=51%",
        1,
    ),
    "keras 3": (
        lambda i, a, b: f"Epoch {i}/12\n\x1b[1m10/10\x1b[0m \x1b[32m━━━━\x1b[0m \x1b[1m3s\x1b[0m "
        f"12ms/step - loss: {a:.4f} - val_loss: {b:.4f}",
        1,
    ),
    "markdown": (
        lambda i, a, b: ("" if i else "| Step | Training Loss | Validation Loss |\n|---|---|---|\n")
        + f"| {i * 100} | {a} | {b} |",
        100,
    ),
    "decimal commas": (
        lambda i, a, b: ("" if i else "Epoch;Train Loss;Val Loss\n")
        + f"{i};{a:.3f};{b:.3f}".replace(".", ","),
        1,
    ),
    "header in a comment": (
        lambda i, a, b: ("" if i else "# epoch  train_loss   val_loss\n")
        + f"{i}   {a:.5e}   {b:.5e}",
        1,
    ),
    "comet": (
        lambda i, a, b: ("" if i else "metricName,metricValue,step,epoch,runContext\n")
        + f"loss,{a},{i},0,train\nloss,{b},{i},0,validate",
        1,
    ),
    "aim": (
        lambda i, a, b: ("" if i else "run.hash,metric.name,context.subset,step,value\n")
        + f"abc,loss,train,{i},{a}\nabc,loss,val,{i},{b}",
        1,
    ),
}  # fmt: skip


def first_and_last(path):
    (run,) = [list(run.records) for run in read_runs(path)]
    return run


@pytest.mark.parametrize("tool", TEXTS)
def test_both_losses_and_the_steps_are_found(tmp_path, tool):
    make, stride = TEXTS[tool]
    path = tmp_path / "log.txt"
    path.write_text(lines(make), encoding="utf-8")

    records = first_and_last(path)

    assert [record.step for record in records] == [stride * row for row in range(ROWS)]
    assert [record.signals["loss"] for record in records] == pytest.approx(LOSSES)
    assert [record.signals["val_loss"] for record in records] == pytest.approx(HELD_OUT)


LOSS_ONLY = {
    "megatron": (
        lambda i, a, b: f" iteration {i * 100:8d}/ 5000 | consumed samples: {i * 256} | "
        f"learning rate: 1.5E-04 | lm loss: {a:.6E} | loss scale: 262144.0 | grad norm: 1.234 |",
        100,
    ),
    "tqdm": (
        lambda i, a, b: f"\r  {i}%|#    | {i}/120 [00:01<00:10, 12.3it/s, loss={a:.4f}]",
        1,
    ),
    "loguru": (
        lambda i, a, b: "2023-05-01 12:00:00.123 | INFO     | __main__:train:45 - epoch 0 step "
        f"{i * 10} loss {a:.4f} lr 1.00e-03",
        10,
    ),
    "absl": (
        lambda i, a, b: f"I0101 10:00:00.123456 140 train.py:55] [{i * 100}] "
        f"loss={a:.4f}, lr=0.001",
        100,
    ),
    "colours": (
        lambda i, a, b: f"\x1b[32m[INFO]\x1b[0m \x1b[1mstep\x1b[0m=\x1b[36m{i * 10}\x1b[0m "
        f"\x1b[1mloss\x1b[0m=\x1b[36m{a:.4f}\x1b[0m",
        10,
    ),
    "mmengine": (
        lambda i, a, b: "2023/01/01 10:00:00 - mmengine - INFO - Epoch(train)  "
        f"[{1 + i // 4}][{(i % 4 + 1) * 50:4d}/200]  lr: 1.0e-02  loss: {a:.4f}",
        50,
    ),
    "several lines a step": (
        lambda i, a, b: f"2024-01-01 10:00:00.000\thost:0\tolmo.train:891\tINFO\t[step={i}/1000]\n"
        f"    train/CrossEntropyLoss={a:.3f}\n    train/Perplexity=10.1",
        1,
    ),
    "perplexity beside the loss": (
        lambda i, a, b: f"Step {i * 50}/ 1000; acc: 20.1; ppl: 99.5; xent: {a:.3f}; lr: 0.00012;",
        50,
    ),
    "boxes": (
        lambda i, a, b: "------------------------\n| time/           |      |\n"
        f"|    total_timesteps | {i * 64} |\n| train/          |      |\n|    loss  | {a} |\n"
        "------------------------",
        64,
    ),
    "detectron2": (
        lambda i, a, b: json.dumps({"iteration": 20 * i, "total_loss": a, "loss_cls": a / 2}),
        20,
    ),
    "units": (
        lambda i, a, b: ("" if i else "step,loss,time per step\n") + f"{i},{a} nats,1.2e-3 s",
        1,
    ),
    "names of two words": (
        lambda i, a, b: ("" if i else "E    #    LOSS NER  SCORE \n---  ---  --------  -----\n")
        + f"{0:3d}  {i:3d}  {a:8.3f}   0.50",
        1,
    ),
}  # fmt: skip


@pytest.mark.parametrize("tool", LOSS_ONLY)
def test_the_loss_and_the_steps_are_found(tmp_path, tool):
    make, stride = LOSS_ONLY[tool]
    path = tmp_path / "log.log"
    path.write_text(lines(make), encoding="utf-8")

    records = first_and_last(path)
    steps = [record.step for record in records]

    assert [record.signals["loss"] for record in records] == pytest.approx(LOSSES)
    assert {after - before for before, after in zip(steps, steps[1:], strict=False)} == {stride}


DOCUMENTS = {
    "keras history": {"loss": LOSSES, "val_loss": HELD_OUT},
    "nested lists": {"train": {"loss": LOSSES}, "val": {"loss": HELD_OUT}},
    "a list under any name": {
        "epochs": [{"train_loss": a, "val_loss": b} for a, b in zip(LOSSES, HELD_OUT, strict=True)]
    },
    "steps as keys": {
        str(row): {"loss": LOSSES[row], "val_loss": HELD_OUT[row]} for row in range(ROWS)
    },
    "curves by series": {
        "loss": {
            "train": {"x": list(range(ROWS)), "y": LOSSES},
            "val": {"x": list(range(ROWS)), "y": HELD_OUT},
        }
    },
    "curves in a list": [
        {"name": "train loss", "x": list(range(ROWS)), "y": LOSSES},
        {"name": "val loss", "x": list(range(ROWS)), "y": HELD_OUT},
    ],
    "one metric a row": [
        {"metricName": name, "metricValue": str(values[row]), "step": row}
        for row in range(ROWS)
        for name, values in (("train_loss", LOSSES), ("val_loss", HELD_OUT))
    ],
}


@pytest.mark.parametrize("kind", DOCUMENTS)
def test_documents_of_any_shape_are_read(tmp_path, kind):
    path = tmp_path / "metrics.json"
    path.write_text(json.dumps(DOCUMENTS[kind]), encoding="utf-8")

    records = first_and_last(path)

    assert [record.step for record in records] == list(range(ROWS))
    assert [record.signals["loss"] for record in records] == LOSSES
    assert [record.signals["val_loss"] for record in records] == HELD_OUT


def test_rows_of_several_ranks_are_told_apart(tmp_path):
    path = tmp_path / "ranks.jsonl"
    rows = [
        {"rank": rank, "step": row, "loss": LOSSES[row] + rank}
        for row in range(ROWS)
        for rank in range(2)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")

    found = [[record.signals["loss"] for record in run.records] for run in read_runs(path)]

    assert found == [LOSSES, [loss + 1 for loss in LOSSES]]


def test_a_packed_file_of_json_lines_is_read(tmp_path):
    path = tmp_path / "log.jsonl.gz"
    with gzip.open(path, "wt", encoding="utf-8") as stream:
        stream.write(lines(lambda i, a, b: json.dumps({"step": i, "loss": a})))

    assert [record.signals["loss"] for record in first_and_last(path)] == LOSSES


@pytest.mark.parametrize("name", ["train_loss.csv", "run-a-tag-Loss_train.csv"])
def test_a_curve_without_a_name_has_that_of_its_file(tmp_path, name):
    path = tmp_path / name
    path.write_text("Wall time,Step,Value\n" + lines(lambda i, a, b: f"{1.6e9 + i},{i},{a}"))

    assert [record.signals["loss"] for record in first_and_last(path)] == LOSSES


def test_shares_of_right_answers_are_no_losses(tmp_path):
    path = tmp_path / "log.txt"
    path.write_text(
        lines(lambda i, a, b: f"Epoch: {i:03d}, Loss: {a:.4f}, Train: 0.80, Val: 0.75, Test: 0.74")
    )

    assert all(set(record.signals) == {"loss"} for record in first_and_last(path))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("step,foo,bar\n" + "0,1,2\n" * 5, "columns seen: foo, bar"),
        ("".join(f"{i} {i * 0.5} {i * 0.25}\n" for i in range(9)), "column1, column2, column3"),
        ("step,loss\n0,low\n1,high\n2,low\n", "column 'loss' holds text such as 'low'"),
    ],
)
def test_what_is_not_understood_is_said_precisely(tmp_path, text, said):
    path = tmp_path / "table.csv"
    path.write_text(text, encoding="utf-8")

    with pytest.raises(InputError) as error:
        list(read_runs(path))

    assert said in str(error.value)
    assert "--map loss=COLUMN" in str(error.value)
