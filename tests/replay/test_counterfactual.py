"""Recorded steps with one thing changed: what makes the symptom vanish is its cause."""

import json
import random
from collections import namedtuple

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

from nabla_core.errors import UsageError
from nabla_replay import capture, what_if
from nabla_replay.counterfactual.batches import without_samples
from nabla_replay.counterfactual.changes import (
    ClipGradients,
    DivideRate,
    HoldRate,
    RaisePrecision,
    SkipBatches,
    WithoutSamples,
)
from nabla_replay.counterfactual.observing import Seen
from nabla_replay.counterfactual.symptoms import judged, symptom_in
from nabla_replay.counterfactual.widening import widened
from nabla_replay.errors import RecordError

BAD = 20


def samples(fault):
    torch.manual_seed(0)
    x = torch.randn(480, 8)
    y = x[:, :3].argmax(-1)
    if fault == "bad batch":
        x[16 * BAD + 5, 3] = float("nan")
    if fault == "fp16":
        x[16 * BAD : 16 * (BAD + 1)] *= 3e4
    return TensorDataset(x, y)


def program(fault="", dtype=torch.float16):
    """Return a function that makes a program with one fault in step 20, or with none."""

    def build():
        torch.manual_seed(0)
        last = [nn.LayerNorm(32), nn.ReLU(), nn.Linear(32, 3)]
        model = nn.Sequential(nn.Linear(8, 32), nn.Tanh() if not fault else nn.ReLU(), *last)
        if fault == "fp16":
            model = nn.Sequential(nn.Linear(8, 32), *last)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

        def rate(step):
            return 4000.0 if fault == "rate" and step == BAD else 1.0

        scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, rate)

        def step(batch):
            with torch.autocast("cpu", dtype=dtype, enabled=fault == "fp16"):
                loss = cross_entropy(model(batch[0]).float(), batch[1])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            scheduler.step()
            return loss

        return {
            "model": model,
            "optimizer": optimizer,
            "scheduler": scheduler,
            "loader": DataLoader(samples(fault), batch_size=16),
            "step": step,
        }

    return build


@pytest.fixture
def captured(tmp_path):
    def run(build):
        made = build()
        parts = made["model"], made["optimizer"]
        others = {"scheduler": made["scheduler"], "loader": made["loader"]}
        with capture(*parts, **others, root=tmp_path, checkpoint_every=10, budget=None) as rec:
            for batch in rec.batches(made["loader"]):
                made["step"](batch)
        return rec.run_path

    return run


CHANGES = (
    SkipBatches(steps=(BAD,)),
    WithoutSamples(step=BAD, samples=(5,)),
    WithoutSamples(step=BAD, samples=(4, 6)),
    DivideRate(since=BAD),
    HoldRate(since=BAD),
    ClipGradients(since=BAD),
    RaisePrecision(since=BAD, module="0"),
)


def outcomes(build, captured, **options):
    found = what_if(captured(build), CHANGES, build=build, **options)
    return found, {
        f"{type(trial.change).__name__}{getattr(trial.change, 'samples', '')}": trial.outcome
        for trial in found.trials
    }


def test_a_bad_sample_is_confirmed_by_leaving_it_out(captured):
    found, outcome = outcomes(program("bad batch"), captured)

    assert (found.symptom.measure, found.symptom.step) == ("loss", BAD)
    assert {name for name, told in outcome.items() if told == "vanishes"} == {
        "SkipBatches",
        "WithoutSamples(5,)",
    }
    assert set(outcome.values()) == {"vanishes", "stays"}
    assert "step 20 still has loss nan" in found.format()
    assert found.cautions == ()


def test_a_spike_of_the_rate_is_confirmed_by_holding_it(captured):
    found, outcome = outcomes(program("rate"), captured)

    assert found.symptom.step > BAD and found.symptom.worst > 4 * found.symptom.usual
    assert outcome["HoldRate"] == "vanishes"
    assert outcome["SkipBatches"] == outcome["RaisePrecision"] == "stays"
    assert outcome["WithoutSamples(5,)"] == "stays"


def test_an_overflow_in_one_layer_is_confirmed_by_a_wider_type(captured):
    found, outcome = outcomes(program("fp16"), captured)

    assert not torch.isfinite(torch.tensor(found.symptom.worst))
    assert outcome["RaisePrecision"] == outcome["SkipBatches"] == "vanishes"
    assert outcome["DivideRate"] == outcome["ClipGradients"] == "stays"


def test_without_a_symptom_nothing_is_decided(captured):
    found, outcome = outcomes(program(), captured)

    assert found.symptom is None
    assert set(outcome.values()) == {"undecided"}
    assert "nothing goes wrong" in found.format()
    assert json.dumps(found.to_dict())


def test_the_caller_keeps_what_he_has(captured):
    build = program("bad batch")
    run = captured(build)
    made = build()
    before = {name: value.clone() for name, value in made["model"].state_dict().items()}
    torch.manual_seed(7)
    random.seed(7)
    expected = torch.rand(3), random.random()
    torch.manual_seed(7)
    random.seed(7)

    what_if(run, CHANGES[:1], build=build)

    assert torch.equal(torch.rand(3), expected[0])
    assert random.random() == expected[1]
    assert all(torch.equal(value, before[name]) for name, value in made["model"].named_parameters())


def test_a_program_that_is_not_the_recorded_one_is_told(captured):
    run = captured(program("bad batch"))

    found = what_if(run, CHANGES[:1], build=program())

    assert "is not the recorded one" in found.cautions[0]


def test_what_was_not_recorded_cannot_be_changed(captured):
    build = program("bad batch")
    run = captured(build)

    with pytest.raises(RecordError, match="step 900 was not recorded"):
        what_if(run, [SkipBatches(steps=(900,))], build=build)
    with pytest.raises(RecordError, match="max_steps is 3"):
        what_if(run, CHANGES[:1], build=build, max_steps=3)
    with pytest.raises(UsageError, match="at least one change"):
        what_if(run, [], build=build)
    with pytest.raises(UsageError, match="the options are"):
        what_if(run, CHANGES[:1], build=build, steps=3)
    with pytest.raises(UsageError, match="the model has none"):
        what_if(run, [RaisePrecision(since=BAD, module="body.9")], build=build)


def test_without_time_a_change_is_not_tried(captured):
    build = program("bad batch")

    found = what_if(captured(build), CHANGES[:1], build=build, budget_s=1e-9)

    assert found.trials[0].outcome == "undecided"
    assert "no time is left" in found.trials[0].reason


@pytest.mark.parametrize(
    "make",
    [
        lambda: SkipBatches(steps=()),
        lambda: WithoutSamples(step=1, samples=()),
        lambda: WithoutSamples(step=1, samples=(-1,)),
        lambda: DivideRate(since=1, factor=0.0),
        lambda: ClipGradients(since=1, max_norm=-1.0),
    ],
)
def test_a_change_that_makes_no_sense_is_refused(make):
    with pytest.raises(UsageError):
        make()


Pair = namedtuple("Pair", "x y")


def test_samples_are_left_out_of_every_shape_of_batch():
    x, y = torch.arange(8.0).reshape(4, 2), torch.arange(4)

    left = without_samples({"x": x, "meta": (y, ["a", "b", "c", "d"]), "scale": torch.ones(2)}, {1})

    assert left["x"][:, 0].tolist() == [0.0, 4.0, 6.0]
    assert left["meta"][0].tolist() == [0, 2, 3]
    assert left["meta"][1] == ["a", "c", "d"]
    assert len(left["scale"]) == 2
    assert without_samples(Pair(x, y), {0, 3}).y.tolist() == [1, 2]
    assert without_samples([x, y], {0})[1].tolist() == [1, 2, 3]
    assert len(x) == 4


def test_a_batch_cannot_lose_everything():
    with pytest.raises(UsageError, match="cannot be left out"):
        without_samples(torch.ones(2), {0, 1})
    with pytest.raises(UsageError, match="cannot be left out"):
        without_samples(torch.ones(2), {5})
    with pytest.raises(UsageError, match="has no samples"):
        without_samples("text", {0})


def seen(*losses, start=0):
    return [Seen(start + step, {"loss": loss}) for step, loss in enumerate(losses)]


def test_a_small_rise_is_no_symptom():
    assert symptom_in(seen(1.0, 1.0, 3.9), since=2) is None
    assert symptom_in(seen(1.0, 1.0, 4.1), since=2).step == 2


@pytest.mark.parametrize(
    ("after", "outcome"), [(1.0, "vanishes"), (5.0, "vanishes"), (99.0, "undecided")]
)
def test_how_much_is_left_of_a_rise_decides(after, outcome):
    symptom = symptom_in(seen(1.0, 1.0, 1e4), since=2)

    assert judged(symptom, seen(1.0, 1.0, after), since=2).outcome == outcome
    assert judged(symptom, seen(1.0, 1.0, 2e3), since=2).outcome == "stays"


def test_what_comes_later_or_grows_is_not_gone():
    symptom = symptom_in(seen(1.0, 1.0, float("nan")), since=2)

    late = judged(symptom, seen(1.0, 1.0, 1.0, 1.0, 1.0, float("inf")), since=2)
    grown = judged(symptom, seen(1.0, 1.0, 1e5), since=2)

    put_off = judged(symptom, seen(1.0, 1.0, 1.0, 1.0, float("inf")), since=2)

    assert (late.outcome, grown.outcome) == ("undecided", "undecided")
    assert "it comes 3 steps later" in late.reason
    assert put_off.outcome == "stays"
    assert "rises to 1e+05" in grown.reason


def test_a_step_that_raises_is_a_symptom():
    broken = [*seen(1.0), Seen(1, {}, "ValueError: bad batch")]
    symptom = symptom_in(broken, since=1)

    assert str(symptom) == "step 1 raises ValueError: bad batch"
    assert judged(symptom, broken, since=1).outcome == "stays"
    assert judged(symptom, seen(1.0, 1.0), since=1).outcome == "vanishes"


@pytest.mark.parametrize("keep", [True, False])
def test_a_module_is_computed_in_a_wider_type(keep):
    torch.manual_seed(0)
    layer = nn.Linear(4, 4).half()
    calls = []
    layer.register_forward_hook(lambda *_: calls.append(1))
    x = torch.randn(3, 4, dtype=torch.float16)

    with widened(layer, torch.float64, lambda: True, keep=keep):
        wide = layer(x)
    narrow = layer(x)

    exact = nn.functional.linear(x.double(), layer.weight.double(), layer.bias.double())
    assert wide.dtype == (torch.float64 if keep else torch.float16)
    assert torch.equal(wide, exact if keep else exact.half())
    assert narrow.dtype == torch.float16
    assert len(calls) == 2
    assert "forward" not in vars(layer)
    wide.sum().backward()
    assert layer.weight.grad.dtype == torch.float16


def test_running_statistics_go_on_in_a_wider_type():
    norm = nn.BatchNorm1d(2)
    x = torch.randn(16, 2) + 3.0

    with widened(norm, torch.float64, lambda: True, keep=False):
        norm(x)

    assert norm.running_mean.abs().min() > 0.1
    assert norm.num_batches_tracked == 1
