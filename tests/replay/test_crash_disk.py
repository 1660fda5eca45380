"""A disk that fails never ends a training: one issue, less is written, and the gap is recorded."""

import errno
import os
import resource
import shutil
import signal

import pytest

from nabla_core.errors import InputError
from nabla_replay.codec import writing
from nabla_replay.store import health
from nabla_replay.store.entries import NoteEntry, StepEntry
from nabla_replay.store.reader import RunReader
from nabla_replay.store.verify import verify_run


@pytest.fixture
def full_disk(monkeypatch):
    """A disk on which nothing can be written while it is full."""

    class Disk:
        is_full = False
        error = errno.ENOSPC

    write = os.write

    def limited(descriptor, octets):
        if Disk.is_full:
            write(descriptor, octets[: min(5, len(octets))])  # a part still fits, as on a real disk
            raise OSError(Disk.error, os.strerror(Disk.error))
        return write(descriptor, octets)

    monkeypatch.setattr(os, "write", limited)
    return Disk


@pytest.fixture
def no_waiting(monkeypatch):
    monkeypatch.setattr(health, "_RETRY_S", 0.0)


def gaps(folder):
    with RunReader.open(folder) as reader:
        return [(gap.records, gap.first_step, gap.last_step) for gap in reader.gaps()]


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO, errno.EDQUOT])
def test_a_full_disk_costs_records_and_says_so_once(store, full_disk, no_waiting, error):
    issues = []
    full_disk.error = error
    writer = store.create(on_issue=issues.append)
    store.write(writer, [0, 1])

    full_disk.is_full = True
    lost = [writer.append(StepEntry(step=step)) for step in (2, 3, 4)]
    full_disk.is_full = False
    after = writer.append(StepEntry(step=5))
    writer.close()

    assert lost == [None] * 3 and after is not None
    assert [(issue.rule, issue.step) for issue in issues] == [("REP204", 2)]
    assert os.strerror(error) in issues[0].message
    assert store.steps(writer.folder) == [0, 1, 5]
    assert gaps(writer.folder) == [(3, 2, 4)]
    assert verify_run(writer.folder).issues == ()


def test_after_a_failure_the_disk_is_tried_once_a_second(store, full_disk):
    writer = store.create()
    full_disk.is_full = True
    writer.append(StepEntry(step=0))
    full_disk.is_full = False

    assert writer.append(StepEntry(step=1)) is None  # within the second
    writer._health._retry_at = 0.0
    assert writer.append(StepEntry(step=2)) is not None
    writer.close()
    assert gaps(writer.folder) == [(2, 0, 1)]


def test_a_disk_that_stays_full_leaves_a_readable_run(store, full_disk, no_waiting):
    writer = store.create()
    store.write(writer, [0, 1])
    full_disk.is_full = True
    writer.append(StepEntry(step=2))
    writer.close()
    full_disk.is_full = False

    assert store.steps(writer.folder) == [0, 1]
    assert {issue.rule for issue in verify_run(writer.folder).issues} == {"REP202"}


def test_a_checkpoint_that_fails_ends_checkpoints_and_keeps_the_log(store, full_disk, monkeypatch):
    issues = []
    writer = store.create(on_issue=issues.append)
    store.write(writer, [0])
    with monkeypatch.context() as patched:
        patched.setattr(writing, "_write", lambda *_: (_ for _ in ()).throw(OSError(28, "full")))
        assert not writer.checkpoint(3, store.state(3), wait=True)

    assert writer.state == "log only"
    assert not writer.checkpoint(6, store.state(6))
    assert writer.append(StepEntry(step=7)) is not None
    writer.close()
    assert [issue.rule for issue in issues] == ["REP204"]
    assert sorted(os.listdir(writer.folder / "ckpt")) == ["r0-0000000000.safetensors"]
    with RunReader.open(writer.folder) as reader:
        assert [gap.reason for gap in reader.gaps()] == ["no checkpoint of step 3: full"]


def test_a_checkpoint_whose_record_fails_leaves_no_file(store, monkeypatch):
    writer = store.create()
    with monkeypatch.context() as patched:
        patched.setattr(writer._log, "append", lambda entry: (_ for _ in ()).throw(OSError(28, "")))
        assert not writer.checkpoint(3, store.state(3), wait=True)
    writer.close()

    assert os.listdir(writer.folder / "ckpt") == []


@pytest.mark.parametrize("fails_at", ["folder", "log"])
def test_a_sync_that_fails_leaves_file_and_record_together(store, monkeypatch, fails_at):
    writer = store.create()
    synced = os.fsync

    def fail(descriptor):
        if fails_at == "log" or os.path.isdir(f"/proc/self/fd/{descriptor}"):
            raise OSError(errno.EIO, "I/O error")
        return synced(descriptor)

    with monkeypatch.context() as patched:
        patched.setattr(os, "fdatasync" if fails_at == "log" else "fsync", fail)
        assert writer.checkpoint(3, store.state(3), wait=True) == (fails_at == "log")
    writer.close()

    with RunReader.open(writer.folder) as reader:
        names = [found.name for found in reader.checkpoints()]
    assert os.listdir(writer.folder / "ckpt") == names
    assert len(names) == (fails_at == "log")
    assert {issue.rule for issue in verify_run(writer.folder).issues} == set()


def test_permission_that_is_lost_ends_checkpoints_and_keeps_the_log(store, monkeypatch):
    issues = []
    writer = store.create(on_issue=issues.append)
    opened = os.open

    def refuse(path, flags, *rest, **others):
        if str(path).endswith(".tmp"):
            raise PermissionError(errno.EACCES, "Permission denied")
        return opened(path, flags, *rest, **others)

    with monkeypatch.context() as patched:
        patched.setattr(os, "open", refuse)
        assert not writer.checkpoint(3, store.state(3), wait=True)
    assert writer.append(StepEntry(step=4)) is not None
    writer.close()

    assert [issue.evidence["state"] for issue in issues] == ["log only"]


@pytest.mark.parametrize("what", ["run", "log"])
def test_a_run_that_is_removed_ends_the_capture(store, what):
    issues = []
    writer = store.create(on_issue=issues.append)
    store.write(writer, [0])
    if what == "run":
        shutil.rmtree(writer.folder)
    else:
        store.log(writer.folder).unlink()
    writer.flush()

    assert writer.state == "off"
    assert writer.append(StepEntry(step=1)) is None
    assert not writer.checkpoint(3, store.state(3))
    writer.close()
    assert [issue.evidence["state"] for issue in issues] == ["off"]


def test_a_failing_sync_is_told_and_the_log_goes_on(store, monkeypatch):
    issues = []
    writer = store.create(on_issue=issues.append)
    with monkeypatch.context() as patched:
        patched.setattr(os, "fdatasync", lambda fd: (_ for _ in ()).throw(OSError(5, "I/O error")))
        assert not writer.flush()
    assert writer.append(StepEntry(step=0)) is not None
    writer.close()

    assert [issue.rule for issue in issues] == ["REP204"]


def test_a_person_who_cannot_be_told_does_not_stop_the_training(store, full_disk, capsys):
    def broken(issue):
        raise ValueError("nobody listens")

    writer = store.create(on_issue=broken)
    full_disk.is_full = True
    assert writer.append(StepEntry(step=0)) is None
    full_disk.is_full = False
    writer.close()

    assert "nobody listens" in capsys.readouterr().err


def test_a_state_that_memory_cannot_hold_twice_ends_checkpoints(store, monkeypatch):
    from nabla_replay.store import writer as module

    issues = []
    writer = store.create(on_issue=issues.append)
    for error in (MemoryError(), RuntimeError("can't allocate memory")):
        monkeypatch.setattr(module, "freeze", lambda *_, error=error: _raise(error))
        assert not writer.checkpoint(0, {})
    assert writer.append(StepEntry(step=0)) is not None
    writer.close()

    assert [issue.rule for issue in issues] == ["REP204"]


def _raise(error):
    raise error


def test_a_process_without_threads_still_keeps_its_log(store, monkeypatch):
    issues = []
    with monkeypatch.context() as patched:
        no_thread = RuntimeError("can't start new thread")
        patched.setattr("threading.Thread.start", lambda self: _raise(no_thread))
        writer = store.create(on_issue=issues.append)
        assert writer.append(StepEntry(step=0)) is not None
        assert not writer.checkpoint(0, store.state(0), wait=True)
    writer.close()

    assert store.steps(writer.folder) == [0]
    assert [issue.rule for issue in issues] == ["REP204"]


@pytest.mark.parametrize("root", ["file", "/proc/none"])
def test_a_folder_that_cannot_be_made_is_a_typed_error(store, root):
    if root == "file":
        store.root.write_text("")
    else:
        store.root = type(store.root)(root)

    with pytest.raises(InputError, match="cannot be made"):
        store.create()


def test_a_limit_of_the_kernel_in_the_middle_of_a_record_is_survived(store, in_child):
    """A real short write: the file may not grow past 4,000 bytes."""

    def child():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        issues = []
        writer = store.create(on_issue=issues.append)
        resource.setrlimit(resource.RLIMIT_FSIZE, (4000, resource.RLIM_INFINITY))
        stored = [writer.append(NoteEntry(name="n", body="x" * 300)) for _ in range(20)]
        taken = writer.checkpoint(0, {"big": [0.5] * 4000}, wait=True)
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
        writer._health._retry_at = 0.0
        writer.close()
        return [sum(number is not None for number in stored), taken, len(issues)]

    stored, taken, issues = in_child(child)

    assert 5 < stored < 12 and not taken and issues == 1
    with RunReader.open(store.root / "run") as reader:
        assert len(list(reader.log().entries(NoteEntry))) == stored
        assert [gap.records for gap in reader.gaps()][0] == 20 - stored
    assert verify_run(store.root / "run").issues == ()
    assert os.listdir(store.root / "run" / "ckpt") == []
