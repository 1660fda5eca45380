"""What was captured is replayed bit by bit, and what differs is named with its reason."""

import json
import os
import subprocess
import sys
import textwrap

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader

import nabla_replay
from nabla_core.errors import UsageError
from nabla_replay import ReplayObservation
from nabla_replay.errors import RecordError

PROGRAM = """
import random

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.utils.data import DataLoader, Dataset

STEPS = 14


class Noisy(Dataset):
    epoch = 0

    def __init__(self):
        draw = torch.Generator().manual_seed(7)
        self.x = torch.randn(40, 3, 8, 8, generator=draw)
        self.y = torch.randint(0, 4, (40,), generator=draw)

    def __len__(self):
        return 40

    def __getitem__(self, index):
        noise = torch.randn(()) + random.random() + float(np.random.rand())
        return self.x[index] + 0.1 * noise, self.y[index], index


class Program:
    def __init__(self, workers=0, lost=()):
        torch.manual_seed(0)
        self.model = nn.Sequential(
            nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.Flatten(),
            nn.Dropout(0.2), nn.Linear(4 * 36, 4),
        )
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=2e-3)
        self.scheduler = torch.optim.lr_scheduler.OneCycleLR(self.optimizer, 5e-3, total_steps=60)
        self.scaler = torch.amp.GradScaler("cpu", growth_interval=5)
        average = get_ema_multi_avg_fn(0.95)
        self.ema = AveragedModel(self.model, multi_avg_fn=average, use_buffers=True)
        self.extra = {"ema": self.ema}
        self.loader = DataLoader(Noisy(), batch_size=8, shuffle=True, num_workers=workers)
        for name in lost:
            setattr(self, name, {} if name == "extra" else None)
        self.optimizer_of_the_step = self.optimizer
        self.parts = [torch.optim.AdamW(self.model.parameters(), lr=2e-3)] if lost else []

    def step(self, batch):
        x, y, _ = batch
        optimizer = self.optimizer or self.parts[0]
        scaler = self.scaler or torch.amp.GradScaler("cpu")
        loss = F.cross_entropy(self.model(x), y)
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        if self.scheduler is not None:
            self.scheduler.step()
        self.ema.update_parameters(self.model)
        return loss.detach()

    def capture(self, root, **options):
        import nabla_replay

        parts = {name: getattr(self, name) for name in ("scheduler", "scaler", "extra", "loader")}
        return nabla_replay.capture(self.model, self.optimizer, root=root, **parts, **options)

    def train(self, root, by_hand=True, **options):
        taken = 0
        with self.capture(root, checkpoint_every=7, **options) as rec:
            while taken < STEPS:
                for batch in self.loader:
                    loss = self.step(batch)
                    taken += 1
                    if by_hand:
                        rec.record_step(step=taken, loss=loss, batch_indices=batch[2])
                    if taken == STEPS:
                        break
        assert rec.issues == (), rec.issues
        return rec.run_path
"""


@pytest.fixture(scope="module")
def program():
    space = {}
    exec(compile(PROGRAM, "program", "exec"), space)
    return type("Space", (), space)


@pytest.fixture(scope="module")
def run(program, tmp_path_factory):
    return program.Program().train(tmp_path_factory.mktemp("runs"), budget=None)


@pytest.mark.parametrize("by_hand", [True, False], ids=["by hand", "seen by the instrument"])
@pytest.mark.parametrize("budget", [None, 0.02], ids=["everything", "rotating"])
def test_every_step_of_a_whole_run_matches(program, tmp_path, by_hand, budget):
    path = program.Program().train(tmp_path, by_hand=by_hand, budget=budget)
    result = nabla_replay.replay(path, build=program.Program, localize=True)
    assert result.passed, result.format()
    assert result.status == "MATCH"
    assert len(result.steps) == result.planned == 14


def test_a_replay_starts_in_the_middle_of_an_epoch(program, run):
    result = nabla_replay.replay(run, build=program.Program, from_step=9, to_step=13)
    assert result.passed, result.format()
    # executed from the checkpoint after step 7 on, in the middle of the second epoch
    assert [one.step for one in result.steps] == [9, 10, 11, 12, 13]


def test_steps_match_with_two_workers_from_the_middle_of_an_epoch(program, tmp_path):
    path = program.Program(workers=2).train(tmp_path, budget=None)
    result = nabla_replay.replay(path, build=lambda: program.Program(workers=2), from_step=8)
    assert result.passed, result.format()


SETTINGS = {
    "nothing": "",
    "threads": "torch.set_num_threads(2)",
    "loader workers": "workers = 3",
    "loader workers ": "workers = 0",
    "oneDNN": "torch.backends.mkldnn.enabled = False",
    "memory format": "layout = torch.channels_last",
    "CPU capability": "ATEN_CPU_CAPABILITY=default",
    "ONEDNN_MAX_CPU_ISA": "ONEDNN_MAX_CPU_ISA=SSE41",
    "MKL_CBWR": "MKL_CBWR=COMPATIBLE",
}
REPLAYED = """
import json, sys
import nabla_replay

if __name__ == "__main__":
    torch.set_num_threads(1)
    workers, layout = 2, torch.contiguous_format
    if sys.argv[1] == "record":
        print(Program(workers=2).train(sys.argv[2], budget=None))
    else:
        exec(sys.argv[3])

        def made():
            program = Program(workers=workers)
            program.model.to(memory_format=layout)
            return program

        found = nabla_replay.replay(sys.argv[2], build=made, from_step=8)
        print(json.dumps({**found.to_dict(), "breakers": list(found.breakers)}))
"""


@pytest.fixture(scope="module")
def in_fresh_process(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fresh")
    file = folder / "program.py"
    file.write_text(PROGRAM + textwrap.dedent(REPLAYED))

    def call(*arguments, **variables):
        command, environment = [sys.executable, str(file), *arguments], {**os.environ, **variables}
        done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
        return done.stdout.strip().splitlines()[-1]

    run = call("record", str(folder))

    def replay(setting):
        name, _, value = setting.partition("=")
        if name.isupper():
            return json.loads(call("replay", run, "", **{name: value}))
        return json.loads(call("replay", run, setting))

    return replay


@pytest.mark.slow
@pytest.mark.parametrize("name", SETTINGS)
def test_in_a_fresh_process_steps_match_or_the_setting_that_breaks_them_is_named(
    in_fresh_process, name, reached
):
    result = in_fresh_process(SETTINGS[name])
    if name == "nothing":
        matched = sum(one["status"] == "MATCH" for one in result["steps"])
        reached("steps exact in a fresh process with two workers", matched, 7)
        assert result["passed"], result["issues"]
        assert len(result["steps"]) == 7
        return
    named = name.strip() in result["breakers"]
    reached("settings that break exactness named", named)
    assert named
    assert {one["rule"] for one in result["issues"]} <= {"REP104", "REP901"}


@pytest.mark.parametrize(
    ("lost", "component"),
    [("scheduler", "optimizer"), ("extra", "extra"), ("optimizer", "parameter")],
)
def test_a_part_that_is_not_restored_is_named(program, run, lost, component):
    build = lambda: program.Program(lost=(lost,))  # noqa: E731
    result = nabla_replay.replay(run, build=build, from_step=8)
    assert not result.passed
    assert any(name.startswith(lost) for name in result.missing)
    assert result.divergence.step == 8
    assert result.divergence.component == component
    assert "no " + result.missing[0] in result.issues[0].message


def test_a_scaler_that_is_not_restored_is_not_passed_over(program, run):
    result = nabla_replay.replay(run, build=lambda: program.Program(lost=("scaler",)), from_step=8)
    assert result.status == "UNVERIFIED"
    assert not result.passed
    assert result.missing == ("scaler",)


def test_what_breaks_exactness_is_named_before_the_run_is_blamed(program, run):
    def build():
        made = program.Program()
        made.model.to(memory_format=torch.channels_last)
        return made

    threads = torch.get_num_threads()
    torch.set_num_threads(threads + 1)
    try:
        result = nabla_replay.replay(run, build=build)
    finally:
        torch.set_num_threads(threads)
    assert set(result.breakers) == {"threads", "memory format"}
    assert not result.exact_expected
    assert {issue.rule for issue in result.issues} <= {"REP104", "REP901"}


def test_a_loader_with_other_batches_is_named(program, run):
    def build():
        made = program.Program()
        made.loader = DataLoader(made.loader.dataset, batch_size=20, shuffle=True)
        return made

    result = nabla_replay.replay(run, build=build)
    assert not result.passed
    assert "loader batch size" in result.breakers


def test_an_extra_draw_is_seen_in_the_generators(program, run):
    def build():
        made = program.Program()
        step = made.step

        def and_draw(batch):
            loss = step(batch)
            torch.rand(1)
            return loss

        made.step = and_draw
        return made

    result = nabla_replay.replay(run, build=build)
    assert (result.divergence.step, result.divergence.component) == (1, "rng")
    assert result.divergence.names == ("torch",)
    assert result.issues[0].rule == "REP102"


def linear(seed=0):
    torch.manual_seed(seed)
    model = nn.Linear(4, 4)
    return model, torch.optim.SGD(model.parameters(), lr=0.1)


def linear_step(model, optimizer):
    optimizer.zero_grad()
    loss = model(torch.randn(8, 4)).square().mean()
    loss.backward()
    optimizer.step()
    return loss


@pytest.fixture
def plain_run(tmp_path):
    model, optimizer = linear()
    with nabla_replay.capture(model, optimizer, root=tmp_path, checkpoint_every=4) as rec:
        for index in range(1, 13):
            loss = linear_step(model, optimizer)
            rec.record_step(
                step=index,
                loss=loss,
                batch_indices=[index],
                tensors={"w": model.weight},
                data_state={"token_offset": index},
            )
    return rec.run_path


def test_a_step_function_without_a_loader_gets_the_number(plain_run):
    model, optimizer = linear(seed=5)

    def step(number):
        linear_step(model, optimizer)
        return ReplayObservation(
            tensors={"w": model.weight},
            batch_indices=[number],
            data_state={"token_offset": number},
        )

    result = nabla_replay.replay(plain_run, model=model, optimizer=optimizer, step_fn=step)
    assert result.passed, result.format()


@pytest.mark.parametrize(
    ("observation", "component", "rule"),
    [
        ({"batch_indices": [99]}, "batch", "REP103"),
        ({"data_state": {"token_offset": 0}}, "data", "REP103"),
        ({"loss": 1.0}, "loss", "REP101"),
        ({"tensors": {"w": torch.zeros(4, 4)}}, "tensor w", "REP101"),
    ],
)
def test_evidence_that_differs_is_named(plain_run, observation, component, rule):
    model, optimizer = linear()

    def step(number):
        linear_step(model, optimizer)
        return ReplayObservation(**observation)

    result = nabla_replay.replay(plain_run, model=model, optimizer=optimizer, step_fn=step)
    assert (result.divergence.step, result.divergence.component) == (1, component)
    assert result.issues[0].rule == rule


def test_gradients_that_were_cleared_before_the_record_are_not_judged(tmp_path):
    model, optimizer = linear()
    with nabla_replay.capture(model, optimizer, root=tmp_path, budget=None) as rec:
        for _ in range(3):
            loss = linear_step(model, optimizer)
            optimizer.zero_grad(set_to_none=False)
            rec.record_step(loss=loss)
    model, optimizer = linear()
    step = lambda number: linear_step(model, optimizer)  # noqa: E731
    result = nabla_replay.replay(rec.run_path, model=model, optimizer=optimizer, step_fn=step)
    assert result.passed, result.format()


def test_nothing_compared_is_not_passed(tmp_path):
    model, optimizer = linear()
    with nabla_replay.capture(nn.Module(), None, root=tmp_path) as rec:
        for _ in range(3):
            rec.record_step()
    result = nabla_replay.replay(rec.run_path, model=nn.Module(), step_fn=lambda number: None)
    assert result.status == "UNVERIFIED"
    assert not result.passed
    assert [issue.rule for issue in result.issues] == ["REP901"]


def test_a_run_of_another_model_is_refused(plain_run):
    model = nn.Linear(5, 4)
    with pytest.raises(UsageError, match="weight"):
        nabla_replay.replay(plain_run, model=model, step_fn=lambda number: None)


def test_steps_that_were_not_recorded_are_refused(plain_run):
    model, optimizer = linear()
    with pytest.raises(RecordError, match="steps 1 to 12"):
        nabla_replay.replay(plain_run, model=model, step_fn=lambda number: None, from_step=50)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({}, "needs a model"),
        ({"build": 3}, "needs a function"),
        ({"build": lambda: {"model": nn.Linear(2, 2)}}, "how to take a step"),
        ({"stepfn": print}, "unknown option"),
        ({"build": dict, "from_step": 5, "to_step": 4}, "ends before"),
    ],
)
def test_wrong_calls_are_told(plain_run, arguments, words):
    with pytest.raises(UsageError, match=words):
        nabla_replay.replay(plain_run, **arguments)


def test_the_result_is_json(plain_run):
    model, optimizer = linear()
    step = lambda number: linear_step(model, optimizer)  # noqa: E731
    result = nabla_replay.replay(plain_run, model=model, optimizer=optimizer, step_fn=step)
    assert json.loads(json.dumps(result.to_dict()))["status"] == "MATCH"
    assert "12 of 12 steps match" in result.format()
