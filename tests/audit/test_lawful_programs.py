"""Programs whose losses, data and replicas look odd and are right: nothing above INFO."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, IterableDataset


def net(outputs=3):
    return nn.Sequential(nn.Linear(6, 24), nn.ReLU(), nn.Linear(24, outputs))


def regularised():
    return nn.Sequential(
        nn.Linear(6, 24), nn.BatchNorm1d(24), nn.Dropout(0.2), nn.ReLU(), nn.Linear(24, 3)
    )


def batches(count=8):
    for x in torch.randn(count, 16, 6):
        yield x, x[:, :3].argmax(-1)


def descend(optimizer, loss):
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def adam(*modules):
    return torch.optim.Adam([p for module in modules for p in module.parameters()], 1e-2)


def policy_gradient_with_old_policy():
    policy, value = net(), net(1)
    optimizer = adam(policy, value)
    for _ in range(3):
        x, reward = torch.randn(32, 6), torch.randn(32)
        with torch.no_grad():
            old = policy(x).log_softmax(1)
            action = old.exp().multinomial(1)
            advantage = reward - value(x)[:, 0]
        for _ in range(3):
            new = policy(x).log_softmax(1)
            ratio = (new - old).gather(1, action)[:, 0].exp()
            entropy = -(new.exp() * new).sum(1).mean()
            clipped = ratio.clamp(0.8, 1.2) * advantage
            surrogate = -torch.min(ratio * advantage, clipped).mean()
            fit = (value(x)[:, 0] - reward).pow(2).mean()
            descend(optimizer, surrogate + 0.5 * fit - 0.01 * entropy)


def distillation_with_the_teachers_entropy():
    teacher, student = net(), net()
    optimizer = adam(student)
    for x, y in batches():
        with torch.no_grad():
            p = teacher(x).softmax(1)
        q = student(x).log_softmax(1)
        divergence = (p * p.log()).sum(1).mean() - (p * q).sum(1).mean()
        descend(optimizer, F.nll_loss(q, y) + divergence)


def sequence_to_sequence():
    class Pair(nn.Module):
        def __init__(self):
            super().__init__()
            self.words = nn.Embedding(12, 8)
            self.read = nn.GRU(8, 8, batch_first=True)
            self.write = nn.GRU(8, 8, batch_first=True)
            self.head = nn.Linear(8, 12)

        def forward(self, source, target):
            _, memory = self.read(self.words(source))
            return self.head(self.write(self.words(target), memory)[0])

    model = Pair()
    optimizer = adam(model)
    for _ in range(6):
        source = torch.randint(0, 12, (8, 9))
        target = torch.cat([source.flip(1), source[:, :1]], 1)
        logits = model(source, target[:, :-1])
        descend(optimizer, F.cross_entropy(logits.transpose(1, 2), target[:, 1:]))


def pairwise_ranking():
    model = net(1)
    optimizer = adam(model)
    for x, _ in batches():
        score, y = model(x)[:, 0], x[:, 0]
        target = (y[:, None] > y[None, :]).float()
        loss = F.binary_cross_entropy_with_logits(score[:, None] - score[None, :], target)
        descend(optimizer, loss)


def energy_score_of_an_ensemble():
    model = net(8)
    optimizer = adam(model)
    for x, _ in batches():
        members = model(x)
        spread = (members[:, :, None] - members[:, None, :]).abs().mean()
        descend(optimizer, (members - x[:, :1]).abs().mean() - 0.5 * spread)


def mixture_of_softmaxes():
    class Mixture(nn.Module):
        def __init__(self):
            super().__init__()
            self.experts, self.gate = nn.Linear(6, 12), nn.Linear(6, 4)

        def forward(self, x):
            experts = self.experts(x).view(-1, 4, 3).softmax(-1)
            return (experts * self.gate(x).softmax(-1)[..., None]).sum(1).log()

    model = Mixture()
    optimizer = adam(model)
    for x, y in batches():
        descend(optimizer, F.nll_loss(model(x), y))


def focal_loss():
    model = net()
    optimizer = adam(model)
    for x, y in batches():
        entropy = F.cross_entropy(model(x), y, reduction="none")
        descend(optimizer, ((1 - (-entropy).exp()) ** 2 * entropy).mean())


def second_order_meta_learning():
    model = net()
    optimizer = adam(model)
    for x, y in batches():
        named = dict(model.named_parameters())
        inner = F.cross_entropy(torch.func.functional_call(model, named, x), y)
        slopes = torch.autograd.grad(inner, list(named.values()), create_graph=True)
        moved = {k: p - 0.1 * g for (k, p), g in zip(named.items(), slopes, strict=True)}
        descend(optimizer, F.cross_entropy(torch.func.functional_call(model, moved, x), y))


def checkpointed_loss():
    body, head = regularised(), nn.Linear(3, 3)
    optimizer = adam(body, head)
    for x, y in batches():

        def loss_of(h, y=y):
            return F.cross_entropy(head(h), y)

        hidden = checkpoint(body, x, use_reentrant=False)
        descend(optimizer, checkpoint(loss_of, hidden, use_reentrant=False))


def saved_tensors_on_the_host():
    model = regularised()
    optimizer = adam(model)
    for x, y in batches():
        with torch.autograd.graph.save_on_cpu():
            loss = F.cross_entropy(model(x), y)
        descend(optimizer, loss)


def streamed_data():
    class Stream(IterableDataset):
        def __iter__(self):
            for x in torch.randn(64, 6):
                yield x, x[:3].argmax(-1)

    model = net()
    optimizer = adam(model)
    for _ in range(3):
        for x, y in DataLoader(Stream(), 8):
            descend(optimizer, F.cross_entropy(model(x), y))


def local_steps_then_average():
    models = [net()]
    models.append(copy.deepcopy(models[0]))
    optimizers = [torch.optim.SGD(model.parameters(), 0.05) for model in models]
    for step in range(12):
        for model, optimizer in zip(models, optimizers, strict=True):
            for x, y in batches(1):
                descend(optimizer, F.cross_entropy(model(x), y))
        if step % 4 == 3:
            with torch.no_grad():
                for one, two in zip(*(m.parameters() for m in models), strict=True):
                    one.copy_((one + two) / 2)
                    two.copy_(one)


def variational_autoencoder():
    encoder, decoder = nn.Linear(6, 8), nn.Linear(4, 6)
    optimizer = adam(encoder, decoder)
    for x, _ in batches():
        mean, log_variance = encoder(x).chunk(2, 1)
        code = mean + torch.randn_like(mean) * (log_variance / 2).exp()
        divergence = -0.05 * (1 + log_variance - mean**2 - log_variance.exp()).mean()
        descend(optimizer, F.mse_loss(decoder(code), x) + divergence)


def transformer_with_validation():
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
    model = nn.Sequential(nn.Linear(6, 16), nn.TransformerEncoder(layer, 2), nn.Linear(16, 3))
    optimizer = adam(model)
    for _ in range(5):
        x = torch.randn(8, 7, 6)
        descend(optimizer, F.cross_entropy(model(x).mean(1), x[:, :, :3].mean(1).argmax(-1)))
        model.eval()
        with torch.no_grad():
            model(x)
        model.train()


def adversary_that_looks_at_the_whole_batch():
    class Critic(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.last = nn.Linear(6, 24), nn.Linear(25, 1)

        def forward(self, x):
            h = torch.relu(self.first(x))
            return self.last(torch.cat([h, h.std(0).mean().expand(len(h), 1)], 1))

    critic, generator = Critic(), net(6)
    for_critic, for_generator = adam(critic), adam(generator)
    judge = F.binary_cross_entropy_with_logits
    one, zero = torch.ones(16, 1), torch.zeros(16, 1)
    for x, _ in batches():
        fake = generator(torch.randn(16, 6))
        descend(for_critic, judge(critic(x), one) + judge(critic(fake.detach()), zero))
        descend(for_generator, judge(critic(fake), one))


def least_squares_adversary_with_one_target():
    critic, generator = net(1), net(6)
    for_critic, for_generator = adam(critic), adam(generator)
    one, zero = torch.tensor(1.0), torch.zeros(1)
    for x, _ in batches():
        fake = generator(torch.randn(16, 6))
        real_loss = F.mse_loss(critic(x), one.expand(16, 1))
        fake_loss = F.mse_loss(critic(fake.detach()), zero.expand(16, 1))
        descend(for_critic, real_loss + fake_loss)
        descend(for_generator, F.mse_loss(critic(fake), one.expand(16, 1)))


def lagrange_multiplier():
    model, price = net(), torch.zeros((), requires_grad=True)
    for_model, for_price = adam(model), torch.optim.SGD([price], 0.1)
    for x, y in batches():
        output = model(x)
        excess = output.pow(2).mean() - 0.5
        descend(for_model, F.cross_entropy(output, y) + price.detach() * excess)
        descend(for_price, -price * excess.detach())


def penalty_that_is_only_shown():
    model = net()
    optimizer = adam(model)
    for x, y in batches():
        loss = F.cross_entropy(model(x), y)
        descend(optimizer, loss)
        with torch.no_grad():
            _ = loss + 1e-4 * sum(p.pow(2).sum() for p in model.parameters())


PROGRAMS = [
    policy_gradient_with_old_policy,
    distillation_with_the_teachers_entropy,
    sequence_to_sequence,
    pairwise_ranking,
    energy_score_of_an_ensemble,
    mixture_of_softmaxes,
    focal_loss,
    second_order_meta_learning,
    checkpointed_loss,
    saved_tensors_on_the_host,
    streamed_data,
    local_steps_then_average,
    variational_autoencoder,
    transformer_with_validation,
    adversary_that_looks_at_the_whole_batch,
    least_squares_adversary_with_one_target,
    lagrange_multiplier,
    penalty_that_is_only_shown,
]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
@pytest.mark.filterwarnings("ignore:Using a target size", "ignore:enable_nested_tensor")
def test_nothing_is_reported(audited, program):
    loud = [issue for issue in audited(program) if issue.severity.label != "info"]
    assert [(issue.rule, issue.message) for issue in loud] == []
