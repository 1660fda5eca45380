"""Programs of many kinds under the callback of Lightning: precision, manual steps, closures."""

import pytest

pytest.importorskip("lightning", reason="lightning is not installed")

import lightning
import torch
from lightning.pytorch.callbacks import StochasticWeightAveraging
from lightning.pytorch.plugins import MixedPrecision
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

import nabla


class Classifier(lightning.LightningModule):
    def __init__(self, optimizer=torch.optim.AdamW, rate=1e-2, **options):
        super().__init__()
        torch.manual_seed(0)
        self.base = nn.Sequential(nn.Linear(8, 8), nn.Tanh())
        self.net = nn.Sequential(nn.Linear(8, 32), nn.LayerNorm(32), nn.ReLU(), nn.Linear(32, 3))
        self.made = lambda: optimizer(self.parameters(), rate, **options)

    def training_step(self, batch, index):
        return F.cross_entropy(self.net(self.base(batch[0])), batch[1])

    def validation_step(self, batch, index):
        self.log("val_loss", F.cross_entropy(self.net(self.base(batch[0])), batch[1]))

    def configure_optimizers(self):
        return self.made()


class Scheduled(Classifier):
    def configure_optimizers(self):
        optimizer = self.made()
        rates = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=60)
        return [optimizer], [{"scheduler": rates, "interval": "step"}]


class Frozen(Classifier):
    def __init__(self):
        super().__init__()
        self.base.requires_grad_(False)


class Manual(Classifier):
    clears = True

    def __init__(self):
        super().__init__()
        self.automatic_optimization = False

    def training_step(self, batch, index):
        optimizer = self.optimizers()
        if self.clears:
            optimizer.zero_grad()
        self.manual_backward(super().training_step(batch, index))
        optimizer.step()


class NeverCleared(Manual):
    clears = False


@pytest.fixture
def fit(case):
    def run(module, callback, **options):
        data = case("none")
        loader = DataLoader(TensorDataset(data.x, data.y), batch_size=16, shuffle=True)
        trainer = lightning.Trainer(
            **{"max_epochs": 4, **options},
            accelerator="cpu",
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
        )
        trainer.callbacks.append(callback)
        torch.manual_seed(1)
        trainer.fit(module, loader)
        return module

    return run


def scaled():
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**20)
    return {"plugins": [MixedPrecision("16-mixed", "cpu", scaler)]}


PROGRAMS = {
    "scheduled": (Scheduled, dict),
    "bfloat16": (Classifier, lambda: {"precision": "bf16-true"}),
    "autocast": (Classifier, lambda: {"precision": "bf16-mixed"}),
    "scaled": (Classifier, scaled),
    "accumulated": (Classifier, lambda: {"accumulate_grad_batches": 2, "gradient_clip_val": 0.5}),
    "averaged": (
        Classifier,
        lambda: {"callbacks": [StochasticWeightAveraging(1e-2, swa_epoch_start=2)]},
    ),
    "frozen": (Frozen, dict),
    "manual": (Manual, dict),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_healthy_program_is_silent(name, fit, verdicts):
    module, options = PROGRAMS[name]
    callback = nabla.integrations.lightning(quiet=True)

    fit(module(), callback, **options())

    assert verdicts(callback.report) == set()
    assert callback.report.run.steps >= 16
    assert callback.report.problems == ()


def test_gradients_that_add_up_in_a_manual_loop_are_found(fit, verdicts):
    callback = nabla.integrations.lightning(quiet=True)

    fit(NeverCleared(), callback)

    assert "AUD102" in verdicts(callback.report)


OPTIMIZERS = [
    torch.optim.SGD,
    torch.optim.AdamW,
    torch.optim.RMSprop,
    torch.optim.Adagrad,
    torch.optim.NAdam,
    torch.optim.Rprop,
]


@pytest.mark.parametrize("optimizer", OPTIMIZERS, ids=lambda kind: kind.__name__)
def test_a_closure_before_the_step_gives_the_same_numbers(optimizer, fit):
    watched = fit(Classifier(optimizer), nabla.integrations.lightning(quiet=True), max_epochs=2)
    alone = fit(Classifier(optimizer), lightning.pytorch.Callback(), max_epochs=2)

    pairs = zip(watched.parameters(), alone.parameters(), strict=True)
    assert all(torch.equal(one, other) for one, other in pairs)


def test_the_optimizer_gets_its_own_step_back(fit):
    trained = fit(Classifier(), nabla.integrations.lightning(quiet=True), max_epochs=1)

    assert "step" not in vars(trained.optimizers().optimizer)


def test_steps_that_need_their_closure_are_left_alone():
    from nabla_lightning.stepping import ClosuresFirst

    weight = nn.Parameter(torch.ones(3))

    class Elsewhere(torch.optim.SGD):
        """Of the user's own making."""

    hooked = torch.optim.SGD([weight], 0.1)
    hooked.register_step_pre_hook(lambda *given: None)
    left_alone = [torch.optim.LBFGS([weight]), Elsewhere([weight], 0.1), hooked]

    closures = ClosuresFirst([*left_alone, torch.optim.SGD([weight], 0.1)])

    assert all("step" not in vars(optimizer) for optimizer in left_alone)
    closures.release()


def test_a_wrapper_that_was_put_over_ours_goes_on_working():
    from nabla_lightning.stepping import ClosuresFirst

    weight = nn.Parameter(torch.ones(3))
    optimizer = torch.optim.SGD([weight], 0.1)
    closures = ClosuresFirst([optimizer])
    rates = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
    closures.release()

    def closure():
        optimizer.zero_grad()
        loss = weight.sum()
        loss.backward()
        return loss

    assert optimizer.step(closure) == 3.0
    rates.step()
    assert torch.allclose(weight.detach(), torch.full((3,), 0.9))
