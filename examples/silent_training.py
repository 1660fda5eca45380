"""A small text classifier that trains without any error, and learns nothing.

    nabla run examples/silent_training.py

The gradients are cleared between ``backward`` and ``step``. With dropout and shuffled batches the
loss still wobbles, so the curve looks merely "bad": a learning rate that wants tuning, perhaps.
"""

import argparse
import random

import torch
from torch import nn

VOCABULARY, CLASSES, LENGTH = 200, 4, 12


class Classifier(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, width)
        self.body = nn.Sequential(nn.Linear(width, 64), nn.GELU(), nn.Dropout(0.1))
        self.head = nn.Linear(64, CLASSES)

    def forward(self, tokens):
        return self.head(self.body(self.embed(tokens).mean(dim=1)))


def make_sentences(count, generator):
    """Sentences whose class is the quarter of the vocabulary that they use most."""
    labels = torch.randint(0, CLASSES, (count,), generator=generator)
    words = torch.randint(0, VOCABULARY, (count, LENGTH), generator=generator)
    quarter = VOCABULARY // CLASSES
    typical = torch.randint(0, quarter, (count, LENGTH), generator=generator)
    keep = torch.rand(count, LENGTH, generator=generator) < 0.6
    return torch.where(keep, typical + quarter * labels[:, None], words), labels


def train(epochs, learning_rate):
    torch.manual_seed(0)
    random.seed(0)
    generator = torch.Generator().manual_seed(1)
    dataset = torch.utils.data.TensorDataset(*make_sentences(960, generator))
    loader = torch.utils.data.DataLoader(dataset, batch_size=32, shuffle=True, generator=generator)
    model = Classifier()
    optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs * len(loader))
    criterion = nn.CrossEntropyLoss(label_smoothing=0.05)

    for epoch in range(epochs):
        total, right = 0.0, 0
        for tokens, labels in loader:
            logits = model(tokens)
            loss = criterion(logits, labels)
            loss.backward()
            optimizer.zero_grad()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            total += loss.item() * len(labels)
            right += (logits.argmax(dim=1) == labels).sum().item()
        print(
            f"epoch {epoch}  loss {total / len(dataset):.3f}  accuracy {right / len(dataset):.2f}"
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--learning-rate", type=float, default=3e-3)
    arguments = parser.parse_args()
    train(arguments.epochs, arguments.learning_rate)
