"""Small real trainings of many kinds: healthy ones stay quiet, broken ones are told by their cause.

Losses, shapes, optimizers, schedules and severities are drawn anew for each seed; no limit was set
on them. The derivatives are written out, so that a run costs some milliseconds.
"""

import math
import random
import statistics

import pytest

from nabla_core.records import StepRecord
from nabla_core.severity import Severity
from nabla_diagnose.checks.roster import make_checks
from nabla_diagnose.detector import RunDetector
from nabla_diagnose.options import DiagnoseOptions
from nabla_diagnose.ranking import rank
from nabla_diagnose.rules import RULES

np = pytest.importorskip("numpy")

HEALTHY_SEEDS = range(7_000, 7_030)
FAULTY_SEEDS = range(8_000, 8_003)
PREVIEW = {rule.id for rule in RULES if rule.stability == "preview"}

RATES = {
    "sgd": 0.05, "momentum": 0.02, "nesterov": 0.02, "adam": 2e-3, "adamw": 2e-3,
    "rmsprop": 1e-3, "adagrad": 0.03, "lion": 3e-4,
}  # fmt: skip
BENDS = {
    "relu": (lambda a: np.maximum(a, 0.0), lambda a, h: (a > 0) * 1.0),
    "tanh": (np.tanh, lambda a, h: 1.0 - h * h),
    "softplus": (lambda a: np.logaddexp(0.0, a), lambda a, h: 1.0 / (1.0 + np.exp(-a))),
    "leaky": (lambda a: np.where(a > 0, a, 0.1 * a), lambda a, h: np.where(a > 0, 1.0, 0.1)),
    "sine": (np.sin, lambda a, h: np.cos(a)),
}


def cross_entropy(out, y, smoothing=0.0):
    share = np.exp(out - out.max(1, keepdims=True))
    share /= share.sum(1, keepdims=True)
    wanted = np.full_like(share, smoothing / share.shape[1])
    wanted[np.arange(len(y)), y] += 1.0 - smoothing
    return -(wanted * np.log(share + 1e-12)).sum() / len(y), (share - wanted) / len(y)


def bce(out, y):
    share = 1.0 / (1.0 + np.exp(-out))
    return (np.logaddexp(0.0, out) - y * out).mean(), (share - y) / out.size


def mse(out, y):
    return ((out - y) ** 2).mean(), 2.0 * (out - y) / out.size


def huber(out, y):
    gap = out - y
    small = np.abs(gap) < 1.0
    return np.where(small, 0.5 * gap**2, np.abs(gap) - 0.5).mean(), np.clip(gap, -1, 1) / out.size


def gaussian(out, y):
    gap, log = out[:, :1] - y, np.clip(out[:, 1:], -6.0, 6.0)
    precise = np.exp(-log)
    value = 0.5 * (log + gap**2 * precise).mean()
    return value, np.concatenate([gap * precise, 0.5 * (1.0 - gap**2 * precise)], 1) / len(y)


LOSSES = {
    "cross_entropy": cross_entropy, "bce_with_logits": bce, "mse": mse, "huber": huber,
    "gaussian": gaussian, "autoencoder": mse,
}  # fmt: skip


class Model:
    """Dense layers, with a shortcut around those of equal width; one vector of parameters."""

    def __init__(self, rng, draws, features, outputs):
        depth, width = rng.randint(1, 3), rng.choice([8, 16, 32, 64])
        self.bend, self.slope = BENDS[rng.choice(sorted(BENDS))]
        self.shortcut = rng.random() < 0.3
        widths = [features, *[width] * depth, outputs]
        self.shapes = list(zip(widths, widths[1:], strict=False))
        parts = [
            part
            for a, b in self.shapes
            for part in (draws.normal(0.0, a**-0.5, a * b), np.zeros(b))
        ]
        self.theta = np.concatenate(parts)

    def layers(self, theta):
        place = 0
        for a, b in self.shapes:
            yield theta[place : place + a * b].reshape(a, b), theta[place + a * b :][:b]
            place += a * b + b

    def forward(self, x, theta=None):
        layers = list(self.layers(self.theta if theta is None else theta))
        kept, h = [], x
        for weight, bias in layers[:-1]:
            a = h @ weight + bias
            after = self.bend(a)
            kept.append((h, a, after))
            h = after + h if self.shortcut and h.shape == after.shape else after
        weight, bias = layers[-1]
        return h @ weight + bias, (kept, h, layers)

    def backward(self, rest, slope):
        kept, h, layers = rest
        parts = [slope.sum(0), (h.T @ slope).ravel()]
        back = slope @ layers[-1][0].T
        for (before, a, after), (weight, _) in zip(kept[::-1], layers[-2::-1], strict=True):
            inner = back * self.slope(a, after)
            parts += [inner.sum(0), (before.T @ inner).ravel()]
            around = back if self.shortcut and before.shape == after.shape else 0.0
            back = inner @ weight.T + around
        return np.concatenate(parts[::-1])


class Optimizer:
    """The textbook steps on one vector."""

    def __init__(self, kind):
        self.kind, self.first, self.second, self.count = kind, 0.0, 0.0, 0

    def change(self, theta, g, rate):
        self.count += 1
        kind = self.kind
        if kind == "sgd":
            return -rate * g
        if kind in ("momentum", "nesterov"):
            self.first = 0.9 * self.first + g
            return -rate * (g + 0.9 * self.first if kind == "nesterov" else self.first)
        if kind == "adagrad":
            self.second = self.second + g * g
            return -rate * g / (np.sqrt(self.second) + 1e-8)
        if kind == "rmsprop":
            self.second = 0.99 * self.second + 0.01 * g * g
            return -rate * g / (np.sqrt(self.second) + 1e-8)
        if kind == "lion":
            way = np.sign(0.9 * self.first + 0.1 * g)
            self.first = 0.99 * self.first + 0.01 * g
            return -rate * (way + 0.01 * theta)
        self.first = 0.9 * self.first + 0.1 * g
        self.second = 0.999 * self.second + 0.001 * g * g
        mean, square = self.first / (1 - 0.9**self.count), self.second / (1 - 0.999**self.count)
        decay = 0.05 * theta if kind == "adamw" else 0.0
        return -rate * (mean / (np.sqrt(square) + 1e-8) + decay)


def schedule(kind, steps):
    return {
        "const": lambda t: 1.0,
        "cosine": lambda t: 0.5 + 0.5 * math.cos(math.pi * t / steps),
        "warmup": lambda t: min(1.0, (t + 1) / (0.1 * steps)) * (1.0 - 0.9 * t / steps),
        "step": lambda t: 0.3 ** (3 * t // steps),
        "onecycle": lambda t: max(
            1e-3, 1 - abs(t / steps - 0.3) / (0.3 if t < 0.3 * steps else 0.7)
        ),
        "restarts": lambda t: 0.5 + 0.45 * math.cos(math.pi * (4 * t % steps) / steps),
        "exp": lambda t: 0.05 ** (t / steps),
        "inverse": lambda t: (1.0 + t / 30.0) ** -0.5,
        "triangle": lambda t: 0.2 + 0.8 * abs((t / 50.0) % 2.0 - 1.0),
    }[kind]


class Training:
    """One run; what is healthy about it may be replaced before it starts."""

    def __init__(self, seed, kind=None, optimizer=None, steps=None, scheduled=None):
        self.rng = rng = random.Random(seed)
        self.draws = np.random.default_rng(seed)
        self.kind = kind or rng.choice(sorted(LOSSES))
        self.batch = rng.choice([4, 8, 16, 32, 64, 128])
        features = rng.choice([6, 12, 24])
        outputs = {
            "cross_entropy": rng.choice([2, 3, 5, 10]),
            "gaussian": 2,
            "autoencoder": features,
        }
        self.outputs = outputs.get(self.kind, 1)
        self.steps = steps or rng.choice([150, 250, 400, 700])
        self.teacher = Model(random.Random(seed + 1), self.draws, features, self.outputs)
        self.model = Model(rng, self.draws, features, self.outputs)
        name = optimizer or rng.choice(sorted(RATES))
        self.rate = RATES[name] * rng.choice([0.5, 1.0, 2.0])
        self.optimizer = Optimizer(name)
        scheduled = scheduled or rng.choice(
            [
                "const",
                "cosine",
                "warmup",
                "step",
                "onecycle",
                "restarts",
                "exp",
                "inverse",
                "triangle",
            ]
        )
        self.scale = schedule(scheduled, self.steps)
        self.clip = rng.choice([math.inf, math.inf, 1.0, 5.0])
        self.every, self.val_every = rng.choice([1, 1, 1, 2, 5]), rng.choice([5, 20, 50])
        self.noise, self.smoothing = rng.choice([0.02, 0.1, 0.5]), rng.choice([0.0, 0.0, 0.1])
        self.tail = rng.choice([None, None, 3.0])
        self.features, self.held_out = features, None
        self.batches = lambda step: self.draw(self.batch)
        self.sign, self.keeps, self.frozen, self.evaluated = 1.0, False, False, None
        self.before_step = lambda step: None
        self.declared = rng.random() < 0.7

    def draw(self, size):
        x = self.draws.normal(size=(size, self.features))
        if self.tail:
            x = np.clip(self.draws.standard_t(self.tail, size=x.shape), -8, 8)
        score = 2.0 * self.teacher.forward(x)[0]
        score = score + self.noise * self.draws.normal(size=score.shape)
        if self.kind == "cross_entropy":
            return x, score.argmax(1)
        if self.kind == "autoencoder":
            return x, x
        y = score[:, :1]
        if self.kind == "bce_with_logits":
            return x, (y > 0) * 1.0
        return x, y

    def loss(self, out, y):
        options = (self.smoothing,) if self.kind == "cross_entropy" else ()
        return LOSSES[self.kind](out, y, *options)

    @property
    def hints(self):
        hints = {"planned_steps": self.steps, "log_every": self.every}
        if self.declared:
            hints["batch_size"] = self.batch
            if self.kind in ("cross_entropy", "bce_with_logits", "mse"):
                hints["loss"] = self.kind
            if self.kind == "cross_entropy":
                hints["classes"] = self.outputs
        return hints

    def records(self):
        self.held_out = self.draw(self.rng.choice([64, 256]))
        kept, found = 0.0, []
        for step in range(self.steps):
            self.before_step(step)
            x, y = self.batches(step)
            with np.errstate(all="ignore"):
                out, rest = self.model.forward(x)
                value, slope = self.loss(out, y)
                kept = self.sign * self.model.backward(rest, slope) + (kept if self.keeps else 0.0)
                signals = self.step(step, kept, float(value))
            if step % self.every == 0 or "val_loss" in signals:
                found.append(StepRecord(step=step, time_s=float(step), signals=signals))
        return found

    def step(self, step, gradient, value):
        norm = float(np.sqrt(gradient @ gradient))
        cut = min(1.0, self.clip / (norm + 1e-12))
        rate = self.rate * self.scale(step)
        theta = self.model.theta
        change = self.optimizer.change(theta, gradient * cut, rate) * (not self.frozen)
        size = float(np.sqrt(theta @ theta))
        self.model.theta = theta + change
        row = {"loss": value, "lr": rate, "grad_norm": norm}
        row["update_ratio"] = float(np.sqrt(change @ change)) / (size + 1e-12)
        if math.isfinite(self.clip):
            row["clip_coef"] = cut
        if step % self.val_every == self.val_every - 1:
            out, _ = self.model.forward(self.held_out[0], self.evaluated)
            row["val_loss"] = float(self.loss(out, self.held_out[1])[0])
        return {name: float(f"{number:.5g}") for name, number in row.items()}


def alarms(records, hints):
    """Rules of the alarms, root causes first; preview rules do not count."""
    judge = RunDetector(make_checks(), DiagnoseOptions(**hints))
    issues = [issue for record in records for issue in judge.step(record)]
    ranked = rank([*issues, *judge.finish()])
    loud = [issue for issue in ranked if issue.severity > Severity.INFO]
    return [issue.rule for issue in loud if issue.rule not in PREVIEW]


def is_healthy(records):
    """Whether a run ends finite and below its start and was never far above it.

    That is decided without any tool. A run that is broken but recovers is no healthy one.
    """
    losses = [record.signals["loss"] for record in records]
    start, end = statistics.median(losses[:10]), statistics.median(losses[-20:])
    size = max(abs(start), abs(losses[0]))
    blocks = [statistics.median(losses[at : at + 10]) for at in range(0, len(losses) - 9, 10)]
    sound = all(map(math.isfinite, losses)) and max(blocks) < 3.0 * size and max(losses) < 20 * size
    return sound and end < start - 0.03 * abs(start)


# ---------------------------------------------------------------- broken ones
def rate_too_high(seed):
    run = Training(seed, optimizer=random.Random(seed).choice(["adam", "adamw", "rmsprop", "lion"]))
    run.rate *= random.Random(seed).choice([300.0, 1000.0, 3000.0])
    return run, {"RUN201"}


def rate_too_low(seed):
    run = Training(seed, "cross_entropy", scheduled="const", steps=400)
    run.rate *= random.Random(seed).choice([1e-4, 1e-5])
    run.every = 1
    return run, {"RUN202"}


def schedule_too_short(seed):
    run = Training(seed, steps=700, optimizer="adam", scheduled="const")
    run.scale = lambda step: max(0.0, 1.0 - step / 150)
    return run, {"RUN203"}


def rate_jump(seed):
    run = Training(seed, steps=400, optimizer="adam", scheduled="const")
    times = random.Random(seed).choice([100.0, 300.0])
    run.scale, run.every = lambda step: 1.0 if step < 220 else times, 1
    return run, {"RUN204"}


def nan_batch(seed):
    run = Training(seed)
    batches = run.batches
    run.batches = lambda step: (
        tuple(p * (math.nan if step == 100 else 1) for p in batches(step)[:1]) + batches(step)[1:]
    )
    return run, {"RUN101", "RUN102"}


def gradients_kept(seed):
    run = Training(seed, optimizer="sgd", scheduled="const", steps=400)
    run.keeps, run.clip, run.every = True, math.inf, 1
    return run, {"RUN304", "RUN201", "RUN105"}


def random_labels(seed):
    run = Training(seed, "cross_entropy", steps=400, optimizer="adam", scheduled="const")
    batches, run.declared, run.every = run.batches, True, 1
    run.batches = lambda step: (batches(step)[0], run.draws.integers(0, run.outputs, run.batch))
    return run, {"RUN507", "RUN107"}


def weights_lost(seed):
    run = Training(seed, "cross_entropy", steps=700, optimizer="adam", scheduled="const")
    run.rate, run.every, fresh = 4e-3, 1, run.model.theta.copy()

    def forget(step):
        if step == 400:
            run.model.theta = fresh.copy()

    run.before_step = forget
    return run, {"RUN104"}


def sorted_data(seed):
    run = Training(seed, "cross_entropy", steps=700, optimizer="adam", scheduled="const")
    run.batch, run.every = 16, 1
    size = run.batch * random.Random(seed).choice([24, 40, 60])
    x, y = run.draw(size)
    order = y.argsort(kind="stable")
    x, y = x[order], y[order]
    rows = np.arange(run.batch)
    run.batches = lambda step: (
        x[(rows + step * run.batch) % size],
        y[(rows + step * run.batch) % size],
    )
    return run, {"RUN503"}


def one_batch(seed):
    run = Training(seed, "cross_entropy", steps=400, optimizer="adam", scheduled="const")
    run.batch, run.rate, run.every, run.val_every = 16, 4e-3, 1, 20
    same = run.draw(run.batch)
    run.batches = lambda step: same
    return run, {"RUN506", "RUN108", "RUN110"}


def memorised(seed):
    run = Training(seed, "cross_entropy", steps=700, optimizer="adam", scheduled="const")
    run.batch, run.rate, run.every, run.val_every = 16, 1e-2, 1, 10
    x, y = run.draw(64)
    wrong = run.draws.random(64) < 0.3
    y = np.where(wrong, run.draws.integers(0, run.outputs, 64), y)
    pick = lambda rows: (x[rows], y[rows])  # noqa: E731
    run.batches = lambda step: pick(run.draws.integers(0, 64, run.batch))
    return run, {"RUN108"}


def loss_negated(seed):
    run = Training(seed, "cross_entropy", optimizer="sgd", steps=400, scheduled="const")
    run.sign, run.every, run.rate = -1.0, 1, 0.02
    return run, {"RUN109", "RUN105"}


def clipped_away(seed):
    run = Training(seed, "cross_entropy", optimizer="sgd", steps=400, scheduled="const")
    run.clip, run.every = random.Random(seed).choice([1e-4, 1e-5]), 1
    return run, {"RUN205"}


def nothing_moves(seed):
    run = Training(seed, steps=250, scheduled="const")
    run.frozen = True
    return run, {"RUN206"}


def stale_copy(seed):
    run = Training(seed, steps=700, optimizer="adam", scheduled="const")
    run.evaluated, run.val_every = run.model.theta.copy(), 20
    return run, {"RUN111"}


def poisoned_batches(seed):
    run = Training(seed, "mse", steps=700, optimizer="adam", scheduled="const")
    batches, bad, run.every = run.batches, {330, 390, 460, 520}, 1
    run.batches = lambda step: (batches(step)[0], batches(step)[1] + 60.0 * (step in bad))
    return run, {"RUN301", "RUN502", "RUN103"}


FAULTS = (
    rate_too_high, rate_too_low, schedule_too_short, rate_jump, nan_batch, gradients_kept,
    random_labels, weights_lost, sorted_data, one_batch, memorised, loss_negated, clipped_away,
    nothing_moves, stale_copy, poisoned_batches,
)  # fmt: skip


# ---------------------------------------------------------------- tests
def test_derivatives_are_right():
    run = Training(3, "gaussian")
    x, y = run.draw(7)
    out, rest = run.model.forward(x)
    gradient = run.model.backward(rest, run.loss(out, y)[1])
    nudge = 1e-5 * run.draws.normal(size=run.model.theta.shape)
    ends = [run.loss(run.model.forward(x, run.model.theta + s * nudge)[0], y)[0] for s in (1, -1)]

    assert (ends[0] - ends[1]) / 2.0 == pytest.approx(float(gradient @ nudge), rel=1e-5)


@pytest.mark.slow
def test_healthy_runs_stay_quiet():
    loud = {}
    for seed in HEALTHY_SEEDS:
        training = Training(seed)
        records = training.records()
        rules = alarms(records, training.hints)
        if rules and is_healthy(records):
            loud[seed] = rules

    assert not loud


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_broken_runs_are_told_by_their_cause(fault):
    missed = {}
    for seed in FAULTY_SEEDS:
        training, causes = fault(seed)
        rules = alarms(training.records(), training.hints)
        if not rules or rules[0] not in causes:
            missed[seed] = rules

    # poisoned targets also spoil the validation loss, which may be told first
    allowed = 2 if fault is poisoned_batches else 1
    assert len(missed) <= allowed, missed
