"""Options of the trace and the limits of its rules."""

from __future__ import annotations

from dataclasses import dataclass

from nabla_core.options import option

__all__ = ["TraceOptions"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceOptions:
    """Limits, bound to ``[tool.nabla.trace]``."""

    conflict_cosine: float = option(
        -0.3, "GEO101: cosine of two losses below which they conflict.", minimum=-1.0, maximum=0.0
    )
    conflict_ratio: float = option(
        10.0, "GEO101: a loss whose gradient is this much smaller is no opponent.", minimum=1.0
    )
    cancellation: float = option(
        0.3, "GEO102: share of the gradients' lengths that may be lost in their sum.", minimum=0.0
    )
    dominance: float = option(
        0.99, "GEO103: share of all gradient length that one loss may have.", maximum=1.0
    )
    sample_share: float = option(
        8.0, "GEO201: times the even share that a sample may have of the gradient.", minimum=1.0
    )
    opposing_cosine: float = option(
        -0.5, "GEO202: cosine of a sample to all the others below which it opposes.", maximum=0.0
    )
    duplicate_cosine: float = option(
        0.9999, "GEO203: cosine from which two samples are duplicates.", maximum=1.0
    )
    label_agreement: float = option(
        0.5, "GEO204: a suspect agrees with its label less than this times the median.", minimum=0.0
    )
    label_norm: float = option(
        2.0, "GEO204: a suspect's gradient is longer than this times the median.", minimum=1.0
    )
    batch_cancellation: float = option(
        0.99, "GEO205: share of the samples' gradients that may be lost in the batch.", maximum=1.0
    )
    too_small_alpha: float = option(
        -0.9, "GEO301: median alpha below which the step is too small.", minimum=-1.0, maximum=0.0
    )
    noise_alpha: float = option(
        0.5, "GEO302: alpha on the next batch from which the step is at the noise floor."
    )
    early_jump: float = option(
        0.25, "GEO303: rise of the loss in the first steps, as a share of the first loss."
    )
    signal_gain: float = option(
        10.0, "GEO501, GEO502: change of scale per block of the signal.", minimum=1.0
    )
    width_slope: float = option(
        0.3, "GEO504: exponent of the width in the change of a layer's output.", minimum=0.0
    )
