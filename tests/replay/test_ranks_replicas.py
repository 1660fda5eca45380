"""Replicas that are not one model any more are found at the step at which they part."""

import json
import os
import subprocess
import sys
import textwrap

import pytest
import torch
from torch import nn

import nabla_replay
from nabla_core.errors import UsageError
from nabla_replay.ranks.result import odd_ranks

SCRIPT = """
import json, os, sys
import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel

import nabla_replay

torch.set_num_threads(1)
distributed.init_process_group("gloo")
rank = distributed.get_rank()
root, faults = sys.argv[1], sys.argv[2].split(",")
told = {}
for fault in faults:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(6, 6), nn.BatchNorm1d(6), nn.Linear(6, 2))
    if fault == "frozen":
        net[0].weight.requires_grad_(False)
    model = DistributedDataParallel(net)
    trained = [one for one in model.parameters() if one.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-3)
    draw = torch.Generator().manual_seed(rank)
    seen = None
    steps = {"healthy": 60, "long": 1000}.get(fault, 5)
    with nabla_replay.capture(model, optimizer, root=root, budget=None) as rec:
        for step in range(1, steps + 1):
            loss = model(torch.randn(4, 6, generator=draw)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            if not (fault == "skipped" and step == 3 and rank == 1):
                optimizer.step()
            if step == 3 and rank == 1:
                with torch.no_grad():
                    if fault == "ulp":
                        weight = net[2].weight
                        weight[0, 0] = torch.nextafter(weight[0, 0], torch.tensor(9e9))
                    if fault == "frozen":
                        net[0].weight[0, 0] += 1e-3
                if fault == "lr":
                    optimizer.param_groups[0]["lr"] = 1.01e-3
            rec.record_step(step=step, loss=loss)
            found = nabla_replay.compare_ranks(model, step=step)
            if seen is None and not found.passed:
                seen = [step, list(found.differing), found.issues[0].where.rank]
    distributed.barrier()
    if rank == 0:
        stored = nabla_replay.compare_ranks(rec.run_path)
        told[fault] = [seen, stored.first_step, stored.compared_steps]
if rank == 0:
    print("told", json.dumps(told))
distributed.destroy_process_group()
"""

EXPECTED = {"ulp": 3, "skipped": 3, "frozen": 3, "lr": 4, "healthy": None}
NAMED = {"ulp": ["2.weight"], "frozen": ["0.weight"]}


def train_on_two_ranks(folder, faults):
    file = folder / "replicas.py"
    file.write_text(textwrap.dedent(SCRIPT))
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    done = subprocess.run(
        [*command, str(file), str(folder), ",".join(faults)],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        timeout=900,
    )
    line = next(line for line in done.stdout.splitlines() if line.startswith("told "))
    return json.loads(line.removeprefix("told "))


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    return train_on_two_ranks(tmp_path_factory.mktemp("ranks"), EXPECTED)


@pytest.mark.slow
def test_1000_healthy_steps_raise_no_alarm(tmp_path, reached):
    seen, stored, compared = train_on_two_ranks(tmp_path, ["long"])["long"]
    reached("healthy steps on two ranks with an alarm", seen is not None, compared)
    assert (seen, stored, compared) == (None, None, 1000)


@pytest.mark.parametrize("fault", EXPECTED)
def test_a_fault_on_one_rank_is_seen_at_its_step_live_and_in_the_records(told, fault, reached):
    seen, stored, compared = told[fault]
    if fault != "healthy":
        hit = stored == EXPECTED[fault] == seen[0]
        reached("faults of a rank seen at their step", hit)
    assert stored == EXPECTED[fault]
    assert compared == (60 if fault == "healthy" else 5)
    if fault == "healthy":
        assert seen is None
        return
    step, names, rank = seen
    assert (step, rank) == (EXPECTED[fault], 1)
    assert names == NAMED.get(fault, names)
    assert "1.running_mean" not in names


def test_most_ranks_are_right():
    assert odd_ranks({0: b"a", 1: b"a", 2: b"b"}) == (2,)
    assert odd_ranks({0: b"a", 1: b"b"}) == (1,)
    assert odd_ranks({0: b"a", 1: b"a"}) == ()


def test_one_process_has_nothing_to_compare_with(tmp_path):
    with pytest.raises(UsageError, match="process group"):
        nabla_replay.compare_ranks(nn.Linear(2, 2))
    model = nn.Linear(2, 2)
    with nabla_replay.capture(model, root=tmp_path) as rec:
        rec.record_step(loss=torch.tensor(1.0))
    with pytest.raises(UsageError, match="1 rank"):
        nabla_replay.compare_ranks(rec.run_path)
