"""Reads the settings of this process that decide the bits of a training step."""

from __future__ import annotations

import multiprocessing
import os
import platform
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn import Module
from torch.nn.parameter import is_lazy
from torch.utils.data import DataLoader

from nabla_core.provenance import git_commit

__all__ = ["gather_settings", "loader_settings", "model_settings", "process_settings"]

_VARIABLES = (
    "ATEN_CPU_CAPABILITY",
    "ONEDNN_MAX_CPU_ISA",
    "DNNL_MAX_CPU_ISA",
    "MKL_CBWR",
    "MKL_ENABLE_INSTRUCTIONS",
    "CUBLAS_WORKSPACE_CONFIG",
    "NCCL_ALGO",
    "PYTHONHASHSEED",
)
_DENORMAL = 1e-310

Value = str | int | bool


def gather_settings(
    model: Module | None = None, loader: object = None, *, world_size: int = 1
) -> dict[str, Value]:
    """Return every setting that can be read now, by its name in :data:`.settings.SETTINGS`.

    Args:
        model: gives memory format, dtypes and devices.
        loader: gives workers, batch size and sampler when it is a ``DataLoader``.
        world_size: processes of the training.
    """
    found = {**process_settings(), "world size": world_size}
    if model is not None:
        found.update(model_settings(model))
    if isinstance(loader, DataLoader):
        found.update(loader_settings(loader))
    return found


def process_settings() -> dict[str, Value]:
    """Return what holds for the whole process. Initialises no device."""
    found: dict[str, Value] = {
        "torch": str(torch.__version__),
        "torch commit": str(torch.version.git_version),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "CPU": _cpu_name(),
        "CPU capability": torch.backends.cpu.get_cpu_capability(),
        "threads": torch.get_num_threads(),
        "interop threads": torch.get_num_interop_threads(),
        "oneDNN": _uses_onednn(),
        "default dtype": _name(torch.get_default_dtype()),
        "matmul precision": torch.get_float32_matmul_precision(),
        "deterministic algorithms": torch.are_deterministic_algorithms_enabled(),
        "flush denormals": _flushes_denormals(),
    }
    found.update({name: os.environ[name] for name in _VARIABLES if name in os.environ})
    commit = git_commit()
    if commit is not None:
        found["commit"] = commit
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        found.update(_cuda_settings())
    return found


def model_settings(model: Module) -> dict[str, Value]:
    """Return what the tensors of a model decide."""
    held = [tensor for tensor in (*model.parameters(), *model.buffers()) if not is_lazy(tensor)]
    wide = [
        tensor for tensor in model.parameters() if not is_lazy(tensor) and tensor.dim() in (4, 5)
    ]
    last = any(map(_is_channels_last, wide))
    return {
        "devices": _listed({tensor.device.type for tensor in held}),
        "model dtypes": _listed({_name(tensor.dtype) for tensor in held}),
        "memory format": "channels_last" if last else "contiguous_format",
    }


def loader_settings(loader: DataLoader[object]) -> dict[str, Value]:
    """Return what a loader decides."""
    context = loader.multiprocessing_context
    method = multiprocessing.get_start_method(allow_none=True) if context is None else None
    if context is not None:
        method = context.get_start_method()
    found: dict[str, Value] = {
        "loader workers": loader.num_workers,
        "loader batch size": str(loader.batch_size),
        "loader sampler": type(loader.sampler).__name__,
        "loader persistent workers": bool(loader.persistent_workers),
    }
    if method is not None and loader.num_workers:
        found["loader start method"] = str(method)
    try:
        found["loader samples"] = len(loader.dataset)  # type: ignore[arg-type]
    except TypeError:
        return found  # an iterable data set need not know
    return found


def _cuda_settings() -> Iterator[tuple[str, Value]]:
    yield "GPU", _listed({torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())})
    yield "CUDA", str(torch.version.cuda)
    yield "cuDNN", str(torch.backends.cudnn.version())  # type: ignore[no-untyped-call]
    yield "cuDNN benchmark", bool(torch.backends.cudnn.benchmark)
    yield "cuDNN deterministic", bool(torch.backends.cudnn.deterministic)
    yield "TF32 products", bool(torch.backends.cuda.matmul.allow_tf32)
    yield "TF32 convolutions", bool(torch.backends.cudnn.allow_tf32)
    allowed = {
        "flash": torch.backends.cuda.flash_sdp_enabled(),  # type: ignore[no-untyped-call]
        "memory-efficient": torch.backends.cuda.mem_efficient_sdp_enabled(),  # type: ignore[no-untyped-call]
        "math": torch.backends.cuda.math_sdp_enabled(),  # type: ignore[no-untyped-call]
    }
    yield "attention kernels", _listed({name for name, on in allowed.items() if on})


def _is_channels_last(tensor: Tensor) -> bool:
    wanted = torch.channels_last if tensor.dim() == 4 else torch.channels_last_3d
    return tensor.is_contiguous(memory_format=wanted) and not tensor.is_contiguous()


def _flushes_denormals() -> bool:
    tiny = torch.tensor(_DENORMAL, dtype=torch.float64)
    return float(tiny * 1.0) == 0.0


def _uses_onednn() -> bool:
    available = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    return bool(available and torch.backends.mkldnn.enabled)


def _cpu_name() -> str:
    try:
        with Path("/proc/cpuinfo").open(encoding="utf-8", errors="replace") as lines:
            for line in lines:
                if line.startswith("model name"):
                    return line.partition(":")[2].strip()
    except OSError:
        return platform.processor() or platform.machine()
    return platform.processor() or platform.machine()


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "none"
