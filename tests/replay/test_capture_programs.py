"""Scripts that know nothing of being captured: each is replayed exactly, or it is said why not."""

import gc
import itertools
import random
from contextlib import contextmanager

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.optim import lr_scheduler
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.utils.data import DataLoader, TensorDataset

import nabla_replay
from nabla_core.config import Config
from nabla_core.host import default_host
from nabla_core.session import Session, SessionOptions
from nabla_guard.options import GuardOptions
from nabla_guard.taps.instrument import watch_process


@pytest.fixture
def script(tmp_path, monkeypatch):
    """Context in which a script is run as ``nabla run --capture`` runs it; gives its run."""
    for name, value in (
        ("CAPTURE", "true"),
        ("ROOT", str(tmp_path / "runs")),
        ("CHECKPOINT_EVERY", "8"),
        ("BUDGET", "0"),
        ("ARTIFACT_DIR", str(tmp_path / "artifacts")),
    ):
        monkeypatch.setenv(f"NABLA_REPLAY_{name}", value)

    @contextmanager
    def run():
        gc.collect()  # averages of earlier tests
        host = default_host()
        options = SessionOptions(command="nabla run train.py")
        session = Session(host=host, config=Config.discover(host), options=options)
        found = []
        with session, watch_process(session, GuardOptions(mode="light", shadow="off")):
            yield found
        session.finish()
        found += [session, *sorted((tmp_path / "runs").iterdir())]

    return run


def rows(count=60, width=4, batch=6, **options):
    data = TensorDataset(torch.randn(count, width), torch.arange(count) % 2)
    return DataLoader(data, batch_size=batch, shuffle=True, **options)


class Plain:
    """A classifier over a shuffled loader."""

    def __init__(self, seed=1, dropout=0.2, rate=0.05):
        torch.manual_seed(seed)
        self.model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Dropout(dropout), nn.Linear(8, 2))
        self.optimizer = torch.optim.SGD(self.model.parameters(), rate, momentum=0.9)
        self.loader = rows()

    def step(self, batch):
        loss = F.cross_entropy(self.model(batch[0]), batch[1])
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.detach()


def train(program, epochs=3, between=lambda program: None):
    for _ in range(epochs):
        for batch in program.loader:
            program.step(batch)
        between(program)


def captured(script, run, **replaying):
    with script() as found:
        run()
    result = nabla_replay.replay(found[1], **replaying)
    return result, found


def exact(script, build, run, *starts):
    """Capture ``run`` of a program, and replay all of it, and from the middle on."""
    with script() as found:
        run(build())
    for start in (None, *starts):
        result = nabla_replay.replay(found[1], build=build, from_step=start, localize=True)
        assert result.status == "MATCH", result.format()
    return result


class Plateau(Plain):
    """Its schedule follows an evaluation after each epoch, which draws random numbers."""

    def __init__(self):
        super().__init__()
        self.scheduler = lr_scheduler.ReduceLROnPlateau(self.optimizer, patience=0, factor=0.5)
        self.held_out = rows(12)

    def between(self):
        self.model.eval()
        with torch.no_grad():
            total = sum(F.cross_entropy(self.model(x), y) for x, y in self.held_out)
        self.model.train()
        self.scheduler.step(1.0 if len(self.model) else total)


def test_a_schedule_and_an_evaluation_after_each_epoch(script):
    exact(script, Plateau, lambda program: train(program, 4, Plateau.between), 13)


class Gan:
    """Two models, two optimizers; whoever builds it names and orders them otherwise."""

    def __init__(self):
        torch.manual_seed(3)
        self.maker, self.judge = nn.Linear(4, 2), nn.Sequential(nn.Linear(2, 8), nn.Linear(8, 1))
        self.model = nn.ModuleDict({"judge": self.judge, "maker": self.maker})
        self.of_maker = torch.optim.Adam(self.maker.parameters(), 1e-3)
        self.of_judge = torch.optim.Adam(self.judge.parameters(), 1e-3)
        self.optimizer = [self.of_maker, self.of_judge]

    def judged(self):
        loss = self.judge(self.maker(torch.randn(8, 4)).detach()).mean()
        loss = loss - self.judge(torch.randn(8, 2) + 2).mean()
        self.of_judge.zero_grad()
        loss.backward()
        self.of_judge.step()

    def step(self, number=0):
        self.judged()
        loss = -self.judge(self.maker(torch.randn(8, 4))).mean()
        self.of_maker.zero_grad()
        loss.backward()
        self.of_maker.step()
        return loss.detach()


class Critic(Gan):
    """The judge takes three steps for each one of the maker."""

    def step(self, number=0):
        self.judged()
        self.judged()
        return super().step()


@pytest.mark.parametrize("kind", [Gan, Critic])
def test_several_models_and_optimizers(script, kind):
    exact(script, kind, lambda program: [program.step() for _ in range(20)], 13)


class Pieces(Plain):
    """Two models in a list, trained by one optimizer, over several batches per step."""

    def __init__(self):
        super().__init__()
        self.core, self.head = nn.LSTM(4, 6), nn.Linear(6, 2)
        self.model = [self.core, self.head]
        parameters = [*self.core.parameters(), *self.head.parameters()]
        self.optimizer = torch.optim.RMSprop(parameters, 1e-2)
        self.count = 0

    def step(self, batch):
        loss = F.cross_entropy(F.dropout(self.head(self.core(batch[0])[0]), 0.3), batch[1])
        loss.backward()
        self.count += 1
        if self.count % 2 == 0:
            self.optimizer.step()
            self.optimizer.zero_grad()
        return loss.detach()


def test_models_in_a_list_and_two_batches_per_step(script):
    exact(script, Pieces, train, 9)


class Taught(Plain):
    """An average of the weights teaches the model; nobody says so to the capture."""

    def __init__(self):
        super().__init__()
        self.average = AveragedModel(self.model, multi_avg_fn=get_ema_multi_avg_fn(0.9))
        self.extra = {"teacher": self.average}

    def step(self, batch):
        with torch.no_grad():
            wanted = self.average(batch[0])
        loss = F.mse_loss(self.model(batch[0]), wanted) + F.cross_entropy(
            self.model(batch[0]), batch[1]
        )
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.average.update_parameters(self.model)
        return loss.detach()


def test_an_average_of_the_weights_is_found(script):
    exact(script, Taught, train, 13)


class Zipped(Plain):
    """Two loaders side by side."""

    def __init__(self):
        super().__init__()
        first, second = rows(), rows(120, batch=12)

        class Both:
            def __iter__(self):
                return zip(first, second, strict=False)

        self.loader = Both()

    def step(self, batch):
        (x, y), (other, _) = batch
        return super().step(
            (torch.cat([x, other[:6] + 0.1 * torch.randn(6, 4)]), torch.cat([y, y]))
        )


def test_an_average_that_decides_nothing_need_not_be_given(script):
    class Watched(Plain):
        def __init__(self):
            super().__init__()
            self.average = AveragedModel(self.model)

        def step(self, batch):
            loss = super().step(batch)
            self.average.update_parameters(self.model)
            return loss

    exact(script, Watched, train, 13)


def test_an_average_that_decides_the_loss_is_missed(script):
    class Forgotten(Taught):
        def __init__(self):
            super().__init__()
            self.extra = None

    with script() as found:
        train(Taught())
    result = nabla_replay.replay(found[1], build=Forgotten, from_step=13)
    if result.status == "DIVERGENCE":
        assert "no extra AveragedModel to restore" in result.issues[0].message
    else:  # from its beginning on it is the same program
        assert "from its beginning" in result.issues[0].message


def test_two_loaders_side_by_side(script):
    exact(script, Zipped, train, 13)


def test_a_loader_that_is_made_anew_for_each_epoch(script):
    def run(program):
        for _ in range(3):
            program.loader = DataLoader(program.loader.dataset, batch_size=6, shuffle=True)
            for batch in program.loader:
                program.step(batch)

    exact(script, Plain, run, 13)


class Twice(torch.optim.Optimizer):
    """Lets another optimizer act on its groups, as those of sharpness-aware training do."""

    def __init__(self, parameters):
        super().__init__(parameters, {"lr": 0.05})
        self.base = torch.optim.SGD(self.param_groups, 0.05, momentum=0.9)

    def step(self, closure=None):
        self.base.step()


class Wrapped(Plain):
    def __init__(self):
        super().__init__()
        self.optimizer = Twice(self.model.parameters())


def test_an_optimizer_inside_another_one(script):
    exact(script, Wrapped, train, 13)


class Part(Plain):
    """No optimizer holds the first layer: its gradients add up, and nobody clears them."""

    def __init__(self):
        super().__init__()
        self.optimizer = torch.optim.SGD(self.model[3].parameters(), 0.05)


def test_gradients_that_nobody_clears(script):
    exact(script, Part, train, 13)


class Drawing(Plain):
    """Holds a generator of its own that nobody knows of."""

    def __init__(self):
        super().__init__()
        self.numbers = np.random.default_rng(5)

    def step(self, batch):
        noise = torch.tensor(self.numbers.normal(size=(len(batch[0]), 4)), dtype=torch.float32)
        return super().step((batch[0] + noise, batch[1]))


def test_state_of_its_own_is_told_apart_from_a_difference(script):
    result = exact(script, Drawing, train, 13)
    assert [issue.rule for issue in result.issues] == ["REP901"]
    assert "from its beginning" in result.issues[0].message


def test_state_of_its_own_excuses_no_other_program(script):
    with script() as found:
        train(Drawing())

    class Other(Drawing):
        def __init__(self):
            super().__init__()
            self.optimizer.param_groups[0]["momentum"] = 0.8

    result = nabla_replay.replay(found[1], build=Other)

    assert result.status == "DIVERGENCE"
    assert "state of the program's own" in result.issues[0].message


@pytest.mark.parametrize("drawn", [0, 4000])
def test_an_evaluation_in_the_middle_of_an_epoch(script, drawn):
    def run():
        program, held_out = Plain(), rows(12)
        for number, batch in enumerate(itertools.chain(*(program.loader for _ in range(3)))):
            program.step(batch)
            if number == 4:
                with torch.no_grad():
                    sum(program.model(x).sum() for x, _ in held_out)
                    torch.rand(drawn)

    result, _ = captured(script, run, build=Plain)

    if not drawn:  # how much was drawn is found out, and drawn again
        assert result.status == "MATCH", result.format()
        assert result.issues[0].step == 5
        return
    assert result.status == "UNVERIFIED"
    assert "before step 5 " in result.cautions[0] and "an evaluation" in result.cautions[0]
    assert {one.step for one in result.steps} == {*range(1, 5), *range(9, 30)}
    assert {one.status for one in result.steps} == {"MATCH"}


def test_what_a_loop_draws_between_its_steps(script):
    def run():
        program = Plain()
        for number, batch in enumerate(program.loader):
            program.step(batch)
            if number in (3, 6):
                random.random(), np.random.randint(9), torch.randint(5, (3,))

    result, _ = captured(script, run, build=Plain)
    assert result.status == "MATCH", result.format()
    assert "(torch, numpy, python)" in result.issues[0].message
    assert "in 2 steps" in result.issues[0].message


def test_another_state_put_into_the_model(script):
    def run():
        program = Plain()
        before = {name: value.clone() for name, value in program.model.state_dict().items()}
        for number, batch in enumerate(itertools.chain(*(program.loader for _ in range(2)))):
            if number == 5:
                program.model.load_state_dict(before)
            program.step(batch)

    result, _ = captured(script, run, build=Plain)

    assert result.status == "UNVERIFIED"
    assert "before step 5 " in result.cautions[0] and "load_state_dict" in result.cautions[0]
    assert {one.status for one in result.steps} == {"MATCH"}


def test_batches_that_are_kept_and_used_again(script):
    def run():
        program = Plain()
        for batch in itertools.islice(itertools.cycle(program.loader), 24):
            program.step(batch)

    result, _ = captured(script, run, build=Plain)

    assert result.status == "UNVERIFIED"
    assert "took no batch" in result.cautions[0]
    assert len(result.steps) == 9


def test_a_rate_that_is_set_outside_of_the_step_is_set_again_and_told(script):
    def run():
        program = Plain()
        for number, batch in enumerate(program.loader):
            program.optimizer.param_groups[0]["lr"] = 0.05 if number < 6 else 0.01
            program.step(batch)

    result, _ = captured(script, run, build=Plain)

    assert result.status == "MATCH", result.format()
    assert "the loop around it" in result.issues[0].message


def test_steps_of_a_new_optimizer_are_told(script):
    def run():
        program = Plain()
        train(program, 1)
        program.optimizer = torch.optim.Adam(program.model.parameters())
        train(program, 1)

    result, found = captured(script, run, build=Plain)

    assert result.status == "MATCH"
    told = [issue for issue in found[0].issues if issue.rule == "REP204"]
    assert "10 steps" in told[0].message


def test_what_python_and_numpy_draw_in_the_loop(script):
    class Mixed(Plain):
        def __init__(self):
            super().__init__()
            random.seed(2)
            np.random.seed(3)

        def step(self, batch):
            scale = random.uniform(0.9, 1.1) + 0.01 * np.random.randn()
            return super().step((batch[0] * scale, batch[1]))

    exact(script, Mixed, train, 13)


@pytest.mark.parametrize(
    ("changed", "component"),
    [
        ({"rate": 0.0501}, "optimizer"),
        ({"dropout": 0.3}, "loss"),
        ({"seed": 2}, "loss"),  # other data: the weights are restored
    ],
)
def test_another_program_is_never_taken_for_the_recorded_one(script, changed, component):
    def other():
        program = Plain(**changed)
        if "rate" in changed:  # what was restored is changed again, as a step of other code would
            program.optimizer.register_step_pre_hook(
                lambda optimizer, *_: optimizer.param_groups[0].update(lr=changed["rate"])
            )
        return program

    with script() as found:
        train(Plain())
    result = nabla_replay.replay(found[1], build=other, localize=True)

    assert result.status == "DIVERGENCE"
    assert result.divergence.step == 1
    assert result.divergence.component == component
