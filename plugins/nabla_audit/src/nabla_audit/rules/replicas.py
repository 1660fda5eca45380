"""Rules about replicas of one model, in one process or on several ranks."""

from __future__ import annotations

from nabla_core.rule import Example, Rule
from nabla_core.severity import Severity

__all__ = [
    "RANKS_SEE_SAME_DATA",
    "RANK_BUFFER_DRIFT",
    "RANK_DIVERGENCE",
    "RANK_SCALE_DRIFT",
    "RULES",
]

_EXCHANGE = (
    "Fingerprints are the sum of all bits, so changes that cancel exactly are missed. Sharded "
    "parameters (DTensor) are not compared."
)

RANK_DIVERGENCE = Rule(
    id="AUD701",
    name="rank-divergence",
    summary="Replicas of one model had the same bits and then parted.",
    rationale="Gradients that are averaged over different weights fit none of them; the "
    "difference only grows, and nothing raises an error.",
    fix="Make every rank take the same steps with the same gradients: clip, unscale and skip after "
    "the gradients were averaged, and never edit weights on one rank.",
    limits="Needs three equal steps first, or a DistributedDataParallel: replicas that are "
    "averaged now and then, and shards, are never equal. With a DistributedDataParallel only what "
    "it holds is compared. INFO in one process when the learning "
    "rates differ or both were given the same data, because that is an experiment. " + _EXCHANGE,
    severity=Severity.HIGH,
    since="0.1",
    needs=("replicas",),
    tags=("replicas",),
    example=Example(
        bad="if rank == 0:\n    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n",
        good="torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # on every rank\n",
    ),
)

RANK_BUFFER_DRIFT = Rule(
    id="AUD702",
    name="rank-buffer-drift",
    summary="Buffers that are declared synchronised differ between ranks.",
    rationale="Each rank normalises with other statistics, and only those of rank 0 are saved.",
    fix="Use SyncBatchNorm, or broadcast_buffers=True.",
    limits="Only when synchronised-buffers is set: running statistics differ lawfully between "
    "ranks by default. " + _EXCHANGE,
    severity=Severity.HIGH,
    since="0.1",
    needs=("replicas",),
    options=("synchronised-buffers",),
    tags=("replicas",),
    example=Example(
        bad="model = DistributedDataParallel(net, broadcast_buffers=False)\n",
        good="net = nn.SyncBatchNorm.convert_sync_batchnorm(net)\n"
        "model = DistributedDataParallel(net)\n",
    ),
)

RANK_SCALE_DRIFT = Rule(
    id="AUD703",
    name="rank-scale-drift",
    summary="Gradient scalers of different ranks have different scales.",
    rationale="Gradients that were scaled differently are averaged and unscaled by the wrong "
    "factor.",
    fix="Decide on every rank alike whether a step is skipped: all-reduce found_inf, or unscale "
    "after averaging.",
    limits="The scale is read after each step; needs two steps in a row with different scales. "
    "With DistributedDataParallel gradients are averaged before they are checked, so the scales "
    "stay equal by themselves.",
    severity=Severity.HIGH,
    since="0.1",
    needs=("replicas",),
    tags=("replicas",),
    example=Example(
        bad="scaler.scale(loss).backward()\naverage(gradients)  # scales differ between ranks\n",
        good="model = DistributedDataParallel(net)\nscaler.scale(loss).backward()\n",
    ),
)

RANKS_SEE_SAME_DATA = Rule(
    id="AUD704",
    name="ranks-see-same-data",
    summary="Two ranks train on the same batches.",
    rationale="The average over ranks is an average over copies: the work of one rank is wasted, "
    "and the batch is smaller than it seems.",
    fix="Use DistributedSampler, or give each rank its own seed or shard of the data.",
    limits="Needs three different batches in a row that are equal on both ranks, and equal "
    "parameters. MEDIUM without DistributedDataParallel. 64 elements of each input are compared.",
    severity=Severity.HIGH,
    since="0.1",
    needs=("replicas",),
    tags=("replicas", "data"),
    example=Example(
        bad="loader = DataLoader(dataset, batch_size=32)\n",
        good="loader = DataLoader(dataset, batch_size=32, sampler=DistributedSampler(dataset))\n",
    ),
)

RULES = (RANK_DIVERGENCE, RANK_BUFFER_DRIFT, RANK_SCALE_DRIFT, RANKS_SEE_SAME_DATA)
