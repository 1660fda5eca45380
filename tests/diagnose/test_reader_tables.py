"""Tables in text: every shape that trackers write gives the same records."""

import gzip
import math

import pytest

from nabla_core.errors import InputError
from nabla_diagnose.readers import ReadOptions, read_run, read_runs

PLAIN = "step,loss,val_loss,lr\n0,1.5,,0.1\n1,1.25,1.6,0.1\n2,1.0,,0.05\n"


@pytest.fixture
def written(tmp_path):
    def write(content, name="metrics.csv"):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


def series(path, signal, **options):
    records = read_run(path, ReadOptions(**options))
    return [(r.step, r.signals[signal]) for r in records if signal in r.signals]


def test_an_empty_cell_is_absent_and_nan_is_a_value(written):
    path = written("step,loss,val_loss\n0,1.0,\n1,nan,2.0\n")

    first, second = read_run(path)

    assert dict(first.signals) == {"loss": 1.0}
    assert math.isnan(second.signals["loss"])
    assert second.signals["val_loss"] == 2.0


@pytest.mark.parametrize("spelling", ["nan", "NaN", "NAN", "-nan", "-nan(ind)", "1.#QNAN"])
def test_nan_is_read_in_any_spelling(written, spelling):
    assert math.isnan(series(written(f"step,loss\n0,1\n1,{spelling}\n"), "loss")[1][1])


@pytest.mark.parametrize(
    ("spelling", "value"),
    [
        ("inf", math.inf),
        ("-Infinity", -math.inf),
        ("1.#INF", math.inf),
        ("1e-3", 0.001),
        ('"1,234.5"', 1234.5),
        ("12%", 0.12),
        ("tensor(0.5)", 0.5),
        ("'0.5'", 0.5),
        (" 0.5 ", 0.5),
    ],
)
def test_numbers_in_text_are_numbers(written, spelling, value):
    assert series(written(f"step,loss\n0,1\n1,{spelling}\n"), "loss")[1] == (1, value)


@pytest.mark.parametrize("absent", ["", "null", "None", "N/A", "-"])
def test_words_for_nothing_are_absent(written, absent):
    assert series(written(f"step,loss,acc\n0,1,{absent}\n1,2,0.5\n"), "acc") == [(1, 0.5)]


@pytest.mark.parametrize(
    "content",
    [
        PLAIN.encode("utf-16"),
        PLAIN.encode("utf-8-sig"),
        PLAIN.replace("\n", "\r\n").encode(),
        PLAIN.replace("\n", "\r\r\n").encode(),
        PLAIN.replace("\n", "\r").encode(),
        PLAIN.replace(",", "\t").encode(),
        PLAIN.replace(",", ";").encode(),
        b"step;loss;val_loss;lr\n0;1,5;;0,1\n1;1,25;1,6;0,1\n2;1,0;;0,05\n",
        b"# written by a tracker\n" + PLAIN.encode(),
        PLAIN.replace(",", "  ,   ").encode(),
        gzip.compress(PLAIN.encode(), mtime=0),
        PLAIN.strip().encode(),
    ],
)
def test_encodings_line_ends_separators_and_padding_do_not_matter(written, content):
    path = written(content)

    assert series(path, "loss") == [(0, 1.5), (1, 1.25), (2, 1.0)]
    assert series(path, "val_loss") == [(1, 1.6)]
    assert series(path, "lr") == [(0, 0.1), (1, 0.1), (2, 0.05)]


def test_rows_of_one_step_that_complement_each_other_become_one_record(written):
    path = written(
        "epoch,step,train_loss_step,val_loss\n0,0,3.0,\n0,1,2.0,\n0,1,,2.5\n1,2,1.5,\n1,2,,2.4\n"
    )

    records = list(read_run(path))

    assert [r.step for r in records] == [0, 1, 2]
    assert dict(records[1].signals) == {"loss": 2.0, "val_loss": 2.5}


def test_nan_that_stands_for_not_logged_is_absent(written):
    rows = ["epoch,step,train_loss,val_loss"]
    for step in range(60):
        rows.append(f"{step // 10},{step},{1 / (step + 1)},nan")
        if step % 10 == 9:
            rows.append(f"{step // 10},{step},nan,{2 / (step + 1)}")
    path = written("\n".join(rows) + "\n")

    assert all(math.isfinite(value) for _, value in series(path, "loss"))
    assert [step for step, _ in series(path, "val_loss")] == [9, 19, 29, 39, 49, 59]


def test_a_loss_that_broke_is_not_taken_for_absent(written):
    rows = [f"{step},{math.nan if step > 10 else 1.0}" for step in range(40)]

    found = series(written("step,loss\n" + "\n".join(rows) + "\n"), "loss")

    assert sum(math.isnan(value) for _, value in found) == 29


def test_a_loss_that_is_nan_from_the_first_row_is_not_taken_for_absent(written):
    rows = [f"{step},nan,nan,0.1" for step in range(40)]

    found = series(written("step,loss,val_loss,lr\n" + "\n".join(rows) + "\n"), "loss")

    assert len(found) == 40


def test_steps_that_start_again_begin_another_run(written):
    steps = [*range(50), *range(20), *range(5)]
    path = written("step,loss\n" + "".join(f"{s},{1 / (s + 1)}\n" for s in steps))

    runs = [[r.step for r in run.records] for run in read_runs(path)]

    assert runs == [list(range(50)), list(range(20)), list(range(5))]


def test_steps_that_go_back_to_the_middle_are_the_same_run_resumed(written):
    steps = [*range(700), *range(400, 900)]
    path = written("step,loss\n" + "".join(f"{s},{1 / (s + 1)}\n" for s in steps))

    runs = [[r.step for r in run.records] for run in read_runs(path)]

    assert runs == [steps]


def test_a_run_that_is_not_read_to_its_end_is_skipped(written):
    steps = [*range(700), *range(20)]
    path = written("step,loss\n" + "".join(f"{s},{1 / (s + 1)}\n" for s in steps))

    assert [next(run.records).step for run in read_runs(path)] == [0, 0]


def test_single_rows_of_the_first_epoch_are_runs_of_their_own(written):
    path = written("epoch,loss\n0,1\n1,0.5\n2,0.4\n0,3\n0,2\n")

    assert [len(list(run.records)) for run in read_runs(path)] == [3, 1, 1]


def test_a_repeated_header_begins_another_run(written):
    path = written("step,loss\n5,1\n6,0.9\nstep,loss\n7,1\n8,0.9\n")

    assert [len(list(run.records)) for run in read_runs(path)] == [2, 2]


@pytest.mark.parametrize("first", [0, 1])
def test_batches_that_count_anew_in_each_epoch_are_one_run(written, first):
    rows = [(epoch, batch) for epoch in range(3) for batch in range(first, first + 10)]
    path = written("Epoch,Batch,Loss\n" + "".join(f"{e},{b},1.0\n" for e, b in rows))

    runs = [[r.step for r in run.records] for run in read_runs(path)]

    assert runs == [list(range(first, first + 30))]


def test_many_rows_of_one_epoch_are_numbered(written):
    path = written("epoch,loss\n" + "".join(f"{row // 10},{row}\n" for row in range(30)))

    assert [step for step, _ in series(path, "loss")] == list(range(30))


def test_timestamps_are_no_steps(written):
    path = written("step,loss\n" + "".join(f"{1_700_000_000 + 7 * i},1\n" for i in range(20)))

    assert [step for step, _ in series(path, "loss")] == list(range(20))


def test_rows_from_the_last_step_to_the_first_are_turned_round(written):
    path = written("step,loss\n" + "".join(f"{s},{s}\n" for s in range(20, 0, -1)))

    assert series(path, "loss")[0] == (1, 1.0)


def test_summary_rows_are_left_out_and_told(written):
    path = written("epoch,loss\n0,1\n1,0.9\nmean,0.95\nbest,0.9\n")

    run = next(read_runs(path))

    assert len(list(run.records)) == 2
    assert run.notes.lines() == ["a summary row was left out (2 times)"]


def test_rows_of_unequal_length_are_read_and_told(written):
    path = written("step,loss,acc\n0,1\n1,0.9,0.5,7\n2,0.8,0.6\n")

    run = next(read_runs(path))

    assert [dict(r.signals) for r in run.records] == [
        {"loss": 1.0},
        {"loss": 0.9, "acc": 0.5},
        {"loss": 0.8, "acc": 0.6},
    ]
    assert len(run.notes.lines()) == 2


def test_the_first_of_two_equal_columns_counts(written):
    run = next(read_runs(written("step,loss,loss\n0,1,2\n1,1.5,2\n")))

    assert [r.signals["loss"] for r in run.records] == [1.0, 1.5]
    assert "twice" in run.notes.lines()[0]


def test_a_phase_column_tells_training_from_validation(written):
    path = written(
        "epoch,phase,loss,acc\n0,train,1,.1\n0,val,1.2,.2\n1,train,.9,.3\n1,val,1.1,.4\n"
    )

    records = list(read_run(path))

    assert dict(records[1].signals) == {
        "loss": 0.9,
        "train_acc": 0.3,
        "val_loss": 1.1,
        "val_acc": 0.4,
    }


def test_a_table_of_metric_and_value_is_turned_into_columns(written):
    path = written("step,metric,value\n0,loss,1\n0,lr,.1\n1,loss,.9\n1,lr,.1\n")

    assert [dict(r.signals) for r in read_run(path)] == [
        {"loss": 1.0, "lr": 0.1},
        {"loss": 0.9, "lr": 0.1},
    ]


def test_rows_of_several_runs_are_judged_apart(written):
    path = written("run,step,loss\na,0,1\nb,0,2\na,1,.9\nb,1,1.9\n")

    runs = [[r.signals["loss"] for r in run.records] for run in read_runs(path)]

    assert runs == [[1.0, 0.9], [2.0, 1.9]]


def test_columns_of_several_runs_are_judged_apart_and_envelopes_left_out(written):
    path = written(
        '"Step","calm-1 - train/loss","calm-1 - train/loss__MIN","calm-1 - train/loss__MAX",'
        '"wild-2 - train/loss","wild-2 - train/loss__MIN","wild-2 - train/loss__MAX"\n'
        "0,1,1,1,2,2,2\n1,.9,.9,.9,,,\n2,.8,.8,.8,1.9,1.9,1.9\n"
    )

    runs = [[(r.step, dict(r.signals)) for r in run.records] for run in read_runs(path)]

    assert runs[0][1] == (1, {"loss": 0.9})
    assert runs[1] == [(0, {"loss": 2.0}), (2, {"loss": 1.9})]


def test_a_downloaded_curve_takes_its_name_from_the_file(written):
    path = written(
        "Wall time,Step,Value\n1700000000.1,0,1\n1700000060.1,1,.9\n", "run-a-tag-Loss_train.csv"
    )

    records = list(read_run(path))

    assert [r.signals["loss"] for r in records] == [1.0, 0.9]
    assert records[1].time_s == pytest.approx(60.0)


def test_columns_of_layers_become_arrays(written):
    path = written("step,loss,grad_norm/a,grad_norm/b,weight_norm/a\n0,1,0.1,0.2,3\n1,1,,0.3,\n")

    first, second = read_run(path)

    assert first.layout == ("a", "b")
    assert first.layers["grad_norm"] == (0.1, 0.2)
    assert second.layout == ("b",)
    assert second.layers == {"grad_norm": (0.3,)}


def test_long_tables_are_the_same_whichever_way_they_are_read(written):
    rows = [f"{s},{1 / (s + 1)},{'' if s % 100 else 0.5}" for s in range(3000)]
    fast = written("step,loss,val_loss\n" + "\n".join(rows) + "\n")
    plain = [(r.step, dict(r.signals)) for r in read_run(fast)]
    # a column of a layer makes the reader go row by row
    slow = written(
        "step,loss,val_loss,grad_norm/a\n" + "\n".join(f"{row},1" for row in rows) + "\n", "b.csv"
    )

    assert [(r.step, dict(r.signals)) for r in read_run(slow)] == plain


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is empty"),
        (b"step,loss\n", "no row with a number"),
        (bytes(range(256)) * 40, "binary"),
        (b"step,loss\n" + b"1" * 17_000_000, "line above"),
        (b"step,acc\n0,1\n1,2\n", "columns seen: acc, step; name it with --map loss=COLUMN"),
        (gzip.compress(b"step,loss\n" + b"0,1\n" * 9999, mtime=0)[:-20], "cannot be unpacked"),
    ],
)
def test_what_is_no_log_is_a_typed_error_that_says_so(written, content, said):
    with pytest.raises(InputError, match=said):
        list(read_run(written(content)))


def test_a_missing_file_and_a_folder_are_typed_errors(tmp_path):
    for path in (tmp_path / "absent.csv", tmp_path):
        with pytest.raises(InputError):
            list(read_run(path))


@pytest.mark.parametrize("rows", [255, 256, 257, 512])
def test_a_step_is_completed_across_the_end_of_a_block(written, rows):
    lines = [f"{step},{1 / (step + 1)}," for step in range(rows)]
    path = written("step,loss,val_loss\n" + "\n".join([*lines, f"{rows - 1},,0.5"]) + "\n")

    records = list(read_run(path))

    assert [r.step for r in records] == list(range(rows))
    assert records[-1].signals == {"loss": 1 / rows, "val_loss": 0.5}


def test_a_named_column_wins_over_what_names_say(written):
    path = written("n,loss,objective 2\n0,1,5\n1,2,6\n")

    found = series(path, "loss", columns={"loss": "Objective 2"})

    assert [value for _, value in found] == [5.0, 6.0]


def test_a_named_column_that_does_not_exist_lists_those_that_do(written):
    with pytest.raises(InputError, match=r"'lossy' does not exist \(did you mean 'loss'\?\)"):
        list(read_run(written(PLAIN), ReadOptions(columns={"loss": "lossy"})))


def test_a_last_line_without_an_end_is_left_out_if_the_file_grew(written, monkeypatch):
    path = written("step,loss\n0,1.5\n1,1.2")
    from nabla_diagnose.readers import lines

    opened = lines.open_bytes

    def open_and_grow(given):
        stream = opened(given)
        with path.open("a") as tracker:
            tracker.write("5\n")
        return stream

    monkeypatch.setattr(lines, "open_bytes", open_and_grow)
    assert list(lines.read_lines(path)) == ["step,loss", "0,1.5"]
