"""Writing and reading a run: what was acknowledged is there, and nothing is overwritten."""

import os
import threading

import pytest
import torch

from nabla_core.errors import InputError
from nabla_replay.errors import RunBusyError, RunFormatError, UnsupportedStateError
from nabla_replay.store import checkpoint_worker
from nabla_replay.store.checkpoint_worker import CheckpointWorker
from nabla_replay.store.entries import CheckpointEntry, NoteEntry, SegmentEntry, StepEntry
from nabla_replay.store.header import new_run_id
from nabla_replay.store.listing import captured_runs
from nabla_replay.store.reader import RunReader
from nabla_replay.store.tables import TensorInfo
from nabla_replay.store.verify import verify_run
from nabla_replay.store.writer import RunWriter, SegmentStart


@pytest.fixture
def held_disk(monkeypatch):
    """Checkpoints that do not reach the disk until the event is set."""
    release = threading.Event()
    write = checkpoint_worker.write_state

    def wait(*arguments):
        release.wait(10)
        return write(*arguments)

    monkeypatch.setattr(checkpoint_worker, "write_state", wait)
    yield release
    release.set()


def test_a_run_comes_back(store):
    folder = store.run()

    with RunReader.open(folder) as reader:
        log = reader.log()
        assert reader.header == store.header() and reader.ranks == (0,)
        assert [step.step for step in reader.steps()] == list(range(6))
        assert [found.step for found in reader.checkpoints()] == [0, 3]
        assert log.damage == () and log.has_ended and len(log.segments) == 1
        assert [record.sequence for record in log.records] == list(range(len(log.records)))
        assert torch.equal(
            reader.load(reader.checkpoints()[1])["model"]["weight"],
            store.state(3)["model"]["weight"],
        )
    assert verify_run(folder).passed


def test_only_the_files_of_the_format_are_there(store):
    folder = store.run()

    assert sorted(os.listdir(folder)) == ["ckpt", "run.json", "run.lock", "steps.r0.jsonl"]
    assert sorted(os.listdir(folder / "ckpt")) == [
        "r0-0000000000.safetensors",
        "r0-0000000003.safetensors",
    ]


def test_what_is_stored_is_private_to_its_owner(store):
    folder = store.run()

    modes = {path.stat().st_mode & 0o077 for path in [folder, *folder.rglob("*")]}
    assert modes == {0}


def test_the_nearest_checkpoint_is_found(store):
    with RunReader.open(store.run()) as reader:
        found = [reader.find_checkpoint(step) for step in (0, 2, 3, 100)]
        assert [entry.step for entry in found] == [0, 0, 3, 3]


def test_a_resume_appends_a_segment_and_overwrites_nothing(store):
    folder = store.run()
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}

    with store.resume(folder) as writer:
        store.write(writer, [3, 4])

    log = store.log(folder)
    assert log.read_bytes().startswith(before.pop(log))
    assert all(path.read_bytes() == octets for path, octets in before.items())
    with RunReader.open(folder) as reader:
        assert [segment.number for segment in reader.log().segments] == [0, 1]
        assert [found.name for found in reader.checkpoints()][-1] == "r0-0000000003.1.safetensors"
        assert [record.segment for record in reader.log().records][-1] == 1
        assert reader.find_checkpoint(3) == reader.checkpoints()[-1]
    assert verify_run(folder).passed


def test_a_run_of_the_same_id_is_not_made_twice(store):
    store.run()

    with pytest.raises(RunFormatError, match="resume it"):
        store.create()


@pytest.mark.parametrize("run_id", ["", "..", "a/b", ".hidden", "x" * 101, "a b"])
def test_a_run_id_cannot_lead_anywhere_else(store, run_id):
    with pytest.raises(RunFormatError, match="run ID"):
        store.create(run_id)


def test_run_ids_sort_by_time():
    ids = [new_run_id(now_s, "ffffff") for now_s in (0.0, 1.7e9, 1.7e9 + 1)]

    assert ids == sorted(ids) and ids[0] == "19700101-000000-ffffff"


def test_ranks_write_one_log_each_in_one_folder(store):
    with store.create() as first:
        joined = RunWriter.join(
            first.folder, segment=SegmentStart(started_s=0.0, rank=1, world_size=2), wait_s=1
        )
        with joined as second:
            store.write(first, [0])
            second.append(StepEntry(step=0))
            second.checkpoint(0, store.state(0), wait=True)

    assert (store.steps(first.folder), store.steps(first.folder, rank=1)) == ([0], [0])
    assert verify_run(first.folder).passed


def test_a_rank_does_not_wait_for_ever_for_a_run(tmp_path):
    with pytest.raises(InputError, match=r"within 0\.1 s"):
        RunWriter.join(tmp_path / "none", segment=SegmentStart(started_s=0.0), wait_s=0.1)


def test_two_writers_on_one_log_are_refused_while_the_first_lives(store):
    with store.create() as first, pytest.raises(RunBusyError, match="another process"):
        store.resume(first.folder)

    store.resume(first.folder).close()


def test_a_forked_child_writes_nothing_and_holds_no_lock(store, in_child):
    writer = store.create()

    def child():
        acknowledged = [writer.append(StepEntry(step=9)), writer.checkpoint(9, {}), writer.flush(1)]
        writer.close()
        return [*acknowledged, writer.state]

    assert in_child(child) == [None, False, False, "off"]
    store.write(writer, [0, 1])
    writer.close()
    assert store.steps(writer.folder) == [0, 1]


def test_the_lock_of_a_dead_trainer_is_free_although_its_worker_lives(store):
    reader, pipe = os.pipe()
    trainer = os.fork()
    if trainer == 0:
        store.create()
        worker = os.fork()
        if worker == 0:
            os.read(reader, 1)  # until the test ends
            os._exit(0)
        os._exit(0)  # as a kill would: nothing is closed in order
    os.waitpid(trainer, 0)

    store.resume(store.root / "run").close()
    os.write(pipe, b"x")
    os.close(reader)
    os.close(pipe)


def test_a_checkpoint_is_of_the_moment_it_was_asked_for(store, held_disk):
    with store.create() as writer:
        state = store.state(3)
        assert writer.checkpoint(3, state)
        state["model"]["weight"].zero_()
        held_disk.set()

    assert store.load(writer.folder)["model"]["weight"][0, 0] == 3


def test_a_checkpoint_has_no_file_before_it_is_complete(store, held_disk):
    with store.create() as writer:
        writer.checkpoint(3, store.state(3))
        assert list((writer.folder / "ckpt").iterdir()) == []
        with RunReader.open(writer.folder) as reader:
            assert reader.checkpoints() == ()
        held_disk.set()
        assert writer.flush()
        assert store.checkpoint(writer.folder).exists()


def test_a_slow_disk_costs_checkpoints_not_time_or_memory(store, held_disk):
    with store.create() as writer:
        taken = [writer.checkpoint(step, store.state(step)) for step in range(4)]
        assert writer.append(StepEntry(step=0)) is not None
        held_disk.set()

    assert taken == [True, True, False, False]
    with RunReader.open(writer.folder) as reader:
        assert [found.step for found in reader.checkpoints()] == [0, 1]


def test_each_of_many_checkpoints_holds_its_own_moment(store):
    state = {"x": torch.zeros(1000)}
    with store.create() as writer:
        for step in range(12):
            state["x"].fill_(step)
            while not writer.checkpoint(step, state):
                writer.flush()

    with RunReader.open(writer.folder) as reader:
        held = {found.step: set(reader.load(found)["x"].tolist()) for found in reader.checkpoints()}
    assert held == {step: {step} for step in range(12)}


def test_a_step_is_stored_once_in_a_segment(store):
    with store.create() as writer:
        assert writer.checkpoint(3, store.state(3), wait=True)
        assert writer.checkpoint(3, store.state(4), wait=True)

    with RunReader.open(writer.folder) as reader:
        (only,) = reader.checkpoints()
        assert reader.load(only)["step"] == 3


def test_a_state_that_cannot_be_stored_is_refused_at_once(store):
    with store.create() as writer, pytest.raises(UnsupportedStateError, match=r"\$\.odd"):
        writer.checkpoint(0, {"odd": object()})

    assert writer.state == "off" and verify_run(writer.folder).passed


def test_an_exception_in_the_loop_is_noted_and_passed_on(store):
    with pytest.raises(ZeroDivisionError), store.create() as writer:
        store.write(writer, [0])
        raise ZeroDivisionError

    with RunReader.open(writer.folder) as reader:
        assert reader.log().records[-1].entry.reason == "exception: ZeroDivisionError"


def test_a_closed_writer_does_nothing(store):
    writer = store.create()
    writer.close()
    writer.close()

    assert writer.append(StepEntry(step=0)) is None
    assert not writer.checkpoint(0, {})
    assert store.steps(writer.folder) == []


def test_no_thread_and_no_descriptor_is_left(store):
    before = len(os.listdir("/proc/self/fd")), threading.active_count()
    folder = store.run()
    store.steps(folder)
    store.load(folder)
    verify_run(folder)
    store.resume(folder).close()

    assert (len(os.listdir("/proc/self/fd")), threading.active_count()) == before


def test_a_resume_may_fingerprint_other_tensors(store):
    folder = store.run()
    other = {"parameters": (TensorInfo(name="renamed", shape=(9,), dtype="float32"),)}
    store.resume(folder, tables=other).close()

    with RunReader.open(folder) as reader:
        assert reader.tables(segment=0) == store.header().tables
        assert reader.tables(segment=1) == other


def test_notes_and_environments_come_back(store):
    folder = store.run()
    note = NoteEntry(name="mine", body=[1, {"a": None}])
    with store.resume(folder, environment={"threads": 4}, world_size=3) as writer:
        writer.append(note)

    with RunReader.open(folder) as reader:
        assert reader.log().segments[1].environment == {"threads": 4}
        assert reader.log().segments[1].world_size == 3
        assert list(reader.log().entries(NoteEntry)) == [
            NoteEntry(name="mine", body=[1, {"a": None}])
        ]


def test_the_order_of_a_log_does_not_follow_the_clock(store):
    folder = store.run()
    start = SegmentStart(started_s=1.0)  # the clock went back by decades
    with RunWriter.resume(folder, segment=start) as writer:
        store.write(writer, [6])

    assert store.steps(folder) == list(range(7))


@pytest.mark.parametrize("waits", [True, False])
def test_a_thread_that_dies_before_its_first_line_is_replaced(store, monkeypatch, waits):
    work, begun = CheckpointWorker._work, []

    def dying(worker):
        begun.append(worker)
        if len(begun) > 1:
            work(worker)

    monkeypatch.setattr(CheckpointWorker, "_work", dying)
    with store.create() as writer:
        assert writer.checkpoint(0, store.state(0), wait=waits)

    assert len(begun) == 2
    assert [path.name for path in (writer.folder / "ckpt").iterdir()] == [
        "r0-0000000000.safetensors"
    ]


def test_a_gap_on_purpose_is_recorded(store):
    with store.create() as writer:
        writer.gap("evaluation", first_step=3, last_step=5)

    with RunReader.open(writer.folder) as reader:
        (gap,) = reader.gaps()
        assert (gap.reason, gap.first_step, gap.last_step) == ("evaluation", 3, 5)


def test_runs_are_listed_with_what_is_wrong(store):
    store.run("b")
    folder = store.run("a", steps=range(2))
    (store.root / "c").mkdir()
    (store.root / "link").symlink_to(folder)

    found = {summary.run_id: summary for summary in captured_runs(store.root)}

    assert set(found) == {"a", "b", "c"}
    assert (found["b"].first_step, found["b"].last_step, found["b"].checkpoints) == (0, 5, 2)
    assert found["a"].last_loss == 0.5 and found["a"].status == "closed"
    assert found["c"].status == "unreadable" and "no captured run" in found["c"].reason
    assert captured_runs(store.root / "nowhere") == ()


def test_every_kind_of_entry_is_stored_under_its_segment(store):
    folder = store.run()

    with RunReader.open(folder) as reader:
        kinds = [record.entry.kind for record in reader.log().records]
    assert kinds[0] == SegmentEntry.kind and kinds[-1] == "end"
    assert kinds.count(CheckpointEntry.kind) == 2
