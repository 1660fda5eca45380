"""A LightningModule that gives probabilities to a loss that expects logits.

pip install lightning
python examples/lightning_trainer.py
"""

import lightning
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import nabla


class Classifier(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 3))

    def training_step(self, batch, index):
        x, labels = batch
        probabilities = self.net(x).softmax(-1)  # the planted fault: cross_entropy does this too
        return nn.functional.cross_entropy(probabilities, labels)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-2)


def main():
    torch.manual_seed(0)
    x = torch.randn(160, 8)
    labels = (x[:, 0] > 0).long() + (x[:, 1] > 1).long()
    watching = nabla.integrations.lightning(quiet=True)
    trainer = lightning.Trainer(
        max_epochs=5,
        accelerator="cpu",
        callbacks=[watching],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Classifier(), DataLoader(TensorDataset(x, labels), batch_size=16, shuffle=True))
    watching.report.print()
    return watching.report


if __name__ == "__main__":
    main()
