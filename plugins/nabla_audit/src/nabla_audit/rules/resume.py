"""Rules about saving, loading and resuming."""

from __future__ import annotations

from nabla_core.rule import Example, Rule
from nabla_core.severity import Severity

__all__ = [
    "CHECKPOINT_KEYS_IGNORED",
    "RESUME_DATA_MAPPING_CHANGED",
    "RESUME_LOST_STATE",
    "RESUME_UNTIED",
    "RULES",
]

RESUME_LOST_STATE = Rule(
    id="AUD601",
    name="resume-lost-state",
    summary="A run was resumed without a part of its state that was saved, or a model was given "
    "back its own tensors.",
    rationale="The optimizer's moments start from zero, or the schedule starts over: the loss "
    "jumps and the run is no longer the one that was stopped. state_dict() returns the tensors of "
    "the model and no copy of them: the best weights that were kept so are the last ones.",
    fix="Load the state dict of every component that the checkpoint holds; keep "
    "copy.deepcopy(model.state_dict()) where weights are to be restored later.",
    limits="Automatically only from what torch.load returned: optimizer moments, schedulers and "
    "loss scales. "
    "HIGH when the optimizer in use has the same parameters, settings and learning rate as the "
    "saved one and all of them were restored, else INFO, because fine-tuning takes the weights "
    "only; a schedule counts when that optimizer was restored or fits. A loss scaler is MEDIUM "
    "when such a run goes on with another scale, else INFO. A model's own tensors are HIGH when an "
    "optimizer or another load_state_dict has changed them since state_dict() returned them, and "
    "MEDIUM when an untouched own state was loaded three times with steps in between, as for a "
    "target network that is the network itself. Compare states by hand with "
    "nabla.audit.resume(before, after).",
    severity=Severity.HIGH,
    since="0.1",
    needs=("checkpoints",),
    tags=("resume",),
    example=Example(
        bad="state = torch.load(path)\nmodel.load_state_dict(state['model'])\n",
        good="state = torch.load(path)\nmodel.load_state_dict(state['model'])\n"
        "optimizer.load_state_dict(state['optimizer'])\n",
    ),
)

CHECKPOINT_KEYS_IGNORED = Rule(
    id="AUD602",
    name="checkpoint-keys-ignored",
    summary="load_state_dict used nothing of a checkpoint, or not what only a prefix separates.",
    rationale="The weights stay at their initial values although a checkpoint was loaded; nothing "
    "raises an error.",
    fix="Remove the prefix from the keys, and load with strict=True or check the returned names.",
    limits="Reported when no entry was used, or when every missing entry exists under one prefix "
    "with the same shape; also when a module was given its own tensors, while a file that was "
    "loaded and used by nobody has all of them under one prefix. Entries that are "
    "missing altogether, as a new head is, are no fault. MEDIUM for a module that was loaded, "
    "never called, never asked for its state and thrown away, while another one of the same names "
    "and shapes is trained from random values of its own.",
    severity=Severity.HIGH,
    since="0.1",
    needs=("checkpoints",),
    tags=("resume",),
    example=Example(
        bad="state = {'module.' + k: v for k, v in saved.items()}\n"
        "model.load_state_dict(state, strict=False)\n",
        good="model.load_state_dict(saved)\n",
    ),
)

RESUME_UNTIED = Rule(
    id="AUD603",
    name="resume-untied",
    summary="Loading a state dict broke or contradicts a tie between two parameters.",
    rationale="Two weights that were trained as one go their own ways from here on, or one of two "
    "different weights was thrown away.",
    fix="Tie the weights again after loading, or build the model as it was when it was saved.",
    limits="MEDIUM when only the checkpoint shares memory and the model does not: untying may be "
    "meant. Files that do not keep shared memory are judged by the model alone.",
    severity=Severity.HIGH,
    since="0.1",
    needs=("checkpoints",),
    tags=("resume",),
    example=Example(
        bad="model.head.weight = model.embedding.weight\n"
        "model.load_state_dict(state, assign=True)\n",
        good="model.load_state_dict(state, assign=True)\n"
        "model.head.weight = model.embedding.weight\n",
    ),
)

RESUME_DATA_MAPPING_CHANGED = Rule(
    id="AUD604",
    name="resume-data-mapping-changed",
    summary="From one step on, known inputs carry other labels than before.",
    rationale="The mapping of words to indices or of classes to numbers changed, usually because "
    "it was built from a set in a new process: what was learnt no longer fits.",
    fix="Save the mapping with the checkpoint, or build it from a sorted list.",
    limits="Needs at least eight repeated input rows that each always had one label, and three "
    "batches in which most of them have another one. A deliberate change of task on the same "
    "inputs looks the same; labels that change once more later are information. Only inputs "
    "and labels on the CPU are compared.",
    severity=Severity.HIGH,
    since="0.1",
    needs=("batches",),
    tags=("resume", "data"),
    example=Example(
        bad="index = {word: i for i, word in enumerate(set(words))}\n",
        good="index = {word: i for i, word in enumerate(sorted(set(words)))}\n",
    ),
)

RULES = (
    RESUME_LOST_STATE,
    CHECKPOINT_KEYS_IGNORED,
    RESUME_UNTIED,
    RESUME_DATA_MAPPING_CHANGED,
)
