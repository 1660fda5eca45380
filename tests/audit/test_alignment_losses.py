"""AUD402, AUD403, AUD408 and AUD207: CTC losses, two sigmoids, draws without a derivative."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F


def found(issues):
    return [(issue.rule, issue.severity.label) for issue in issues]


def speech(last, make_targets, *, joined=False):
    def program():
        model = nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Linear(16, 6), last)
        optimizer = torch.optim.Adam(model.parameters(), 1e-3)
        for _ in range(5):
            targets, lengths = make_targets()
            if joined:
                rows = zip(targets, lengths, strict=True)
                targets = torch.cat([row[:length] for row, length in rows])
            scores = model(torch.randn(20, 4, 5))
            loss = F.ctc_loss(scores, targets, torch.full((4,), 20), lengths)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    return program


def labels():
    return torch.randint(1, 6, (4, 6)), torch.tensor([6, 5, 4, 6])


def padded_with_blanks():
    targets, lengths = labels()
    targets[1, 5:] = targets[2, 4:] = 0
    return targets, lengths


def with_a_blank():
    targets, lengths = labels()
    targets[:, 3] = 0
    return targets, lengths


@pytest.mark.parametrize("last", [nn.Identity(), nn.Softmax(-1)], ids=["scores", "probabilities"])
def test_a_ctc_loss_takes_log_probabilities(audited, last):
    assert found(audited(speech(last, labels))) == [("AUD403", "high")]


@pytest.mark.parametrize("joined", [False, True], ids=["padded", "joined"])
def test_no_label_is_the_blank(audited, joined):
    (issue,) = audited(speech(nn.LogSoftmax(-1), with_a_blank, joined=joined))
    assert (issue.rule, issue.evidence["blanks"].value) == ("AUD408", 4)


@pytest.mark.parametrize("joined", [False, True], ids=["padded", "joined"])
def test_padding_may_be_the_blank(audited, joined):
    assert audited(speech(nn.LogSoftmax(-1), padded_with_blanks, joined=joined)) == []


@pytest.mark.parametrize(("activations", "expected"), [(1, []), (2, [("AUD402", "high")])])
def test_one_sigmoid_stands_before_a_binary_cross_entropy(audited, activations, expected):
    def program():
        model = nn.Sequential(nn.Linear(6, 1), *(nn.Sigmoid() for _ in range(activations)))
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        for _ in range(5):
            x = torch.randn(16, 6)
            optimizer.zero_grad()
            F.binary_cross_entropy(model(x), (x[:, :1] > 0).float()).backward()
            optimizer.step()

    assert found(audited(program)) == expected


@pytest.mark.parametrize("reparametrised", [False, True])
def test_a_draw_has_no_derivative(audited, reparametrised):
    def program():
        encoder, decoder = nn.Linear(6, 4), nn.Linear(4, 6)
        optimizer = torch.optim.Adam([*encoder.parameters(), *decoder.parameters()], 1e-3)
        for _ in range(5):
            x = torch.randn(16, 6)
            mean = encoder(x)
            draw = mean + torch.randn_like(mean) if reparametrised else torch.normal(mean, 1.0)
            optimizer.zero_grad()
            F.mse_loss(decoder(draw), x).backward()
            optimizer.step()

    assert found(audited(program)) == ([] if reparametrised else [("AUD207", "high")])
