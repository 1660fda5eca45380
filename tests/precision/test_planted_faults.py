"""Planted faults are named, all of them and nothing else."""

import pytest
import torch
from torch import nn

CE = nn.CrossEntropyLoss()


def labels(count, classes=3):
    return torch.randint(classes, (count,))


def test_two_faults_among_eleven_modules(audited, named, parts):
    model = nn.Sequential(
        nn.Linear(64, 64),
        nn.LayerNorm(64),
        nn.GELU(),
        parts["shift"](),
        nn.Linear(64, 64),
        nn.GELU(),
        parts["square"](),
        nn.Linear(64, 64),
        nn.LayerNorm(64),
        nn.GELU(),
        nn.Linear(64, 10),
    )

    report = audited(model, torch.randn(128, 64), labels(128, 10), loss_fn=CE)

    assert named(report) == [
        ("PRC101", "3", "float16, bfloat16"),
        ("PRC102", "6", "float16"),
    ]
    assert report.keep_in_float32("float16") == ("3", "6")
    assert report.keep_in_float32("bfloat16") == ("3",)
    assert [m.recommended for m in report.modules if m.path in "36"] == ["float32", "bfloat16"]
    assert [i.rule for i in report.issues].count("PRC104") == 1  # one for the model, not one each


class NaiveVariance(nn.Module):
    def forward(self, x):
        shifted = x + 60.0
        mean = shifted.mean(-1, keepdim=True)
        variance = shifted.square().mean(-1, keepdim=True) - mean.square()
        return x / (variance.abs() + 1e-5).sqrt()


class LongSum(nn.Module):
    def forward(self, x):
        total = torch.zeros_like(x[:, 0])
        for index in range(400):
            total = total + x[:, index % x.shape[1]].abs() * 0.01 + 0.02
        return total[:, None]


class SumOfExponentials(nn.Module):
    def forward(self, x):
        return (8 * x).exp().sum(-1, keepdim=True).log()


class Tiny(nn.Module):
    def forward(self, x):
        return x * 1e-7


class Large(nn.Module):
    def forward(self, x):
        return x * 1e7


class Scaled(nn.Module):
    """A norm whose squares may overflow; what comes out is finite all the same."""

    def __init__(self, by):
        super().__init__()
        self.by = by

    def forward(self, x):
        x = x * self.by
        return x / (x.square().mean(-1, keepdim=True) + 1e-5).sqrt()


class Distances(nn.Module):
    def __init__(self):
        super().__init__()
        self.centres = nn.Parameter(10 + 0.1 * torch.randn(5, 8))

    def forward(self, x):
        x = 10 + 0.1 * x
        squares = x.square().sum(-1, keepdim=True) + self.centres.square().sum(-1)
        return squares - 2 * x @ self.centres.T


class Phase(nn.Module):
    def forward(self, x):
        return torch.sin(300 * x)


@pytest.mark.parametrize(
    ("middle", "width", "expected"),
    [
        (Scaled(20.0), 8, []),
        (Scaled(400.0), 8, [("PRC102", "1", "float16")]),
        (Distances(), 5, [("PRC101", "1", "float16, bfloat16")]),
        (Phase(), 8, [("PRC101", "1", "float16, bfloat16")]),
        (NaiveVariance(), 8, [("PRC101", "1", "float16, bfloat16")]),
        (LongSum(), 1, [("PRC101", "1", "float16, bfloat16")]),
        (SumOfExponentials(), 1, [("PRC102", "1", "float16")]),
    ],
)
def test_a_fault_between_two_layers(audited, named, middle, width, expected):
    model = nn.Sequential(nn.Linear(8, 8), middle, nn.Linear(width, 3))

    assert named(audited(model, 3 * torch.randn(16, 8), labels(16), loss_fn=CE)) == expected


def test_the_module_that_makes_numbers_too_small_is_named_and_the_next_one_is_not(audited, named):
    model = nn.Sequential(nn.Linear(8, 8), Tiny(), Large(), nn.Linear(8, 3))

    report = audited(model, torch.randn(16, 8), labels(16), loss_fn=CE)

    assert named(report) == [("PRC101", "1", "float16")]


class Difference(nn.Module):
    """The arithmetic between the modules loses the digits, no module does."""

    def __init__(self, apart):
        super().__init__()
        self.first, self.second, self.head = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 3)
        with torch.no_grad():
            noise = apart * torch.randn(8, 8)
            self.second.weight.copy_(self.first.weight + noise)
            self.second.bias.copy_(self.first.bias)

    def forward(self, x):
        return self.head(100 * (self.first(x) - self.second(x)))


def test_arithmetic_between_modules_is_seen(audited, named):
    report = audited(Difference(1e-3), torch.randn(16, 8), labels(16), loss_fn=CE)

    assert named(report) == [("PRC101", "", "float16, bfloat16")]
    assert "Own code of Difference" in next(i for i in report.issues if i.rule == "PRC101").message


def test_a_difference_of_unlike_things_is_healthy(audited, named):
    report = audited(Difference(1.0), torch.randn(16, 8), labels(16), loss_fn=CE)

    assert named(report) == []


class Scores(nn.Module):
    """Attention scores that are scaled only after the product."""

    def __init__(self, scale):
        super().__init__()
        self.query, self.key, self.head = nn.Linear(16, 16), nn.Linear(16, 16), nn.Linear(16, 3)
        self.scale = scale

    def forward(self, x):
        query, key = self.scale * self.query(x), self.scale * self.key(x)
        scores = query @ key.transpose(1, 2) / self.scale**2
        return self.head(scores.softmax(-1) @ x).mean(1)


@pytest.mark.parametrize(("scale", "expected"), [(1.0, []), (400.0, [("PRC102", "", "float16")])])
def test_attention_scores_in_forward_code_are_seen(audited, named, scale, expected):
    report = audited(Scores(scale), torch.randn(4, 7, 16), labels(4), loss_fn=CE)

    assert named(report) == expected


@pytest.mark.parametrize(("by", "is_named"), [(8.0, False), (60.0, True)])
def test_the_limit_is_eight_eps(audited, named, parts, by, is_named):
    """Rounding at 8 costs about 2 eps of a number near 1, at 60 about 17."""
    report = audited(parts["shift"](by), torch.randn(64, 64))

    (row,) = report.modules
    assert (row.measurements["float16"].local_error > 8 * 2**-10) is is_named
    assert (("PRC101", "", "float16, bfloat16") in named(report)) is is_named


def test_the_fault_is_high_in_the_dtype_that_the_model_has(audited, parts):
    model = nn.Sequential(nn.Linear(8, 8), parts["shift"]()).half()

    report = audited(model, torch.randn(16, 8).half())

    (issue,) = report.issues
    assert (issue.rule, issue.severity.label) == ("PRC101", "high")


class TwoHeads(nn.Module):
    """One gradient is so much larger that no loss scale fits both."""

    def __init__(self, weight):
        super().__init__()
        self.quiet, self.loud = nn.Linear(8, 1), nn.Linear(8, 1)
        self.weight = weight

    def forward(self, x):
        return self.quiet(x).mean() + (self.weight * self.loud(x)).mean()


@pytest.mark.parametrize(("weight", "expected"), [(10.0, []), (1e11, ["PRC103"])])
def test_gradients_that_no_loss_scale_saves(audited, weight, expected):
    report = audited(TwoHeads(weight), torch.randn(16, 8), candidate_dtypes=(torch.float16,))

    found = [i for i in report.issues if i.rule == "PRC103"]
    assert [issue.rule for issue in found] == expected
    assert all(issue.where.module == "quiet" for issue in found)


@pytest.mark.parametrize(("scale", "expected"), [(1.0, []), (1e-6, ["PRC104"])])
def test_small_gradients_ask_for_loss_scaling_once(audited, scale, expected):
    model = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 1))

    report = audited(model, torch.randn(16, 8), loss_fn=lambda out: scale * out.sum())

    assert [issue.rule for issue in report.issues] == expected
    assert all(issue.where.op == "float16" for issue in report.issues)  # bfloat16 needs none
