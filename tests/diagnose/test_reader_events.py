"""TensorBoard event files, written here byte by byte."""

import struct

import pytest

from nabla_core.errors import InputError
from nabla_diagnose.readers import read_run, read_runs
from nabla_diagnose.readers.tfrecord import crc32c, masked_crc


def varint(value):
    value &= (1 << 64) - 1
    out = b""
    while value > 0x7F:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


def field(number, kind, content):
    body = varint(len(content)) + content if kind == 2 else content
    return varint(number << 3 | kind) + body


def simple(tag, value):
    inner = field(1, 2, tag.encode()) + field(2, 5, struct.pack("<f", value))
    return field(1, 2, inner)


def tensor(tag, value, packed):
    shape = field(2, 2, b"")
    if packed:
        content = field(4, 2, struct.pack("<f", value))
    else:
        content = field(5, 2, struct.pack("<f", value))
    inner = field(1, 2, tag.encode()) + field(8, 2, field(1, 0, varint(1)) + shape + content)
    return field(1, 2, inner)


def image(tag):
    return field(1, 2, field(1, 2, tag.encode()) + field(4, 2, bytes(200_000)))


def event(step, *values, time_s=1000.0):
    head = field(1, 1, struct.pack("<d", time_s + step)) + field(2, 0, varint(step))
    return head + field(5, 2, b"".join(values))


def framed(payload):
    length = struct.pack("<Q", len(payload))
    return (
        length
        + struct.pack("<I", masked_crc(length))
        + payload
        + struct.pack("<I", masked_crc(payload))
    )


VERSION = framed(field(1, 1, struct.pack("<d", 1.0)) + field(3, 2, b"brain.Event:2"))


@pytest.fixture
def logged(tmp_path):
    def log(*events, name="events.out.tfevents.1.host"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(VERSION + b"".join(map(framed, events)))
        return path

    return log


def rows_of(path):
    return [(r.step, dict(r.signals)) for r in read_run(path)]


def test_the_checksum_is_castagnolis():
    assert crc32c(b"123456789") == 0xE3069283


@pytest.mark.parametrize(
    "write", [simple, lambda t, v: tensor(t, v, True), lambda t, v: tensor(t, v, False)]
)
def test_scalars_are_read_however_they_were_written(logged, write):
    path = logged(*(event(s, write("train/loss", 2.0 - s)) for s in range(3)))

    assert rows_of(path) == [(s, {"loss": 2.0 - s}) for s in range(3)]


def test_scalars_of_one_step_form_a_row_and_the_rest_is_skipped(logged):
    path = logged(
        event(0, simple("loss", 1.0)),
        event(0, image("samples")),
        event(0, simple("lr", 0.5)),
        event(1, simple("loss", 0.5), simple("lr", 0.25)),
    )

    assert rows_of(path) == [(0, {"loss": 1.0, "lr": 0.5}), (1, {"loss": 0.5, "lr": 0.25})]


def test_time_is_counted_from_the_start(logged):
    path = logged(event(0, simple("loss", 1.0)), event(5, simple("loss", 1.0)))

    assert [r.time_s for r in read_run(path)] == [0.0, 5.0]


def test_a_tag_that_counts_epochs_is_taken_where_it_was_written(logged):
    path = logged(
        *(event(s, simple("train/loss", 1.0)) for s in range(10)),
        event(0, simple("val/loss", 2.0)),
        *(event(s, simple("train/loss", 1.0)) for s in range(10, 20)),
        event(1, simple("val/loss", 1.5)),
    )

    records = list(read_run(path))

    assert [r.step for r in records] == list(range(20))
    assert [(r.step, r.signals["val_loss"]) for r in records if "val_loss" in r.signals] == [
        (9, 2.0),
        (19, 1.5),
    ]


def test_a_run_that_starts_again_in_the_same_file_is_another_one(logged):
    path = logged(
        *(event(s, simple("loss", 1.0)) for s in range(10)),
        *(event(s, simple("loss", 1.0)) for s in range(4)),
    )

    assert [len(list(run.records)) for run in read_runs(path)] == [10, 4]


def test_a_cut_file_is_read_up_to_the_cut(logged):
    path = logged(*(event(s, simple("loss", 1.0)) for s in range(5)))
    path.write_bytes(path.read_bytes()[:-3])

    run = next(read_runs(path))

    assert len(list(run.records)) == 4
    assert "cut or damaged" in run.notes.lines()[0]


def test_nothing_is_believed_behind_a_damaged_record(logged):
    path = logged(*(event(s, simple("loss", 1.0)) for s in range(5)))
    content = bytearray(path.read_bytes())
    place = len(content) - len(framed(event(4, simple("loss", 1.0)))) - 6
    content[place] ^= 0xFF
    path.write_bytes(bytes(content))

    assert len(rows_of(path)) == 3


@pytest.mark.parametrize("size", [0, 5, 11, 12, 40])
def test_a_file_without_a_whole_record_is_a_typed_error(logged, size):
    path = logged()
    path.write_bytes(path.read_bytes()[:size])

    with pytest.raises(InputError):
        rows_of(path)


def test_payloads_of_random_bytes_never_raise_anything_else(logged, tmp_path):
    import random

    generator = random.Random(0)
    good = event(0, simple("loss", 1.0))
    for _ in range(200):
        payload = bytearray(good)
        for _ in range(generator.randrange(1, 6)):
            payload[generator.randrange(len(payload))] = generator.randrange(256)
        path = logged(bytes(payload), event(1, simple("loss", 0.5)))
        try:
            runs = [[dict(r.signals) for r in run.records] for run in read_runs(path)]
        except InputError:
            continue  # a name that is no loss any more
        assert any(row.get("loss") == 0.5 for rows in runs for row in rows)


def test_folders_of_splits_are_one_run(logged, tmp_path):
    train = [event(s, simple("epoch_loss", 2.0 - s)) for s in range(3)]
    held_out = [event(s, simple("epoch_loss", 3.0 - s)) for s in range(3)]
    logged(*train, name="run/train/events.out.tfevents.1.host")
    logged(*held_out, name="run/validation/events.out.tfevents.2.host")

    assert rows_of(tmp_path / "run") == [
        (s, {"loss": 2.0 - s, "val_loss": 3.0 - s}) for s in range(3)
    ]


def test_files_of_one_folder_are_pieces_of_one_run(logged, tmp_path):
    logged(*(event(s, simple("loss", 1.0)) for s in range(5)), name="run/events.out.tfevents.1.h")
    logged(
        *(event(s, simple("loss", 1.0)) for s in range(5, 9)), name="run/events.out.tfevents.2.h"
    )

    assert [step for step, _ in rows_of(tmp_path / "run")] == list(range(9))
