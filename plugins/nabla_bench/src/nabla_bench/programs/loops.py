# mypy: disable-error-code="no-untyped-call"
# torch declares no types for backward and split
"""Training loops that do not do what they seem to do (AUD)."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nabla_bench.toolbox import FEATURES, Toolbox, classifier
from nabla_core.issue import Issue

__all__ = [
    "body_detached",
    "broadcast_target",
    "cleared_before_step",
    "clipped_while_scaled",
    "head_replaced_late",
    "kept_in_eval_mode",
    "never_cleared",
    "part_left_out",
    "softmax_before_loss",
]

Issues = tuple[Issue, ...]


def cleared_before_step(box: Toolbox, fault: bool) -> Issues:
    """Gradients are cleared between backward and step; healthy: after the step."""
    model = classifier()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2)

    def train() -> None:
        for x, y in box.batches(24):
            F.cross_entropy(model(x), y).backward()
            if fault:
                optimizer.zero_grad()
            optimizer.step()
            optimizer.zero_grad()

    return box.guarded(model, optimizer, train)


def never_cleared(box: Toolbox, fault: bool) -> Issues:
    """Gradients of all steps add up; healthy: they are cleared."""
    model = classifier()
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)

    def train() -> None:
        for x, y in box.batches(24):
            if not fault:
                optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()

    return box.guarded(model, optimizer, train)


def part_left_out(box: Toolbox, fault: bool) -> Issues:
    """The optimizer is given the head only; healthy: all parameters."""
    model = classifier()
    held = model[2].parameters() if fault else model.parameters()
    optimizer = torch.optim.Adam(held, 1e-2)

    return _trained(box, model, optimizer)


class TwoParts(nn.Module):
    """A body and a head, the graph between them cut or not."""

    def __init__(self, cut: bool) -> None:
        super().__init__()
        self.cut = cut
        self.body = nn.Sequential(nn.Linear(FEATURES, 24), nn.Tanh())
        self.head = nn.Linear(24, 3)

    def forward(self, x: Tensor) -> Tensor:
        """Return logits ``[N, 3]``."""
        hidden: Tensor = self.body(x)
        return self.head(hidden.detach() if self.cut else hidden)  # type: ignore[no-any-return]


def body_detached(box: Toolbox, fault: bool) -> Issues:
    """The body is cut off by detach; healthy: it is not."""
    model = TwoParts(cut=fault)
    optimizer = torch.optim.SGD(model.parameters(), 1e-1)

    return _trained(box, model, optimizer)


def head_replaced_late(box: Toolbox, fault: bool) -> Issues:
    """The head is replaced after the optimizer was made; healthy: before."""
    model = classifier()
    if not fault:
        model[2] = nn.Linear(24, 3)
    optimizer = torch.optim.SGD(model.parameters(), 1e-1)
    if fault:
        model[2] = nn.Linear(24, 3)

    return _trained(box, model, optimizer)


def kept_in_eval_mode(box: Toolbox, fault: bool) -> Issues:
    """After an evaluation the model stays in eval mode; healthy: back in training mode."""
    model = nn.Sequential(nn.Linear(FEATURES, 24), nn.ReLU(), nn.Dropout(0.2), nn.Linear(24, 3))
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)

    def train() -> None:
        for step, (x, y) in enumerate(box.batches(48)):
            if step % 12 == 0:
                model.eval()
                with torch.no_grad():
                    model(box.x)
                model.train(not fault)
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()

    return box.guarded(model, optimizer, train)


def softmax_before_loss(box: Toolbox, fault: bool) -> Issues:
    """Probabilities go into a loss that expects logits; healthy: logits do."""
    model = classifier()
    if fault:
        model.append(nn.Softmax(-1))
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)

    return _trained(box, model, optimizer)


def broadcast_target(box: Toolbox, fault: bool) -> Issues:
    """An output ``[N, 1]`` minus a target ``[N]``; healthy: equal shapes."""
    model = nn.Sequential(nn.Linear(FEATURES, 24), nn.ReLU(), nn.Linear(24, 1))
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)

    def train() -> None:
        for x, _ in box.batches(24):
            target = x.sum(-1) if fault else x.sum(-1, keepdim=True)
            optimizer.zero_grad()
            ((model(x) - target) ** 2).mean().backward()
            optimizer.step()

    return box.guarded(model, optimizer, train)


def clipped_while_scaled(box: Toolbox, fault: bool) -> Issues:
    """Gradients are clipped before they are unscaled; healthy: after."""
    model = classifier()
    optimizer = torch.optim.SGD(model.parameters(), 1e-1)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)

    def train() -> None:
        for x, y in box.batches(24):
            optimizer.zero_grad()
            scaler.scale(F.cross_entropy(model(x), y)).backward()
            if not fault:
                scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()

    return box.guarded(model, optimizer, train)


def _trained(box: Toolbox, model: nn.Module, optimizer: torch.optim.Optimizer) -> Issues:
    """Train a classifier as one should; return what was said."""

    def train() -> None:
        for x, y in box.batches(24):
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()

    return box.guarded(model, optimizer, train)
