"""Every optimizer and scheduler of torch goes on bit for bit from its stored state."""

import inspect
import warnings

import pytest
import torch
from torch import nn
from torch.optim import lr_scheduler as schedulers
from torch.optim.swa_utils import SWALR

from nabla_replay.codec.reading import load_state
from nabla_replay.codec.writing import save_state


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.Tanh(), nn.Linear(16, 4))


def two_groups(kind):
    def make(model):
        first = {"params": [model[0].weight], "lr": 1e-3, "weight_decay": 0.0, "name": "a"}
        rest = {"params": [model[3].weight, model[3].bias], "betas": (0.8, 0.95), "amsgrad": True}
        return kind([first, rest], lr=1e-2)

    return make


def optimizers():
    special = {
        "Muon": lambda kind: lambda m: kind([p for p in m.parameters() if p.ndim == 2], lr=1e-2),
        "LBFGS": lambda kind: lambda m: kind(m.parameters(), lr=0.1, max_iter=3),
        "SGD": lambda kind: lambda m: kind(m.parameters(), lr=0.1, momentum=0.9, nesterov=True),
    }
    for name, kind in vars(torch.optim).items():
        is_one = inspect.isclass(kind) and issubclass(kind, torch.optim.Optimizer)
        if not is_one or kind is torch.optim.Optimizer or name == "SparseAdam":
            continue  # SparseAdam needs sparse gradients, which a dense network does not make
        default = lambda kind: lambda m: kind(m.parameters(), lr=1e-2)  # noqa: E731
        yield name, special.get(name, default)(kind)
        if name in ("Adam", "AdamW"):
            yield f"{name} with two groups", two_groups(kind)
            yield (
                f"{name} with a tensor as lr",
                lambda m, kind=kind: kind(m.parameters(), lr=torch.tensor(1e-3), foreach=False),
            )


class Warmup:
    def __init__(self):
        self.steps = 3

    def __call__(self, epoch):
        return min(1.0, (epoch + 1) / self.steps)


SCHEDULERS = {
    "LambdaLR": lambda o: schedulers.LambdaLR(o, lambda e: 0.9**e),
    "LambdaLR of an object": lambda o: schedulers.LambdaLR(o, Warmup()),
    "MultiplicativeLR": lambda o: schedulers.MultiplicativeLR(o, lambda e: 0.95),
    "StepLR": lambda o: schedulers.StepLR(o, 2),
    "MultiStepLR": lambda o: schedulers.MultiStepLR(o, [2, 2, 5]),
    "ConstantLR": lambda o: schedulers.ConstantLR(o),
    "LinearLR": lambda o: schedulers.LinearLR(o),
    "ExponentialLR": lambda o: schedulers.ExponentialLR(o, 0.9),
    "CosineAnnealingLR": lambda o: schedulers.CosineAnnealingLR(o, 10),
    "CosineAnnealingWarmRestarts": lambda o: schedulers.CosineAnnealingWarmRestarts(o, 4),
    "PolynomialLR": lambda o: schedulers.PolynomialLR(o),
    "CyclicLR": lambda o: schedulers.CyclicLR(o, 1e-4, 1e-2, step_size_up=3),
    "CyclicLR with a function": lambda o: schedulers.CyclicLR(
        o, 1e-4, 1e-2, step_size_up=3, scale_fn=lambda x: 0.5**x
    ),
    "OneCycleLR": lambda o: schedulers.OneCycleLR(o, 1e-2, total_steps=20),
    "ReduceLROnPlateau": lambda o: schedulers.ReduceLROnPlateau(o, patience=1),
    "SequentialLR": lambda o: schedulers.SequentialLR(
        o, [schedulers.LinearLR(o, total_iters=2), schedulers.CosineAnnealingLR(o, 10)], [2]
    ),
    "ChainedScheduler": lambda o: schedulers.ChainedScheduler(
        [schedulers.ConstantLR(o), schedulers.ExponentialLR(o, 0.9)]
    ),
    "SWALR": lambda o: SWALR(o, 1e-3, anneal_epochs=4),
}


def train(model, optimizer, scheduler, generator, steps):
    for _ in range(steps):
        batch = torch.randn(16, 8, generator=generator)

        def closure(batch=batch):
            optimizer.zero_grad()
            loss = model(batch).square().mean()
            loss.backward()
            return loss

        loss = optimizer.step(closure)
        if isinstance(scheduler, schedulers.ReduceLROnPlateau):
            scheduler.step(loss.detach())
        elif scheduler is not None:
            scheduler.step()


def goes_on_the_same(make_optimizer, make_scheduler, path):
    """Train, store, train on; restore in a new program, train on; compare."""
    model = network()
    optimizer = make_optimizer(model)
    scheduler = make_scheduler(optimizer) if make_scheduler else None
    generator = torch.Generator().manual_seed(1)
    train(model, optimizer, scheduler, generator, 6)
    save_state(
        path,
        {
            "model": model.state_dict(),
            "optimizer": optimizer.state_dict(),
            "scheduler": scheduler.state_dict() if scheduler else None,
            "generator": generator.get_state(),
        },
    )
    train(model, optimizer, scheduler, generator, 5)

    stored = load_state(path)
    again = network()
    other = make_optimizer(again)
    planner = make_scheduler(other) if make_scheduler else None
    again.load_state_dict(stored["model"])
    other.load_state_dict(stored["optimizer"])
    if planner is not None:
        planner.load_state_dict(stored["scheduler"])
    restored = torch.Generator()
    restored.set_state(stored["generator"])
    train(again, other, planner, restored, 5)
    rates = [group["lr"] for group in optimizer.param_groups]
    return rates == [group["lr"] for group in other.param_groups] and all(
        torch.equal(one, two)
        for one, two in zip(model.state_dict().values(), again.state_dict().values(), strict=True)
    )


GOES_ON = "optimizers and schedulers go on bit by bit"


@pytest.mark.parametrize(("name", "make"), list(optimizers()))
def test_an_optimizer_goes_on_bit_for_bit(name, make, tmp_path, reached):
    same = goes_on_the_same(make, None, tmp_path / "state.safetensors")
    reached(GOES_ON, same)
    assert same, name


@pytest.mark.parametrize("name", SCHEDULERS)
def test_a_scheduler_goes_on_bit_for_bit(name, tmp_path, reached):
    def make(model):
        return torch.optim.SGD(model.parameters(), lr=1e-2, momentum=0.9)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        same = goes_on_the_same(make, SCHEDULERS[name], tmp_path / "state.safetensors")
    reached(GOES_ON, same)
    assert same


def test_a_loss_scaler_comes_back(tmp_path):
    state = torch.amp.GradScaler("cpu").state_dict()
    save_state(tmp_path / "x", state)

    assert load_state(tmp_path / "x") == state
