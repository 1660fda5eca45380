"""AUD701 to 704 between two real processes."""

import json
import subprocess
import sys

import pytest

PROGRAM = """
import contextlib
import json
import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

import nabla

torch.set_num_threads(1)
dist.init_process_group("gloo")
rank = dist.get_rank()
WHEN = 9


def build(fault):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(6, 24), nn.BatchNorm1d(24), nn.ReLU(), nn.Linear(24, 3))
    net[0].bias.requires_grad_(False)
    trained = [p for p in net.parameters() if p.requires_grad]
    return net, torch.optim.Adam(trained, 1e-2)


def spoil(fault, net, optimizer):
    # what goes wrong on the other rank only, after backward
    with torch.no_grad():
        if fault == "frozen":
            net[0].bias.data[0] += 1e-3
        if fault == "rate":
            optimizer.param_groups[0]["lr"] = 1.01e-2
    return fault != "skipped"


def one_ulp(weight):
    weight.data.view(torch.int32)[0, 0] += 1


def parallel(fault, steps):
    net, optimizer = build(fault)
    model = DistributedDataParallel(net, broadcast_buffers=False)
    generator = torch.Generator().manual_seed(1 if fault == "same data" else rank)
    for step in range(steps):
        x = torch.randn(16, 6, generator=generator)
        optimizer.zero_grad()
        F.cross_entropy(model(x), x[:, :3].argmax(-1)).backward()
        odd = rank == 1 and step == WHEN
        if not odd or spoil(fault, net, optimizer):
            optimizer.step()
        if odd and fault == "ulp":
            one_ulp(net[3].weight)


class ByHand:
    # averages gradients itself, each rank with its own loss scale
    def __init__(self, fault):
        self.net, self.optimizer = build(fault)
        low = fault == "scale" and rank == 1
        self.scaler = torch.amp.GradScaler("cpu", init_scale=512.0 if low else 1024.0)
        self.generator = torch.Generator().manual_seed(rank)

    def step(self):
        x = torch.randn(16, 6, generator=self.generator)
        self.optimizer.zero_grad()
        loss = F.cross_entropy(self.net(x), x[:, :3].argmax(-1))
        self.scaler.scale(loss).backward()
        self.scaler.unscale_(self.optimizer)
        for parameter in self.net.parameters():
            if parameter.grad is not None:
                dist.all_reduce(parameter.grad)
                parameter.grad /= 2
        self.scaler.step(self.optimizer)
        self.scaler.update()


def by_hand(fault, steps):
    loop = ByHand(fault)
    for _ in range(steps):
        loop.step()


found = {}
for fault in sys.argv[2:]:
    steps = int(sys.argv[1]) if fault.startswith("none") else 20
    declared = "declared" in fault
    os.environ["NABLA_AUDIT_SYNCHRONISED_BUFFERS"] = "true" if declared else "false"
    with nabla.guard(mode="light") as monitor:
        (by_hand if "scale" in fault else parallel)(fault, steps)
        dist.barrier()
    report = monitor.report()
    found[fault] = [[i.rule, i.step, i.severity.label] for i in report.issues]
    found[fault] += [problem.message for problem in report.problems]
if rank == 0:
    with open("found.json", "w") as file:
        json.dump(found, file)
dist.barrier()
dist.destroy_process_group()
"""


@pytest.fixture
def on_two_ranks(tmp_path):
    """Run the program for some faults under torchrun; return what rank 0 reports of each."""

    def run(*faults, steps=60):
        (tmp_path / "train.py").write_text(PROGRAM)
        torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
        subprocess.run(
            [*torchrun, "--nproc-per-node", "2", "train.py", str(steps), *faults],
            cwd=tmp_path,
            check=True,
            capture_output=True,
            timeout=300,
        )
        return json.loads((tmp_path / "found.json").read_text())

    return run


PLANTED = {
    "ulp": ["AUD701", 10, "high"],  # edited after step 9, so the state after step 10 tells
    "skipped": ["AUD701", 9, "high"],
    "same data": ["AUD704", 2, "high"],
}
MORE_PLANTED = {
    "frozen": ["AUD701", 9, "high"],
    "rate": ["AUD701", 9, "high"],
    "scale": ["AUD703", 2, "high"],
    "declared buffers": ["AUD702", 0, "high"],
}


def test_two_processes(on_two_ranks):
    found = on_two_ranks("none", *PLANTED)
    assert found == {"none": []} | {fault: [verdict] for fault, verdict in PLANTED.items()}


@pytest.mark.slow
def test_other_faults_of_one_rank(on_two_ranks):
    found = on_two_ranks("none with scale", *MORE_PLANTED)
    assert found.pop("none with scale") == []
    assert found == {fault: [verdict] for fault, verdict in MORE_PLANTED.items()}


@pytest.mark.slow
def test_a_thousand_healthy_steps(on_two_ranks):
    assert on_two_ranks("none", steps=1000) == {"none": []}
