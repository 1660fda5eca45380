"""Births in calls that no mode of torch sees, in rows that become a batch, and behind masks."""

import pytest
import torch
from origin_programs import Programs, lines_of
from torch import nn
from torch.autograd import Function
from torch.func import functional_call, grad, vmap
from torch.nn import functional as F
from torch.utils.data import DataLoader

program = PROGRAMS = Programs()


def steps_of(parameters, loss_of, steps=5, lr=1e-2):
    """Train on the losses of ``loss_of(step)``; yield each of them."""
    optimizer = torch.optim.SGD(list(parameters), lr)
    for step in range(steps):
        optimizer.zero_grad()
        loss = loss_of(step)
        loss.backward()
        optimizer.step()
        yield loss


@program("NUM102", "backward", "LengthBackward", 3)
def a_custom_function_outside_of_modules(log):
    class Length(Function):
        @staticmethod
        def forward(ctx, x):
            length = x.norm(dim=-1, keepdim=True)
            ctx.save_for_backward(x, length)
            return length

        @staticmethod
        def backward(ctx, slope):
            x, length = ctx.saved_tensors
            return slope * (x / length)  # born

    linear = nn.Linear(4, 4, bias=False)

    def loss_of(step):
        x = torch.randn(7, 4)
        x[5] *= float(step != 3)
        return Length.apply(linear(x)).mean()

    log(*steps_of(linear.parameters(), loss_of))


@program("NUM103", "loss", "log", 2, sample=1)
def a_custom_function_that_computes_the_loss(log):
    class Surprise(Function):
        @staticmethod
        def forward(ctx, p):
            ctx.save_for_backward(p)
            return -p.log()  # born

        @staticmethod
        def backward(ctx, slope):
            return -slope / ctx.saved_tensors[0]

    model = nn.Sequential(nn.Linear(4, 1), nn.Sigmoid())

    def loss_of(step):
        x = torch.randn(3, 4)
        if step == 2:
            x[1] = -1e4 * model[0].weight.detach()[0]
        return Surprise.apply(model(x)).mean()

    log(*steps_of(model.parameters(), loss_of))


@program("NUM102", "backward", "SqrtBackward0", 1)
def derivatives_of_single_samples(log):
    net = nn.Linear(3, 2)
    optimizer = torch.optim.SGD(net.parameters(), 0.01)

    def loss_of(weights, x):
        out = functional_call(net, weights, (x[None],))[0]
        return torch.sqrt((out * x.sum()).pow(2).sum())  # born

    for step in range(3):
        x = torch.randn(4, 3) * torch.tensor([[1.0], [1], [float(step != 1)], [1]])
        weights = {name: value.detach() for name, value in net.named_parameters()}
        gradients = vmap(grad(loss_of), in_dims=(None, 0))(weights, x)
        for name, parameter in net.named_parameters():
            parameter.grad = gradients[name].mean(0)
        optimizer.step()
        log(*net.parameters())


class Rows(torch.utils.data.Dataset):
    """Rows with a label; one feature of row 14 and one label of row 21 are not finite."""

    def __init__(self, dense, label):
        self.dense, self.label = dense, label

    def __len__(self):
        return len(self.dense)

    def __getitem__(self, row):
        return {"dense": self.dense[row], "label": self.label[row]}


class Reader(nn.Module):
    """Takes the batch as one mapping."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(5, 2)

    def forward(self, batch):
        return self.head(batch["dense"])


def read_rows(log, dense, label):
    model, loader = Reader(), iter(DataLoader(Rows(dense, label), batch_size=6))

    def loss_of(step):
        batch = next(loader)
        return F.mse_loss(model(batch), batch["label"])

    log(*steps_of(model.parameters(), loss_of))


@program("NUM104", "data", "input", 2, sample=2, parameter="argument 0['dense']")
def a_row_that_a_loader_stacks(log):
    dense = torch.randn(30, 5)
    dense[14, 3] = torch.nan
    read_rows(log, dense, torch.randn(30, 2))


@program("NUM104", "data", "input", 3, sample=3)
def a_label_that_a_loader_stacks(log):
    label = torch.randn(30, 2)
    label[21, 1] = torch.nan
    read_rows(log, torch.randn(30, 5), label)


@program("NUM104", "data", "input", 1, sample=4)
def a_row_that_is_picked_by_a_shuffled_index(log):
    model, table, order = nn.Linear(3, 1), torch.randn(40, 3), torch.randperm(40)
    table[order[8 + 4], 1] = torch.inf

    def loss_of(step):
        return model(table[order[8 * step : 8 * step + 8]]).pow(2).mean()

    log(*steps_of(model.parameters(), loss_of))


@program("NUM103", "loss", "_log_softmax", 2, sample=2)
def the_first_nan_is_the_sample_not_a_masked_value(log):
    policy = nn.Linear(4, 5)

    def loss_of(step):
        legal = torch.rand(7, 5) > 0.4
        legal[:, 0] = True
        legal[2] &= step != 2
        logits = policy(torch.randn(7, 4)).masked_fill(~legal, -torch.inf)
        return -torch.log_softmax(logits, -1)[:, 0].mean()  # born

    log(*steps_of(policy.parameters(), loss_of))


@program("NUM103", "loss", "sub", 2)
def the_largest_of_a_masked_row_is_taken_off_it(log):
    model = nn.Linear(4, 6)

    def loss_of(step):
        allowed = torch.rand(5, 6) > 0.5
        allowed[:, 0] = True
        allowed[1] &= step != 2
        scores = model(torch.randn(5, 4)).masked_fill(~allowed, -torch.inf)
        top = scores.max(1, keepdim=True).values
        return (scores - top).exp().sum(1).log().mean()  # born

    log(*steps_of(model.parameters(), loss_of))


@program("NUM101", "forward", "log", 2, sample=1)
def between_two_models(log):
    encoder, decoder = nn.Sequential(nn.Linear(4, 4, bias=False), nn.ReLU()), nn.Linear(4, 4)

    def loss_of(step):
        x = torch.rand(3, 4) * torch.tensor([[1.0], [float(step != 2)], [1]])
        hidden = (encoder(x) + 1e-3 * x).log()  # born
        return decoder(hidden).pow(2).mean()

    log(*steps_of((*encoder.parameters(), *decoder.parameters()), loss_of))


@program("NUM101", "forward", "sqrt", 1, module="norm")
def a_buffer_that_every_call_moves(log):
    class Norm(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("variance", torch.full((4,), 0.01))

        def forward(self, x):
            self.variance.add_(3.0 * (x.var(0).detach() - self.variance))
            return x / self.variance.sqrt()  # born

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm, self.head = Norm(), nn.Linear(4, 1)

        def forward(self, x):
            return self.head(self.norm(x))

    net = Net()
    log(*steps_of(net.parameters(), lambda step: net(torch.randn(12, 4)).pow(2).mean()))


@program("NUM102", "backward", "div", 1)
def a_hook_on_the_backward_pass_of_a_module(log):
    net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))

    def balance(module, given, taken):
        return (given[0] / given[0].abs().amax(),)  # born

    net[1].register_full_backward_hook(balance)
    log(*steps_of(net.parameters(), lambda step: (net(torch.randn(4, 3)) * (step != 1)).sum()))


@pytest.mark.parametrize(("run", "expected"), PROGRAMS)
def test_the_birth_is_named(loud_issues_of, run, expected):
    rule, phase, op, step, place = expected
    (issue,) = [issue for issue in loud_issues_of(run) if issue.rule.startswith("NUM")]
    where = issue.where
    assert (issue.rule, issue.phase, where.op, issue.step) == (rule, phase, op, step), issue.message
    assert {key: getattr(where, key) for key in place} == place, issue.message
    if lines_of(run):
        assert where.line in lines_of(run), issue.message


def masked_policy(log):
    policy = nn.Linear(4, 5)

    def loss_of(step):
        legal = torch.rand(7, 5) > 0.4
        legal[:, 0] = True
        logits = policy(torch.randn(7, 4)).masked_fill(~legal, -torch.inf)
        return -torch.log_softmax(logits, -1)[:, 0].mean()

    log(*steps_of(policy.parameters(), loss_of))


def straight_through_sign(log):
    class Sign(Function):
        @staticmethod
        def forward(ctx, x):
            return x.sign()

        @staticmethod
        def backward(ctx, slope):
            return slope

    model, head = nn.Linear(4, 8), nn.Linear(8, 1)

    def loss_of(step):
        return (head(Sign.apply(model(torch.randn(6, 4)))) - 1).pow(2).mean()

    log(*steps_of((*model.parameters(), *head.parameters()), loss_of))


def private_gradients(log):
    net = nn.Linear(3, 2)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)

    def loss_of(weights, x):
        return functional_call(net, weights, (x[None],)).pow(2).mean()

    for _ in range(4):
        weights = {name: value.detach() for name, value in net.named_parameters()}
        gradients = vmap(grad(loss_of), in_dims=(None, 0))(weights, torch.randn(4, 3))
        for name, parameter in net.named_parameters():
            parameter.grad = gradients[name].mean(0)
        optimizer.step()
        log(*net.parameters())


@pytest.mark.parametrize("run", [masked_policy, straight_through_sign, private_gradients])
def test_the_healthy_twin_is_quiet(loud_issues_of, run):
    assert not [issue for issue in loud_issues_of(run) if issue.rule.startswith("NUM")]


def test_custom_functions_and_transforms_are_given_back(issues_of):
    from torch._functorch import apis, eager_transforms

    def present():
        return (
            vars(Function)["apply"].__func__,
            apis.vmap_impl,
            eager_transforms.grad_impl,
            eager_transforms.grad_and_value_impl,
        )

    before = present()
    issues_of(lambda: straight_through_sign(lambda *values: None))
    assert present() == before
