import importlib
import json
import os
import pkgutil
import select
import signal
import struct
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from nabla_replay.store.entries import StepEntry
from nabla_replay.store.header import RunHeader
from nabla_replay.store.reader import RunReader
from nabla_replay.store.tables import TensorInfo
from nabla_replay.store.writer import RunWriter, SegmentStart, WriterOptions


class Store:
    """Makes small runs, and damages them."""

    def __init__(self, root):
        self.root = root

    def header(self, run_id="run"):
        table = (TensorInfo(name="weight", shape=(2, 3), dtype="float32"),)
        return RunHeader(
            run_id=run_id, created_s=1.7e9, hash_algorithm="crc32", tables={"parameters": table}
        )

    def create(self, run_id="run", rank=0, **options):
        return RunWriter.create(
            self.root,
            self.header(run_id),
            segment=SegmentStart(started_s=1.7e9, rank=rank),
            options=WriterOptions(**options),
        )

    def resume(self, folder, rank=0, **others):
        options = WriterOptions(**others.pop("options", {}))
        segment = SegmentStart(started_s=1.7e9, rank=rank, **others)
        return RunWriter.resume(folder, segment=segment, options=options)

    def state(self, step):
        values = torch.arange(600, dtype=torch.float32).reshape(20, 30) + step
        return {"model": {"weight": values}, "step": step}

    def write(self, writer, steps):
        for step in steps:
            entry = StepEntry(step=step, loss=1 / (step + 1), vectors={"parameters": b"\x01" * 4})
            assert writer.append(entry) is not None
            if step % 3 == 0:
                assert writer.checkpoint(step, self.state(step), wait=True)

    def run(self, run_id="run", steps=range(6)):
        """Return the folder of a closed run with six steps and the checkpoints 0 and 3."""
        with self.create(run_id) as writer:
            self.write(writer, steps)
        return writer.folder

    def log(self, folder, rank=0):
        return folder / f"steps.r{rank}.jsonl"

    def checkpoint(self, folder, step=3):
        return folder / "ckpt" / f"r0-{step:010d}.safetensors"

    def steps(self, folder, rank=0):
        with RunReader.open(folder) as reader:
            return [entry.step for entry in reader.steps(rank)]

    def load(self, folder, step=3):
        with RunReader.open(folder) as reader:
            return reader.load(reader.find_checkpoint(step))

    def flip(self, path, offset=None, bit=3):
        octets = bytearray(path.read_bytes())
        octets[len(octets) // 2 if offset is None else offset] ^= 1 << bit
        path.write_bytes(bytes(octets))

    def state_file(self, path, header, octets=b""):
        """Write a state file with any header."""
        path.write_bytes(struct.pack("<Q", len(header)) + header + octets)
        return path


@pytest.fixture
def in_child():
    """Run a function in a forked child and return what it returns, as JSON; never hangs."""

    def run(function, timeout_s=20.0):
        reader, writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(reader)
            try:
                answer = json.dumps(function())
            except BaseException as error:
                answer = json.dumps(f"{type(error).__name__}: {error}")
            os.write(writer, answer.encode())
            os._exit(0)
        os.close(writer)
        with os.fdopen(reader, "rb") as stream:
            ready, _, _ = select.select([stream], [], [], timeout_s)
            if not ready:
                os.kill(pid, signal.SIGKILL)
            answer = stream.read()
        os.waitpid(pid, 0)
        assert ready, f"hangs: no answer within {timeout_s} s"
        return json.loads(answer)

    return run


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "runs")


_watched: list[list[str]] = []
_FORBIDDEN = ("pickle.find_class", "exec", "compile", "subprocess.Popen", "os.system", "marshal.")


def _audit(event, arguments):
    if _watched and (event.startswith(_FORBIDDEN) or event == "import"):
        _watched[-1].append(f"{event} {arguments!r}"[:200])


@pytest.fixture(scope="session")
def _audited():
    sys.addaudithook(_audit)  # cannot be taken out again: it looks only inside `nothing_runs`


@pytest.fixture
def nothing_runs(_audited):
    """Context in which nothing may be unpickled, executed, imported or started."""
    for room in ("codec", "store", "inspecting"):  # our own modules are imported when first used
        package = importlib.import_module(f"nabla_replay.{room}")
        for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
            importlib.import_module(module.name)

    @contextmanager
    def watch():
        _watched.append([])
        try:
            yield
        finally:
            seen = _watched.pop()
        assert seen == []

    return watch


_reached: dict[str, list[int]] = {}


@pytest.fixture
def reached():
    """Count what a target asks for; the sums are printed at the end."""

    def note(what, hits=1, of=1):
        counts = _reached.setdefault(what, [0, 0])
        counts[0] += hits
        counts[1] += of

    return note


def pytest_terminal_summary(terminalreporter):
    for what, (hits, total) in _reached.items():
        terminalreporter.write_line(f"replay: {hits} of {total} {what}")


@pytest.fixture(scope="session")
def replay_sources():
    import nabla_core.artifacts
    import nabla_replay

    folders = [
        Path(nabla_replay.__file__).parent,
        Path(nabla_core.artifacts.__file__).parent,
    ]
    return [path for folder in folders for path in sorted(folder.rglob("*.py"))]
