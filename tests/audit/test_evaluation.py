"""AUD302 and AUD307 in real programs."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from nabla_audit.evaluation import judge_evaluation
from nabla_guard.facts import ModuleFacts, OptimizerFacts, ParameterFacts
from nabla_guard.families.evaluations import EvaluationFacts


def found(issues):
    return sorted({issue.rule for issue in issues if issue.severity.label != "info"})


def regularised():
    return nn.Sequential(
        nn.Linear(6, 24), nn.BatchNorm1d(24), nn.Dropout(0.3), nn.ReLU(), nn.Linear(24, 3)
    )


class Trainer:
    def __init__(self, model, validate_with_eval=False):
        self.model, self.with_eval = model, validate_with_eval
        self.optimizer = torch.optim.Adam(model.parameters(), 1e-2)

    def epoch(self, steps=4):
        self.model.train()
        for _ in range(steps):
            x = torch.randn(16, 6)
            self.optimizer.zero_grad()
            F.cross_entropy(self.model(x), x[:, :3].argmax(-1)).backward()
            self.optimizer.step()

    @torch.no_grad()
    def validate(self, batches=3):
        if self.with_eval:
            self.model.eval()
        return [self.model(torch.randn(16, 6)) for _ in range(batches)]


def test_a_validation_in_training_mode(audited):
    def program():
        trainer = Trainer(regularised())
        for _ in range(2):
            trainer.epoch()
            trainer.validate()

    issues = audited(program)
    assert found(issues) == ["AUD302"]
    assert issues[0].severity.label == "medium"
    assert issues[0].evidence["batches"].value == 3


def test_a_validation_after_the_last_step(audited):
    def program():
        trainer = Trainer(regularised())
        trainer.epoch()
        with torch.inference_mode():
            for _ in range(4):
                trainer.model(torch.randn(8, 6))

    assert found(audited(program)) == ["AUD302"]


def test_evaluations_that_are_lawful(audited):
    def with_eval():
        trainer = Trainer(regularised(), validate_with_eval=True)
        for _ in range(2):
            trainer.epoch()
            trainer.validate()

    def without_mode():
        trainer = Trainer(nn.Linear(6, 3))
        trainer.epoch()
        trainer.validate()

    def one_batch():
        trainer = Trainer(regularised())
        trainer.epoch()
        trainer.validate(batches=1)

    def pseudo_labels():
        model = regularised()
        optimizer = torch.optim.Adam(model.parameters())
        for _ in range(6):
            x = torch.randn(16, 6)
            with torch.no_grad():
                guess = model(x).softmax(1) + model(x + 0.1).softmax(1)
            optimizer.zero_grad()
            F.mse_loss(model(x).softmax(1), guess / 2).backward()
            optimizer.step()

    def averaged_statistics():
        trainer = Trainer(regularised())
        trainer.epoch()
        average = torch.optim.swa_utils.AveragedModel(trainer.model)
        torch.optim.swa_utils.update_bn([torch.randn(16, 6) for _ in range(3)], average)

    for program in (with_eval, without_mode, one_batch, pseudo_labels, averaged_statistics):
        assert found(audited(program)) == [], program.__name__


def test_stochastic_predictions_are_lawful(audited):
    def spread_of_each_batch():
        trainer = Trainer(regularised())
        trainer.epoch()
        with torch.no_grad():
            for x in torch.randn(3, 16, 6):
                torch.stack([trainer.model(x) for _ in range(5)]).var(0)

    def spread_over_a_pool():
        trainer, pool = Trainer(regularised()), torch.randn(3, 16, 6)
        trainer.epoch()
        with torch.no_grad():
            torch.stack([torch.cat([trainer.model(x) for x in pool]) for _ in range(3)]).var(0)

    for program in (spread_of_each_batch, spread_over_a_pool):
        assert found(audited(program)) == [], program.__name__


@pytest.mark.parametrize(("batches", "count"), [(1, 0), (2, 1)])
def test_two_batches_are_needed(batches, count):
    held = ParameterFacts(optimizers=[OptimizerFacts(name="Adam")])
    module = ModuleFacts(name="Net", parameters=[held], mode_dependent=("Dropout",))
    facts = EvaluationFacts(module=module, batches=batches, usual=False, repeated=False, place=None)
    assert len(list(judge_evaluation(facts, 3))) == count


class Checkpointed(nn.Module):
    def __init__(self, dropout=0.5, **settings):
        super().__init__()
        self.first, self.last = nn.Linear(6, 24), nn.Linear(24, 3)
        self.block = nn.Sequential(nn.Linear(24, 24), nn.ReLU(), nn.Dropout(dropout))
        self.settings = settings

    def forward(self, x):
        return self.last(checkpoint(self.block, self.first(x), **self.settings))


def training(model):
    return lambda: Trainer(model).epoch(6)


@pytest.mark.parametrize("reentrant", [True, False])
def test_a_checkpoint_that_draws_a_new_mask(audited, reentrant):
    model = Checkpointed(use_reentrant=reentrant, preserve_rng_state=False)
    issues = audited(training(model))
    assert found(issues) == ["AUD307"]
    assert "block" in issues[0].message


def test_a_checkpoint_by_hand_that_draws_a_new_mask(audited):
    class Again(torch.autograd.Function):
        @staticmethod
        def forward(ctx, block, x):
            ctx.block = block
            ctx.save_for_backward(x)
            with torch.no_grad():
                return block(x)

        @staticmethod
        def backward(ctx, gradient):
            (x,) = ctx.saved_tensors
            x = x.detach().requires_grad_()
            with torch.enable_grad():
                torch.autograd.backward(ctx.block(x), gradient)
            return None, x.grad

    class ByHand(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.last = nn.Linear(6, 24), nn.Linear(24, 3)
            self.block = nn.Sequential(nn.Linear(24, 24), nn.Dropout(0.5))

        def forward(self, x):
            return self.last(Again.apply(self.block, self.first(x)))

    assert "AUD307" in found(audited(training(ByHand())))


@pytest.mark.parametrize(
    "model",
    [
        Checkpointed(use_reentrant=False),
        Checkpointed(use_reentrant=True),
        Checkpointed(dropout=0.0, use_reentrant=False, preserve_rng_state=False),
    ],
    ids=["kept", "kept-reentrant", "nothing-drawn"],
)
def test_checkpoints_that_are_lawful(audited, model):
    assert audited(training(model)) == []
