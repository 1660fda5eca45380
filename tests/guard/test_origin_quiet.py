"""Programs full of NaN and Inf that are meant to be there: nothing is reported, nothing changes."""

import copy
import logging
import math
import threading

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

PROGRAMS = []


def program(function):
    """Note a healthy program."""
    PROGRAMS.append(pytest.param(function, id=function.__name__))
    return function


def fit(model, loss, batches, optimizer=None):
    optimizer = optimizer or torch.optim.SGD(model.parameters(), 1e-3)
    for batch in batches:
        optimizer.zero_grad()
        loss(model, *batch).backward()
        optimizer.step()


def pairs(steps=5, size=8, width=6):
    return [(torch.randn(size, width), torch.randint(0, 3, (size,))) for _ in range(steps)]


class Through(nn.Module):
    """A linear layer around a function."""

    def __init__(self, function):
        super().__init__()
        self.net = nn.Linear(6, 3)
        self.function = function

    def forward(self, x):
        return self.function(self.net(x), x)


def classify(model, x, y):
    return F.cross_entropy(model(x), y)


@program
def causal_mask():
    def attend(h, x):
        scores = h @ h.T + torch.full((8, 8), -math.inf).triu(1)
        return scores.softmax(-1) @ h

    fit(Through(attend), classify, pairs())


@program
def logarithm_of_a_mask():
    fit(
        Through(lambda h, x: (h + torch.tensor([1.0, 1.0, 0.0]).log())[:, :2]),
        lambda m, x, y: F.cross_entropy(m(x), y % 2),
        pairs(),
    )


@program
def padding_of_nan_that_is_masked_out():
    batches = pairs()
    for index, (x, _) in enumerate(batches):
        x[index % 3 :: 3, 4:] = math.nan
    model = nn.Linear(6, 3)
    fit(model, lambda m, x, y: F.cross_entropy(m(torch.nan_to_num(x)), y), batches)


@program
def targets_of_nan_that_are_masked_out():
    def loss(model, x, y):
        target = torch.where(y[:, None] == 0, torch.nan, 1.0).expand(8, 3)
        return (model(x)[~target.isnan()] - target[~target.isnan()]).square().sum() / 8

    fit(nn.Linear(6, 3), loss, pairs())


@program
def nan_for_a_log_line():
    log = logging.getLogger("quiet")

    def loss(model, x, y):
        out = model(x)
        log.info("ratio %s", (out.detach().sum() * 0.0 / torch.zeros(())).item())
        return F.cross_entropy(out, y)

    fit(nn.Linear(6, 3), loss, pairs())


@program
def nan_in_another_thread():
    def noise():
        for _ in range(20):
            torch.zeros(3) / torch.zeros(3)

    worker = threading.Thread(target=noise)
    worker.start()
    fit(nn.Linear(6, 3), classify, pairs())
    worker.join()


@program
def infinity_as_the_best_loss_so_far():
    best = torch.tensor(math.inf)
    model = nn.Linear(6, 3)

    def loss(model, x, y):
        nonlocal best
        found = classify(model, x, y)
        best = torch.minimum(best, found.detach())
        return found

    fit(model, loss, pairs())


@program
def warm_up_of_a_gradient_scaler():
    model = nn.Linear(6, 3)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**40)
    for x, y in pairs(12):
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.float16):
            out = model(x)
        scaler.scale(F.cross_entropy(out.float(), y)).backward()
        scaler.step(optimizer)
        scaler.update()


@program
def a_maximum_that_starts_at_minus_infinity():
    def pool(h, x):
        best = torch.full((8,), -math.inf)
        for column in h.unbind(-1):
            best = torch.maximum(best, column)
        return h + best[:, None]

    fit(Through(pool), classify, pairs())


@program
def log_sum_exp_over_minus_infinity():
    def mix(h, x):
        return torch.logsumexp(torch.stack([h, torch.full_like(h, -math.inf)]), 0)

    fit(Through(mix), classify, pairs())


@program
def top_k_filter():
    def keep(h, x):
        limit = h.topk(2, -1).values[:, -1:]
        return h.masked_fill(h < limit, -math.inf).softmax(-1)

    fit(Through(keep), lambda m, x, y: -(m(x) + 1e-6).log().mean(), pairs())


@program
def the_safe_double_where():
    def root(h, x):
        return torch.where(h > 0, torch.where(h > 0, h, 1.0).sqrt(), h)

    fit(Through(root), classify, pairs())


@program
def nan_to_num_on_purpose():
    fit(Through(lambda h, x: h + torch.nan_to_num(x[:, :1] / 0.0, 0, 0, 0)), classify, pairs())


@program
def checkpointing_with_dropout():
    drop = nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5))

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = nn.Linear(6, 3)
            self.drop = drop

        def forward(self, x):
            return checkpoint(self.drop, self.net(x), use_reentrant=False)

    fit(Net(), classify, pairs())


@program
def an_adversarial_pair():
    maker, judge = nn.Linear(4, 6), nn.Linear(6, 1)
    first = torch.optim.Adam(judge.parameters())
    second = torch.optim.Adam(maker.parameters())
    for x, _ in pairs(6):
        fake = maker(torch.randn(8, 4))
        first.zero_grad()
        (F.softplus(-judge(x)) + F.softplus(judge(fake.detach()))).mean().backward()
        first.step()
        second.zero_grad()
        F.softplus(-judge(fake)).mean().backward()
        second.step()


@program
def a_policy_with_forbidden_actions():
    def act(h, x):
        return torch.distributions.Categorical(logits=h.masked_fill(x[:, :3] > 1.5, -math.inf))

    def loss(model, x, y):
        policy = model(x)
        action = policy.sample()
        return -(policy.log_prob(action) * torch.randn(8)).mean()

    batches = [(x.clamp(max=1.4), y) for x, y in pairs()]
    fit(Through(act), loss, batches)


@program
def an_averaged_copy():
    model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Linear(8, 3))
    average = copy.deepcopy(model).requires_grad_(False)

    def loss(model, x, y):
        with torch.no_grad():
            for old, new in zip(average.parameters(), model.parameters(), strict=True):
                old.mul_(0.9).add_(new, alpha=0.1)
            target = average(x)
        return classify(model, x, y) + F.mse_loss(model(x), target)

    fit(model, loss, pairs())


@program
def a_recurrence_with_packed_sequences():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.cell = nn.LSTM(2, 8, batch_first=True)
            self.head = nn.Linear(8, 3)

        def forward(self, x):
            lengths = torch.tensor([3, 3, 3, 2, 2, 2, 1, 1])
            packed = nn.utils.rnn.pack_padded_sequence(x.view(8, 3, 2), lengths, batch_first=True)
            return self.head(self.cell(packed)[1][0][0])

    fit(Net(), classify, pairs())


@program
def a_closure_with_line_search():
    model = nn.Linear(6, 3)
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=4, line_search_fn="strong_wolfe")
    for x, y in pairs(3):

        def closure(x=x, y=y):
            optimizer.zero_grad()
            loss = classify(model, x, y)
            loss.backward()
            return loss

        optimizer.step(closure)


@program
def accumulation_and_clipping():
    model = nn.Linear(6, 3)
    optimizer = torch.optim.AdamW(model.parameters())
    for index, (x, y) in enumerate(pairs(8)):
        (classify(model, x, y) / 4).backward()
        if index % 4 == 3:
            nn.utils.clip_grad_norm_(model.parameters(), math.inf)
            optimizer.step()
            optimizer.zero_grad()


@program
def a_compiled_loss_function():
    loss = torch.compile(lambda out, y: F.cross_entropy(out * 2.0, y), backend="eager")
    fit(nn.Linear(6, 3), lambda m, x, y: loss(m(x), y), pairs())


@program
def two_modules_called_by_hand():
    class Trainer:
        def __init__(self):
            self.encoder, self.head = nn.Linear(6, 4), nn.Linear(4, 3)
            self.optimizer = torch.optim.Adam([*self.encoder.parameters(), *self.head.parameters()])

        def run(self, batches):
            for x, y in batches:
                self.optimizer.zero_grad(set_to_none=False)
                hidden = self.encoder(x).relu()
                F.cross_entropy(self.head(hidden), y).backward()
                self.optimizer.step()

    Trainer().run(pairs())


@pytest.mark.parametrize("run", PROGRAMS)
def test_nothing_is_reported(issues_of, run):
    torch.manual_seed(0)
    assert [str(issue) for issue in issues_of(run) if issue.rule.startswith("NUM10")] == []


@pytest.mark.parametrize("run", PROGRAMS)
def test_random_numbers_are_drawn_as_without_the_guard(issues_of, run):
    torch.manual_seed(0)
    run()
    expected = torch.rand(3)
    torch.manual_seed(0)
    issues_of(run)
    assert torch.equal(torch.rand(3), expected)
