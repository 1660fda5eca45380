"""Cells parsed a column at a time: every number is the one that ``float`` gives, bit for bit."""

import random

import pytest

from nabla_diagnose.readers.log import read_runs
from nabla_diagnose.readers.number import parse_cell
from nabla_diagnose.readers.plain_cells import plain_columns

SPELLINGS = (
    lambda x, rng: f"{x:.6f}",
    lambda x, rng: repr(x),
    lambda x, rng: repr(round(x, 4)),
    lambda x, rng: f"{x:.3e}",
    lambda x, rng: f"{x:.12E}",
    lambda x, rng: f"{x:.15g}",
    lambda x, rng: f"{x:.20f}",
    lambda x, rng: f"{x:+.2f}",
    lambda x, rng: f"{x:.0f}",
    lambda x, rng: str(rng.randrange(10 ** rng.randint(1, 18))),
    lambda x, rng: rng.choice(["", "-0.0", "5.", "-.5", "1e5", "1e-300", "1e308", "00012", "--"]),
)


def cell(rng):
    return rng.choice(SPELLINGS)(rng.gauss(0.0, 1.0) * 10.0 ** rng.randint(-9, 9), rng)


def bits(value):
    return None if value is None else float(value).hex()


@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_numbers_are_those_of_float(separator):
    pytest.importorskip("numpy")
    rng = random.Random(separator)
    for width in (1, 2, 5):
        rows = [[cell(rng) for _ in range(width)] for _ in range(400)]
        text = "".join(separator.join(row) + "\n" for row in rows)

        columns = plain_columns(text, width, separator)

        assert columns is not None
        for place, column in enumerate(columns):
            assert [*map(bits, column.values)] == [bits(parse_cell(row[place])) for row in rows]
            assert column.is_full == (None not in column.values)


def test_counts_stay_whole():
    pytest.importorskip("numpy")
    counts, numbers = plain_columns("0,1.5\n10,2.5\n", 2, ",")

    assert (counts.values, numbers.values) == ([0, 10], [1.5, 2.5])
    assert [type(value) for value in counts.values] == [int, int]
    assert counts.rises and not numbers.rises


@pytest.mark.parametrize(("text", "rises"), [("1\n2\n9\n", True), ("1\n2\n2\n", False)])
def test_counts_that_rise_are_known(text, rises):
    pytest.importorskip("numpy")
    (column,) = plain_columns(text, 1, ",")

    assert column.rises is rises


@pytest.mark.parametrize(
    "text",
    ["1,2\n3\n", "1,nan\n", "1,2,3\n", "1, 2\n", "a,2\n", '"1",2\n', "1-2,3\n", "1.2.3,4\n", "\n"],
)
def test_what_is_no_plain_table_is_left_to_others(text):
    pytest.importorskip("numpy")
    assert plain_columns(text, 2, ",") is None


def big_table(path, oddities):
    rng = random.Random(4)
    lines = ["step,loss,lr,val_loss"]
    for step in range(4500):
        held_out = f"{rng.random():.5f}" if step % 100 == 0 else ""
        lines.append(f"{step},{rng.random():.6f},{rng.random() * 1e-4!r},{held_out}")
    for place, line in oddities.items():
        lines[place] = line
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


@pytest.mark.parametrize(
    "oddities",
    [
        {},
        {3500: "3499,nan,1e-3,"},
        {3500: "3499,oops,1e-3,", 4200: "4199, 0.5 ,1e-3,"},
        {3500: '3499,"0.5",1e-3,'},
        {3500: "3499,0.5"},
        {3200: "step,loss,lr,val_loss"},
        {3500: "mean,0.5,,", 4000: ""},
    ],
)
def test_a_large_table_is_read_as_a_small_one(tmp_path, monkeypatch, oddities):
    pytest.importorskip("numpy")
    big_table(tmp_path / "log.csv", oddities)

    def records():
        return [
            [(record.step, dict(record.signals)) for record in run.records]
            for run in read_runs(tmp_path / "log.csv")
        ]

    at_once = repr(records())
    monkeypatch.setattr("nabla_diagnose.readers.columnar.find_spec", lambda name: None)
    assert at_once == repr(records())
