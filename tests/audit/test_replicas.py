"""AUD701 to 704: replicas in one process, and what ranks tell each other."""

import copy
import os
import socket
import subprocess
import sys

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from nabla_audit.ranks import PeerJudge
from nabla_guard.families.ranks import RankFacts, RankStep, fingerprint


def found(issues):
    return [(issue.rule, issue.step, issue.severity.label) for issue in issues]


def averaged(models, optimizers, scales=(1.0, 1.0)):
    """One data-parallel step by hand."""
    for model, scale in zip(models, scales, strict=True):
        x = torch.randn(8, 6)
        model.zero_grad()
        (F.cross_entropy(model(x), x[:, :3].argmax(-1)) * scale).backward()
    for one, two in zip(*(model.parameters() for model in models), strict=True):
        mean = (one.grad + two.grad) / 2
        one.grad, two.grad = mean / scales[0], mean / scales[1]
    for optimizer in optimizers:
        optimizer.step()


def replicas(rates=(0.1, 0.1)):
    models = [nn.Linear(6, 3)]
    models.append(copy.deepcopy(models[0]))
    return models, [torch.optim.SGD(m.parameters(), r) for m, r in zip(models, rates, strict=True)]


def test_scales_that_part(audited):
    def program():
        models, optimizers = replicas()
        for step in range(8):
            averaged(models, optimizers, (64.0, 64.0 if step < 5 else 32.0))

    assert found(audited(program)) == [("AUD701", 5, "high")]


def test_a_weight_that_is_edited_in_one_replica(audited):
    class Ensemble:
        def __init__(self):
            self.models, self.optimizers = replicas()

        def train(self):
            for step in range(8):
                averaged(self.models, self.optimizers)
                if step == 4:
                    self.models[1].weight.data[0, 0] += 1e-3

    assert found(audited(lambda: Ensemble().train())) == [("AUD701", 5, "high")]


def test_replicas_that_stay_equal_or_never_were(audited):
    def equal():
        models, optimizers = replicas()
        for _ in range(6):
            averaged(models, optimizers)

    def independent():
        models, optimizers = replicas()
        for _ in range(6):
            for model, optimizer in zip(models, optimizers, strict=True):
                x = torch.randn(8, 6)
                optimizer.zero_grad()
                F.cross_entropy(model(x), x[:, :3].argmax(-1)).backward()
                optimizer.step()

    for program in (equal, independent):
        assert audited(program) == [], program.__name__


def test_an_experiment_with_learning_rates_is_a_note(audited):
    def program():
        models, optimizers = replicas()
        for step in range(8):
            if step == 4:
                optimizers[1].param_groups[0]["lr"] = 0.01
            averaged(models, optimizers)

    assert found(audited(program)) == [("AUD701", 4, "info")]


def judged(steps, **facts):
    """Let rank 0 judge rank 1; ``steps`` holds both states of each step."""
    judge = PeerJudge(1)
    known = RankFacts(rank=0, parameters=("a", "b"), buffers=("m",), **facts)
    return [
        (issue.rule, issue.step, issue.severity.label)
        for step, (mine, theirs) in enumerate(steps)
        for issue in judge.judge(known, step, RankStep(**mine), RankStep(**theirs))
    ]


def state(a=1, b=2, **more):
    return {"parameters": (a, b), **more}


@pytest.mark.parametrize(
    ("equal", "parallel", "verdict"),
    [
        (3, False, [("AUD701", 3, "high")]),
        (2, False, []),
        (0, True, [("AUD701", 0, "high")]),
    ],
)
def test_parameters_part(equal, parallel, verdict):
    steps = [(state(), state())] * equal + [(state(b=3), state(b=4))] * 3
    assert judged(steps, parallel=parallel) == verdict


def test_buffers_part():
    steps = [(state(buffers=(1,)), state(buffers=(2,)))] * 3
    assert judged(steps) == [("AUD702", 0, "high")]
    assert judged([(state(), state())] * 3) == []


@pytest.mark.parametrize(("times", "verdict"), [(1, []), (2, [("AUD703", 1, "high")])])
def test_scales_part(times, verdict):
    steps = [(state(scale=2.0), state(scale=1.0))] * times + [(state(), state())]
    assert judged(steps) == verdict


@pytest.mark.parametrize(
    ("mine", "theirs", "parallel", "verdict"),
    [
        ((5, 6, 7), (5, 6, 7), True, [("AUD704", 2, "high")]),
        ((5, 6, 7), (5, 6, 7), False, [("AUD704", 2, "medium")]),
        ((5, 6, 7), (5, 6, 8), True, []),
        ((5, 6, 6), (5, 6, 6), True, []),
        ((0, 0, 0), (0, 0, 0), True, []),
    ],
)
def test_equal_batches(mine, theirs, parallel, verdict):
    steps = [(state(batch=m), state(batch=t)) for m, t in zip(mine, theirs, strict=True)]
    assert judged(steps, parallel=parallel) == verdict


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.bool])
def test_one_bit_changes_the_fingerprint(dtype):
    values = torch.ones(5, 3).to(dtype)
    other = values.clone()
    other[2, 1] = 0 if dtype == torch.bool else torch.nextafter(values[2, 1], values.new_zeros(()))
    assert fingerprint([values]) != fingerprint([other])
    assert fingerprint([values.t()]) == fingerprint([values])


SCRIPT = """
import sys
import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

torch.set_num_threads(1)
fault = sys.argv[1]
dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(6, 24), nn.BatchNorm1d(24), nn.ReLU(), nn.Linear(24, 3))
net[0].bias.requires_grad_(False)
model = DistributedDataParallel(net, broadcast_buffers=False)
optimizer = torch.optim.Adam([p for p in net.parameters() if p.requires_grad], 1e-2)
generator = torch.Generator().manual_seed(1 if fault == "same-data" else rank)
for step in range(16):
    x = torch.randn(16, 6, generator=generator)
    optimizer.zero_grad()
    F.cross_entropy(model(x), x[:, :3].argmax(-1)).backward()
    if step == 9 and rank == 1 and fault == "edited":
        net[0].bias.data.view(torch.int32)[0] += 1
    if step == 9 and rank == 1 and fault == "skipped":
        continue
    optimizer.step()
dist.destroy_process_group()
"""


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def run_two_ranks(folder, fault):
    script = folder / "train.py"
    script.write_text(SCRIPT)
    port = str(free_port())
    common = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": "2"}
    ranks = [
        subprocess.Popen(
            [sys.executable, "-m", "nabla", "run", str(script), fault],
            env=os.environ | common | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(2)
    ]
    return "".join(rank.communicate(timeout=240)[0] for rank in ranks)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "rule", "step"),
    [("edited", "AUD701", 9), ("skipped", "AUD701", 9), ("same-data", "AUD704", 2)],
)
def test_two_ranks_with_a_fault(tmp_path, fault, rule, step):
    output = run_two_ranks(tmp_path, fault)
    assert f"nabla: {rule}" in output
    assert f"at step {step}:" in output


@pytest.mark.slow
def test_two_healthy_ranks(tmp_path):
    assert run_two_ranks(tmp_path, "none").count("no issues") == 2
