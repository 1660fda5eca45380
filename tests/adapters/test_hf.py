import pytest

pytest.importorskip("transformers", reason="transformers is not installed")
pytest.importorskip("accelerate", reason="accelerate is not installed")

import torch
from torch import nn
from transformers import Trainer, TrainingArguments

import nabla
from nabla_guard.taps.instrument import INSTRUMENT


class WithLoss(nn.Module):
    """What the Trainer expects: a dictionary with the loss."""

    def __init__(self, case):
        super().__init__()
        self.case = case
        self.net = case.net

    def forward(self, x, labels):
        out = self.net(x)
        return {"loss": self.case.loss(out, labels), "logits": out}


@pytest.fixture
def train(tmp_path):
    def run(case, epochs=5, callback=None, **changes):
        rows = [{"x": x, "labels": y} for x, y in zip(case.x, case.y, strict=True)]
        model = WithLoss(case)
        optimizer = torch.optim.SGD(case.net.trained(), lr=case.net.rate)
        callback = callback or nabla.integrations.hf(quiet=True)
        settings = {
            "output_dir": str(tmp_path),
            "per_device_train_batch_size": 16,
            "num_train_epochs": epochs,
            "lr_scheduler_type": "constant",
            "max_grad_norm": 0.0,
            "report_to": [],
            "save_strategy": "no",
            "eval_strategy": "epoch",
            "disable_tqdm": True,
            "use_cpu": True,
            **changes,
        }
        trainer = Trainer(
            model=model,
            args=TrainingArguments(**settings),
            train_dataset=rows,
            eval_dataset=rows[:32],
            optimizers=(optimizer, None),
            callbacks=[callback],
        )
        trainer.train()
        return callback, trainer

    return run


def test_the_verdict_is_that_of_the_plain_loop(case, by_hand, train, verdicts, fault, rule):
    alone = verdicts(by_hand(case(fault)))
    callback, _ = train(case(fault))

    assert rule in alone
    assert rule in verdicts(callback.report)


def test_a_healthy_training_is_silent_and_unchanged(case, train, verdicts):
    callback, watched = train(case("none"))
    _, again = train(case("none"))

    assert verdicts(callback.report) == set()
    assert callback.report.run.steps == 50
    pairs = zip(watched.model.parameters(), again.model.parameters(), strict=True)
    assert all(torch.equal(one, other) for one, other in pairs)


def test_a_resumed_training_is_watched_from_there_on(case, train, tmp_path):
    _, trainer = train(case("none"), epochs=1, save_strategy="epoch")
    callback = nabla.integrations.hf(quiet=True)
    trainer.add_callback(callback)
    trainer.args.num_train_epochs = 3

    trainer.train(resume_from_checkpoint=True)

    assert callback.report.run.steps == 20
    assert callback.report.passed


@pytest.mark.parametrize(
    ("optim", "lost", "rules"),
    [
        ("adamw_torch", None, set()),
        ("adamw_torch", "optimizer.pt", {"AUD601"}),
        ("adamw_torch", "scheduler.pt", {"AUD601"}),
        ("sgd", "optimizer.pt", set()),
    ],
)
def test_a_resume_without_the_state_of_the_optimizer_is_told(
    case, tmp_path, verdicts, optim, lost, rules
):
    data = case("none")
    rows = [{"x": x, "labels": y} for x, y in zip(data.x, data.y, strict=True)]
    settings = TrainingArguments(
        output_dir=str(tmp_path),
        per_device_train_batch_size=16,
        num_train_epochs=1,
        save_strategy="epoch",
        optim=optim,
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
    )
    Trainer(WithLoss(data), settings, train_dataset=rows).train()
    (folder,) = tmp_path.glob("checkpoint-*")
    if lost:
        (folder / lost).unlink()
    settings.num_train_epochs = 2
    callback = nabla.integrations.hf(quiet=True)
    trainer = Trainer(WithLoss(data), settings, train_dataset=rows, callbacks=[callback])

    trainer.train(resume_from_checkpoint=str(folder))

    assert verdicts(callback.report) == rules
    found = [issue for issue in callback.report.issues if issue.rule == "AUD601"]
    assert all("goes on at step 10" in one.message and "0 of 4" in one.message for one in found)


def test_the_training_that_is_watched_can_be_asked(case):
    callback = nabla.integrations.hf(quiet=True)

    assert callback.issues == ()
    assert callback.report is None


@pytest.mark.parametrize("error", [RuntimeError("the disk is full"), KeyboardInterrupt()])
def test_an_exception_is_the_users_and_ends_the_watch(case, train, error):
    data, callback = case("none"), nabla.integrations.hf(quiet=True)
    loss = data.loss

    def raises(out, y):
        if data.net.calls == 20:
            raise error
        return loss(out, y)

    data.loss = raises

    with pytest.raises(type(error)) as found:
        train(data, callback=callback)

    assert found.value is error
    assert callback.report.run.steps == 19
    assert not INSTRUMENT.active


def test_one_callback_watches_one_training_after_another(case, train):
    callback, trainer = train(case("none"), epochs=1)
    first = callback.report

    trainer.train()
    trainer.evaluate()
    trainer.predict(trainer.eval_dataset)

    assert callback.report is not first
    assert callback.report.run.steps == first.run.steps == 10
