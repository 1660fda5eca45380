"""JSON documents, JSON lines, logs in text, MLflow folders and parquet."""

import json
import math
import sys
import types

import pytest

from nabla_core.errors import InputError
from nabla_diagnose.readers import ReadOptions, read_run, read_runs


@pytest.fixture
def written(tmp_path):
    def write(content, name):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return path

    return write


def rows_of(path):
    return [(r.step, dict(r.signals)) for r in read_run(path)]


def test_a_trainer_state_joins_training_and_evaluation_of_a_step(written):
    history = [
        {"epoch": 0.5, "step": 10, "loss": 2.0, "learning_rate": 1e-3, "grad_norm": "1.5"},
        {"epoch": 1.0, "step": 20, "loss": 1.5, "learning_rate": 5e-4},
        {"epoch": 1.0, "step": 20, "eval_loss": 1.7, "eval_accuracy": 0.5, "eval_runtime": 3.0},
        {"epoch": 1.0, "step": 20, "train_loss": 1.75, "train_runtime": 9.0, "total_flos": 1e9},
    ]
    path = written({"log_history": history, "max_steps": 20}, "trainer_state.json")

    first, second = rows_of(path)

    assert first == (10, {"loss": 2.0, "lr": 1e-3, "grad_norm": 1.5})
    assert second[0] == 20
    assert second[1]["val_loss"] == 1.7
    assert second[1]["val_accuracy"] == 0.5
    assert "train_loss" not in second[1]


def test_evaluation_sets_are_kept_apart(written):
    history = [
        {"step": s, "loss": 1.0, "eval_wiki_loss": 1.0, "eval_code_loss": 2.0} for s in range(5)
    ]

    signals = rows_of(written({"log_history": history}, "trainer_state.json"))[0][1]

    assert signals == {"loss": 1.0, "val_loss/wiki": 1.0, "val_loss/code": 2.0}


@pytest.mark.parametrize(
    "document",
    [
        {"loss": [1.0, 0.5], "val_loss": [1.1, 0.9]},
        {"history": {"loss": [1.0, 0.5], "val_loss": [1.1, 0.9]}, "params": {"epochs": 2}},
        [{"loss": 1.0, "val_loss": 1.1}, {"loss": 0.5, "val_loss": 0.9}],
        [
            {"key": key, "value": value, "step": step}
            for key, values in {"loss": [1.0, 0.5], "val_loss": [1.1, 0.9]}.items()
            for step, value in enumerate(values)
        ],
    ],
)
def test_documents_of_metrics_are_read_in_any_layout(written, document):
    assert rows_of(written(document, "history.json")) == [
        (0, {"loss": 1.0, "val_loss": 1.1}),
        (1, {"loss": 0.5, "val_loss": 0.9}),
    ]


def test_series_with_their_own_steps_are_joined(written):
    document = {
        "training.loss": {"steps": [0, 10], "timestamps": ["a", "b"], "values": [1.0, 0.9]},
        "val.loss": {"steps": [10], "values": [2.0]},
    }

    assert rows_of(written(document, "metrics.json")) == [
        (0, {"loss": 1.0}),
        (10, {"loss": 0.9, "val_loss": 2.0}),
    ]


def test_lines_of_json_are_read_past_nesting_null_and_rubbish(written):
    lines = [
        '{"step": 0, "train": {"loss": 1.0}}',
        '{"step": 1, "train": {"loss": NaN}, "note": "text"}',
        "Traceback (most recent call last):",
        '{"step": 2, "train": {"loss": null}, "val": {"loss": "0.5"}}',
        '{"step": 3, "train": {"lo',
    ]
    path = written("\n".join(lines), "metrics.jsonl")

    run = next(read_runs(path))
    found = [(r.step, dict(r.signals)) for r in run.records]

    assert found[0] == (0, {"loss": 1.0})
    assert math.isnan(found[1][1]["loss"])
    assert found[2] == (2, {"val_loss": 0.5})
    assert run.notes.lines() == ["a line is no JSON (2 times)"]


def test_a_mode_in_the_row_tells_training_from_validation(written):
    rows = [
        {"env": "text only"},
        {"mode": "train", "epoch": 1, "iter": 50, "loss": 1.0},
        {"mode": "train", "epoch": 1, "iter": 100, "loss": 0.9},
        {"mode": "val", "epoch": 1, "iter": 10, "loss": 1.2},
        {"mode": "train", "epoch": 2, "iter": 50, "loss": 0.8},
    ]
    path = written("\n".join(map(json.dumps, rows)), "run.log.json")

    assert rows_of(path) == [
        (50, {"loss": 1.0}),
        (100, {"loss": 0.9, "val_loss": 1.2}),
        (150, {"loss": 0.8}),
    ]


TEXTS = {
    "keras": (
        "Epoch 1/2\n10/10 [====] - 2s 5ms/step - loss: 0.9 - val_loss: 1.0\n"
        "Epoch 2/2\n10/10 [====] - 2s 5ms/step - loss: 0.8 - val_loss: 0.9\n",
        [(1, {"loss": 0.9, "val_loss": 1.0}), (2, {"loss": 0.8, "val_loss": 0.9})],
    ),
    "pairs": ("step=1 loss=2.5 lr=1e-4\nstep=2 loss=nan lr=1e-4\n", None),
    "dictionary": (
        "{'loss': 0.3, 'learning_rate': 1e-05, 'step': 1}\n"
        "noise\n{'loss': 0.2, 'learning_rate': 9e-06, 'step': 2}\n",
        [(1, {"loss": 0.3, "lr": 1e-05}), (2, {"loss": 0.2, "lr": 9e-06})],
    ),
    "bars": (
        "[INFO] 2024-01-01 12:00:00,123 epoch 1 | loss 2.9\n"
        "[INFO] 2024-01-01 12:09:00,123 epoch 2 | loss 2.5\n",
        [(1, {"loss": 2.9}), (2, {"loss": 2.5})],
    ),
    "words": (
        "step 0: train loss 1.9, val loss 2.1\nstep 250: train loss 1.8, val loss 2.0\n",
        [(0, {"loss": 1.9, "val_loss": 2.1}), (250, {"loss": 1.8, "val_loss": 2.0})],
    ),
    "brackets": (
        "Epoch: [0][ 10/50]\tTime 0.3 (0.4)\tLoss 6.9e+00 (6.95e+00)\n"
        "Epoch: [0][ 20/50]\tTime 0.3 (0.4)\tLoss 6.5e+00 (6.75e+00)\n",
        [(10, {"loss": 6.9}), (20, {"loss": 6.5})],
    ),
    "boosting": (
        "[0]\ttrain-logloss:0.65\teval-logloss:0.66\n[1]\ttrain-logloss:0.60\teval-logloss:0.63\n",
        [(0, {"loss": 0.65, "val_loss": 0.66}), (1, {"loss": 0.6, "val_loss": 0.63})],
    ),
    "opponents": (
        "[Epoch 0/9] [Batch 0/90] [D loss: 0.69] [G loss: 0.7]\n"
        "[Epoch 0/9] [Batch 1/90] [D loss: 0.60] [G loss: 0.8]\n",
        [(0, {"d_loss": 0.69, "g_loss": 0.7}), (1, {"d_loss": 0.6, "g_loss": 0.8})],
    ),
    "bar": (
        "Epoch 0:   1%|1| 10/90 [00:01<02:00,  8.3it/s, loss=0.9]\r"
        "Epoch 0:   2%|2| 20/90 [00:02<02:00,  8.3it/s, loss=0.8]\n",
        [(10, {"loss": 0.9}), (20, {"loss": 0.8})],
    ),
    "quoted": (
        '[train][INFO] - {"epoch": 1, "loss": "9.3", "num_updates": "10"}\n'
        '[train][INFO] - {"epoch": 1, "loss": "9.2", "num_updates": "20"}\n',
        [(10, {"loss": 9.3}), (20, {"loss": 9.2})],
    ),
    "colours": (
        "\x1b[32mstep 1\x1b[0m loss: \x1b[1m0.9\x1b[0m\n\x1b[32mstep 2\x1b[0m loss: 0.8\n",
        [(1, {"loss": 0.9}), (2, {"loss": 0.8})],
    ),
    "tutorial": (
        "[1,  2000] loss: 2.1\n[1,  4000] loss: 1.8\n[2,  2000] loss: 1.5\n",
        [(2000, {"loss": 2.1}), (4000, {"loss": 1.8}), (6000, {"loss": 1.5})],
    ),
}


@pytest.mark.parametrize("kind", sorted(TEXTS))
def test_logs_in_text_are_read(written, kind):
    content, expected = TEXTS[kind]

    found = rows_of(written(content, "train.log"))

    if expected is None:
        assert found[0] == (1, {"loss": 2.5, "lr": 1e-4})
        assert math.isnan(found[1][1]["loss"])
    else:
        assert found == expected


def test_prose_is_no_log(written):
    with pytest.raises(InputError):
        rows_of(written("Chapter 3: the loss of a friend.\nIt was 1984, and cold.\n", "novel.txt"))


def test_an_mlflow_folder_is_one_run(written):
    for name, values in {"loss": [1.0, 0.5, 0.4], "val/loss": [1.5, 1.2]}.items():
        lines = [f"170000000000{i} {value} {i}" for i, value in enumerate(values)]
        folder = written("\n".join(lines) + "\n", f"mlruns/0/abc/metrics/{name}")
    metrics = folder.parents[1]

    assert rows_of(metrics) == [
        (0, {"loss": 1.0, "val_loss": 1.5}),
        (1, {"loss": 0.5, "val_loss": 1.2}),
        (2, {"loss": 0.4}),
    ]


def test_parquet_without_pyarrow_says_what_to_install(tmp_path):
    path = tmp_path / "metrics.parquet"
    path.write_bytes(b"PAR1" + bytes(50))
    if "pyarrow" in sys.modules:
        pytest.skip("pyarrow is installed")

    with pytest.raises(InputError, match=r"nabla-diagnose\[parquet\]"):
        rows_of(path)


def test_parquet_is_read_batch_by_batch(tmp_path, monkeypatch):
    class Batch:
        def to_pydict(self):
            return {"step": [0, 1], "loss": [1.0, None], "name": ["a", "b"], "lr": [0.1, 0.2]}

    class ParquetFile:
        def __init__(self, source):
            self.source = source

        def iter_batches(self, batch_size):
            return iter([Batch()])

    package, module = types.ModuleType("pyarrow"), types.ModuleType("pyarrow.parquet")
    package.__spec__ = types.SimpleNamespace(name="pyarrow")
    module.ParquetFile = ParquetFile
    monkeypatch.setitem(sys.modules, "pyarrow", package)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", module)
    path = tmp_path / "metrics.parquet"
    path.write_bytes(b"PAR1" + bytes(50))

    assert rows_of(path) == [(0, {"loss": 1.0, "lr": 0.1}), (1, {"lr": 0.2})]


def test_a_binary_tracker_file_says_what_to_do(tmp_path):
    path = tmp_path / "run-abc.wandb"
    path.write_bytes(bytes(100))

    with pytest.raises(InputError, match="export"):
        rows_of(path)


def test_options_apply_to_every_format(written):
    path = written([{"n": 3, "goal": 1.0}, {"n": 4, "goal": 0.5}], "rows.json")

    records = read_run(path, ReadOptions(columns={"loss": "goal", "step": "n"}))

    assert [(r.step, r.signals["loss"]) for r in records] == [(3, 1.0), (4, 0.5)]
