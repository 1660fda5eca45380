"""Damaged, huge and hostile logs: a typed error or the rest of the log, never anything else."""

import random
import tracemalloc
from pathlib import Path

import pytest

from nabla_core.errors import InputError
from nabla_diagnose.readers import read_runs

LOGS = sorted((Path(__file__).parent / "logs").iterdir())
SPLINTERS = (b",", b"\n", b"nan", b"1e999", b'"', b"\x00", b"{", b"[", b";", b"\xff\xfe", b"loss")


def damage(content, generator):
    damaged = bytearray(content)
    for _ in range(generator.randrange(1, 8)):
        place = generator.randrange(max(1, len(damaged)))
        kind = generator.randrange(4)
        if kind == 0:
            damaged[place : place + 1] = bytes([generator.randrange(256)])
        elif kind == 1:
            del damaged[place : place + generator.randrange(1, 40)]
        elif kind == 2:
            damaged[place:place] = generator.choice(SPLINTERS)
        else:
            damaged[place:place] = damaged[: generator.randrange(1, 200)]
    return bytes(damaged)


@pytest.mark.parametrize("log", LOGS, ids=lambda path: path.name)
def test_damage_gives_rows_or_a_typed_error(log, tmp_path):
    generator = random.Random(log.name)
    path = tmp_path / log.name
    for _ in range(25):
        path.write_bytes(damage(log.read_bytes()[:4000], generator))
        try:
            runs = [list(run.records) for run in read_runs(path)]
        except InputError:
            continue
        assert all(runs)


def test_memory_does_not_grow_with_the_log(tmp_path):
    def peak(rows):
        path = tmp_path / f"{rows}.csv"
        lines = (f"{step},{1 / (step + 1)},{0.1}\n" for step in range(rows))
        path.write_text("step,loss,lr\n" + "".join(lines))
        tracemalloc.start()
        for run in read_runs(path):
            for _ in run.records:
                pass
        _, highest = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return highest

    peak(100)  # what is imported and cached once
    assert peak(24_000) < 1.2 * peak(12_000) + 300_000


@pytest.mark.parametrize(
    "content",
    [
        b"[" * 50_000,
        b'{"a":' * 50_000,
        b'{"log_history": 3}',
        b'{"loss": [[1, 2], [3]]}',
        b'{"log_history": [1, 2, null]}',
    ],
)
def test_strange_json_is_a_typed_error(content, tmp_path):
    path = tmp_path / "trainer_state.json"
    path.write_bytes(content)

    with pytest.raises(InputError):
        list(read_runs(path))


def test_a_table_with_too_many_columns_is_a_typed_error(tmp_path):
    path = tmp_path / "wide.csv"
    path.write_text(",".join(f"c{place}" for place in range(30_000)) + "\n")

    with pytest.raises(InputError, match="columns"):
        list(read_runs(path))


def test_steps_out_of_all_bounds_are_numbered_instead(tmp_path):
    path = tmp_path / "metrics.csv"
    path.write_text("step,loss\n0,1\n1e300,2\ninf,3\n")

    (steps,) = [[r.step for r in run.records] for run in read_runs(path)]

    assert steps == [0, 1, 2]
