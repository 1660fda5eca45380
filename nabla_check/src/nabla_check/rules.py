"""Rules about operators: values, derivatives, layouts, state, precision. Texts only."""

from __future__ import annotations

from nabla_core.rule import Example, Rule
from nabla_core.severity import Severity

__all__ = [
    "BACKWARD_MISMATCH",
    "COTANGENT_LAYOUT",
    "COTANGENT_NONLINEAR",
    "CUSTOM_OP_CONTRACT",
    "DOUBLE_BACKWARD_MISMATCH",
    "FINITE_DIFFERENCE_MISMATCH",
    "FORWARD_MISMATCH",
    "INCONCLUSIVE",
    "INPUT_LAYOUT",
    "JVP_MISMATCH",
    "KINK",
    "MISSING_GRADIENT",
    "MUTATES_COTANGENT",
    "MUTATES_INPUT",
    "MUTATES_SAVED",
    "NONDETERMINISTIC_BACKWARD",
    "NONDETERMINISTIC_FORWARD",
    "OPERATOR_EXCEPTION",
    "OUTPUT_STRUCTURE",
    "PRECISION",
    "PROPERTY_VIOLATION",
    "RNG_CORRUPTED",
    "RULES",
    "STATE_LEAK",
]

FORWARD_MISMATCH = Rule(
    id="CHK101",
    name="forward-mismatch",
    summary="The output differs from the reference.",
    rationale="A derivative can be right for the wrong function; what uses it is wrong.",
    fix="Compare the formula at the named output element with the reference.",
    limits="Silent without a reference; differences within the operator's own rounding pass.",
    severity=Severity.HIGH,
    since="0.1",
    aliases=("NG3001",),
    example=Example(bad="x.square() + 1e-6", good="x.square()"),
)

OPERATOR_EXCEPTION = Rule(
    id="CHK102",
    name="operator-exception",
    summary="The operator raises where it has to work.",
    rationale="A call that the reference or a plain use of autograd allows ends the program.",
    fix="Read the named stage and the exception; handle the case or refuse it clearly.",
    limits="Clear refusals of layouts, second derivatives or forward mode are notes, not failures.",
    severity=Severity.HIGH,
    since="0.1",
    aliases=("NG3006",),
    example=Example(bad="ctx.saved_tensors[1]  # only one was saved", good="ctx.saved_tensors[0]"),
)

OUTPUT_STRUCTURE = Rule(
    id="CHK103",
    name="output-structure-mismatch",
    summary="The outputs have another number, shape, dtype or device.",
    rationale="Broadcasting or promotion hides the difference until results change far away.",
    fix="Return the same structure, shapes, dtypes and devices as the reference.",
    limits="Without a reference only outputs that hold no tensor at all are reported.",
    severity=Severity.HIGH,
    since="0.1",
    aliases=("NG3001",),
    example=Example(bad="return y.sum(-1, keepdim=True)", good="return y.sum(-1)"),
)

BACKWARD_MISMATCH = Rule(
    id="CHK201",
    name="backward-mismatch",
    summary="The gradient (VJP) is wrong.",
    rationale="Training follows a wrong direction, often without any visible error.",
    fix="Start from the classified cause and the named input and element.",
    limits="Without a reference, truth is a numerical derivative; surrogates need a reference.",
    severity=Severity.HIGH,
    since="0.1",
    aliases=("NG3002",),
    example=Example(bad="return g * x", good="return g * 2 * x"),
)

MISSING_GRADIENT = Rule(
    id="CHK202",
    name="missing-gradient",
    summary="No gradient arrives although the output depends on the input.",
    rationale="The parameter or everything upstream of the input never learns.",
    fix="Return the gradient of this input instead of None or zeros.",
    limits="Inputs that were not marked with requires_grad are not expected to have one.",
    severity=Severity.HIGH,
    since="0.1",
    aliases=("NG3002",),
    example=Example(bad="return dx, None", good="return dx, (g * n).sum(0)"),
)

JVP_MISMATCH = Rule(
    id="CHK203",
    name="jvp-mismatch",
    summary="The forward-mode derivative (JVP) is wrong.",
    rationale="torch.func.jvp, Hessian products and forward-mode optimisers use it.",
    fix="Compare the jvp static method with the derivative that the VJP passes on.",
    limits="An operator without forward mode is not evaluated.",
    severity=Severity.HIGH,
    since="0.1",
    aliases=("NG3003",),
    example=Example(bad="def jvp(ctx, t): return t", good="def jvp(ctx, t): return 2 * ctx.x * t"),
)

DOUBLE_BACKWARD_MISMATCH = Rule(
    id="CHK204",
    name="double-backward-mismatch",
    summary="The second derivative is wrong or silently missing.",
    rationale="Gradient penalties and meta-learning train towards something else.",
    fix="Make backward differentiable from saved inputs, or mark it once_differentiable.",
    limits="An operator that refuses a second derivative with an error is a note.",
    severity=Severity.HIGH,
    since="0.1",
    aliases=("NG3002",),
    example=Example(bad="ctx.t = torch.tanh(x)", good="ctx.save_for_backward(x)"),
)

FINITE_DIFFERENCE_MISMATCH = Rule(
    id="CHK205",
    name="finite-difference-mismatch",
    summary="The gradient differs from the numerical derivative, which was asked for.",
    rationale="The formula and the function that it claims to differentiate disagree.",
    fix="Correct the backward, or drop check_finite_difference for a deliberate surrogate.",
    limits="Only with check_finite_difference=True and a reference that agrees with the gradient.",
    severity=Severity.HIGH,
    since="0.1",
    aliases=("NG3002",),
    example=Example(
        bad="return torch.sign(x)  # backward: return g", good="return x  # backward: return g"
    ),
)

COTANGENT_NONLINEAR = Rule(
    id="CHK211",
    name="cotangent-nonlinear",
    summary="The backward is not linear in the cotangent.",
    rationale="It is right for one loss and wrong once the loss is scaled, summed or negated.",
    fix="Remove abs, clamp, normalisation, thresholds or caching of the incoming gradient.",
    limits="Deliberate clipping in backward breaks linearity too: allow it with a reason.",
    severity=Severity.HIGH,
    since="0.1",
    example=Example(bad="return g.clamp(-1, 1) * w", good="return g * w"),
)

COTANGENT_LAYOUT = Rule(
    id="CHK212",
    name="cotangent-layout",
    summary="The gradient depends on how the incoming gradient lies in memory.",
    rationale="cat, transpose and sum hand over strided or expanded gradients in every real model.",
    fix="Use the strides of grad_output, or call grad_output.contiguous() first.",
    limits="A clear refusal of the layout is a note.",
    severity=Severity.HIGH,
    since="0.1",
    example=Example(bad="kernel(g.data_ptr())", good="kernel(g.contiguous().data_ptr())"),
)

INPUT_LAYOUT = Rule(
    id="CHK213",
    name="input-layout",
    summary="The result depends on how an input lies in memory.",
    rationale="Slices and transposes of ordinary tensors give wrong results without an error.",
    fix="Use the strides of the input, call contiguous() first, or refuse the layout.",
    limits="A clear refusal is a note; operators defined on storage are exempt by option.",
    severity=Severity.HIGH,
    since="0.1",
    example=Example(bad="torch.as_strided(x, (n,), (1,))", good="x.contiguous().view(n)"),
)

NONDETERMINISTIC_FORWARD = Rule(
    id="CHK221",
    name="nondeterministic-forward",
    summary="The same inputs and random state give another output.",
    rationale="Runs cannot be repeated and activation checkpointing recomputes something else.",
    fix="Initialise buffers, remove hidden state, or draw from the global random generators.",
    limits="Rounding-level differences on an accelerator are notes: atomics add in any order.",
    severity=Severity.HIGH,
    since="0.1",
    aliases=("NG3004",),
    example=Example(bad="torch.empty(n).add_(x)", good="torch.zeros(n).add_(x)"),
)

NONDETERMINISTIC_BACKWARD = Rule(
    id="CHK222",
    name="nondeterministic-backward",
    summary="The same graph gives another gradient.",
    rationale="Runs cannot be repeated, and a gradient that cannot be repeated cannot be checked.",
    fix="Draw random numbers in forward and save them; initialise every buffer.",
    limits="Rounding-level differences on an accelerator are notes: atomics add in any order.",
    severity=Severity.HIGH,
    since="0.1",
    aliases=("NG3004",),
    example=Example(bad="g * torch.bernoulli(p)  # in backward", good="g * ctx.saved_tensors[0]"),
)

STATE_LEAK = Rule(
    id="CHK223",
    name="state-leak",
    summary="A later call changes the result of an earlier graph.",
    rationale="An operator used twice in a model computes gradients of the wrong call.",
    fix="Keep per-call data on ctx; allocate outputs and gradients for each call.",
    limits="Only calls of the same operator are tried, in one thread.",
    severity=Severity.HIGH,
    since="0.1",
    example=Example(bad="Op.workspace = x", good="ctx.save_for_backward(x)"),
)

RNG_CORRUPTED = Rule(
    id="CHK224",
    name="rng-corrupted",
    summary="The operator reseeds or needlessly advances a global random generator.",
    rationale="Dropout masks, shuffling and sampling after it repeat or change.",
    fix="Use a torch.Generator of its own, or torch.random.fork_rng() around the draw.",
    limits="Drawing numbers that the output depends on is no fault.",
    severity=Severity.HIGH,
    since="0.1",
    aliases=("NG3004",),
    example=Example(bad="torch.manual_seed(0)", good="g = torch.Generator().manual_seed(0)"),
)

MUTATES_INPUT = Rule(
    id="CHK231",
    name="mutates-input",
    summary="The operator writes into its input.",
    rationale="The caller and other operators that use the same tensor see changed values.",
    fix="Write into a copy, or announce the mutation with mark_dirty and return it.",
    limits="Operators that announce the mutation to autograd are not meant.",
    severity=Severity.HIGH,
    since="0.1",
    example=Example(bad="x.data.clamp_(0)", good="x = x.clamp(0)"),
)

MUTATES_COTANGENT = Rule(
    id="CHK232",
    name="mutates-cotangent",
    summary="The backward writes into the gradient that it was given.",
    rationale="Autograd may hand the same tensor to other branches, which go wrong.",
    fix="Write into a copy of grad_output.",
    limits="Seen on the tensors that were handed over; copies made by autograd in between hide it.",
    severity=Severity.HIGH,
    since="0.1",
    example=Example(bad="return grad_output.mul_(w)", good="return grad_output * w"),
)

MUTATES_SAVED = Rule(
    id="CHK233",
    name="mutates-saved",
    summary="Memory that a backward still needs is changed without notice.",
    rationale="The gradient is right in isolation, wrong in a model; torch's check was bypassed.",
    fix="Save tensors with save_for_backward and never write through .data.",
    limits="Seen where the tensor is saved by autograd or kept as an attribute of ctx.",
    severity=Severity.HIGH,
    since="0.1",
    example=Example(bad="ctx.out = out", good="ctx.save_for_backward(out)"),
)

PRECISION = Rule(
    id="CHK241",
    name="precision-worse-than-reference",
    summary="The rounding error is far above what the dtype explains.",
    rationale="Low precision training stalls or drifts although the formula is right.",
    fix="Accumulate in float32 or wider, and use constants of the right dtype.",
    limits="Truth is float64 on rounded inputs; without a reference the floor is estimated.",
    severity=Severity.HIGH,
    since="0.1",
    example=Example(bad="x.to(torch.bfloat16).sum()", good="x.sum(dtype=torch.float32)"),
)

PROPERTY_VIOLATION = Rule(
    id="CHK251",
    name="property-violation",
    summary="A property given by the user does not hold.",
    rationale="The operator breaks a law that its users rely on.",
    fix="Look at the smallest failing input.",
    limits="Only the given inputs or the drawn trials are tried.",
    severity=Severity.HIGH,
    since="0.1",
    aliases=("NG3005",),
    example=Example(bad="property=lambda y: y.min() > 0", good="property=lambda y: y.min() >= 0"),
)

CUSTOM_OP_CONTRACT = Rule(
    id="CHK261",
    name="custom-op-contract",
    summary="A custom operator breaks the contract of torch.library.",
    rationale="torch.compile and export trust the schema, fake kernel and registration.",
    fix="Follow the message of torch.library.opcheck for the named test.",
    limits="Decided by torch.library.opcheck; plain functions and autograd.Function are not meant.",
    severity=Severity.HIGH,
    since="0.1",
    example=Example(
        bad="torch.library.custom_op('a::f', f, mutates_args=())  # f writes into x",
        good="torch.library.custom_op('a::f', f, mutates_args=('x',))",
    ),
)

KINK = Rule(
    id="CHK901",
    name="kink",
    summary="An input sits on a point without a derivative; a generic point nearby was judged.",
    rationale="There the gradient is a convention, and a numerical derivative is no judge of it.",
    fix="Nothing, or choose inputs away from ties, zeros and clamp edges.",
    limits="One-sided slopes are compared at three step sizes. A tie with an element that "
    "include_self=False leaves out of an amax or amin counts too: torch's formula is wrong there.",
    severity=Severity.INFO,
    since="0.1",
    example=Example(bad="torch.tensor([0.0])  # into relu", good="torch.tensor([0.3])"),
)

INCONCLUSIVE = Rule(
    id="CHK902",
    name="inconclusive",
    summary="The check could not decide; the message says why.",
    rationale="What was not verified must not look verified.",
    fix="Give float64 inputs away from singular points, or a reference.",
    limits="Says nothing about whether the operator is right.",
    severity=Severity.INFO,
    since="0.1",
    example=Example(
        bad="inputs=[torch.tensor([float('nan')])]",
        good="inputs=[torch.randn(4, dtype=torch.float64)]",
    ),
)

RULES = tuple(rule for rule in list(globals().values()) if isinstance(rule, Rule))
