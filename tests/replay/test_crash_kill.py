"""A process that is killed at any byte loses no record that was acknowledged."""

import os
import random
import select
import signal
import time

import pytest
import torch

from nabla_replay.store.entries import StepEntry
from nabla_replay.store.reader import RunReader
from nabla_replay.store.verify import verify_run


def write_until_killed(store, folder, pipe, ready):
    """Record for ever; acknowledge each record on a pipe after ``append`` has returned."""
    writer = store.create() if folder is None else store.resume(folder)
    state = {"model": torch.rand(150, 150), "moments": [torch.rand(150, 150), 1.0]}
    os.write(ready, b"r")
    step = 0
    while True:
        step += 1
        writer.append(StepEntry(step=step, loss=1 / step, vectors={"parameters": b"x" * 500}))
        os.write(pipe, b"%d\n" % step)
        if step % 7 == 0:
            writer.checkpoint(step, state)


def kill_once(store, folder, after_s):
    """Return the last acknowledged step of a child that was killed."""
    acknowledged, pipe = os.pipe()
    ready, signal_ready = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            write_until_killed(store, folder, pipe, signal_ready)
        finally:
            os._exit(1)
    os.close(pipe)
    os.close(signal_ready)
    assert os.read(ready, 1) == b"r"
    os.close(ready)
    seen, end = b"", time.monotonic() + after_s
    while (left := end - time.monotonic()) > 0:
        if select.select([acknowledged], [], [], left)[0]:
            seen += os.read(acknowledged, 1 << 16)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    while piece := os.read(acknowledged, 1 << 16):
        seen += piece
    os.close(acknowledged)
    return int(seen.rsplit(b"\n", 2)[-2]) if seen else 0


def leftovers(folder):
    recorded = {path.name for path in folder.rglob("*.tmp")}
    with RunReader.open(folder) as reader:
        names = {found.name for found in reader.checkpoints()}
    return recorded | ({path.name for path in (folder / "ckpt").iterdir()} - names)


def assert_nothing_lost(store, folder, segment, acknowledged):
    with RunReader.open(folder) as reader:
        log = reader.log()
        own = [record.entry for record in log.records if record.segment == segment]
        steps = [entry.step for entry in own if entry.kind == "step"]
        assert [found for found in log.damage if found.kind != "torn"] == []
        assert set(range(1, acknowledged + 1)) <= set(steps)
        assert steps == sorted(set(steps))
        for checkpoint in reader.checkpoints():
            assert reader.load(checkpoint)["moments"][1] == 1.0
    assert {issue.rule for issue in verify_run(folder).issues} <= {"REP202"}


def kill_loop(store, kills, seed, reached):
    """Kill and resume one run again and again; then two kills in three begin a new one."""
    times = random.Random(seed)
    total, folder, segment = 0, None, 0
    for _ in range(kills):
        acknowledged = kill_once(store, folder, times.uniform(0.01, 0.15))
        folder = store.root / "run"
        assert_nothing_lost(store, folder, segment, acknowledged)
        store.resume(folder).close()
        assert leftovers(folder) == set()
        reached("kills lost nothing that was acknowledged")
        segment += 2  # the killed one, and the one that tidied up
        total += acknowledged
        if times.random() < 0.6:
            folder.rename(store.root / f"old-{segment}-{times.random()}")
            folder, segment = None, 0
    return total


def test_20_kills_lose_no_acknowledged_record(store, reached):
    torch.set_num_threads(1)  # a forked child has no pool of threads

    assert kill_loop(store, 20, seed=5, reached=reached) > 500


@pytest.mark.slow
def test_200_kills_lose_no_acknowledged_record(store, reached):
    torch.set_num_threads(1)

    assert kill_loop(store, 200, seed=6, reached=reached) > 5000


@pytest.mark.parametrize("how", ["SIGTERM", "SystemExit", "ValueError"])
def test_other_ends_of_a_process_lose_nothing_either(store, how):
    reader, pipe = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            with store.create() as writer:
                store.write(writer, range(5))
                os.write(pipe, b"x")
                if how == "SIGTERM":
                    time.sleep(20)
                raise SystemExit(0) if how == "SystemExit" else ValueError("in the loop")
        finally:
            os._exit(0)
    os.read(reader, 1)
    if how == "SIGTERM":
        os.kill(pid, signal.SIGTERM)
    os.waitpid(pid, 0)

    folder = store.root / "run"
    assert store.steps(folder) == list(range(5))
    with RunReader.open(folder) as run:
        assert [found.step for found in run.checkpoints()] == [0, 3]
        assert run.log().has_ended == (how != "SIGTERM")
    assert verify_run(folder).passed
