"""What a calm step costs, in calls of ours; and the short way leaves what the long one does."""

import collections
import gc
import math
import weakref

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from nabla_guard import guard
from nabla_guard.loop.calm import Calm
from nabla_guard.loop.express import Express
from nabla_guard.origin.root_state import RootState
from nabla_guard.taps.instrument import INSTRUMENT

LATE = 29
MOST_CALLS = {"light": 60, "standard": 82}
"""Of Python functions of ours in a calm step of three layers and a loss; the model makes five."""
MOST_EARLY_CALLS = {"light": 84, "standard": 107}
"""The same while the labels of the first 64 batches are learnt, with every package installed."""
MOST_CALLS_OF_A_USUAL_LOOP = 134
MOST_UNEXPLAINED_CALLS = 56


class Trained:
    """A classifier with everything that a step can be made of, and a fault from step 29 on."""

    def __init__(self, fault=None, loss=None):
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.Linear(8, 3))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), 1e-3)
        self.criterion = loss or nn.CrossEntropyLoss()
        self.fault = fault
        self.losses = []
        self.batches = iter([(x, x[:, :3].argmax(-1)) for x in torch.randn(160, 8, 6).unbind()])

    def batch(self):
        return next(self.batches)

    def step(self, fault=None):
        x, y = self.batch()
        if fault == "input":
            x[5, 2] = math.nan
        self.optimizer.zero_grad()
        output = self.model(x)
        if fault == "between":
            output = output / (output - output)
        loss = self.criterion(output, y)
        if fault in ("loss", "batch changed"):
            loss = loss * math.inf
        if fault == "weight":
            with torch.no_grad():
                self.model[2].bias[0] = math.inf
        if fault == "evaluated":
            with torch.no_grad():
                self.model.eval()(x)
            self.model.train()
            loss = loss / (loss - loss)
        if fault == "gradient":
            loss = loss + torch.sqrt(self.model[0].bias * 0.0).sum()
        loss.backward()
        if fault == "batch changed":
            x.add_(1.0)
        if fault == "cleared":
            self.optimizer.zero_grad()
        if fault == "hand":
            self.model[0].weight.grad.fill_(math.nan)
        self.losses.append(loss.item())
        self.optimizer.step()

    def run(self, steps=34):
        for step in range(steps):
            self.step(self.fault if step >= LATE else None)


@pytest.fixture
def few_rules(monkeypatch):
    """Only rules whose families of facts ask for no close look at the first hundred steps."""
    monkeypatch.setenv("NABLA_SELECT", "NUM,AUD101")


@pytest.mark.parametrize("early", [False, True])
@pytest.mark.parametrize("mode", MOST_CALLS)
def test_a_calm_step_makes_few_calls(mode, early, calls_of_ours):
    program = Trained()
    x, y = program.batch()

    def step():
        program.optimizer.zero_grad()
        program.criterion(program.model(x), y).backward()
        program.optimizer.step()

    counts = collections.Counter()
    with guard(program.model, optimizer=program.optimizer, mode=mode):
        for _ in range(16 if early else 100):
            step()
        for _ in range(16):
            counts[calls_of_ours(step)] += 1
    usual = counts.most_common(1)[0][0]
    assert usual <= (MOST_EARLY_CALLS if early else MOST_CALLS)[mode]


def test_a_usual_loop_makes_few_calls_too(calls_of_ours):
    """Slices of the data, a loss by a function, clipping and a look at the loss."""
    program = Trained()
    data, labels = torch.randn(160, 6), torch.randint(0, 3, (160,))

    def step():
        x, y = data[8:16], labels[8:16]
        program.optimizer.zero_grad()
        loss = F.cross_entropy(program.model(x), y)
        loss.backward()
        nn.utils.clip_grad_norm_(program.model.parameters(), 1.0)
        program.optimizer.step()
        loss.item()

    with guard(program.model, optimizer=program.optimizer, mode="light"):
        for _ in range(100):
            step()
        counts = sorted(calls_of_ours(step) for _ in range(16))
    assert counts[8] <= MOST_CALLS_OF_A_USUAL_LOOP


def test_without_explanations_no_call_is_noted(calls_of_ours):
    program = Trained(loss=by_hand)
    with guard(program.model, optimizer=program.optimizer, mode="light", explain=False):
        program.run(100)
        counts = sorted(calls_of_ours(program.step) for _ in range(16))
    assert counts[8] <= MOST_UNEXPLAINED_CALLS


@pytest.mark.usefixtures("few_rules")
def test_most_steps_take_the_express(monkeypatch):
    taken = []
    step = Express.step
    monkeypatch.setattr(Express, "step", lambda *given: taken.append(step(*given)) or taken[-1])
    program = Trained()
    with guard(program.model, optimizer=program.optimizer):
        program.run(64)
    assert sum(taken) >= 50
    assert all(type(answer) is bool for answer in taken)


def verdicts(fault, mode, loss=None):
    program = Trained(fault, loss)
    with guard(mode=mode) as monitor:
        program.run()
    report = monitor.report()
    assert not report.problems
    found = [
        (issue.rule, issue.step, issue.phase, issue.where, issue.message, issue.evidence)
        for issue in report.issues
    ]
    return found, program.losses


FAULTS = [
    "input",
    "between",
    "loss",
    "batch changed",
    "weight",
    "evaluated",
    "gradient",
    "cleared",
    "hand",
    None,
]


@pytest.mark.usefixtures("few_rules")
@pytest.mark.parametrize("mode", ["light", "standard"])
@pytest.mark.parametrize("fault", FAULTS)
def test_the_short_way_leads_to_the_same_verdict(fault, mode, monkeypatch):
    short, losses = verdicts(fault, mode)
    monkeypatch.setattr(Express, "suits", staticmethod(lambda loop: False))
    long, same = verdicts(fault, mode)
    assert repr(short) == repr(long)
    assert repr(losses) == repr(same)
    assert bool(short) == (fault is not None)


@pytest.mark.usefixtures("few_rules")
def test_an_optimizer_of_an_earlier_run_is_not_in_the_way():
    """It is found, for it may yet step; until it does, the loop is calm without it."""
    left = Trained()
    program = Trained()
    noted = Noted()
    program.optimizer.register_step_pre_hook(lambda *_: noted.take())
    with guard(mode="light"):
        program.run(24)
        short = noted.put_off
        left.step()
        program.step()
    assert short > 12
    assert noted.put_off == short


@pytest.mark.usefixtures("few_rules")
def test_a_loss_by_a_function_is_followed_too(monkeypatch):
    short, _ = verdicts("between", "light", F.cross_entropy)
    monkeypatch.setattr(Express, "suits", staticmethod(lambda loop: False))
    long, _ = verdicts("between", "light", F.cross_entropy)
    assert repr(short) == repr(long)
    assert short[0][:2] == ("NUM103", LATE) or short[0][0].startswith("NUM")


class Noted:
    """The entries of each step, before the optimizer acts, in comparable form."""

    def __init__(self):
        self.steps = []
        self.put_off = 0

    def take(self):
        kept = INSTRUMENT.keeper.kept
        self.put_off += bool(kept.later)
        entries = kept.tape.entries
        self.steps.append([self.plain(entry) for entry in entries])

    def plain(self, entry):
        found = {}
        for name in type(entry).__slots__ + type(entry).__base__.__slots__:
            value = getattr(entry, name)
            if name == "generators" and value is not None:
                value = hash(tuple(value.cpu.tolist()))
            if name in ("number", "module"):
                value = type(value).__name__
            found[name] = repr(self.bare(value))
        return type(entry).__name__, found

    def bare(self, value):
        if isinstance(value, (tuple, list)):
            return tuple(map(self.bare, value))
        if type(value).__name__ == "Made":
            return ("made", value.index)
        if type(value).__name__ == "Outside":
            return ("outside", value.version, value.cut, tuple(value.tensor.shape))
        return tuple(value.shape) if isinstance(value, torch.Tensor) else value


class Doubled(torch.autograd.Function):
    """A function of the user's own."""

    @staticmethod
    def forward(ctx, value):
        return value * 2

    @staticmethod
    def backward(ctx, grad):
        return grad * 2


def by_hand(output, target):
    """A loss with calls of every kind: views, lists, writes, draws, a function of its own."""
    rows = [row.square().mean() for row in output[1:3, ..., None]]
    total = torch.stack(rows).sum() / len(rows)
    rows.clear()
    scaled = output * 0.5
    scaled.add_(1.0)
    flat = output.detach().view(-1)
    kept = F.dropout(flat.to(torch.float64)[:4], 0.5).sum().float()
    with torch.no_grad():
        right = (output.argmax(-1) == target).float().mean()
    weighted = F.cross_entropy(output, target, weight=torch.ones(3), label_smoothing=0.1)
    return total + weighted + 1e-3 * (Doubled.apply(scaled).sum(dim=(0, 1)) + kept + right)


@pytest.mark.usefixtures("few_rules")
@pytest.mark.parametrize("loss", [nn.CrossEntropyLoss(), F.cross_entropy, by_hand])
def test_notes_are_written_out_as_the_entries_that_the_long_way_makes(loss, monkeypatch):
    def steps(express):
        with monkeypatch.context() as patch:
            if not express:
                patch.setattr(Express, "suits", staticmethod(lambda loop: False))
            noted = Noted()
            program = Trained(loss=loss)
            program.optimizer.register_step_pre_hook(lambda *_: noted.take())
            with guard(mode="light"):
                program.run(24)
        assert (noted.put_off > 12) is express
        return noted.steps

    short, long = steps(True), steps(False)
    assert [[kind for kind, _ in step] for step in short] == [[k for k, _ in step] for step in long]
    assert short == long


@pytest.mark.usefixtures("few_rules")
def test_nothing_of_a_step_is_kept_after_it():
    program = Trained()
    outputs = []
    program.model.register_forward_hook(lambda _, __, output: outputs.append(weakref.ref(output)))
    with guard(program.model, optimizer=program.optimizer):
        program.run(30)
        gc.collect()
        assert [output for output in outputs if output() is not None] == []


@pytest.mark.usefixtures("few_rules")
def test_somebody_who_comes_later_hears_everything():
    program = Trained("loss")
    with guard(program.model, optimizer=program.optimizer) as first:
        program.run(LATE - 9)
        with guard(program.model, optimizer=program.optimizer) as second:
            program.run(9)
            assert second.steps == 9
        for _ in range(3):
            program.step("loss")
    assert [issue.rule for issue in first.issues if issue.rule.startswith("NUM")]
    assert torch._C._len_torch_function_stack() == 0


@pytest.mark.usefixtures("few_rules")
def test_a_module_that_raises_in_a_calm_step_leaves_no_trace():
    program = Trained()
    with guard(program.model, optimizer=program.optimizer, mode="standard") as monitor:
        program.run(24)
        assert monitor.session.source.calm.on
        with pytest.raises(RuntimeError):
            program.model(torch.ones(2, 5))
        assert not monitor.session.problems
        program.run(8)
        program.step("between")
    first = next(issue for issue in monitor.issues if issue.rule.startswith("NUM"))
    assert first.where.op == "div"


@pytest.mark.usefixtures("few_rules")
def test_gradients_cleared_between_forward_and_backward_are_calm_and_explained():
    program = Trained()
    with guard(program.model, optimizer=program.optimizer) as monitor:
        for step in range(40):
            x, y = program.batch()
            output = program.model(x)
            loss = program.criterion(output / (0.0 if step == 38 else 1.0), y)
            program.optimizer.zero_grad()
            loss.backward()
            program.optimizer.step()
    first = next(issue for issue in monitor.issues if issue.rule.startswith("NUM"))
    assert (first.step, first.where.op) == (38, "div")


def test_the_calm_can_be_turned_off(monkeypatch):
    monkeypatch.setattr(Calm, "_begin", lambda self, index: None)
    program = Trained()
    with guard(program.model, optimizer=program.optimizer) as monitor:
        program.run(12)
    assert monitor.steps == 12


class Noisy(nn.Linear):
    """A layer of the user's own that draws."""

    def forward(self, given):
        return super().forward(given) + torch.randn(())


@pytest.mark.parametrize(
    ("layer", "draws"),
    [
        (nn.GELU(), False),
        (nn.BatchNorm1d(6), False),
        (nn.Dropout(0.1), True),
        (nn.RReLU(), True),
        (nn.MultiheadAttention(6, 2, dropout=0.1), True),
        (nn.TransformerEncoderLayer(6, 2), True),
        (nn.FractionalMaxPool2d(2, output_size=1), True),
        (Noisy(6, 6), True),
        (nn.LazyLinear(6), True),
    ],
)
def test_random_states_are_kept_only_where_something_may_draw(layer, draws):
    model = nn.Sequential(nn.Linear(6, 6), layer)
    state = RootState(model)
    state.look_again()
    assert state.draws is draws


def test_random_states_are_kept_where_a_hook_may_draw():
    model = nn.Sequential(nn.Linear(6, 6))
    model[0].register_forward_hook(lambda module, args, output: output + torch.randn(()))
    state = RootState(model)
    state.look_again()
    assert state.draws
