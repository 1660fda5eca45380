"""The log: records in order, once each, in memory of bounded size."""

import math
import os
import threading

import pytest

from nabla_core.artifacts.strict_json import dump_json
from nabla_replay.errors import RecordError
from nabla_replay.store import entries, line_stream, lines
from nabla_replay.store.brief_text import BriefEntry
from nabla_replay.store.entries import EndEntry, NoteEntry, StepEntry
from nabla_replay.store.lines import encode_line, parse_line
from nabla_replay.store.log_file import LogFile
from nabla_replay.store.step_text import step_text
from nabla_replay.store.tables import TensorInfo

TABLES = {"parameters": (TensorInfo(name="w", shape=(2, 0), dtype="float32"),)}
ENTRIES = [
    StepEntry(step=0),
    StepEntry(
        step=7,
        loss=0.1 + 0.2,
        batch=(3, 1, 2),
        signals={"lr": 1e-3},
        digests={"rng": "ab", "ema": "cd"},
        vectors={"parameters": b"\0\xff", "odd": b""},
    ),
    StepEntry(step=1, loss=-math.inf, batch="digest"),
    entries.EpochEntry(epoch=1, step=10, state={"a": [1, None]}),
    entries.CheckpointEntry(step=3, name="x", size_bytes=1, crc32=2, sha256="f" * 64),
    entries.SegmentEntry(number=0, rank=1, world_size=2, started_s=0.1, tables=TABLES, cut_bytes=9),
    entries.SegmentEntry(number=1, rank=0, world_size=1, started_s=0.0, environment={"a": 1}),
    entries.GapEntry(reason="disk full", records=3, first_step=4, last_step=6),
    NoteEntry(name="issue", body={"rule": "RUN101"}),
    EndEntry(reason="closed", step=9),
]


@pytest.fixture
def folder(tmp_path):
    descriptor = os.open(tmp_path, os.O_RDONLY)
    yield descriptor
    os.close(descriptor)


@pytest.fixture
def log(folder):
    opened = LogFile(folder, "log")
    yield opened
    opened.close()


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.kind)
def test_an_entry_comes_back_as_it_was(entry):
    line = parse_line(encode_line(12, entry)[:-1])

    assert (line.sequence, line.kind, line.entry) == (12, entry.kind, entry)


@pytest.mark.parametrize(
    "step",
    [
        *(entry for entry in ENTRIES if isinstance(entry, StepEntry)),
        StepEntry(
            step=2, loss=math.nan, batch=(), signals={'a "b"\n': 1e300}, digests={"p": "é\\"}
        ),
    ],
)
def test_a_step_is_written_as_any_other_record_is(step):
    plain = {"n": 3, "k": "step", **step.to_body()}
    assert step_text(3, step) == dump_json(plain)


@pytest.mark.parametrize("loss", [0.1, -0.0, 5e-324, math.inf])
@pytest.mark.parametrize("packed", [b"", b"\1\2\3\4", b"\xff" * 8])
@pytest.mark.parametrize("batch", [None, (7, 8), 'a "digest"'])
def test_a_step_in_brief_is_read_as_a_step(loss, packed, batch):
    anchor = "@5" if packed else ""
    brief = BriefEntry(3, loss, batch, {"lr": 0.3}, "0:4", anchor, packed)
    found = parse_line(encode_line(1, brief)[:-1]).entry
    assert found == StepEntry(
        step=3,
        loss=loss,
        batch=batch,
        signals={"lr": 0.3},
        digests={"loader": "0:4"},
        vectors={anchor: packed} if packed else {},
    )
    assert math.copysign(1, found.loss) == math.copysign(1, loss)
    assert found.is_brief


def test_a_loss_that_is_not_a_number_comes_back():
    line = parse_line(encode_line(0, StepEntry(step=0, loss=math.nan))[:-1])

    assert math.isnan(line.entry.loss)


def test_an_unknown_kind_of_a_newer_version_is_kept():
    class Later(NoteEntry):
        kind = "later"

    line = parse_line(encode_line(0, Later(name="x"))[:-1])

    assert line.kind == "later"
    assert line.entry == NoteEntry(name="later", body={"name": "x", "body": None})


@pytest.mark.parametrize("bit", range(8))
def test_every_changed_bit_of_a_line_is_found(bit):
    line = encode_line(3, StepEntry(step=5, loss=0.5))[:-1]
    for at in range(len(line)):
        changed = bytearray(line)
        changed[at] ^= 1 << bit
        with pytest.raises(RecordError):
            parse_line(bytes(changed))


@pytest.mark.parametrize(
    "body",
    [
        b'{"n":0,"k":"step","s":1.5}',
        b'{"n":0,"k":"step","s":-1}',
        b'{"n":true,"k":"step","s":1}',
        b'{"n":0,"k":"step","s":1,"l":"0x1p5000"}',
        b'{"n":0,"k":"step","s":1,"l":3}',
        b'{"n":0,"k":"step","s":1,"v":{"p":"?"}}',
        b'{"n":0,"k":"step","s":9223372036854775808}',
        b'{"n":0,"k":"step","s":1,"q":7}',
        b'{"n":0,"k":"step","s":1,"q":"@5:3ff00000000000"}',
        b'{"n":0,"k":"step","s":1,"q":"@5:000000000000f03f"}',
        b'{"n":0,"k":"step","s":1,"q":":000000000000f03f00000001"}',
        b'{"n":0,"k":"step","s":1,"q":"@5:000000000000f03f 0000001"}',
        b'{"n":0,"k":"step","s":1,"d":{"r":1}}',
        b'{"n":0,"k":"step","s":1,"i":[1.5]}',
        b'{"n":0,"k":"step","s":1,"s":2}',
        b'{"n":0,"k":"step","s":NaN}',
        b'{"n":0,"k":"ckpt","s":1}',
        b'{"n":0,"k":3}',
        b'{"k":"step","s":1}',
        b"[" * 100_000 + b"}",
        b"{}",
    ],
)
def test_a_line_with_a_right_checksum_and_wrong_content_is_refused(body):
    import zlib

    with pytest.raises(RecordError):
        parse_line(b'{"c":"%08x","d":%b}' % (zlib.crc32(body), body))


def test_a_record_beyond_the_limit_is_refused_and_the_log_stays_good(log, monkeypatch):
    monkeypatch.setattr(lines, "MAX_LINE_BYTES", 200)
    log.append(StepEntry(step=0))

    with pytest.raises(RecordError, match="at most 200"):
        log.append(NoteEntry(name="x" * 300))

    assert log.append(StepEntry(step=1)) == 1


@pytest.mark.parametrize("size", [0, 1, 5, 16, 17, 40])
def test_lines_are_read_in_any_block_size(tmp_path, monkeypatch, size):
    monkeypatch.setattr(line_stream, "_BLOCK_BYTES", 7)
    monkeypatch.setattr(line_stream, "_MAX_FRAMED_BYTES", 16)
    (tmp_path / "x").write_bytes(b"a\n" + b"b" * size + b"\nc\n" + b"d" * size)

    with open(tmp_path / "x", "rb") as stream:
        read = list(line_stream.read_lines(stream.fileno()))

    long = None if size > 16 else b"b" * size
    assert [line.text for line in read[:3]] == [b"a", long, b"c"]
    assert [line.number for line in read] == list(range(1, len(read) + 1))
    tail = [(line.text, line.is_complete) for line in read[3:]]
    assert tail == ([] if size == 0 else [(None if size > 16 else b"d" * size, False)])


def test_numbers_go_on_where_an_earlier_process_stopped(folder, log):
    log.append(StepEntry(step=0))
    log.close()

    again = LogFile(folder, "log")

    assert again.next_sequence == 1 and again.cut_bytes == 0
    again.close()


@pytest.mark.parametrize("torn", [b"{", b'{"c":"00000000","d":{"n":1', b"\0" * 70_000])
def test_a_torn_end_is_cut_off_and_nothing_else(folder, log, tmp_path, torn):
    log.append(StepEntry(step=0))
    log.close()
    good = (tmp_path / "log").read_bytes()
    (tmp_path / "log").write_bytes(good + torn)

    again = LogFile(folder, "log")

    assert (again.cut_bytes, again.next_sequence) == (len(torn), 1)
    assert (tmp_path / "log").read_bytes() == good
    again.close()


def test_a_damaged_whole_line_at_the_end_is_kept_and_counted(folder, log, tmp_path):
    for step in range(3):
        log.append(StepEntry(step=step))
    log.close()
    octets = bytearray((tmp_path / "log").read_bytes())
    octets[-10] ^= 4
    (tmp_path / "log").write_bytes(bytes(octets))

    again = LogFile(folder, "log")

    assert (again.cut_bytes, again.next_sequence) == (0, 3)
    again.close()


def test_a_record_is_one_write_to_the_kernel(log, monkeypatch):
    sizes = []
    write = os.write
    monkeypatch.setattr(
        os, "write", lambda fd, octets: sizes.append(len(octets)) or write(fd, octets)
    )

    log.append(StepEntry(step=1, vectors={"parameters": b"x" * 5000}))

    assert len(sizes) == 1


def test_a_short_write_is_finished(log, tmp_path, monkeypatch):
    write = os.write
    monkeypatch.setattr(os, "write", lambda fd, octets: write(fd, octets[:7]))

    log.append(StepEntry(step=1))

    assert parse_line((tmp_path / "log").read_bytes()[:-1]).entry == StepEntry(step=1)


def test_what_a_failed_write_left_is_cut_off_by_the_next_one(log, tmp_path, monkeypatch):
    write = os.write

    def half(descriptor, octets):
        write(descriptor, octets[:9])
        raise OSError(28, "No space left on device")

    log.append(StepEntry(step=0))
    with monkeypatch.context() as patched:
        patched.setattr(os, "write", half)
        with pytest.raises(OSError, match="No space"):
            log.append(StepEntry(step=1))
    assert log.append(StepEntry(step=2)) == 1

    read = [parse_line(line).entry.step for line in (tmp_path / "log").read_bytes().splitlines()]
    assert read == [0, 2]


def test_an_interrupt_in_the_middle_of_a_write_loses_no_number(log, tmp_path, monkeypatch):
    write = os.write

    def interrupted(descriptor, octets):
        write(descriptor, octets)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(os, "write", interrupted)
        with pytest.raises(KeyboardInterrupt):
            log.append(StepEntry(step=0))
    log.append(StepEntry(step=1))

    read = [parse_line(line) for line in (tmp_path / "log").read_bytes().splitlines()]
    assert [(line.sequence, line.entry.step) for line in read] == [(0, 0), (1, 1)]


def test_a_signal_handler_that_records_does_not_tear_the_record_under_it(
    log, tmp_path, monkeypatch
):
    write, nested = os.write, []

    def signalled(descriptor, octets):
        if not nested:
            nested.append(log.append(EndEntry(reason="signal")))  # same thread, same moment
        return write(descriptor, octets)

    monkeypatch.setattr(os, "write", signalled)
    log.append(StepEntry(step=0))

    read = [parse_line(line) for line in (tmp_path / "log").read_bytes().splitlines()]
    assert nested == [None]
    assert [(line.sequence, line.kind) for line in read] == [(0, "step"), (1, "end")]


def test_threads_take_turns(log, tmp_path):
    def work(base):
        for step in range(50):
            log.append(StepEntry(step=base + step))

    threads = [threading.Thread(target=work, args=(base,)) for base in (0, 100, 200)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    read = [parse_line(line) for line in (tmp_path / "log").read_bytes().splitlines()]
    assert [line.sequence for line in read] == list(range(150))
    assert {line.entry.step for line in read} == {b + s for b in (0, 100, 200) for s in range(50)}
