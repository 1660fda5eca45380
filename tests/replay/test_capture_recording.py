"""A capture records every step, changes nothing, and never raises into the training."""

import json
import os

import pytest
import torch
from torch import nn

import nabla_replay
from nabla_core.errors import UsageError
from nabla_replay.capturing.digests import hyper_digest
from nabla_replay.replaying.history import segments_of
from nabla_replay.store.reader import RunReader


def make(seed=0):
    torch.manual_seed(seed)
    model = nn.Sequential(
        nn.Linear(8, 16),
        nn.BatchNorm1d(16),
        nn.ReLU(inplace=True),
        nn.Dropout(0.1),
        nn.Linear(16, 2),
    )
    return model, torch.optim.AdamW(model.parameters(), lr=0.01)


def step(model, optimizer):
    loss = model(torch.randn(4, 8)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.detach()


def recorded(folder, rank=0):
    with RunReader.open(folder) as reader:
        return segments_of(reader.log(rank))


def capture(tmp_path, count=12, **options):
    model, optimizer = make()
    with nabla_replay.capture(model, optimizer, root=tmp_path, **options) as rec:
        for index in range(count):
            rec.record_step(step=index, loss=step(model, optimizer), batch_indices=[index])
    assert rec.issues == ()
    return rec


@pytest.mark.parametrize("by_hand", [True, False])
@pytest.mark.parametrize("budget", [0.02, None])
def test_training_is_bit_identical_with_and_without(tmp_path, by_hand, budget):
    model, optimizer = make()
    plain = [float(step(model, optimizer)) for _ in range(8)]
    state = torch.get_rng_state()

    twin, other = make()
    losses = []
    options = {"root": tmp_path, "checkpoint_every": 3, "budget": budget}
    with nabla_replay.capture(twin, other, **options) as rec:
        for _ in range(8):
            losses.append(float(step(twin, other)))
            if by_hand:
                rec.record_step(loss=losses[-1])

    assert losses == plain
    assert torch.equal(state, torch.get_rng_state())
    for one, same in zip(model.state_dict().values(), twin.state_dict().values(), strict=True):
        assert torch.equal(one, same)


def test_steps_are_seen_without_a_call(tmp_path):
    model, optimizer = make()
    losses = []
    with nabla_replay.capture(model, optimizer, root=tmp_path) as rec:
        for _ in range(5):
            losses.append(float(step(model, optimizer)))

    entries = recorded(rec.run_path)[0].steps
    assert [entry.step for entry in entries] == [0, 1, 2, 3, 4]
    assert [entry.loss for entry in entries] == losses


def test_a_step_recorded_by_hand_is_not_recorded_twice(tmp_path):
    rec = capture(tmp_path, count=5)
    assert [entry.step for entry in recorded(rec.run_path)[0].steps] == [0, 1, 2, 3, 4]


def test_steps_end_with_the_last_of_several_optimizers(tmp_path):
    torch.manual_seed(0)
    model = nn.ModuleDict({"one": nn.Linear(3, 3), "two": nn.Linear(3, 3)})
    optimizers = [torch.optim.SGD(part.parameters(), lr=0.1) for part in model.values()]
    with nabla_replay.capture(model, optimizers, root=tmp_path, budget=None) as rec:
        for _ in range(4):
            for part, optimizer in zip(model.values(), optimizers, strict=True):
                optimizer.zero_grad()
                part(torch.randn(2, 3)).sum().backward()
                optimizer.step()
    assert len(recorded(rec.run_path)[0].steps) == 4


def test_a_scaled_loss_is_recorded_as_it_was(tmp_path):
    model, optimizer = make()
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    with nabla_replay.capture(model, optimizer, scaler=scaler, root=tmp_path) as rec:
        for _ in range(3):
            loss = model(torch.randn(4, 8)).square().mean()
            optimizer.zero_grad()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
    last = recorded(rec.run_path)[0].steps[-1]
    assert last.loss == float(loss)
    assert "scaler" in last.digests


def test_nothing_of_torch_stays_replaced(tmp_path):
    from torch.utils.data import DataLoader

    before = nn.Module.__call__, DataLoader.__iter__, torch.optim.Optimizer.zero_grad
    capture(tmp_path, count=2)
    with pytest.raises(KeyError):
        capture_that_fails(tmp_path)
    assert before == (nn.Module.__call__, DataLoader.__iter__, torch.optim.Optimizer.zero_grad)


def capture_that_fails(tmp_path):
    model, optimizer = make()
    with nabla_replay.capture(model, optimizer, root=tmp_path):
        step(model, optimizer)
        raise KeyError("the program's own")


@pytest.mark.parametrize(
    "wrong",
    [
        {"loss": torch.zeros(3)},
        {"loss": "high"},
        {"tensors": [1]},
        {"metrics": {"a": object()}},
        {"step": -1},
    ],
)
def test_a_wrong_call_is_told_and_the_training_goes_on(tmp_path, wrong, capsys):
    model, optimizer = make()
    with nabla_replay.capture(model, optimizer, root=tmp_path) as rec:
        step(model, optimizer)
        rec.record_step(**wrong)
        step(model, optimizer)
        rec.record_step(step=1, loss=0.5)
    assert [issue.rule for issue in rec.issues] == ["REP204"]
    assert recorded(rec.run_path)[0].steps[-1].loss == 0.5
    assert "REP204" in capsys.readouterr().err


def test_a_folder_that_cannot_be_written_is_told_and_the_training_goes_on(tmp_path, capsys):
    blocked = tmp_path / "file"
    blocked.write_text("")
    model, optimizer = make()
    with nabla_replay.capture(model, optimizer, root=blocked) as rec:
        step(model, optimizer)
        rec.record_step(loss=1.0)
        assert not rec.checkpoint()
    assert [issue.rule for issue in rec.issues] == ["REP204"]
    with pytest.raises(UsageError, match="there is no run"):
        _ = rec.run_path


class Odd:
    def state_dict(self):
        return {"queue": {object()}}

    def load_state_dict(self, state_dict):
        pass


def test_a_state_that_cannot_be_stored_costs_the_checkpoints_only(tmp_path, capsys):
    model, optimizer = make()
    options = {"root": tmp_path, "extra": {"odd": Odd()}, "checkpoint_every": 2}
    with nabla_replay.capture(model, optimizer, **options) as rec:
        for _ in range(5):
            rec.record_step(loss=step(model, optimizer))
    (segment,) = recorded(rec.run_path)
    assert len(segment.steps) == 5
    assert segment.snapshots == []
    assert [issue.rule for issue in rec.issues] == ["REP204"]


def test_no_file_per_step_and_few_bytes(tmp_path):
    model = nn.Sequential(*(nn.BatchNorm1d(8) for _ in range(40)))
    optimizer = torch.optim.AdamW(model.parameters())
    sizes = {}
    for budget in (0.02, None):
        options = {"root": tmp_path, "checkpoint_every": 10**9, "budget": budget}
        with nabla_replay.capture(model, optimizer, **options) as rec:
            files = sum(len(names) for _, _, names in os.walk(rec.run_path))
            for index in range(40):
                loss = model(torch.randn(4, 8)).sum()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                rec.record_step(step=index, loss=loss, batch_indices=[index])
            assert sum(len(names) for _, _, names in os.walk(rec.run_path)) == files
        lines = (rec.run_path / "steps.r0.jsonl").read_bytes().splitlines(keepends=True)
        steps = [line for line in lines if json.loads(line)["d"]["k"] == "step"]
        sizes[budget] = sum(map(len, steps)) / len(steps)
    values = len(list(model.parameters())) * 2 + len(list(model.buffers()))
    assert sizes[None] <= 200 + values * 16 / 3
    assert sizes[0.02] <= 300


def test_checkpoints_lie_where_they_were_taken(tmp_path):
    (segment,) = recorded(capture(tmp_path, checkpoint_every=4).run_path)
    assert [one.records for one in segment.snapshots] == [0, 4, 8, 12]
    assert sorted(segment.traces) == [0, 4, 8]


def test_modules_are_traced_only_if_wanted(tmp_path):
    (segment,) = recorded(capture(tmp_path, trace_modules=False).run_path)
    assert segment.traces == {}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"checkpoint_every": 0}, "at least 1"),
        ({"budget": 0}, "share of a step"),
        ({"chekpoint": 1}, "unknown option"),
        ({"scheduler": 3}, "state_dict"),
        ({"extra": {"x": 3}}, "state_dict"),
        ({"extra": [1]}, "mapping"),
        ({"loader": 3}, "iterate"),
        ({"fsync_s": 0}, "above 0 s"),
    ],
)
def test_options_out_of_range_are_told_before_anything_is_written(tmp_path, options, words):
    model, optimizer = make()
    with pytest.raises(UsageError, match=words):
        nabla_replay.capture(model, optimizer, root=tmp_path, **options)
    assert list(tmp_path.iterdir()) == []


def test_the_digest_of_a_group_follows_every_value_and_name():
    def digest(**settings):
        optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(2))], 0.1)
        optimizer.param_groups[0].update(settings)
        return hyper_digest([optimizer])

    found = [digest(), digest(lr=0.2), digest(lr=1), digest(lr=1.0), digest(lr=True), digest(x=0.1)]
    assert len(set(found)) == len(found)
    assert found == [
        digest(), digest(lr=0.2), digest(lr=1), digest(lr=1.0), digest(lr=True), digest(x=0.1)
    ]  # fmt: skip


def test_the_digest_of_one_group_changes_with_it():
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(2))], 0.1)
    before = hyper_digest([optimizer])
    optimizer.param_groups[0]["lr"] = 0.05
    between = hyper_digest([optimizer])
    optimizer.param_groups[0]["lr"] = 0.1
    assert before == hyper_digest([optimizer]) != between
