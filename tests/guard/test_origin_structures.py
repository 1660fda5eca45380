"""Births inside models of every structure."""

import pytest
import torch
from origin_programs import Programs, lines_of
from torch import nn
from torch.nn import functional as F


class Rms(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return self.scale * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True))


program = PROGRAMS = Programs()


def pairs(steps=5, size=8, width=6, classes=3):
    return [(torch.randn(size, width), torch.randint(0, classes, (size,))) for _ in range(steps)]


def mlp():
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))


def classify(model, x, y):
    return F.cross_entropy(model(x), y)


def fit(log, model, loss, batches, optimizer=None):
    optimizer = optimizer or torch.optim.SGD(model.parameters(), 1e-3)
    for batch in batches:
        optimizer.zero_grad()
        value = loss(model, *batch)
        value.backward()
        optimizer.step()
        log(value)
    log(*model.parameters())


@program("NUM101", "forward", "rsqrt", 2, module="blocks.1.norm", sample=3)
def rms_norm_without_eps(log):
    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = Rms(6)
            self.lin = nn.Linear(6, 6)

        def forward(self, x, keep):
            return self.lin(self.norm(x * keep[:, None]))

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.blocks = nn.ModuleList([Block(), Block()])
            self.head = nn.Linear(6, 3)

        def forward(self, x, keep):
            for i, batches in enumerate(self.blocks):
                x = batches(x, keep if i else torch.ones_like(keep))
            return self.head(x)

    model = Net()
    batches = [(x, torch.ones(8), y) for x, y in pairs()]
    batches[2][1][3] = 0
    fit(log, model, lambda model, x, step, y: F.cross_entropy(model(x, step), y), batches)


@program("NUM101", "forward", "_softmax", 2, module="layers.1.attn", sample=3)
def a_row_without_a_key(log):
    class Attn(nn.Module):
        def __init__(self):
            super().__init__()
            self.qkv = nn.Linear(6, 18)

        def forward(self, x, pad):
            q, step, v = self.qkv(x).chunk(3, -1)
            w = (q @ step.transpose(-1, -2)).masked_fill(pad[:, None, :], -torch.inf)
            w = w.softmax(-1)  # born
            return w @ v

    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.attn = Attn()

        def forward(self, x, p):
            return x + self.attn(x, p)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList(Layer() for _ in range(2))
            self.head = nn.Linear(6, 3)

        def forward(self, x, pad):
            x = self.layers[0](x, torch.zeros_like(pad))
            return self.head(self.layers[1](x, pad).mean(1))

    model = Net()
    batches = [
        (torch.randn(4, 5, 6), torch.zeros(4, 5, dtype=torch.bool), torch.randint(0, 3, (4,)))
        for _ in range(4)
    ]
    batches[2][1][3] = True
    fit(log, model, lambda model, x, p, y: F.cross_entropy(model(x, p), y), batches)


@program("NUM101", "forward", "_softmax", 1, module="attn", sample=2)
def torch_attention_with_all_keys_padded(log):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.attn = nn.MultiheadAttention(6, 2, batch_first=True)
            self.head = nn.Linear(6, 3)

        def forward(self, x, pad):
            a, _ = self.attn(x, x, x, key_padding_mask=pad)  # born
            return self.head(a.mean(1))

    model = Net()
    batches = [
        (torch.randn(4, 5, 6), torch.zeros(4, 5, dtype=torch.bool), torch.randint(0, 3, (4,)))
        for _ in range(4)
    ]
    batches[1][1][2] = True
    fit(log, model, lambda model, x, p, y: F.cross_entropy(model(x, p), y), batches)


@program("NUM101", "forward", "addmm", 2, module="rnn", sample=0)
def exploding_relu_rnn(log):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn = nn.RNN(4, 8, nonlinearity="relu", batch_first=True)
            self.head = nn.Linear(8, 3)

        def forward(self, x):
            out, _ = self.rnn(x)  # born
            return self.head(out[:, -1])

    model = Net()
    with torch.no_grad():
        model.rnn.weight_hh_l0.copy_(torch.eye(8) * 30)
    batches = [
        (torch.rand(4, 20 if step != 2 else 60, 4) * 1e-20, torch.randint(0, 3, (4,)))
        for step in range(4)
    ]
    with torch.no_grad():
        model.rnn.bias_ih_l0.zero_()
        model.rnn.bias_hh_l0.zero_()
        model.rnn.weight_ih_l0.abs_()
    batches[2] = (batches[2][0] * 1e15, batches[2][1])
    fit(log, model, classify, batches, torch.optim.SGD(model.parameters(), 0.0))


@program("NUM101", "forward", "div", 3, module="pool", sample=2)
def sparse_embedding_weighted_pool(log):
    class Pool(nn.Module):
        def forward(self, e, w):
            return (e * w[..., None]).sum(1) / w.sum(1, keepdim=True)  # born

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.emb = nn.Embedding(20, 6, sparse=True)
            self.pool = Pool()
            self.head = nn.Linear(6, 3)

        def forward(self, i, w):
            return self.head(self.pool(self.emb(i), w))

    model = Net()
    a = torch.optim.SparseAdam(model.emb.parameters(), 1e-2)
    b_ = torch.optim.Adam(model.head.parameters(), 1e-2)
    for step in range(6):
        i = torch.randint(0, 20, (4, 5))
        w = torch.ones(4, 5)
        y = torch.randint(0, 3, (4,))
        if step == 3:
            w[2] = 0
        a.zero_grad()
        b_.zero_grad()
        loss = F.cross_entropy(model(i, w), y)
        loss.backward()
        a.step()
        b_.step()
        log(loss)


@program("NUM101", "forward", "addmm", 2, module="fc2", sample=1)
def autocast_half_matmul(log):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc1 = nn.Linear(6, 8)
            self.fc2 = nn.Linear(8, 3)

        def forward(self, x):
            h = self.fc1(x)
            return self.fc2(h * 200)  # born

    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), 0.0)
    with torch.no_grad():
        model.fc2.weight.fill_(1.0)
        model.fc1.weight.fill_(1.0)
    for step, (x, y) in enumerate(pairs()):
        if step == 2:
            x[1] = 9.0
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.float16):
            out = model(x)
        loss = F.cross_entropy(out.float(), y)
        loss.backward()
        optimizer.step()
        log(loss)


@program("NUM101", "forward", "exp", 2, module="enc", sample=7)
def functional_call(log):
    class Enc(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(6, 4)

        def forward(self, x):
            return torch.exp(self.layer(x))  # born

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.enc = Enc()
            self.head = nn.Linear(4, 3)

        def forward(self, x):
            h = self.enc(x)
            return self.head(h / (1 + h))

    model = Net()
    ps = dict(model.named_parameters())
    optimizer = torch.optim.SGD(ps.values(), 1e-3)
    batches = pairs()
    batches[2][0][7] *= 1e4
    for x, y in batches:
        optimizer.zero_grad()
        loss = F.cross_entropy(torch.func.functional_call(model, ps, (x,)), y)
        loss.backward()
        optimizer.step()
        log(loss)


@program("NUM101", "forward", "var", 1, module="norm")
def running_variance_of_one_sample(log):
    class Norm(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("running", torch.ones(6))
            self.g = nn.Parameter(torch.ones(6))

        def forward(self, x):
            if self.training:
                v = x.var(0)  # born
                self.running.mul_(0.9).add_(v.detach(), alpha=0.1)
            return self.g * x / (self.running + 1e-5).sqrt()

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = Norm()
            self.head = nn.Linear(6, 3)

        def forward(self, x):
            return self.head(self.norm(x))

    batches = pairs()
    batches[1] = (batches[1][0][:1], batches[1][1][:1])
    fit(log, Net(), classify, batches)


@pytest.mark.parametrize(("run", "expected"), PROGRAMS)
def test_the_birth_in_a_structure_is_named(loud_issues_of, run, expected):
    rule, phase, op, step, place = expected
    (issue,) = [issue for issue in loud_issues_of(run) if issue.rule.startswith("NUM10")]
    where = issue.where
    assert (issue.rule, issue.phase, where.op, issue.step) == (rule, phase, op, step), issue.message
    assert {key: getattr(where, key) for key in place} == place, issue.message
    if lines_of(run):
        assert where.line in lines_of(run), issue.message
