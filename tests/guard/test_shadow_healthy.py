"""Healthy programs under a shadow of every step: nothing is reported and nothing changes."""

import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from nabla_core.severity import Severity
from nabla_guard import guard

PROGRAMS = []
STEPS = 3


def healthy(function):
    """Note a program: called once, it yields the loss of each step."""
    PROGRAMS.append(pytest.param(function, id=function.__name__))
    return function


def fit(model, loss, batches, optimizer=None):
    optimizer = optimizer or torch.optim.AdamW(model.parameters(), 1e-2)
    for batch in batches:
        optimizer.zero_grad()
        value = loss(model, *batch)
        value.backward()
        optimizer.step()
        yield value.detach()


def pairs(*shape, classes=3):
    return [(torch.randn(*shape), torch.randint(0, classes, shape[:1])) for _ in range(STEPS)]


def classify(model, x, y):
    return F.cross_entropy(model(x), y)


@healthy
def mlp():
    model = nn.Sequential(nn.Linear(6, 16), nn.GELU(), nn.Dropout(0.2), nn.Linear(16, 3))
    yield from fit(model, classify, pairs(16, 6))


@healthy
def cnn_with_batch_norm():
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, bias=False),
        nn.BatchNorm2d(8),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(8, 3),
    )
    yield from fit(model, classify, pairs(4, 3, 12, 12))


@healthy
def transformer_with_causal_mask():
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, norm_first=True)
    model = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    mask = nn.Transformer.generate_square_subsequent_mask(6)
    batches = [(torch.randn(4, 6, 16),) for _ in range(STEPS)]
    yield from fit(model, lambda m, x: m(x, mask=mask, is_causal=True).square().mean(), batches)


@healthy
def lstm_and_gru():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm = nn.LSTM(5, 8, num_layers=2, bidirectional=True, batch_first=True)
            self.gru = nn.GRU(16, 8)
            self.head = nn.Linear(8, 3)

        def forward(self, x):
            return self.head(self.gru(self.lstm(x)[0])[0][:, -1])

    yield from fit(Net(), classify, pairs(4, 7, 5))


@healthy
def bf16_autocast():
    model = nn.Sequential(nn.Linear(6, 32), nn.LayerNorm(32), nn.SiLU(), nn.Linear(32, 3))

    def loss(m, x, y):
        with torch.autocast("cpu", torch.bfloat16):
            return F.cross_entropy(m(x), y)

    yield from fit(model, loss, pairs(16, 6))


@healthy
def pure_bf16():
    model = nn.Sequential(nn.Linear(6, 64), nn.LayerNorm(64), nn.ReLU(), nn.Linear(64, 3))
    model = model.bfloat16()
    batches = [(x.bfloat16(), y) for x, y in pairs(16, 6)]
    yield from fit(model, lambda m, x, y: F.cross_entropy(m(x).float(), y), batches)


@healthy
def fp16_with_scaler():
    model = nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 3))
    optimizer = torch.optim.SGD(model.parameters(), 1e-2)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**24)
    for x, y in pairs(16, 6) * 4:
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.float16):
            value = F.cross_entropy(model(x), y)
        scaler.scale(value).backward()
        scaler.step(optimizer)
        scaler.update()
        yield value.detach()


@healthy
def attention_by_hand_with_infinite_mask():
    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.qkv = nn.Linear(8, 24)

        def forward(self, x):
            q, k, v = self.qkv(x).chunk(3, -1)
            scores = q @ k.transpose(1, 2) / math.sqrt(8)
            mask = torch.ones(5, 5, dtype=torch.bool).triu(1)
            return (scores.masked_fill(mask, -math.inf).softmax(-1) @ v).mean(1)

    yield from fit(Attention(), classify, pairs(4, 5, 8))


@healthy
def mask_of_the_smallest_number_in_bf16():
    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.qk = nn.Linear(8, 16)

        def forward(self, x):
            q, k = self.qk(x).chunk(2, -1)
            bias = torch.zeros(5, 5, dtype=x.dtype)
            bias = bias.masked_fill(torch.ones(5, 5).triu(1).bool(), torch.finfo(x.dtype).min)
            return (q @ k.transpose(1, 2) + bias).softmax(-1).mean(1).float()

    batches = [(x.bfloat16(), y) for x, y in pairs(4, 5, 8)]
    yield from fit(Attention().bfloat16(), classify, batches)


@healthy
def layer_norm_by_hand_on_centred_data():
    class Norm(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(torch.ones(8))

        def forward(self, x):
            centred = x - x.mean(-1, keepdim=True)
            spread = centred.square().mean(-1, keepdim=True)
            return centred * torch.rsqrt(spread + 1e-6) * self.scale

    model = nn.Sequential(Norm(), nn.Linear(8, 3))
    batches = [(x * 0.5 + 300, y) for x, y in pairs(16, 8)]
    yield from fit(model, classify, batches)


@healthy
def gan():
    maker = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2))
    judge = nn.Sequential(nn.Linear(2, 16), nn.LeakyReLU(0.2), nn.Linear(16, 1))
    first = torch.optim.Adam(maker.parameters(), 1e-3)
    second = torch.optim.Adam(judge.parameters(), 1e-3)
    for _ in range(STEPS):
        noise, real = torch.randn(16, 4), torch.randn(16, 2)
        second.zero_grad()
        value = F.softplus(judge(maker(noise).detach())).mean() + F.softplus(-judge(real)).mean()
        value.backward()
        second.step()
        first.zero_grad()
        made = F.softplus(-judge(maker(noise))).mean()
        made.backward()
        first.step()
        yield torch.stack([value.detach(), made.detach()])


@healthy
def gradient_penalty():
    model = nn.Sequential(nn.Linear(4, 16), nn.Softplus(), nn.Linear(16, 1))

    def loss(m, x, y):
        x = x.clone().requires_grad_()
        score = m(x).sum()
        (grad,) = torch.autograd.grad(score, x, create_graph=True)
        return (grad.norm(dim=-1) - 1).square().mean() + m(x).mean()

    yield from fit(model, loss, pairs(16, 4))


@healthy
def policy_gradient():
    model = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 3))

    def loss(m, x, y):
        chosen = torch.distributions.Categorical(logits=m(x))
        action = chosen.sample()
        gain = (action == y).float()
        gain = (gain - gain.mean()) / (gain.std() + 1e-8)
        return -(chosen.log_prob(action) * gain).mean() - 0.01 * chosen.entropy().mean()

    yield from fit(model, loss, pairs(16, 4))


@healthy
def variational_autoencoder():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.encode, self.decode = nn.Linear(6, 8), nn.Linear(4, 6)

        def forward(self, x):
            mean, log_var = self.encode(x).chunk(2, -1)
            code = mean + torch.randn_like(mean) * (0.5 * log_var).exp()
            divergence = -0.5 * (1 + log_var - mean.square() - log_var.exp()).sum(-1).mean()
            return F.mse_loss(self.decode(code), x) + 0.1 * divergence

    yield from fit(Net(), lambda m, x, y: m(x), pairs(16, 6))


@healthy
def contrastive_with_temperature():
    model = nn.Linear(6, 8)

    def loss(m, x, y):
        a = F.normalize(m(x), dim=-1)
        b = F.normalize(m(x + 0.01 * torch.randn_like(x)), dim=-1)
        return F.cross_entropy(a @ b.T / 0.05, torch.arange(len(x)))

    yield from fit(model, loss, pairs(16, 6))


@healthy
def regression_near_zero_loss():
    model = nn.Linear(6, 1)
    with torch.no_grad():
        model.weight.copy_(torch.arange(6.0))
        model.bias.fill_(0.5)
    batches = [(x, x @ torch.arange(6.0) + 0.5) for x, _ in pairs(16, 6)]
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    yield from fit(model, lambda m, x, y: F.mse_loss(m(x)[:, 0], y), batches, optimizer)


@healthy
def regression_by_hand_near_zero_loss():
    class Product(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(torch.randn(6))

        def forward(self, x, y):
            return ((x * self.w).sum(-1) - y).square().mean() * 1e6

    model = Product()
    batches = [(x, (x.double() @ model.w.detach().double()).float()) for x, _ in pairs(16, 6)]
    optimizer = torch.optim.SGD(model.parameters(), 1e-9)
    yield from fit(model, lambda m, x, y: m(x, y), batches, optimizer)


@healthy
def confident_classifier():
    model = nn.Linear(3, 3)
    with torch.no_grad():
        model.weight.copy_(torch.eye(3) * 40)
    batches = [(torch.eye(3), torch.arange(3)) for _ in range(STEPS)]
    yield from fit(model, classify, batches, torch.optim.SGD(model.parameters(), 1e-3))


@healthy
def sparse_embeddings():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.words = nn.EmbeddingBag(40, 8, sparse=True)

        def forward(self, tokens):
            return self.words(tokens)[:, :3]

    model = Net()
    batches = [(torch.randint(0, 40, (8, 5)), torch.randint(0, 3, (8,))) for _ in range(STEPS)]
    yield from fit(model, classify, batches, torch.optim.SparseAdam(model.parameters(), 1e-2))


@healthy
def checkpointed_residual_stack():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.blocks = nn.ModuleList(
                nn.Sequential(nn.LayerNorm(8), nn.Linear(8, 8), nn.Dropout(0.1)) for _ in range(4)
            )
            self.head = nn.Linear(8, 3)

        def forward(self, x):
            for block in self.blocks:
                x = x + checkpoint(block, x, use_reentrant=False)
            return self.head(x)

    yield from fit(Net(), classify, pairs(8, 8))


@healthy
def mixture_of_experts():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.gate = nn.Linear(6, 4)
            self.experts = nn.ModuleList(nn.Linear(6, 3) for _ in range(4))

        def forward(self, x):
            weights, chosen = self.gate(x).softmax(-1).topk(2, dim=-1)
            output = x.new_zeros(len(x), 3)
            for number, expert in enumerate(self.experts):
                rows, slots = (chosen == number).nonzero(as_tuple=True)
                output.index_add_(0, rows, expert(x[rows]) * weights[rows, slots, None])
            return output

    yield from fit(Net(), classify, pairs(16, 6))


@healthy
def straight_through_quantiser():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner, self.head = nn.Linear(6, 8), nn.Linear(8, 3)

        def forward(self, x):
            hidden = torch.sigmoid(self.inner(x))
            return self.head(hidden + ((hidden * 7).round() / 7 - hidden).detach())

    yield from fit(Net(), classify, pairs(16, 6))


@healthy
def diffusion_like_noise():
    model = nn.Sequential(nn.Linear(7, 32), nn.SiLU(), nn.Linear(32, 6))

    def loss(m, x, y):
        time = torch.rand(len(x), 1)
        noise = torch.randn_like(x)
        mixed = (1 - time).sqrt() * x + time.sqrt() * noise
        return F.mse_loss(m(torch.cat([mixed, time], -1)), noise)

    yield from fit(model, loss, pairs(16, 6))


@healthy
def spectral_features():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.head = nn.Linear(9, 3)

        def forward(self, x):
            return self.head(torch.fft.rfft(x).abs().log1p())

    yield from fit(Net(), classify, pairs(8, 16))


@healthy
def missing_values_masked_out():
    model = nn.Linear(6, 3)
    batches = []
    for x, y in pairs(16, 6):
        x[::3, 2] = math.nan
        batches.append((x, y))

    def loss(m, x, y):
        return F.cross_entropy(m(torch.where(x.isnan(), 0.0, x)), y)

    yield from fit(model, loss, batches)


@healthy
def second_order_optimizer():
    model = nn.Linear(4, 2)
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=3)
    for x, y in pairs(16, 4, classes=2):

        def closure(x=x, y=y):
            optimizer.zero_grad()
            value = F.cross_entropy(model(x), y)
            value.backward()
            return value

        yield optimizer.step(closure).detach()


@healthy
def accumulation_of_micro_batches():
    model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 3))
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    for _ in range(STEPS):
        optimizer.zero_grad()
        values = []
        for x, y in pairs(8, 6):
            value = classify(model, x, y) / STEPS
            value.backward()
            values.append(value.detach())
        optimizer.step()
        yield torch.stack(values).sum()


@healthy
def distillation_from_an_equal_teacher():
    teacher, model = nn.Linear(8, 4), nn.Linear(8, 4)
    model.load_state_dict(teacher.state_dict())

    def loss(m, x, y):
        wanted = (teacher(x).detach() / 4).softmax(-1)
        return F.kl_div((m(x) / 4).log_softmax(-1), wanted, reduction="batchmean")

    yield from fit(model, loss, pairs(16, 8), torch.optim.SGD(model.parameters(), 1e-3))


@healthy
def views_written_in_place():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner, self.head = nn.Linear(6, 8), nn.Linear(8, 3)

        def forward(self, x):
            hidden = self.inner(x).clone()
            hidden[:, :4].mul_(2).add_(1)
            hidden[::2] += 3
            hidden = hidden.t().contiguous().t().relu_()
            total = torch.zeros_like(hidden)
            total[:] = hidden
            return self.head(total.index_add_(0, torch.arange(len(x)), hidden))

    yield from fit(Net(), classify, pairs(16, 6))


@healthy
def derivative_taken_inside_of_the_model():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.energy = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 1))

        def forward(self, x):
            x = x.requires_grad_()
            return torch.autograd.grad(self.energy(x).sum(), x, create_graph=True)[0][:, :3]

    yield from fit(Net(), classify, pairs(16, 6))


@healthy
def mean_of_what_was_normalised():
    """Zero but for rounding, and the layer after it adds its bias."""

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.head = nn.Conv2d(1, 4, 3), nn.Linear(4, 3)

        def forward(self, x):
            h = self.conv(x)
            var, mean = torch.var_mean(h, (2, 3), keepdim=True)
            return self.head(((h - mean) / (var + 1e-5).sqrt()).mean((2, 3)))

    yield from fit(Net(), classify, pairs(4, 1, 6, 6))


@healthy
def first_epoch_of_clipped_policies():
    """The loss is the mean of centred advantages: nothing but rounding."""
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))

    def loss(model, x, action):
        gain = torch.randn(16)
        gain = (gain - gain.mean()) / (gain.std() + 1e-8)
        chance = model(x).log_softmax(-1).gather(1, action[:, None]).squeeze(1)
        ratio = (chance - chance.detach()).exp()
        return -torch.minimum(ratio * gain, ratio.clamp(0.8, 1.2) * gain).mean()

    yield from fit(model, loss, pairs(16, 6))


@healthy
def complex_layers():
    model = nn.Linear(6, 3, dtype=torch.complex64)
    batches = [(torch.randn(16, 6, dtype=torch.complex64), y) for _, y in pairs(16, 6)]
    optimizer = torch.optim.SGD(model.parameters(), 1e-2)
    yield from fit(model, lambda m, x, y: F.cross_entropy(m(x).abs(), y), batches, optimizer)


def outcome(program):
    torch.manual_seed(0)
    values = [value.clone() for value in program()]
    return values, torch.get_rng_state()


@pytest.mark.parametrize("program", PROGRAMS)
def test_nothing_is_reported_and_nothing_changes(program):
    values, state = outcome(program)
    with guard(shadow="always") as monitor:
        watched_values, watched_state = outcome(program)

    report = monitor.report()
    assert [problem.message for problem in report.problems] == []
    loud = [
        f"{issue.rule} {issue.message}"
        for issue in report.issues
        if issue.rule.startswith("NUM") and issue.severity >= Severity.LOW
    ]
    assert loud == []
    assert all(torch.equal(a, b) for a, b in zip(values, watched_values, strict=True))
    assert torch.equal(state, watched_state)
