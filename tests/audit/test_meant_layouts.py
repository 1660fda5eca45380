"""Samples and positions that depend on one another lawfully, and generators of a data set."""

import numpy
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from nabla_guard.families.held_generators import generators_in


def loud(issues):
    return sorted({issue.rule for issue in issues if issue.severity.label != "info"})


def train(model, pair, steps=5):
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    for index in range(steps):
        inputs, targets = pair(index)
        given = inputs if isinstance(inputs, tuple) else (inputs,)
        optimizer.zero_grad()
        scores = model(*given)
        F.cross_entropy(scores.reshape(-1, scores.shape[-1]), targets.reshape(-1)).backward()
        optimizer.step()


class Tagger(nn.Module):
    """Reads one sentence."""

    def __init__(self):
        super().__init__()
        self.words, self.cell, self.out = nn.Embedding(12, 8), nn.GRU(8, 8), nn.Linear(8, 3)

    def forward(self, words):
        return self.out(self.cell(self.words(words).unsqueeze(1))[0]).squeeze(1)


class Reader(Tagger):
    """Reads a batch along its samples instead of along time."""

    def forward(self, words):
        return self.out(self.cell(self.words(words))[0][:, -1])


def sentence(length):
    def pair(index):
        words = torch.randint(0, 12, (length(index),))
        return words, words % 3

    return pair


def batch_of_sentences(index):
    words = torch.randint(0, 12, (8, 5))
    return words, words[:, 0] % 3


@pytest.mark.parametrize(
    ("kind", "pair", "found"),
    [
        (Tagger, sentence(lambda index: 6 + index), []),
        (Tagger, sentence(lambda index: 6), []),
        (Reader, batch_of_sentences, ["AUD406"]),
    ],
)
def test_one_sentence_is_no_batch(audited, kind, pair, found):
    assert loud(audited(lambda: train(kind(), pair))) == found


class Speaker(nn.Module):
    """Predicts the next word; may also read all of the sentence into one vector first."""

    def __init__(self, encodes):
        super().__init__()
        self.encodes, self.words = encodes, nn.Embedding(12, 8)
        self.encoder = nn.GRU(8, 8, batch_first=True)
        self.decoder = nn.GRU(8, 8, batch_first=True, bidirectional=not encodes)
        self.out = nn.LazyLinear(12)

    def forward(self, words, given=None):
        state = self.encoder(self.words(words))[1] if self.encodes else None
        spoken = words[:, :-1] if given is None else given
        return self.out(self.decoder(self.words(spoken), state)[0])


def whole(index):
    words = torch.randint(0, 12, (8, 7))
    return words, words[:, 1:]


def in_pieces(index):
    words = torch.randint(0, 12, (8, 7))
    return (words, words[:, :-1]), words[:, 1:]


def made(model, pair):
    model(*(pair(0)[0] if isinstance(pair(0)[0], tuple) else (pair(0)[0],)))
    return model


@pytest.mark.parametrize("pair", [whole, in_pieces])
@pytest.mark.parametrize(("encodes", "found"), [(True, []), (False, ["AUD407"])])
def test_a_decoder_may_know_what_an_encoder_read(audited, pair, encodes, found):
    assert loud(audited(lambda: train(made(Speaker(encodes), pair), pair))) == found


class Masked(nn.Module):
    """Attention that may look ahead within the first positions."""

    def __init__(self, prefix):
        super().__init__()
        self.words, self.out = nn.Embedding(12, 8), nn.Linear(8, 12)
        self.layer = nn.TransformerEncoderLayer(8, 2, 8, 0.0, batch_first=True)
        self.register_buffer("mask", torch.ones(6, 6, dtype=torch.bool).triu(1))
        self.mask[:, :prefix] = False

    def forward(self, words):
        return self.out(self.layer(self.words(words), src_mask=self.mask))


@pytest.mark.parametrize(("ignored", "found"), [(3, []), (0, ["AUD407"])])
def test_a_prefix_without_targets_may_look_ahead(audited, ignored, found):
    def pair(index):
        words = torch.randint(0, 12, (8, 7))
        targets = words[:, 1:].clone()
        targets[:, :ignored] = -100
        return words[:, :-1], targets

    assert loud(audited(lambda: train(Masked(4), pair))) == found


class Pairs:
    """Draws in the parent, between epochs, or where a worker fetches a sample."""

    def __init__(self, fetches):
        self.drawn, self.fetches = numpy.random.default_rng(0), fetches


class DrawnBefore(Pairs):
    def shuffle(self):
        self.order = self.drawn.permutation(8)

    def __getitem__(self, index):
        return self.order[index]


class DrawnInside(Pairs):
    def pick(self):
        return self.drawn.integers(8)

    def __getitem__(self, index):
        return self.pick() + index


def test_only_what_a_worker_draws_is_copied():
    assert list(generators_in(DrawnBefore(False))) == []
    assert list(generators_in(DrawnInside(True))) == ["drawn"]
