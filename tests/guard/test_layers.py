"""Ranges of leaf modules in standard mode: right numbers, and nothing else is touched."""

import copy
import dataclasses
import gc
import io
import math
import pickle
import threading

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from nabla_guard import guard
from nabla_guard.layers.joining import ARRAYS
from nabla_guard.taps.instrument import INSTRUMENT


@pytest.fixture
def records(monkeypatch):
    """Train under a guard and return the step records with their layers."""
    monkeypatch.setenv("NABLA_SELECT", "NUM101")

    def run(program, **options):
        found = []
        with guard(**options) as monitor:
            monitor._loop.wanted |= {"layers"}
            monitor.session.step = found.append
            program()
        run.monitor = monitor
        return found

    return run


def range_of(record, layer, kind="out"):
    index = record.layout.index(layer)
    return record.layers[f"{kind}_min"][index], record.layers[f"{kind}_max"][index]


def limits(*tensors):
    return (
        min(float(tensor.detach().min()) for tensor in tensors),
        max(float(tensor.detach().max()) for tensor in tensors),
    )


class Train:
    """One or more steps of a model on random inputs, with all leaf outputs kept."""

    def __init__(self, model, size=6, optimizer=torch.optim.SGD):
        self.model = model
        self.x = torch.randn(4, size)
        self.optimizer = optimizer(model.parameters(), lr=1e-9)
        self.outputs = []

    def loss(self, x):
        out = self.model(x)
        out = out[0] if isinstance(out, (tuple, list)) else out
        return out.float().pow(2).mean()

    def step(self, batches=1):
        self.optimizer.zero_grad()
        for _ in range(batches):
            self.loss(torch.randn_like(self.x)).backward()
        self.optimizer.step()


def keep_outputs(model):
    """Keep each leaf output and its gradient by hooks of our own."""
    kept = {}
    for name, part in model.named_modules():
        if not list(part.children()):

            def hook(_, __, output, name=name):
                if INSTRUMENT.replaying:
                    return  # the step is executed once more for a verdict
                if output.requires_grad:
                    output.retain_grad()
                kept.setdefault(name, []).append(output)

            part.register_forward_hook(hook)
    return kept


def mlp():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))


def test_ranges_are_those_of_every_leaf_output_and_its_gradient(records):
    model = mlp()
    kept = keep_outputs(model)
    (record,) = records(Train(model).step)
    assert record.layout == ("0", "1", "2")
    assert set(record.layers) == set(ARRAYS)
    for name, (output,) in kept.items():
        assert range_of(record, name) == limits(output)
        assert range_of(record, name, "grad_out") == limits(output.grad)


@pytest.mark.parametrize("batches", [2, 5])
def test_micro_batches_and_repeated_calls_are_joined(records, batches):
    model = mlp()
    kept = keep_outputs(model)
    (record,) = records(lambda: Train(model).step(batches))
    assert range_of(record, "1") == limits(*kept["1"])
    assert range_of(record, "1", "grad_out") == limits(*[output.grad for output in kept["1"]])


def test_more_calls_than_slots_are_folded(records, monkeypatch):
    monkeypatch.setattr("nabla_guard.layers.bank._MOST", 8)
    monkeypatch.setattr("nabla_guard.layers.bank._FIRST", 4)
    model = nn.Sequential(nn.Linear(6, 6))
    kept = keep_outputs(model)
    (record,) = records(lambda: Train(model).step(batches=20))
    assert len(kept["0"]) == 20
    assert range_of(record, "0") == limits(*kept["0"])
    assert range_of(record, "0", "grad_out") == limits(*[output.grad for output in kept["0"]])


def test_a_bank_grows_with_the_model(records):
    model = nn.Sequential(*[nn.Linear(6, 6) for _ in range(90)])
    kept = keep_outputs(model)
    (record,) = records(Train(model).step)
    assert len(record.layout) == 90
    assert [range_of(record, str(i)) for i in range(90)] == [
        limits(*kept[str(i)]) for i in range(90)
    ]


def test_ranges_of_a_step_do_not_reach_into_the_next(records):
    train = Train(nn.Sequential(nn.Linear(6, 6)))

    def program():
        train.optimizer.zero_grad()
        train.loss(1e6 * train.x).backward()
        train.optimizer.step()
        train.step()

    first, second = records(program)
    assert range_of(first, "0")[1] > 1e4 > range_of(second, "0")[1]


def test_what_was_not_measured_has_the_empty_range(records):
    model = mlp()
    model[0].requires_grad_(False)
    (record,) = records(Train(model).step)
    assert range_of(record, "0", "grad_out") == (math.inf, -math.inf)
    assert range_of(record, "1")[0] < range_of(record, "1")[1]


def test_evaluation_between_steps_is_not_part_of_a_step(records):
    train = Train(nn.Sequential(nn.Linear(6, 6)))

    def program():
        train.step()
        with torch.no_grad():
            train.model(1e6 * train.x)
        train.step()

    assert all(range_of(record, "0")[1] < 1e3 for record in records(program))


def test_a_skipped_step_leaves_nothing_behind(records):
    train = Train(nn.Sequential(nn.Linear(6, 6)))

    def program():
        train.loss(1e6 * train.x).backward()  # a scaler would not call step after this
        train.step()

    (record,) = records(program)
    assert range_of(record, "0")[1] < 1e3


def test_gradients_cleared_between_forward_and_backward_lose_nothing(records):
    train = Train(nn.Sequential(nn.Linear(6, 6)))

    def program():
        train.step()
        loss = train.loss(1e6 * train.x)
        train.optimizer.zero_grad()
        loss.backward()
        train.optimizer.step()

    assert range_of(records(program)[1], "0")[1] > 1e4


class Checkpointed(nn.Module):
    def __init__(self, reentrant):
        super().__init__()
        self.first, self.second = nn.Linear(6, 6), nn.Linear(6, 6)
        self.reentrant = reentrant
        self.calls = 0

    def forward(self, x):
        x = self.first(x)
        return checkpoint(self.part, x, use_reentrant=self.reentrant)

    def part(self, x):
        self.calls += 1
        return self.second(x) * (1.0 if self.calls % 2 else 1e6)


@pytest.mark.parametrize("reentrant", [False, True])
def test_recomputation_is_not_counted_and_its_gradients_are(records, reentrant):
    train = Train(Checkpointed(reentrant))
    (record,) = records(train.step)
    assert train.model.calls == 2
    assert range_of(record, "second")[1] < 1e3
    low, high = range_of(record, "second", "grad_out")
    assert low < high


def test_recurrent_modules_and_tuples_are_seen(records):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.cell, self.head = nn.LSTM(6, 5, batch_first=True), nn.Linear(5, 2)

        def forward(self, x):
            return self.head(self.cell(x[:, None].expand(-1, 3, -1))[0])

    (record,) = records(Train(Net()).step)
    assert -1.0 <= range_of(record, "cell")[0] < range_of(record, "cell")[1] <= 1.0
    assert range_of(record, "cell", "grad_out")[0] < range_of(record, "cell", "grad_out")[1]


@dataclasses.dataclass
class Output:
    logits: torch.Tensor
    extra: dict


def test_dataclasses_and_dicts_are_looked_into(records):
    class Leaf(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(6))

        def forward(self, x):
            return Output(x * self.weight, {"far": x * 50 * self.weight})

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.leaf = Leaf()

        def forward(self, x):
            return self.leaf(x).logits

    (record,) = records(Train(Net()).step)
    assert range_of(record, "leaf")[1] > 20


def test_tied_modules_share_one_layer(records):
    torch.manual_seed(0)
    shared = nn.Linear(6, 6)
    model = nn.Sequential(shared, nn.Tanh(), shared)
    kept = keep_outputs(model)
    (record,) = records(Train(model).step)
    assert record.layout == ("0", "1")
    assert range_of(record, "0") == limits(*kept["0"])


def test_an_output_that_is_changed_in_place_later_is_measured_before(records):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.leaf = nn.Linear(6, 6)

        def forward(self, x):
            return self.leaf(x).mul_(1e6).relu_()

    (record,) = records(Train(Net()).step)
    assert range_of(record, "leaf")[1] < 1e3
    assert range_of(record, "leaf", "grad_out")[1] > 1e3


def test_views_as_outputs_are_measured(records):
    (record,) = records(
        Train(nn.Sequential(nn.Linear(6, 6), nn.Unflatten(1, (2, 3)), nn.Flatten())).step
    )
    assert range_of(record, "0") == range_of(record, "1") == range_of(record, "2")


class Special(nn.Module):
    def __init__(self, make):
        super().__init__()
        self.make = make
        self.weight = nn.Parameter(torch.ones(6))

    def forward(self, x):
        return x * self.weight, self.make(x)


class Around(nn.Module):
    def __init__(self, make):
        super().__init__()
        self.leaf = Special(make)

    def forward(self, x):
        return self.leaf(x)[0]


SPECIAL = {
    "complex64": lambda x: torch.complex(x, x),
    "float8_e4m3fn": lambda x: x.detach().to(torch.float8_e4m3fn),
    "quint8": lambda x: torch.quantize_per_tensor(x.detach(), 0.1, 0, torch.quint8),
    "sparse": lambda x: x.detach().to_sparse(),
}


@pytest.mark.parametrize("kind", SPECIAL)
def test_outputs_without_a_range_are_said_once_and_the_rest_goes_on(records, kind):
    train = Train(Around(SPECIAL[kind]))
    found = records(lambda: [train.step() for _ in range(3)])
    assert len(found) == 3
    remarks = [
        entry.reason
        for entry in records.monitor.session.undecided.values()
        for entry in [type("Entry", (), {"reason": entry})]
        if "leaf" in entry.reason
    ]
    assert len(remarks) == 1
    assert kind in remarks[0]
    assert remarks[0].count("leaf") == 1


@pytest.mark.parametrize("make", [lambda x: x.long(), lambda x: x > 0, lambda x: x[:0]])
def test_integers_and_empty_tensors_are_nothing_to_speak_of(records, make):
    train = Train(Around(make))
    found = records(lambda: [train.step() for _ in range(2)])
    assert range_of(found[1], "leaf")[0] < range_of(found[1], "leaf")[1]
    assert not records.monitor.session.undecided.get("NUM101")


def test_only_chosen_modules_are_looked_at(records):
    (record,) = records(Train(mlp()).step, modules=["Linear"], exclude=["2"])
    assert record.layout == ("0",)


def test_a_model_that_is_saved_copied_or_pickled_inside_the_block_is_clean():
    train = Train(mlp())
    with guard():
        train.step()
        stream = io.BytesIO()
        torch.save(train.model, stream)
        twin = copy.deepcopy(train.model)
        text = pickle.dumps(train.model)
        out = train.model(train.x)
        assert out._backward_hooks is None
        torch.save(out, io.BytesIO())
    assert b"nabla" not in stream.getvalue()
    assert b"nabla" not in text
    for part in (*twin.modules(), *train.model.modules()):
        assert not part._forward_hooks
        assert not part._forward_pre_hooks
        assert not part._backward_hooks
        assert "forward" not in vars(part)
    twin(train.x).sum().backward()


def test_a_graph_that_outlives_the_block_is_left_alone():
    train = Train(mlp())
    with guard():
        train.step()
        loss = train.loss(train.x)
    loss.backward()
    assert all(parameter.grad is not None for parameter in train.model.parameters())


def test_modules_may_be_replaced_and_rebuilt_inside_the_block(records):
    def program():
        train = Train(mlp())
        train.step()
        train.model[1] = nn.ReLU()
        train.step()
        del train.model[1]
        train = Train(mlp())
        train.step()

    found = records(program)
    assert found[-1].layout == ("0", "1", "2")
    assert range_of(found[1], "1")[0] == 0.0


def test_modules_that_are_made_in_every_call_share_a_layer(records):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.leaf = nn.Linear(6, 6)

        def forward(self, x):
            return nn.Softmax(-1)(self.leaf(x))

    train = Train(Net())
    found = records(lambda: [(train.step(), nn.MSELoss()(train.x, train.x)) for _ in range(30)])
    assert found[-1].layout == ("leaf", "Softmax", "MSELoss")


def test_two_models_with_the_same_paths_are_told_apart(records):
    one, two = Train(mlp()), Train(nn.Sequential(nn.Linear(6, 6)))
    found = records(lambda: (one.step(), two.step()))
    assert found[1].layout == ("0", "1", "2", "Sequential.0")


def test_hooks_of_the_program_run_and_raise_as_without(records):
    train = Train(mlp())
    seen = []
    train.model[1].register_forward_hook(lambda *_: seen.append("forward"))
    train.model[1].register_full_backward_hook(lambda *_: seen.append("backward"))
    records(train.step)
    assert seen == ["forward", "backward"]

    def fail(*_):
        raise KeyError("mine")

    train.model[2].register_forward_hook(fail)
    with pytest.raises(KeyError, match="mine"), guard():
        train.step()
    assert train.model[1](train.x).requires_grad is False or True


def test_threads_are_kept_apart(records):
    far = Train(nn.Sequential(nn.Linear(6, 6)))
    near = Train(nn.Sequential(nn.Linear(6, 6)))

    def program():
        far.loss(1e6 * far.x).backward()
        thread = threading.Thread(target=near.step)
        thread.start()
        thread.join()
        far.optimizer.step()

    found = records(program)
    highest = [max(record.layers["out_max"]) for record in found]
    assert highest[0] < 1e3 < highest[1]


def test_closures_are_seen_whole(records):
    train = Train(nn.Sequential(nn.Linear(6, 6)), optimizer=torch.optim.LBFGS)

    def closure():
        train.optimizer.zero_grad()
        loss = train.loss(train.x)
        loss.backward()
        return loss

    (record,) = records(lambda: train.optimizer.step(closure))
    assert range_of(record, "0")[0] < range_of(record, "0")[1]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_outputs_are_measured_in_their_own_dtype(records, dtype):
    train = Train(mlp())

    def program():
        with torch.autocast("cpu", dtype):
            loss = train.loss(train.x)
        loss.backward()
        train.optimizer.step()

    (record,) = records(program)
    low, high = range_of(record, "0")
    assert low == float(torch.tensor(low, dtype=dtype))
    assert range_of(record, "0", "grad_out")[0] < range_of(record, "0", "grad_out")[1]


def test_vmap_inside_a_model_is_no_trouble(records):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.leaf, self.head = nn.Linear(6, 6), nn.Linear(6, 2)

        def forward(self, x):
            return self.head(torch.vmap(self.leaf)(x))

    train = Train(Net())
    found = records(lambda: [train.step() for _ in range(2)])
    assert range_of(found[1], "head")[0] < range_of(found[1], "head")[1]


def test_a_function_mode_of_the_program_sees_only_its_own_calls():
    from torch.overrides import TorchFunctionMode

    class Log(TorchFunctionMode):
        def __init__(self):
            super().__init__()
            self.names = []

        def __torch_function__(self, func, types, args=(), kwargs=None):
            self.names.append(getattr(func, "__name__", str(func)))
            return func(*args, **(kwargs or {}))

    def names(watched):
        train, log = Train(mlp()), Log()
        if watched:
            with guard(mode="standard"), log:
                train.model(train.x)
        else:
            with log:
                train.model(train.x)
        return log.names

    assert not {"aminmax", "empty", "copy_", "unbind"} & set(names(True))
    assert [name for name in names(True) if name in names(False)] == names(False)


def test_nothing_grows_over_many_steps():
    train = Train(mlp())
    with guard() as monitor:
        for _ in range(120):
            train.step()
        before = count_objects()
        for _ in range(320):
            train.step()
        assert count_objects() - before < 100
        assert len(monitor._loop.layers.layout) == 3


def count_objects():
    gc.collect()
    return len(gc.get_objects())


def test_compiled_leaf_modules_add_no_graph_breaks():
    torch.manual_seed(0)
    model = mlp()
    torch._dynamo.reset()
    plain = torch._dynamo.explain(model)(torch.randn(4, 6)).graph_break_count
    torch._dynamo.reset()
    with guard(mode="standard"):
        watched = torch._dynamo.explain(model)(torch.randn(4, 6)).graph_break_count
    torch._dynamo.reset()
    assert plain == watched == 0


def test_a_compiled_model_trains_and_what_is_not_seen_is_said():
    torch.manual_seed(0)
    model = mlp()
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with guard(mode="standard") as monitor:
        for _ in range(3):
            optimizer.zero_grad()
            compiled(torch.randn(4, 6)).sum().backward()
            optimizer.step()
    torch._dynamo.reset()
    assert "compiled Sequential" in monitor.session.undecided["NUM101"]


# ---------------------------------------------------------------------- swallowed infinities
class Square(nn.Module):
    def forward(self, x):
        return x * x


class HandNorm(nn.Module):
    def __init__(self, divide):
        super().__init__()
        self.scale, self.square, self.divide = 1.0, Square(), divide
        self.first, self.last = nn.Linear(6, 6), nn.Linear(6, 3)

    def forward(self, x):
        x = self.first(x) * self.scale
        return self.last(self.divide(x, self.square(x).mean(-1, keepdim=True)))


DIVIDE = {
    "rsqrt": lambda x, square: x * torch.rsqrt(square),
    "div": lambda x, square: x / square.sqrt(),
}


def train_norm(divide, bad_from, steps=8):
    torch.manual_seed(0)
    train = Train(HandNorm(divide))

    def program():
        for step in range(steps):
            train.model.scale = 1e25 if step >= bad_from else 1.0
            train.step()

    return program


@pytest.mark.parametrize("divide", DIVIDE)
def test_an_overflow_that_became_a_wrong_zero_is_found(issues_of, divide):
    issues = issues_of(train_norm(DIVIDE[divide], bad_from=4))
    (issue,) = [issue for issue in issues if issue.rule == "NUM101"]
    assert (issue.step, issue.where.module, issue.where.op) == (4, "square", "mul")
    assert issue.evidence["swallowed_by"] == divide


def test_the_same_run_without_overflow_is_clean(issues_of):
    issues = issues_of(train_norm(DIVIDE["rsqrt"], bad_from=99))
    assert not [issue for issue in issues if issue.rule.startswith("NUM")]


HEALTHY = {
    "far kernel": lambda x, square: x * torch.exp(-square),
    "selected": lambda x, square: x * torch.rsqrt(torch.clamp(square, max=1.0)),
    "replaced": lambda x, square: x * torch.nan_to_num(square, posinf=1.0),
}


@pytest.mark.parametrize("kind", HEALTHY)
def test_an_infinity_that_does_no_harm_is_no_fault(issues_of, kind):
    issues = issues_of(train_norm(HEALTHY[kind], bad_from=3))
    assert not [issue for issue in issues if issue.rule == "NUM101"]


def test_masks_of_minus_infinity_are_no_fault(issues_of):
    class Mask(nn.Module):
        def forward(self, x):
            return x.masked_fill(torch.ones_like(x).triu(1) > 0, -math.inf)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.mask = nn.Linear(6, 6), Mask()

        def forward(self, x):
            return self.mask(self.first(x)).softmax(-1)

    train = Train(Net())
    with guard() as monitor:
        for _ in range(4):
            train.step()
    assert not [issue for issue in monitor.issues if issue.rule.startswith("NUM")]


def test_a_swallowed_overflow_does_not_stop_the_run():
    with guard(on_nonfinite="stop") as monitor:
        train_norm(DIVIDE["rsqrt"], bad_from=4)()
    assert [issue.rule for issue in monitor.issues if issue.rule.startswith("NUM")] == ["NUM101"]


def test_the_loss_of_a_classifier_counts_as_a_layer_of_its_own(records):
    train = Train(mlp())
    criterion = nn.CrossEntropyLoss()

    def program():
        criterion(train.model(train.x), torch.zeros(4, dtype=torch.long)).backward()
        train.optimizer.step()

    (record,) = records(program)
    assert record.layout[-1] == "CrossEntropyLoss"
    assert F.cross_entropy(train.model(train.x), torch.zeros(4, dtype=torch.long)) > 0
