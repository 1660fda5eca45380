"""One run of a copy of a module, and derivatives of its output pulled back to its input.

A few samples stand for the batch wherever the module runs on a part of it: what couples two samples
couples three, and the activations of three cost nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge
from torch.nn import Module

from ..loop.exact import tensors_in
from .graph import name_of, nodes_from, shape_of
from .probing import Unsuitable, copy_of

__all__ = ["ModuleCall", "Run", "run_copy"]

_ROWS = 3  # the middle one has a neighbour on either side
_SEQUENTIAL = (nn.RNNBase, nn.MultiheadAttention, nn.TransformerEncoderLayer)
_SequenceNote = Callable[[Module, tuple[object, ...]], None]
_LeafMaker = Callable[[Module, tuple[object, ...], Tensor], "Tensor | None"]


@dataclass(slots=True)
class ModuleCall:
    """A call of a root module.

    Attributes:
        module: the module.
        args: its positional arguments.
        kwargs: its named ones.
    """

    module: Module
    args: tuple[object, ...]
    kwargs: Mapping[str, object]

    @property
    def tensors(self) -> list[Tensor]:
        """The tensors it was given."""
        return [tensor for _, tensor in tensors_in((self.args, dict(self.kwargs)))]

    def on_rows(self, rows: int, count: int) -> ModuleCall | None:
        """Return the call on the first ``rows`` of ``count`` samples, where every tensor has that
        many and none is nested; on a device, where a wrong index ends the process, never."""
        given = [*self.args, *self.kwargs.values()]
        direct = [value for value in given if isinstance(value, Tensor)]
        whole = len(direct) == len(self.tensors) and all(
            tensor.dim() and tensor.shape[0] == count and tensor.device.type == "cpu"
            for tensor in direct
        )
        if not whole or count <= rows:
            return None

        def cut(value: object) -> object:
            return value[:rows] if isinstance(value, Tensor) else value

        return ModuleCall(
            self.module,
            tuple(cut(value) for value in self.args),
            {key: cut(value) for key, value in self.kwargs.items()},
        )


@dataclass(slots=True, kw_only=True)
class Run:
    """What a copy made of its input.

    Attributes:
        leaf: stands for the input, or for the first embedding of it; shape ``[N, ...]``.
        source: the output, or where the graph holds it.
        shape: its shape.
        device: its device.
        in_part: whether only the first samples of the batch were used.
        later: what other embeddings made of the same input, as in a model that also encodes it.
        unbatched: whether a layer for sequences ran on one sequence, whose positions are what
            looks like a batch.
    """

    leaf: Tensor
    source: Tensor | GradientEdge
    shape: tuple[int, ...]
    device: torch.device
    in_part: bool = False
    later: list[Tensor] = field(default_factory=list)
    unbatched: bool = False

    def pull(
        self,
        index: tuple[slice | int, ...],
        view: tuple[int, ...] | None = None,
        leaf: Tensor | None = None,
    ) -> Tensor:
        """Return the absolute derivative of a random combination of outputs to a leaf.

        Args:
            index: which outputs.
            view: shape in which ``index`` counts, if not that of the output.
            leaf: one of ``later``, if not the first one.
        """
        leaf = self.leaf if leaf is None else leaf
        generator = torch.Generator(device=self.device).manual_seed(0)
        dtype = leaf.dtype if isinstance(self.source, GradientEdge) else self.source.dtype
        cotangent = torch.zeros(view or self.shape, device=self.device, dtype=dtype)
        noise = torch.randn(cotangent[index].shape, generator=generator, device=self.device)
        cotangent[index] = noise.to(dtype)
        (found,) = torch.autograd.grad(
            self.source,
            leaf,
            cotangent.reshape(self.shape),
            retain_graph=True,
            allow_unused=True,
        )
        return torch.zeros_like(leaf) if found is None else found.detach().abs()


def run_copy(call: ModuleCall, given: Tensor) -> Run:
    """Run a copy of the module on a few samples, or where that fails on all of them.

    Args:
        call: how it was called.
        given: the tensor among the arguments to differentiate to.

    Raises:
        Unsuitable: nothing in the output can be told to belong to a sample.
    """
    for rows in (_ROWS, _ROWS + 1):
        part = call.on_rows(rows, given.shape[0])
        if part is None:
            break
        try:
            found = _run(part, given[:rows])
        except Exception:  # sizes that are written down in the model; the whole batch will tell
            break
        found.in_part = True
        if found.shape != (rows, rows):  # as many classes as samples, or a matrix of all pairs?
            return found
    else:
        return found
    return _run(call, given)


def _run(call: ModuleCall, given: Tensor) -> Run:
    module = copy_of(call.module)
    leaves: list[Tensor] = []
    alone: list[bool] = []
    args, kwargs = call.args, _evaluating(call.kwargs)
    if given.is_floating_point():
        leaves.append(given.detach().clone().requires_grad_())
        args = tuple(leaves[0] if _is_same(value, given) else value for value in args)
        kwargs = {key: leaves[0] if _is_same(v, given) else v for key, v in kwargs.items()}
    for part in module.modules():
        if isinstance(part, nn.Embedding) and not given.is_floating_point():
            part.register_forward_hook(_leaf_maker(given, leaves))
        elif isinstance(part, _SEQUENTIAL):
            part.register_forward_pre_hook(_loneliness(given.shape[0], alone))
    result = module(*args, **kwargs)
    if not leaves:
        raise Unsuitable("no embedding of the model reads its input")
    run = _of_result(result, leaves, given.shape[0])
    run.unbatched = any(alone)
    return run


def _of_result(result: object, leaves: list[Tensor], count: int) -> Run:
    """Find the output, or the scores inside a loss, that belongs to ``count`` samples."""
    outputs = [tensor for _, tensor in tensors_in(result) if tensor.requires_grad]
    leaf, later = leaves[0], leaves[1:]
    for output in outputs:
        if output.dim() and not output.shape[0] % count:
            shape, device = tuple(output.shape), output.device
            return Run(leaf=leaf, source=output, shape=shape, device=device, later=later)
    for output in outputs:
        inside = _scores_of(output)
        if inside is not None and inside[1] and not inside[1][0] % count:
            edge, shape = GradientEdge(inside[0], 0), inside[1]
            return Run(leaf=leaf, source=edge, shape=shape, device=output.device, later=later)
    raise Unsuitable("no output has the batch's size")


def _evaluating(kwargs: Mapping[str, object]) -> dict[str, object]:
    """The named arguments; the layers of Keras ask ``training`` instead of their module's mode."""
    is_told = isinstance(kwargs.get("training"), bool)
    return {**kwargs, "training": False} if is_told else dict(kwargs)


def _is_same(value: object, given: Tensor) -> bool:
    if not isinstance(value, Tensor):
        return False
    return value is given or (value.data_ptr() == given.data_ptr() and value.shape == given.shape)


def _scores_of(loss: Tensor) -> tuple[torch.autograd.graph.Node, tuple[int, ...]] | None:
    """The log-probabilities inside a module that returns only its loss."""
    if loss.numel() != 1 or loss.grad_fn is None:
        return None
    for node in nodes_from([loss.grad_fn]):
        if name_of(node) == "LogSoftmax":
            return node, shape_of(node) or ()
    return None


def _leaf_maker(given: Tensor, leaves: list[Tensor]) -> _LeafMaker:
    def make_leaf(module: Module, args: tuple[object, ...], output: Tensor) -> Tensor | None:
        read = args[0] if args else None
        if not isinstance(read, Tensor) or read.dim() != given.dim():
            return None
        if any(mine > theirs for mine, theirs in zip(read.shape, given.shape, strict=True)):
            return None
        if read.shape[0] != given.shape[0] or not torch.equal(read, given[_first(read)]):
            return None  # a model may leave the last position out
        leaves.append(output.detach().requires_grad_())
        return leaves[-1]

    return make_leaf


def _loneliness(count: int, alone: list[bool]) -> _SequenceNote:
    def note(module: Module, args: tuple[object, ...]) -> None:
        given = args[0] if args else None
        if not isinstance(given, Tensor) or count not in given.shape[:2]:
            return
        alone.append(given.dim() == 2 or given.shape[:2] in ((count, 1), (1, count)))

    return note


def _first(tensor: Tensor) -> tuple[slice, ...]:
    return tuple(slice(0, length) for length in tensor.shape)
