"""A forged record whose checksum is right: a replay neither hangs nor calls it a match."""

import itertools
import json
import zlib

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, IterableDataset

import nabla_replay
from nabla_replay.errors import RecordError
from nabla_replay.store.reader import RunReader


class Endless(IterableDataset):
    def __iter__(self):
        return (torch.randn(4) for _ in itertools.count())


class Program:
    """Fits the identity on an endless stream."""

    def __init__(self):
        torch.manual_seed(0)
        self.model = nn.Linear(4, 4)
        self.optimizer = torch.optim.SGD(self.model.parameters(), 0.1)
        self.loader = DataLoader(Endless(), batch_size=2)

    def step(self, batch):
        loss = F.mse_loss(self.model(batch), batch)
        self.model.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.detach()


@pytest.fixture
def forged(tmp_path):
    """Return a run of six steps whose fourth record was changed and signed again."""
    program = Program()
    with nabla_replay.capture(program.model, program.optimizer, root=tmp_path, budget=None) as rec:
        for batch in itertools.islice(program.loader, 6):
            program.step(batch)

    def forge(change):
        log = rec.run_path / "steps.r0.jsonl"
        records = [json.loads(line)["d"] for line in log.read_text().splitlines()]
        change([one for one in records if one["k"] == "step"][3])
        bodies = [json.dumps(one, separators=(",", ":")).encode() for one in records]
        log.write_bytes(b"".join(b'{"c":"%08x","d":%b}\n' % (zlib.crc32(b), b) for b in bodies))
        return rec.run_path

    return forge


@pytest.mark.parametrize("place", ["999999999:1", "0:99999999999"])
def test_a_place_that_no_program_reaches_is_refused(forged, place):
    run = forged(lambda record: record["d"].update(l=place))
    with pytest.raises(RecordError, match="are taken for one step"):
        nabla_replay.replay(run, build=Program)


@pytest.mark.parametrize("name", ["0/0", "0/65536", "7/2", "0/99999999999"])
def test_fingerprints_of_other_tensors_are_no_match(forged, name):
    run = forged(lambda record: record.update(v={name: "AAAA"}))
    result = nabla_replay.replay(run, build=Program)
    assert result.status == "UNVERIFIED", result.format()
    assert [one.status for one in result.steps] == ["MATCH"] * 3 + ["UNVERIFIED"] + ["MATCH"] * 2
    assert "other tensors" in result.issues[0].message


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("model", 5),
        ("hidden", [1]),
        ("gradients", {"weight": 5}),
        ("optimizer", 5),
        ("optimizer", ["x"]),
        ("scheduler", 5),
        ("extra", 5),
        ("generators", "x"),
        ("frozen", [[1]]),
        ("loader", {"epoch": "x", "position": 0, "start": {}}),
        ("loader", [1]),
    ],
)
def test_a_state_that_no_capture_writes_is_a_typed_error(forged, monkeypatch, key, value):
    run = forged(lambda record: None)
    load = RunReader.load
    monkeypatch.setattr(RunReader, "load", lambda self, one: {**load(self, one), key: value})
    with pytest.raises(RecordError):
        nabla_replay.replay(run, build=Program)
