import pytest

pytest.importorskip("lightning", reason="lightning is not installed")

import lightning
import torch
from torch.utils.data import DataLoader, TensorDataset

import nabla


class Module(lightning.LightningModule):
    def __init__(self, case):
        super().__init__()
        self.case = case
        self.net = case.net

    def training_step(self, batch, index):
        x, y = batch
        if self.case.fault == "raises" and self.global_step == 7:
            raise RuntimeError("the user's own")
        return self.case.loss(self.net(x), y)

    def validation_step(self, batch, index):
        x, y = batch
        self.log("val_loss", self.case.loss(self.net(x), y))

    def configure_optimizers(self):
        return torch.optim.SGD(self.net.trained(), lr=self.net.rate)


@pytest.fixture
def train():
    def run(case, callback):
        data = TensorDataset(case.x, case.y)
        trainer = lightning.Trainer(
            max_epochs=5,
            accelerator="cpu",
            callbacks=[callback],
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
        )
        module = Module(case)
        torch.manual_seed(1)
        trainer.fit(
            module,
            DataLoader(data, batch_size=16, shuffle=True),
            DataLoader(data, batch_size=160),
        )
        return module

    return run


def test_the_verdict_is_that_of_the_plain_loop(case, by_hand, train, verdicts, fault, rule):
    alone = verdicts(by_hand(case(fault)))
    callback = nabla.integrations.lightning(quiet=True)
    train(case(fault), callback)

    assert rule in alone
    assert rule in verdicts(callback.report)


def test_a_healthy_training_is_silent_and_unchanged(case, train, verdicts):
    callback = nabla.integrations.lightning(quiet=True)
    watched = train(case("none"), callback)
    again = train(case("none"), lightning.pytorch.Callback())

    assert verdicts(callback.report) == set()
    assert callback.report.run.steps == 50
    pairs = zip(watched.parameters(), again.parameters(), strict=True)
    assert all(torch.equal(one, other) for one, other in pairs)


def test_an_exception_is_the_users_and_ends_the_watch(case, train):
    callback = nabla.integrations.lightning(quiet=True)

    with pytest.raises(RuntimeError, match="the user's own"):
        train(case("raises"), callback)

    assert callback.report.run.steps == 7


def test_a_validation_loss_of_another_name_is_found(case, train):
    callback = nabla.integrations.lightning(validation_loss="val_loss", quiet=True)

    train(case("none"), callback)

    assert callback.report.passed
