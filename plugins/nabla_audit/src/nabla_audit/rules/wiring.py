"""Rules about which parameters are trained, and by what."""

from __future__ import annotations

from nabla_core.rule import Example, Rule
from nabla_core.severity import Severity

__all__ = [
    "DUPLICATE_PARAMETER",
    "EMA_STALE",
    "FOREIGN_PARAMETER",
    "FREEZE_WITHOUT_EFFECT",
    "PARAMETER_EDITED",
    "PARAMETER_NOT_IN_OPTIMIZER",
    "PARAMETER_NOT_REACHED",
    "PARAMETER_UNCHANGED",
    "PARAMETER_UNREGISTERED",
    "RULES",
    "TIED_WEIGHTS_BROKEN",
]

PARAMETER_NOT_IN_OPTIMIZER = Rule(
    id="AUD201",
    name="parameter-not-in-optimizer",
    summary="A parameter receives gradients, is in no optimizer that steps, and keeps its random "
    "initial values.",
    rationale="A part of the model stays random while the rest learns to live with it.",
    fix="Pass all parameters to the optimizer, or call requires_grad_(False) on what must stay "
    "as it is.",
    limits="Judged at the third step, and after three gradients of parameters that join later. "
    "Why a parameter was left out cannot be observed. It is a fault only if its values look "
    "freshly drawn and no load_state_dict or from_pretrained set them, or if they were frozen at "
    "first and were unfrozen during the run; and if nobody changes them and no optimizer ever held "
    "them; else it is reported as information, and so it is at the end if they joined an optimizer "
    "later. MEDIUM for a module of its own whose parameters are all constant, as the "
    "weights of a loss are; and at the end of a run for parameters whose only "
    "optimizer never stepped, while another one made ten steps. Weights loaded in another "
    "way that look like a normal or uniform sample, and random features that are meant to "
    "stay random, would be reported wrongly.",
    severity=Severity.HIGH,
    since="0.1",
    needs=("wiring", "gradients.written"),
    tags=("wiring",),
    example=Example(
        bad="optimizer = torch.optim.Adam(model.body.parameters())\n",
        good="optimizer = torch.optim.Adam(model.parameters())\n",
    ),
)

FOREIGN_PARAMETER = Rule(
    id="AUD202",
    name="optimizer-holds-foreign-parameter",
    summary="The optimizer holds parameters that do not run or are frozen, and misses those that "
    "train.",
    rationale="A module was replaced or copied after the optimizer was made: the optimizer trains "
    "the old object, the program runs the new one.",
    fix="Make the optimizer after the model has its final parts, or add the new ones by "
    "add_param_group.",
    limits="Needs both: a held parameter that is never written (or nothing but frozen ones, "
    "as when adapters were added after the optimizer was made), and a running one with non-zero "
    "gradients that no optimizer holds and nobody changes. Only parameters of modules that the "
    "program "
    "calls are known.",
    severity=Severity.HIGH,
    since="0.1",
    needs=("wiring", "gradients.written"),
    tags=("wiring",),
    example=Example(
        bad="optimizer = torch.optim.Adam(model.parameters())\nmodel.head = nn.Linear(32, 3)\n",
        good="model.head = nn.Linear(32, 3)\noptimizer = torch.optim.Adam(model.parameters())\n",
    ),
)

PARAMETER_UNREGISTERED = Rule(
    id="AUD203",
    name="parameter-unregistered",
    summary="A parameter takes part in the loss but belongs to no registered module.",
    rationale="It is in no optimizer, is not saved, not moved to a device and not trained: layers "
    "in a plain list or dict stay random, and so does one that is made in forward.",
    fix="Use nn.ModuleList, nn.ModuleDict or nn.ParameterList, or register the parameter; make "
    "layers in __init__.",
    limits="Decided at the third step from the graph of the loss: an nn.Parameter that no called "
    "module and no optimizer holds, with non-zero gradients and unchanged values. INFO when "
    "load_state_dict set it. Also a layer with random values that one line makes anew for each of "
    "three steps in a row, part of no module that is called and of no optimizer; one whose values "
    "are all equal, as of a normalisation, does no harm.",
    severity=Severity.HIGH,
    since="0.1",
    needs=("wiring", "gradients.written", "graph"),
    tags=("wiring",),
    example=Example(
        bad="self.layers = [nn.Linear(8, 8) for _ in range(3)]\n",
        good="self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(3))\n",
    ),
)

PARAMETER_NOT_REACHED = Rule(
    id="AUD204",
    name="parameter-not-reached",
    summary="A parameter in the optimizer is used by the loss but never gets a gradient.",
    rationale="The graph is cut on the way: everything before the cut stays as it was initialised.",
    fix="Remove the detach, .data, numpy, tolist or nn.Parameter() at the named place (use the "
    "tensor itself, with torch.func.functional_call where a module needs it), or return a gradient "
    "from the custom backward.",
    limits="Decided at the third step. HIGH where the cut is found: a detach or a rebuilt value on "
    "the way, a reentrant checkpoint none of whose inputs takes a gradient, or a custom backward "
    "that returns None, or where no backward of the program has ever "
    "written a gradient. MEDIUM for Distribution.sample(). Where the cut is a no_grad block, or "
    "the loss does not depend on the parameter, it is information: frozen or unused on purpose; so "
    "it is at the end where gradients came later. "
    "Programs that were compiled are only told the parameter.",
    severity=Severity.HIGH,
    since="0.1",
    needs=("wiring", "gradients.written", "graph"),
    options=("frozen",),
    tags=("wiring", "oracle"),
    example=Example(
        bad="hidden = self.encoder(x).detach()\nreturn self.head(hidden)\n",
        good="hidden = self.encoder(x)\nreturn self.head(hidden)\n",
    ),
)

PARAMETER_UNCHANGED = Rule(
    id="AUD205",
    name="parameter-unchanged",
    summary="Steps with non-zero gradients leave parameters bit-identical.",
    rationale="The optimizer runs, yet nothing is learned: its update is lost, or something puts "
    "the old values back.",
    fix="Look at the optimizer's step (is the result written in place?) and at what sets the "
    "weights between steps.",
    limits="Looked for in the first steps of each optimizer, while learning rates are constant and "
    "above zero, for updates of at least four units in the last place. MEDIUM when only some "
    "parameters stay; information when they change and are put back, as by a constraint.",
    severity=Severity.HIGH,
    since="0.1",
    needs=("gradients.written", "values"),
    tags=("wiring",),
    example=Example(
        bad="for p in group['params']:\n    p = p - group['lr'] * p.grad\n",
        good="for p in group['params']:\n    p.sub_(group['lr'] * p.grad)\n",
    ),
)

PARAMETER_EDITED = Rule(
    id="AUD208",
    name="parameter-edited-outside-optimizer",
    summary="Parameters are changed between the optimizer's steps.",
    rationale="Momentum and adaptive rates do not know of such changes; a frozen part must not "
    "change at all.",
    fix="Nothing, if it is meant (clipping, averaging); else remove the assignment.",
    limits="Information: most edits are legal. HIGH only for parameters that [tool.nabla.audit] "
    "frozen declares. Edits through .data or numpy are seen for declared ones only.",
    severity=Severity.INFO,
    since="0.1",
    needs=("wiring", "values"),
    options=("frozen",),
    tags=("wiring",),
    example=Example(
        bad="optimizer.step()\nmodel.backbone.weight.data.normal_()  # frozen, but set again\n",
        good="optimizer.step()\n",
    ),
)

TIED_WEIGHTS_BROKEN = Rule(
    id="AUD209",
    name="tied-weights-broken",
    summary="Two names that shared one parameter do so no longer.",
    rationale="The two drift apart: the model has more parameters than it was designed with, and "
    "one of them may get no gradient.",
    fix="Tie them again after loading or replacing weights, before the optimizer is made.",
    limits="HIGH when the model's own config says that they are tied (tie_word_embeddings and the "
    "like, for the embeddings that the model names or its only pair of equal shape), or a tie "
    "that was seen at the first call is gone during training; MEDIUM when two parameters share "
    "one memory, or an embedding and an output layer start with equal random values.",
    severity=Severity.HIGH,
    since="0.1",
    needs=("wiring", "ties"),
    tags=("wiring",),
    example=Example(
        bad="model.head.weight = model.embedding.weight\n"
        "model.head.weight = nn.Parameter(model.head.weight.clone())\n",
        good="model.head.weight = model.embedding.weight\n",
    ),
)

EMA_STALE = Rule(
    id="AUD210",
    name="ema-stale",
    summary="An averaged copy of the model, or the running averages inside of it, are evaluated "
    "stale.",
    rationale="Its normalisation statistics or its weights are not those of the model it follows, "
    "so its score says nothing.",
    fix="Copy the buffers too (or call update_bn), and update the average after every step.",
    limits="A copy is a module of the same class and shapes that no optimizer holds. Buffers: "
    "HIGH when they are untouched, or stand still between two evaluations while weights and the "
    "source's buffers move. Weights: only for AveragedModel and classes that [tool.nabla.audit] "
    "ema declares, and for copies that are written between three evaluations and keep every value. "
    "Of a trained model itself: statistics that tracked batches and are those of the start.",
    severity=Severity.HIGH,
    since="0.1",
    needs=("modes", "copies"),
    options=("ema",),
    tags=("wiring",),
    example=Example(
        bad="for a, p in zip(ema.parameters(), model.parameters()):\n    a.lerp_(p, 0.01)\n",
        good="for a, p in zip(ema.parameters(), model.parameters()):\n    a.lerp_(p, 0.01)\n"
        "for a, b in zip(ema.buffers(), model.buffers()):\n    a.copy_(b)\n",
    ),
)

DUPLICATE_PARAMETER = Rule(
    id="AUD211",
    name="duplicate-parameter-in-groups",
    summary="One optimizer holds a parameter more than once.",
    rationale="It is stepped several times with one gradient, and so is its momentum.",
    fix="Pass each parameter once; tied weights appear in only one group.",
    limits="Decided by identity at each optimizer's first steps. torch rejects duplicates over "
    "groups given to the constructor, but not in one list or in groups edited later.",
    severity=Severity.HIGH,
    since="0.1",
    needs=("wiring",),
    tags=("wiring",),
    example=Example(
        bad="optimizer = SGD([*model.body.parameters(), *model.parameters()], lr=0.1)\n",
        good="optimizer = SGD(model.parameters(), lr=0.1)\n",
    ),
)

FREEZE_WITHOUT_EFFECT = Rule(
    id="AUD212",
    name="freeze-without-effect",
    summary="An attribute named like requires_grad was set to False where torch never reads it, or "
    "where old gradients go on to move the parameter.",
    rationale="What was meant to stay as it is, such as a pretrained body, is trained.",
    fix="Call module.requires_grad_(False), or set parameter.requires_grad = False on each "
    "parameter; where it was trained before, set its grad to None as well.",
    limits="Judged at the third step of an optimizer and at its 64th: module.requires_grad, and "
    "misspelt names on modules and parameters, that are False while the parameters get non-zero "
    "gradients in an optimizer that steps. Also after three steps that moved a parameter that was "
    "trained, takes no gradients any more, and has one left that is zero or used. A "
    "module whose own class uses the name is left out.",
    severity=Severity.HIGH,
    since="0.1",
    needs=("wiring", "gradients.written"),
    tags=("wiring",),
    example=Example(
        bad="model.body.requires_grad = False\n",
        good="model.body.requires_grad_(False)\n",
    ),
)

RULES = (
    PARAMETER_NOT_IN_OPTIMIZER,
    FOREIGN_PARAMETER,
    PARAMETER_UNREGISTERED,
    PARAMETER_NOT_REACHED,
    PARAMETER_UNCHANGED,
    PARAMETER_EDITED,
    TIED_WEIGHTS_BROKEN,
    EMA_STALE,
    DUPLICATE_PARAMETER,
    FREEZE_WITHOUT_EFFECT,
)
