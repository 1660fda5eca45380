"""Several processes at one run: ranks that write, and people who look while it goes on."""

import os
import subprocess
import sys

from nabla_replay.store.entries import StepEntry
from nabla_replay.store.listing import summarise_run
from nabla_replay.store.reader import RunReader
from nabla_replay.store.verify import verify_run
from nabla_replay.store.writer import RunWriter, SegmentStart


def test_ranks_of_one_training_set_up_and_write_at_the_same_time(store):
    def rank_of_training(rank):
        if rank == 0:
            writer = store.create()
        else:
            start = SegmentStart(started_s=0.0, rank=rank, world_size=4)
            writer = RunWriter.join(store.root / "run", segment=start, wait_s=20)
        with writer:
            for step in range(30):
                writer.append(StepEntry(step=step))
            assert writer.checkpoint(29, store.state(29), wait=True)

    children = []
    for rank in (3, 2, 1, 0):  # the one that makes the run comes last
        pid = os.fork()
        if pid == 0:
            try:
                rank_of_training(rank)
                os._exit(0)
            finally:
                os._exit(1)
        children.append(pid)
    codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children]

    folder = store.root / "run"
    assert codes == [0] * 4
    assert verify_run(folder).issues == ()
    with RunReader.open(folder) as reader:
        assert reader.ranks == (0, 1, 2, 3)
        for rank in reader.ranks:
            assert [entry.step for entry in reader.steps(rank)] == list(range(30))
            assert [found.step for found in reader.checkpoints(rank)] == [29]
    assert summarise_run(folder).checkpoints == 4


def test_a_run_can_be_read_while_it_is_written(store):
    with store.create() as writer:
        for step in range(20):
            writer.append(StepEntry(step=step))
            assert store.steps(writer.folder) == list(range(step + 1))
        found = verify_run(writer.folder)
        assert found.passed and [issue.rule for issue in found.issues] == ["REP202"]
        assert summarise_run(writer.folder).status == "not closed"


def test_a_record_that_is_half_written_does_not_disturb_a_reader(store):
    with store.create() as writer:
        writer.append(StepEntry(step=0))
        with open(store.log(writer.folder), "ab") as log:
            log.write(b'{"c":"0000')  # as seen between two writes of the kernel
        assert store.steps(writer.folder) == [0]


def test_looking_at_runs_does_not_import_torch():
    program = (
        "import sys, nabla_replay.inspecting.path, nabla_replay.store.listing, "
        "nabla_replay.store.verify, nabla_core.artifacts.sanitizing; "
        "print('torch' in sys.modules, 'numpy' in sys.modules)"
    )

    answer = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )

    assert answer.stdout.strip() == "False False"
