"""Rules about families of models, and about the evidence itself."""

from __future__ import annotations

from nabla_core.rule import Example, Rule
from nabla_core.severity import Severity

__all__ = [
    "GAN_IMBALANCE",
    "NOT_ENOUGH_EVIDENCE",
    "POLICY_ENTROPY_COLLAPSE",
    "POSTERIOR_COLLAPSE",
    "RULES",
    "SEVERAL_RUNS_IN_ONE_LOG",
]

GAN_IMBALANCE = Rule(
    id="RUN601",
    name="gan-imbalance",
    summary="The discriminator's loss is almost zero for a long time.",
    rationale="It tells real from generated without doubt; the generator gets no useful gradient.",
    fix="Lower the discriminator's learning rate, or regularise it.",
    limits="Needs the signal d_loss, a loss that cannot be negative; below 2 % of its start for 60 "
    "rows. Critics without a lower bound are not judged.",
    severity=Severity.MEDIUM,
    since="0.1",
    needs=("d_loss",),
    tags=("family",),
    example=Example(
        bad="optimizer_d = Adam(discriminator.parameters(), lr=1e-2)\n",
        good="optimizer_d = Adam(discriminator.parameters(), lr=1e-4)\n",
    ),
)

POSTERIOR_COLLAPSE = Rule(
    id="RUN602",
    name="posterior-collapse",
    summary="The KL term fell to almost nothing.",
    rationale="The decoder ignores the latent code.",
    fix="Anneal the weight of the KL term, or keep some of it free.",
    limits="Needs the signal kl; below 1 % of its highest level for 100 rows. A term that starts "
    "at zero under an annealed weight must have risen first.",
    severity=Severity.MEDIUM,
    since="0.1",
    stability="preview",
    needs=("kl",),
    tags=("family",),
    example=Example(
        bad="loss = reconstruction + 10.0 * kl\n",
        good="loss = reconstruction + min(1.0, step / 10_000) * kl\n",
    ),
)

POLICY_ENTROPY_COLLAPSE = Rule(
    id="RUN603",
    name="policy-entropy-collapse",
    summary="The entropy of the policy fell to almost nothing while the reward stands still.",
    rationale="The policy stopped to explore before it found something good.",
    fix="Raise the entropy bonus, or lower the learning rate.",
    limits="Needs the signals entropy and reward. A solved task has a low entropy as well: where "
    "the reward is better than that of the rows that still explored, nothing is said.",
    severity=Severity.MEDIUM,
    since="0.1",
    needs=("entropy", "reward"),
    tags=("family",),
    example=Example(
        bad="loss = -(advantage * log_probability).mean()\n",
        good="loss = -(advantage * log_probability).mean() - 0.01 * entropy\n",
    ),
)

NOT_ENOUGH_EVIDENCE = Rule(
    id="RUN901",
    name="not-enough-evidence",
    summary="The run is too short, or logs too little, for a statistical verdict.",
    rationale="Silence about such a run does not mean that it is healthy.",
    fix="Log the loss at every step, and the gradient norm and learning rate with it.",
    limits="Information, at the end of a run that has fewer than 30 finite losses and no finding.",
    severity=Severity.INFO,
    since="0.1",
    tags=("evidence",),
    example=Example(
        bad="if step % 1000 == 0:\n    run.log(step, loss=loss)\n",
        good="run.log(step, loss=loss)\n",
    ),
)

SEVERAL_RUNS_IN_ONE_LOG = Rule(
    id="RUN902",
    name="several-runs-in-one-log",
    summary="The steps start again: the log holds more than one run.",
    rationale="Numbers of different runs must not be compared as if they were one.",
    fix="Write each run to a file of its own.",
    limits="Information. A step that goes back by a little is a resumed run, not a new one.",
    severity=Severity.INFO,
    since="0.1",
    tags=("evidence",),
    example=Example(
        bad="log = open('results.csv', 'a')\n",
        good="log = open(f'results-{run_id}.csv', 'x')\n",
    ),
)

RULES = (
    GAN_IMBALANCE,
    POSTERIOR_COLLAPSE,
    POLICY_ENTROPY_COLLAPSE,
    NOT_ENOUGH_EVIDENCE,
    SEVERAL_RUNS_IN_ONE_LOG,
)
