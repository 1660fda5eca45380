"""A reader that another plugin brings."""

import pytest

from nabla_core.declarations import Reader
from nabla_core.records import StepRecord
from nabla_diagnose.readers import foreign, read_runs


def sniff(head):
    return 1.0 if head.startswith(b"ACME") else 0.0


def read(path, options):
    steps = [0, 1, 2, 0, 1]
    return (StepRecord(step=s, time_s=0.0, signals={"loss": 1.0}) for s in steps)


@pytest.fixture
def installed(monkeypatch):
    acme = Reader(
        name="acme", target=f"{__name__}:read", sniff=f"{__name__}:sniff", suffixes=(".acme",)
    )
    monkeypatch.setattr(Reader, "load", lambda self: read)
    monkeypatch.setattr(foreign.Target, "load", lambda self: sniff)
    host = type("Host", (), {"readers": (acme,)})()
    monkeypatch.setattr(foreign, "default_host", lambda: host)


def test_it_reads_its_own_files_and_its_runs_are_told_apart(installed, tmp_path):
    path = tmp_path / "log.acme"
    path.write_bytes(b"ACME 1")

    runs = [(run.format, len(list(run.records))) for run in read_runs(path)]

    assert runs == [("acme", 3), ("acme", 2)]


def test_it_leaves_other_files_alone(installed, tmp_path):
    path = tmp_path / "log.csv"
    path.write_text("step,loss\n0,1\n1,0.5\n")

    assert [run.format for run in read_runs(path)] == ["table"]
