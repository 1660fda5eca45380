"""Healthy programs of many kinds are silent under the callback of transformers."""

import pytest

pytest.importorskip("transformers", reason="transformers is not installed")
pytest.importorskip("accelerate", reason="accelerate is not installed")

import torch
from torch import nn
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments

import nabla


class OwnLoss(Trainer):
    """A loss of its own over outputs without one."""

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        labels = inputs.pop("labels")
        outputs = model(**inputs)
        weight = torch.tensor([1.0, 2.0, 3.0])
        loss = nn.functional.cross_entropy(outputs["logits"], labels, weight=weight)
        return (loss, outputs) if return_outputs else loss


class Scores(nn.Module):
    def __init__(self, case):
        super().__init__()
        self.net = case.net

    def forward(self, x, labels=None):
        return {"logits": self.net(x)}


class Measuring(TrainerCallback):
    """A callback of somebody else, which runs the model as well."""

    def on_step_end(self, args, state, control, model=None, **rest):
        with torch.no_grad():
            self.size = sum(parameter.norm() for parameter in model.parameters())

    def on_epoch_end(self, args, state, control, model=None, **rest):
        model.eval()
        with torch.no_grad():
            model(torch.ones(2, 8)) if isinstance(model, Scores) else None
        model.train()


def language_model():
    torch.manual_seed(0)
    sizes = {"vocab_size": 32, "n_positions": 8, "n_embd": 16, "n_layer": 2, "n_head": 2}
    rows = torch.randint(32, (64, 8))
    rows[:, 1::2] = (rows[:, ::2] + 1) % 32
    return GPT2LMHeadModel(GPT2Config(**sizes)), [{"input_ids": r, "labels": r} for r in rows]


PROGRAMS = {
    "own_loss": (OwnLoss, {}),
    "accumulated": (OwnLoss, {"gradient_accumulation_steps": 2, "max_grad_norm": 0.5}),
    "scheduled": (OwnLoss, {"lr_scheduler_type": "cosine", "warmup_steps": 3}),
    "adafactor": (Trainer, {"optim": "adafactor", "learning_rate": 1e-3}),
    "smoothed": (Trainer, {"label_smoothing_factor": 0.1}),
    "checkpointed": (Trainer, {"gradient_checkpointing": True}),
    "bfloat16": (Trainer, {"bf16": True}),
}


USUAL = ("accumulated", "bfloat16")


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=() if n in USUAL else pytest.mark.slow) for n in PROGRAMS]
)
def test_a_healthy_program_is_silent(name, case, verdicts, tmp_path):
    kind, options = PROGRAMS[name]
    data = case("none")
    pairs = zip(data.x, data.y, strict=True)
    model, rows = Scores(data), [{"x": x, "labels": y} for x, y in pairs]
    if kind is Trainer:
        model, rows = language_model()
    callback = nabla.integrations.hf(quiet=True)
    settings = {
        "output_dir": str(tmp_path),
        "per_device_train_batch_size": 16,
        "num_train_epochs": 5,
        "learning_rate": 5e-3,
        "report_to": [],
        "save_strategy": "no",
        "disable_tqdm": True,
        "use_cpu": True,
        "label_names": ["labels"],
        **options,
    }
    trainer = kind(
        model=model,
        args=TrainingArguments(**settings),
        train_dataset=rows,
        callbacks=[callback, Measuring()],
    )

    trainer.train()

    assert verdicts(callback.report) == set()
    assert callback.report.run.steps >= 20
    assert callback.report.problems == ()
