"""Hooks come and go without a trace, and nothing of the training changes."""

import importlib.util
import threading

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.modules import module as modules
from torch.optim import optimizer as optimizers

from nabla_core.session import Session
from nabla_guard import guard, watch_process
from nabla_guard.loop.offers import FACTS, offered
from nabla_guard.taps.instrument import INSTRUMENT, Instrument
from nabla_guard.taps.patching import Patches
from nabla_guard.taps.place import user_line


def fingerprint_of_hooks():
    return (
        torch.autograd._engine_run_backward,
        torch.optim.Optimizer.__init__,
        torch.optim.Optimizer.zero_grad,
        torch.optim.Optimizer.add_param_group,
        nn.Module.zero_grad,
        nn.Module.load_state_dict,
        torch.amp.GradScaler.scale,
        len(modules._global_forward_hooks),
        len(modules._global_forward_pre_hooks),
        len(optimizers._global_optimizer_pre_hooks),
        len(optimizers._global_optimizer_post_hooks),
    )


def test_everything_is_removed_at_the_end(loop):
    before = fingerprint_of_hooks()
    with guard(loop.model, optimizer=loop.optimizer):
        assert fingerprint_of_hooks() != before
        loop.run(3)
    assert fingerprint_of_hooks() == before
    assert not INSTRUMENT.active


def test_an_exception_passes_untouched_and_removes_everything(loop):
    before = fingerprint_of_hooks()
    error = ValueError("the user's own")
    with pytest.raises(ValueError) as caught, guard():
        loop.run(2)
        raise error
    assert caught.value is error
    assert fingerprint_of_hooks() == before


def test_nested_guards_remove_only_when_the_last_one_ends(loop):
    before = fingerprint_of_hooks()
    with guard() as outer:
        with guard(loop.model) as inner:
            loop.run(2)
        assert fingerprint_of_hooks() != before
        loop.run(2)
    assert fingerprint_of_hooks() == before
    assert (outer.steps, inner.steps) == (4, 2)


def test_a_guard_can_be_entered_again(loop):
    monitor = guard(loop.model, optimizer=loop.optimizer)
    for _ in range(3):
        with monitor:
            loop.run(2)
    assert monitor.steps == 6
    assert monitor.issues == ()


def small_mlp():
    return nn.Sequential(nn.Linear(6, 12), nn.Dropout(0.3), nn.ReLU(), nn.Linear(12, 3))


def small_cnn():
    return nn.Sequential(
        nn.Unflatten(1, (1, 6)),
        nn.Conv1d(1, 4, 3, padding=1),
        nn.BatchNorm1d(4),
        nn.GELU(),
        nn.Flatten(),
        nn.Linear(24, 3),
    )


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.GRU(1, 8, batch_first=True)
        self.head = nn.Linear(8, 3)

    def forward(self, x):
        return self.head(self.cell(x[..., None])[0][:, -1])


def trained(make, watched, steps=20):
    torch.manual_seed(7)
    model = make()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
    losses = []

    def train():
        for _ in range(steps):
            x = torch.randn(8, 6)
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), x[:, :3].argmax(-1))
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())

    if watched:
        with guard(mode="light"):
            train()
    else:
        train()
    grads = [parameter.grad for parameter in model.parameters()]
    return [*losses, *model.state_dict().values(), *grads, torch.get_rng_state()]


@pytest.mark.parametrize("make", [small_mlp, small_cnn, Recurrent])
def test_training_is_bit_identical(make):
    plain, watched = trained(make, watched=False), trained(make, watched=True)
    assert len(plain) == len(watched)
    assert all(torch.equal(a, b) for a, b in zip(plain, watched, strict=True))


def test_gradients_carry_nothing_of_ours(loop):
    with guard():
        loop.run(4)
        assert all(not vars(p.grad) for p in loop.model.parameters())


def test_no_hook_of_a_plugin_is_called_in_a_step(loop, monkeypatch):
    with guard() as monitor:
        loop.run(3)
        calls = []
        count = lambda *given, **named: calls.append(given) or []  # noqa: E731
        monkeypatch.setattr(monitor.session.host, "call", count)
        loop.run(5)
    assert calls == []


def test_a_listener_that_raises_is_dropped_and_training_goes_on(loop):
    class Broken:
        error = None

        def __getattr__(self, name):
            return lambda *given: None

        def forward_ended(self, *given):
            raise RuntimeError("broken")

        def failed(self, error):
            self.error = error

    broken = Broken()
    INSTRUMENT.attach(broken)
    try:
        loop.run(2)
    finally:
        INSTRUMENT.detach(broken)
    assert str(broken.error) == "broken"


def test_a_failing_loop_says_so_once_as_a_problem(loop):
    session = Session()
    with watch_process(session) as live:
        live.roots.called = None
        losses = loop.run(3)
    assert len(losses) == 3
    assert [problem.rule for problem in session.finish().problems] == ["NAB004"]


def test_nothing_is_told_twice_after_a_loop_failed(loop):
    before = fingerprint_of_hooks()
    with watch_process(Session()) as live:
        live.roots.called = None
        loop.run(1)
    assert fingerprint_of_hooks() == before
    assert told_in_one_step(loop) == ONE_STEP


def test_nothing_is_told_twice_after_others_replaced_what_we_had_replaced(loop, monkeypatch):
    for owner, name in REPLACED:
        monkeypatch.setattr(owner, name, getattr(owner, name))  # what is there again afterwards
    with guard(loop.model, optimizer=loop.optimizer):
        for owner, name in REPLACED:
            monkeypatch.setattr(owner, name, passing_on(getattr(owner, name)))
    assert told_in_one_step(loop) == ONE_STEP


REPLACED = (
    (torch.autograd, "_engine_run_backward"),
    (torch.optim.Optimizer, "zero_grad"),
    (nn.Module, "__call__"),
)
ONE_STEP = ["cleared", "forward", "backward starts", "backward ends", "step starts", "step ends"]


def passing_on(original):
    return lambda *args, **kwargs: original(*args, **kwargs)


class Recorder:
    """A listener that notes in which order it is told what."""

    def __init__(self):
        self.told = []
        self.gradients_cleared = lambda owner: self.told.append("cleared")
        self.forward_ended = lambda *call: self.told.append("forward")
        self.backward_started = lambda roots: self.told.append("backward starts")
        self.backward_ended = lambda roots: self.told.append("backward ends")
        self.step_started = lambda *step: self.told.append("step starts")
        self.step_ended = lambda *step: self.told.append("step ends")


def told_in_one_step(loop):
    recorder = Recorder()
    INSTRUMENT.attach(recorder)
    try:
        loop.run(1)
    finally:
        INSTRUMENT.detach(recorder)
    return recorder.told


def test_optimizers_are_found_whenever_they_were_made(make_loop):
    early = make_loop()
    with guard() as monitor:
        early.run(2)
        late = make_loop()
        late.run(2)
        names = [facts.name for facts in monitor.session.source.facts.optimizers]
    assert names.count("Adam") >= 2


def test_two_optimizers_of_one_loop_share_its_step_numbers():
    torch.manual_seed(0)
    body, head = nn.Linear(6, 8), nn.Linear(8, 3)
    pair = [torch.optim.SGD(part.parameters(), 0.1) for part in (body, head)]
    with guard() as monitor:
        for _ in range(5):
            for optimizer in pair:
                optimizer.zero_grad()
            head(body(torch.randn(4, 6))).square().mean().backward()
            for optimizer in pair:
                optimizer.step()
    assert monitor.steps == 5
    assert monitor.issues == ()


def test_an_interrupted_step_does_not_hide_the_next_ones(loop):
    class Stop(BaseException):
        pass

    def stop():
        raise Stop

    with guard() as monitor:
        with pytest.raises(Stop):
            loop.optimizer.step(stop)
        other = torch.optim.SGD(loop.model.parameters(), 0.1)
        loop.optimizer = other
        loop.run(3)
    assert monitor.steps >= 3


def test_training_in_another_thread_is_watched(loop):
    with guard() as monitor:
        worker = threading.Thread(target=loop.run)
        worker.start()
        worker.join()
    assert monitor.steps == 8


def test_a_failing_forward_warns_of_nothing_and_later_calls_are_seen(loop, recwarn):
    with guard() as monitor:
        with pytest.raises(RuntimeError):
            loop.model(torch.ones(2, 5))
        loop.run(4)
    assert monitor.issues == ()
    assert not [w for w in recwarn if "forward hook" in str(w.message)]
    assert monitor.session.source.roots._records


def test_a_subclass_that_calls_the_step_above_it_steps_once(make_loop):
    class Doubled(torch.optim.SGD):
        def step(self, closure=None):
            return super().step(closure)

    loop = make_loop()
    loop.optimizer = Doubled(loop.model.parameters(), 0.1)
    with guard() as monitor:
        loop.run(4)
    assert monitor.steps == 4


def test_a_patch_of_somebody_else_is_not_removed():
    class Owner:
        def call(self):
            return "original"

    patches = Patches()
    patches.replace(Owner, "call", lambda original: lambda self: "ours " + original(self))
    ours = Owner.call
    Owner.call = lambda self: "theirs " + ours(self)
    patches.restore()
    assert Owner().call() == "theirs ours original"


def test_patches_of_ours_may_end_in_any_order():
    class Owner:
        def call(self):
            return "original"

    original = Owner.call
    first, second, third = Patches(), Patches(), Patches()
    for patches in (first, second, third):
        patches.replace(Owner, "call", lambda known: lambda self: "+" + known(self))
    second.restore()
    first.restore()
    assert Owner().call() == "+++original"  # those underneath only pass on
    third.restore()
    assert Owner.call is original


def test_no_line_of_the_project_is_shown_as_the_users_own():
    spec = importlib.util.find_spec("nabla_guard")
    names = {}
    exec(compile("def call(work): return work()", spec.origin, "exec"), names)
    line = names["call"](user_line)
    assert (line.filename, line.function) == (
        __file__,
        "test_no_line_of_the_project_is_shown_as_the_users_own",
    )


def test_what_torch_lacks_is_not_offered():
    lost = FACTS - offered(["torch.autograd._engine_run_backward"])
    assert {"loss", "calls", "wiring"} <= lost
    assert "grad_norm" not in lost


def test_a_second_instrument_starts_inactive():
    assert not Instrument().active


def test_compiled_models_are_watched_without_graph_breaks(loop, recwarn):
    breaks = []

    def backend(graph, examples):
        breaks.append(graph)
        return graph

    loop.model = torch.compile(loop.model, backend=backend)
    with guard() as monitor:
        loop.run(4)

    assert len(breaks) == 1
    assert not [w for w in recwarn if "hooks" in str(w.message)]
    assert monitor.issues == ()
    assert monitor.steps == 4


def test_a_group_of_another_model_does_not_hide_the_optimizer(make_loop):
    mine, other = make_loop(), make_loop()
    with guard(mine.model) as monitor:
        groups = [{"params": list(part.model.parameters())} for part in (other, mine)]
        mine.optimizer = torch.optim.SGD(groups, 0.1)
        mine.run(3)
    assert monitor.steps == 3


def test_no_batch_is_kept_past_its_step(loop):
    import weakref

    with guard():
        x, y = loop.batches(1)[0]
        x = x.clone()
        loop.optimizer.zero_grad()
        loop.loss(x, y).backward()
        loop.optimizer.step()
        kept = weakref.ref(x)
        del x
        assert kept() is None


def test_a_deleted_model_is_let_go(make_loop):
    import gc
    import weakref

    with guard() as monitor:
        loop = make_loop()
        loop.run(3)
        kept = weakref.ref(loop.model[0].weight)
        del loop
        gc.collect()
        assert kept() is None
        make_loop().run(2)
        assert monitor.issues == ()


def test_tensors_without_values_are_watched_without_reading_them(issues_of):
    from torch._subclasses.fake_tensor import FakeTensorMode

    def program():
        with FakeTensorMode():
            model = nn.Linear(3, 1)
            optimizer = torch.optim.SGD(model.parameters(), 0.1)
            for _ in range(4):
                optimizer.zero_grad()
                model(torch.randn(2, 3)).sum().backward()
                optimizer.step()

    assert issues_of(program) == ()
