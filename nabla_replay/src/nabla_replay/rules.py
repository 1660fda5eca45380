"""Rules about captured runs."""

from __future__ import annotations

from nabla_core.rule import Example, Rule
from nabla_core.severity import Severity

__all__ = [
    "ARTIFACT_UNSAFE",
    "BISECT_FIRST_BAD",
    "BISECT_INCONCLUSIVE",
    "BISECT_NON_MONOTONIC",
    "CAPTURE_DEGRADED",
    "ENVIRONMENT_DIFFERS",
    "LOADER_STATE_MISMATCH",
    "RANKS_DIFFER",
    "RECORD_CORRUPT",
    "RECORD_TRUNCATED",
    "REPLAY_DIVERGENCE",
    "REPLAY_UNVERIFIED",
    "RESUMED_RUN_DIFFERS",
    "RNG_DIVERGENCE",
    "RULES",
]

REPLAY_DIVERGENCE = Rule(
    id="REP101",
    name="replay-divergence",
    summary="A replayed step does not give the state that was recorded.",
    rationale="From equal state, data and random numbers the same program gives the same bits; the "
    "first step that does not is where code, data or machine differ.",
    fix="Look at the component and the module that are named: what of them is not restored, or not "
    "deterministic? Replay with localize=True to find the module.",
    limits="Reported only where exactness can be expected; where the environment differs, REP104 "
    "says so instead. A fingerprint that rotates may find a step a few steps late; the range is "
    "named.",
    severity=Severity.HIGH,
    since="0.1",
    aliases=("NG4002",),
    example=Example(
        bad="def build():\n    model = make_model()\n    return Loop(model, ema=None)\n",
        good="def build():\n    model = make_model()\n    return Loop(model, ema=Ema(model))\n",
    ),
)

RNG_DIVERGENCE = Rule(
    id="REP102",
    name="rng-divergence",
    summary="The random generators are not where they were in the recorded run.",
    rationale="Dropout, augmentation and shuffling follow them: every later step differs too.",
    fix="Draw random numbers in the same places: no extra iterator, print or evaluation that draws "
    "in one run and not in the other.",
    limits="The states of Python, numpy and torch are compared; a generator of another library is "
    "seen only if it is given as extra state.",
    severity=Severity.HIGH,
    since="0.1",
    aliases=("NG4002",),
    example=Example(
        bad="first = next(iter(loader))  # draws a seed from the global generator\n",
        good="first = dataset[0]\n",
    ),
)

LOADER_STATE_MISMATCH = Rule(
    id="REP103",
    name="loader-state-mismatch",
    summary="The data loader is at another place, or gives other samples, than in the capture.",
    rationale="Other data gives other gradients: nothing after it can be compared.",
    fix="Replay with the same dataset, sampler, batch size and number of workers, through "
    "rec.batches(loader).",
    limits="Without recorded batches or indices the position alone is compared.",
    severity=Severity.HIGH,
    since="0.1",
    aliases=("NG4002",),
    example=Example(
        bad="loader = DataLoader(data, batch_size=64, shuffle=True)  # recorded with 32\n",
        good="loader = DataLoader(data, batch_size=32, shuffle=True)\n",
    ),
)

ENVIRONMENT_DIFFERS = Rule(
    id="REP104",
    name="environment-differs",
    summary="The machine or its settings differ from the recorded ones in a way that changes bits.",
    rationale="Threads, instruction sets, libraries and memory formats change the order of sums: a "
    "replay cannot be exact, and a difference proves nothing about the run.",
    fix="Set what is named as it was recorded, then replay.",
    limits="Only settings that are known to change bits are compared. A driver or a library that "
    "changed under the same version is not seen.",
    severity=Severity.MEDIUM,
    since="0.1",
    example=Example(
        bad="torch.set_num_threads(4)  # recorded with 1\n",
        good="torch.set_num_threads(1)\n",
    ),
)

RESUMED_RUN_DIFFERS = Rule(
    id="REP105",
    name="resumed-run-differs",
    summary="A resumed run does not go on from the state in which the earlier one stopped.",
    rationale="What is lost at a resume (moments, scheduler, random state, place in the data) "
    "shows later as a bump in the loss that nobody can explain.",
    fix="Save and restore the component that is named.",
    limits="Compared are the digests on both sides of the resume; a component that neither side "
    "recorded is not judged.",
    severity=Severity.HIGH,
    since="0.1",
    example=Example(
        bad='model.load_state_dict(saved["model"])\n',
        good='model.load_state_dict(saved["model"])\noptimizer.load_state_dict(saved["optimizer"])\n',
    ),
)

RANKS_DIFFER = Rule(
    id="REP106",
    name="ranks-differ",
    summary="Replicas of one model hold different parameters at the same step.",
    rationale="Each rank then trains a model of its own; averaged gradients fit none of them.",
    fix="Look at the step and the tensor that are named: a skipped step, an edited weight, or "
    "another learning rate on one rank.",
    limits="For data-parallel training only. Buffers are not compared: BatchNorm statistics differ "
    "between ranks by design.",
    severity=Severity.HIGH,
    since="0.1",
    example=Example(
        bad="if rank == 0:\n    optimizer.step()\n",
        good="optimizer.step()\n",
    ),
)

RECORD_CORRUPT = Rule(
    id="REP201",
    name="record-corrupt",
    summary="A record or a checkpoint of a run is damaged, missing, repeated or swapped.",
    rationale="A replay from damaged state would blame the run for what the disk did.",
    fix="Use another checkpoint; the records before and after the damage are good.",
    limits="A checksum finds accidents. Somebody who rewrites a file with its checksums is not "
    "found out.",
    severity=Severity.HIGH,
    since="0.1",
    example=Example(
        bad='print(open(".nabla/runs/r/steps.r0.jsonl", "r+").write("edited"))\n',
        good='print(open(".nabla/runs/r/steps.r0.jsonl").read())\n',
    ),
)

RECORD_TRUNCATED = Rule(
    id="REP202",
    name="record-truncated",
    summary="The log of a run ends in the middle of a record, or without its last one.",
    rationale="The process was killed, or the machine lost power: later steps were not recorded.",
    fix="Nothing needs repair: all complete records are used. Resuming the run cuts the torn end "
    "off.",
    limits="A run that is still being written looks the same.",
    severity=Severity.INFO,
    since="0.1",
    example=Example(
        bad="recording = nabla.capture(model)\nrecording.__enter__()\nos._exit(0)\n",
        good="with nabla.capture(model):\n    train()\n",
    ),
)

ARTIFACT_UNSAFE = Rule(
    id="REP203",
    name="artifact-unsafe",
    summary="A folder of evidence holds something that has no place in it, such as a link, a pipe "
    "or a pickle.",
    rationale="What comes from somebody else may point outside its folder, block, or run code.",
    fix="Do not open the file that is named with other tools; ask for the evidence again.",
    limits="Judged by kind, name and first bytes; nothing is opened that could run.",
    severity=Severity.HIGH,
    since="0.1",
    example=Example(
        bad='torch.load("artifact/model.pt", weights_only=False)\n',
        good='nabla_replay.load_state("artifact/model.safetensors")\n',
    ),
)

CAPTURE_DEGRADED = Rule(
    id="REP204",
    name="capture-degraded",
    summary="The capture could not write everything; the training went on without it.",
    rationale="A disk that is full or gone must not end a training; but the steps that are missing "
    "cannot be replayed.",
    fix="Make room on the disk, or set root to another one; checkpoint less often.",
    limits="Told once. What is missing stands in the log as a gap.",
    severity=Severity.MEDIUM,
    since="0.1",
    example=Example(
        bad='with nabla.capture(model, root="/dev/shm/small"):\n    train()\n',
        good='with nabla.capture(model, root="/data/runs"):\n    train()\n',
    ),
)

BISECT_FIRST_BAD = Rule(
    id="REP301",
    name="bisect-first-bad",
    summary="The first step at which the run is bad.",
    rationale="What changed between the last good step and this one is the cause, or holds it.",
    fix="Look at what is listed as changed: batch, learning rate, norms, random state.",
    limits="For a state predicate, exact only if the run stays bad from there on; REP302 says when "
    "it does not.",
    severity=Severity.MEDIUM,
    since="0.1",
    aliases=("NG4003",),
    example=Example(
        bad="optimizer = torch.optim.SGD(model.parameters(), lr=10.0)\n",
        good="optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n",
    ),
)

BISECT_NON_MONOTONIC = Rule(
    id="REP302",
    name="bisect-non-monotonic",
    summary="The run goes bad, good and bad again: there is more than one first bad step.",
    rationale="A search by halves would name one of them, and call it the first.",
    fix="Look at each episode; ask for the one that matters with a narrower range or predicate.",
    limits="For a state predicate, episodes shorter than the distance of two checkpoints can stay "
    "hidden; the interval is named, not a step.",
    severity=Severity.MEDIUM,
    since="0.1",
    aliases=("NG4004",),
    example=Example(
        bad='nabla.bisect(run, metric="loss", greater_than=2.0)  # a noisy loss crosses it often\n',
        good='nabla.bisect(run, metric="loss", greater_than=10.0)\n',
    ),
)

BISECT_INCONCLUSIVE = Rule(
    id="REP303",
    name="bisect-inconclusive",
    summary="Good and bad steps could not be told apart with what was recorded.",
    rationale="A guess would send you to the wrong step.",
    fix="Give a predicate that is true somewhere and false somewhere, and a run with the metric or "
    "the checkpoints that it needs.",
    limits="Says why: no bad step, no good step, metric not recorded, or a replay that diverged.",
    severity=Severity.INFO,
    since="0.1",
    example=Example(
        bad='nabla.bisect(run, metric="accuracy", less_than=0.5)  # never recorded\n',
        good='nabla.bisect(run, metric="loss", greater_than=10.0)\n',
    ),
)

REPLAY_UNVERIFIED = Rule(
    id="REP901",
    name="replay-unverified",
    summary="A replayed step could not be compared with the recorded one.",
    rationale="What was not compared is neither right nor wrong; silence would look like right.",
    fix="Capture with a larger budget, or with the component that is named.",
    limits="Information only.",
    severity=Severity.INFO,
    since="0.1",
    example=Example(
        bad="with nabla.capture(model):  # no optimizer: its state is not recorded\n    train()\n",
        good="with nabla.capture(model, optimizer):\n    train()\n",
    ),
)

RULES = (
    REPLAY_DIVERGENCE,
    RNG_DIVERGENCE,
    LOADER_STATE_MISMATCH,
    ENVIRONMENT_DIFFERS,
    RESUMED_RUN_DIFFERS,
    RANKS_DIFFER,
    RECORD_CORRUPT,
    RECORD_TRUNCATED,
    ARTIFACT_UNSAFE,
    CAPTURE_DEGRADED,
    BISECT_FIRST_BAD,
    BISECT_NON_MONOTONIC,
    BISECT_INCONCLUSIVE,
    REPLAY_UNVERIFIED,
)
