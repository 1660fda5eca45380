"""The autocast exclusion list, as Python source that runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .result import ModulePrecision, PrecisionReport

__all__ = ["exclusion_source"]

_TEMPLATE = '''\
# Modules of {model} that must not run in {dtype}, measured by nabla precision.
import functools

import torch

KEEP_IN_FLOAT32 = ({entries})


def keep_in_float32(model, device_type="cuda"):
    """Let these modules run in float32 inside torch.autocast; the others are left alone."""

    def widened(value):
        if isinstance(value, torch.Tensor) and value.is_floating_point():
            return value.float()
        if isinstance(value, (list, tuple)) and not hasattr(value, "_fields"):
            return type(value)(map(widened, value))
        if type(value) is dict:
            return {{key: widened(entry) for key, entry in value.items()}}
        return value

    def in_float32(forward):
        @functools.wraps(forward)
        def run(*args, **kwargs):
            with torch.autocast(device_type, enabled=False):
                return forward(*widened(args), **widened(kwargs))

        return run

    for path in KEEP_IN_FLOAT32:
        module = model.get_submodule(path)
        module.forward = in_float32(module.forward)
    return model
'''


def exclusion_source(report: PrecisionReport, dtype: str) -> str:
    """Return a script that defines ``KEEP_IN_FLOAT32`` and ``keep_in_float32(model)``.

    Args:
        report: an audit.
        dtype: name of the dtype of the autocast.
    """
    kept = [
        module
        for module in report.modules
        if dtype in module.measurements and not module.measurements[dtype].fits
    ]
    entries = "".join(f"\n    {module.path!r},  # {_why(module, dtype)}" for module in kept)
    return _TEMPLATE.format(
        model=report.model, dtype=dtype, entries=f"{entries}\n" if entries else ""
    )


def _why(module: ModulePrecision, dtype: str) -> str:
    found = module.measurements[dtype]
    kind = f"own code of {module.kind}" if module.own_code else module.kind
    if found.overflows:
        return f"{kind}: overflows"
    if found.worst > found.limit:
        return f"{kind}: own error {found.worst:.2g}, limit {found.limit:.2g}"
    return f"{kind}: gradient loses {found.lost_gradient:.2g}, limit {found.limit:.2g}"
