"""A Trainer of transformers whose model detaches its body: only the head learns.

pip install transformers accelerate
python examples/hf_trainer.py
"""

import tempfile

import torch
from torch import nn
from transformers import Trainer, TrainingArguments

import nabla


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(8, 32), nn.ReLU())
        self.head = nn.Linear(32, 3)

    def forward(self, x, labels):
        hidden = self.body(x).detach()  # the planted fault: no gradient reaches the body
        logits = self.head(hidden)
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


def main():
    torch.manual_seed(0)
    x = torch.randn(160, 8)
    labels = (x[:, 0] > 0).long() + (x[:, 1] > 1).long()
    rows = [{"x": row, "labels": label} for row, label in zip(x, labels, strict=True)]
    watching = nabla.integrations.hf(quiet=True)
    with tempfile.TemporaryDirectory() as folder:
        settings = TrainingArguments(
            output_dir=folder,
            per_device_train_batch_size=16,
            num_train_epochs=5,
            learning_rate=1e-2,
            report_to=[],
            save_strategy="no",
            disable_tqdm=True,
            use_cpu=True,
        )
        trainer = Trainer(Classifier(), settings, train_dataset=rows, callbacks=[watching])
        trainer.train()
    watching.report.print()
    return watching.report


if __name__ == "__main__":
    main()
