"""Steps, noise and signal: known answers, and a training that is not changed."""

import math
import subprocess
import sys

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import nabla
from nabla_core.errors import UsageError
from nabla_trace.live.ladder import Rung
from nabla_trace.noise import NoiseEstimator, NoiseScale, noise_issues
from nabla_trace.options import TraceOptions
from nabla_trace.signal_verdicts import signal_issues
from nabla_trace.step_probes import NextBatchProbe, OwnBatchProbe, alpha_of_means, alpha_of_step
from nabla_trace.step_verdicts import step_issues


def rules_of(issues):
    return [issue.rule for issue in issues]


@pytest.mark.parametrize("ratio", [0.01, 0.1, 0.5, 1.0, 1.5, 1.9, 2.0, 2.1, 3.0])
def test_alpha_of_a_quadratic(ratio):
    """Gradient descent on ``2 x^2`` from 1 with the rate ``ratio / 4`` has alpha ``ratio - 1``."""
    step = -ratio
    before, after, slope = 2.0, 2 * (1 + step) ** 2, 4 * step

    assert alpha_of_step(before, after, slope) == pytest.approx(ratio - 1, abs=1e-9)
    half = 2 * (1 + step / 2) ** 2
    probe = NextBatchProbe(step=0, before=before, half=half, after=after)
    assert alpha_of_means([probe]) == pytest.approx(ratio - 1, abs=1e-9)


def test_alpha_of_lines_and_ascent():
    assert alpha_of_step(2.0, 1.0, -1.0) == -1
    assert math.isnan(alpha_of_step(2.0, 3.0, 1.0))
    assert alpha_of_step(2.0, math.inf, -1.0) == math.inf


def quadratic_probes(ratio, count=8):
    """Probes on the same quadratic, every tenth step."""
    own, following = [], []
    for index in range(count):
        before, half, after = 2.0, 2 * (1 - ratio / 2) ** 2, 2 * (1 - ratio) ** 2
        own.append(OwnBatchProbe(step=10 * index, before=before, after=after, slope=-4 * ratio))
        following.append(NextBatchProbe(step=10 * index, before=before, half=half, after=after))
    return own, following


@pytest.mark.parametrize(
    ("ratio", "expected"),
    [(0.05, ["GEO301"]), (0.15, []), (1.0, []), (1.45, []), (1.6, ["GEO302"])],
)
def test_size_of_steps(ratio, expected):
    assert rules_of(step_issues(*quadratic_probes(ratio), TraceOptions())) == expected


def test_few_probes_say_nothing():
    assert rules_of(step_issues(*quadratic_probes(0.01, count=4), TraceOptions())) == []


@pytest.mark.parametrize(("rise", "expected"), [(0.2, []), (0.3, ["GEO303"])])
def test_early_jumps(rise, expected):
    own, following = quadratic_probes(1.0)
    following[0] = NextBatchProbe(step=2, before=2.0, half=2.0, after=2.0 * (1 + rise))

    assert rules_of(step_issues(own, following, TraceOptions())) == expected


@pytest.mark.parametrize(
    ("rise", "loss_at_five", "expected"),
    [(0.9, 1.9, []), (0.9, 2.1, ["GEO303"]), (1.1, 1.9, ["GEO303"])],
)
def test_a_jump_that_is_made_up_for_is_none(rise, loss_at_five, expected):
    own, following = quadratic_probes(1.0)
    following[0] = NextBatchProbe(step=2, before=2.0, half=2.0, after=2.0 * (1 + rise))
    following[1] = NextBatchProbe(step=5, before=loss_at_five, half=1.0, after=1.0)

    assert rules_of(step_issues(own, following, TraceOptions())) == expected


@pytest.mark.parametrize(
    ("rise", "later", "expected"),
    [(3.0, 0.99, []), (3.0, 1.01, ["GEO303"]), (11.0, 0.5, ["GEO303"])],
)
def test_a_jump_before_the_loss_falls_below_half_its_start_is_none(rise, later, expected):
    """The rate that trains best may well begin with one, right after a fresh normalisation."""
    own, following = quadratic_probes(1.0, count=12)
    following[0] = NextBatchProbe(step=2, before=2.0, half=2.0, after=2.0 * (1 + rise))
    following[8:] = [
        NextBatchProbe(step=10 * index, before=later, half=later / 2, after=later / 3)
        for index in range(8, 12)
    ]

    assert rules_of(step_issues(own, following, TraceOptions())) == expected


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (2.0, 21.9, []),
        (2.0, 22.1, ["GEO303"]),
        (2.0, math.nan, ["GEO303"]),
        (math.nan, math.nan, []),
    ],
)
def test_a_loss_that_blows_up_needs_one_probe_and_one_of_bad_data_is_no_jump(
    before, after, expected
):
    own, following = quadratic_probes(1.0, count=2)
    following[1] = NextBatchProbe(step=1, before=before, half=math.nan, after=after)

    assert rules_of(step_issues(own, following, TraceOptions())) == expected


@pytest.mark.parametrize(("uphill", "expected"), [(4, []), (5, ["GEO304"])])
def test_steps_uphill(uphill, expected):
    own, following = quadratic_probes(1.0)
    for index in range(uphill):
        own[index] = OwnBatchProbe(step=index, before=1.0, after=1.1, slope=0.1)

    assert rules_of(step_issues(own, following, TraceOptions())) == expected


def regression_grams(batches, *, width=20, noise=2.0):
    """Per-sample gradients of a linear regression whose noise scale is known."""
    generator = torch.Generator().manual_seed(0)
    off = torch.randn(width, dtype=torch.float64, generator=generator) * 0.5
    square = float(off @ off)
    scale = ((width + 2) * square + width * noise**2 - square) / square

    def gram():
        x = torch.randn(64, width, dtype=torch.float64, generator=generator)
        error = noise * torch.randn(64, 1, dtype=torch.float64, generator=generator)
        rows = x * (x @ off[:, None] - error)
        return rows @ rows.T

    return scale, [gram() for _ in range(batches)]


def test_noise_scale_of_a_regression():
    scale, grams = regression_grams(20)
    estimator = NoiseEstimator()
    for gram in grams:
        estimator.add(gram)

    assert estimator.scale().value == pytest.approx(scale, rel=0.15)
    assert estimator.scale().low < scale < estimator.scale().high


def test_interval_covers_the_truth():
    scale, grams = regression_grams(300)
    covered = 0
    for start in range(0, 300, 5):
        estimator = NoiseEstimator()
        for gram in grams[start : start + 5]:
            estimator.add(gram)
        covered += estimator.scale().low <= scale <= estimator.scale().high

    assert covered / 60 >= 0.85


def test_equal_samples_have_no_noise_and_opposite_ones_no_scale():
    equal, opposite = NoiseEstimator(), NoiseEstimator()
    equal.add(torch.ones(8, 8))
    sign = torch.tensor([1.0, -1.0] * 4)
    opposite.add(sign[:, None] * sign[None, :])

    assert equal.scale().value == 0
    assert not opposite.scale().is_determined
    assert rules_of(noise_issues(opposite.scale())) == ["GEO403"]


@pytest.mark.parametrize(
    ("scale", "expected"),
    [(100.0, []), (1200.0, []), (3000.0, ["GEO401"]), (4.0, []), (1.0, ["GEO402"])],
)
def test_batch_sizes(scale, expected):
    found = NoiseScale(value=scale, low=0.9 * scale, high=1.1 * scale, batches=9, samples=64)

    assert rules_of(noise_issues(found)) == expected


def rungs(forward, backward, likeness=(0.1,) * 6):
    return [
        Rung(name=f"layer{n}", forward=f, backward=b, likeness=a, dead=0.0)
        for n, (f, b, a) in enumerate(zip(forward, backward, likeness, strict=True))
    ]


@pytest.mark.parametrize(
    ("gain", "expected"), [(0.05, ["GEO501"]), (0.15, []), (7.0, []), (20.0, ["GEO502"])]
)
def test_signal_along_the_layers(gain, expected):
    scales, even = [gain**n for n in range(6)], [1.0] * 6

    assert rules_of(signal_issues(rungs(scales, even), 0, TraceOptions())) == expected
    assert rules_of(signal_issues(rungs(even, scales[::-1]), 0, TraceOptions())) == expected


@pytest.mark.parametrize(("last", "expected"), [(0.99, []), (0.999, ["GEO503"])])
def test_outputs_that_become_alike(last, expected):
    ladder = rungs([1.0] * 6, [1.0] * 6, (0.1, 0.5, 0.9, last, last, 0.2))

    assert rules_of(signal_issues(ladder, 0, TraceOptions())) == expected


def train(model, optimizer, steps=60, batch=32, scheduler=None):
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(512, 10, generator=generator)
    y = (x @ torch.randn(10, 4, generator=generator)).argmax(1)
    losses = []
    for _ in range(steps):
        chosen = torch.randint(512, (batch,), generator=generator)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x[chosen]), y[chosen])
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    return losses


def model_with_everything():
    torch.manual_seed(3)
    return nn.Sequential(
        nn.Linear(10, 32),
        nn.BatchNorm1d(32),
        nn.ReLU(),
        nn.Dropout(0.1),
        nn.Linear(32, 32),
        nn.ReLU(),
        nn.Linear(32, 32),
        nn.LayerNorm(32),
        nn.Linear(32, 32),
        nn.Linear(32, 4),
    )


def test_training_is_bit_identical_with_and_without():
    results = []
    for traced in (False, True):
        model = model_with_everything()
        optimizer = torch.optim.Adam(model.parameters(), 1e-3)
        torch.manual_seed(5)
        if traced:
            with nabla.trace.attach(model, optimizer, every=10) as trace:
                losses = train(model, optimizer)
        else:
            losses = train(model, optimizer)
        results.append((losses, [p.clone() for p in model.parameters()], model[1].running_mean))

    assert trace.failed == {} and trace.skipped == {}
    assert trace.looks == [0, 10, 20, 30, 40, 50]
    assert len(trace.own_batch) == len(trace.next_batch) == 10
    assert results[0][0] == results[1][0]
    assert all(torch.equal(a, b) for a, b in zip(results[0][1], results[1][1], strict=True))
    assert torch.equal(results[0][2], results[1][2])
    assert not model._forward_hooks and not optimizer._optimizer_step_post_hooks
    assert "noise scale" in trace.format() and "layer" in trace.format()


def test_inline_gram_is_that_of_the_samples():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3)).double()
    x, y = torch.randn(9, 6).double(), torch.randint(3, (9,))
    expected = nabla.trace.samples(model, nn.CrossEntropyLoss(reduction="none"), (x, y)).gram
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    with nabla.trace.attach(model, optimizer, every=1, what="samples") as trace:
        F.cross_entropy(model(x), y).backward()
        optimizer.step()

    assert torch.allclose(trace.gram, expected)


def test_gradient_from_outside_the_call_is_noticed():
    model, x = nn.Linear(4, 4), torch.randn(8, 4)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    with nabla.trace.attach(model, optimizer, every=1, what=("samples",)) as trace:
        (model(x).square().mean() + model.weight.square().sum()).backward()
        optimizer.step()

    assert trace.gram is None and "outside" in trace.skipped[0]


@pytest.mark.parametrize(("rate", "expected"), [(1e-5, {"GEO301"}), (3e-3, set())])
def test_a_loop_with_a_tiny_rate_and_a_good_one(rate, expected):
    model = model_with_everything().eval()
    optimizer = torch.optim.Adam(model.parameters(), rate)
    with nabla.trace.attach(model, optimizer, every=10, what="step") as trace:
        train(model, optimizer, steps=100)

    assert {issue.rule for issue in trace.issues} == expected


def test_a_network_of_tiny_weights_is_seen():
    torch.manual_seed(0)
    layers = [nn.Sequential(nn.Linear(10, 10), nn.Tanh()) for _ in range(6)]
    model = nn.Sequential(*layers, nn.Linear(10, 4))
    for layer in layers:
        nn.init.normal_(layer[0].weight, std=0.005)
        nn.init.zeros_(layer[0].bias)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with nabla.trace.attach(model, optimizer, what="signal") as trace:
        train(model, optimizer, steps=1)

    assert {issue.rule for issue in trace.issues} == {"GEO501"}


@pytest.mark.parametrize(
    ("options", "message"), [({"every": 0}, "above zero"), ({"what": ("x",)}, "use any of")]
)
def test_impossible_requests(options, message):
    model = nn.Linear(2, 2)
    with pytest.raises(UsageError, match=message):
        nabla.trace.attach(model, torch.optim.SGD(model.parameters(), 0.1), **options)
    with pytest.raises(UsageError, match="moves no parameter"):
        nabla.trace.attach(nn.Linear(2, 2), torch.optim.SGD(model.parameters(), 0.1))


SCRIPT = """
import torch
from torch import nn
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 3))
optimizer = torch.optim.Adam(net.parameters(), 1e-6)
x = torch.randn(256, 6)
y = (x @ torch.randn(6, 3)).argmax(1)
for _ in range(80):
    rows = torch.randint(256, (32,))
    optimizer.zero_grad()
    nn.functional.cross_entropy(net(x[rows]), y[rows]).backward()
    optimizer.step()
"""


def test_command_line(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    command = [sys.executable, "-m", "nabla", "trace", "--every", "10", str(script)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)

    assert done.returncode == 0, done.stderr
    assert "GEO301 step-too-small" in done.stdout and "noise scale" in done.stdout


def test_command_line_without_a_loop(tmp_path):
    script = tmp_path / "nothing.py"
    script.write_text("print('nothing')\n")
    command = [sys.executable, "-m", "nabla", "trace", str(script)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)

    assert done.returncode == 4
    assert "no optimizer step" in done.stdout
