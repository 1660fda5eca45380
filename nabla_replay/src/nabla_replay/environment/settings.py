"""The settings that are recorded, and what a difference in each of them means for a replay."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

__all__ = ["SETTINGS", "Effect", "Setting", "Settings"]

Effect = Literal["breaks", "may break", "harmless"]
"""Whether another value changes the bits of the result: ``breaks`` and ``harmless`` were measured,
``may break`` depends on the device or on the model."""

Settings = Mapping[str, str | int | bool]
"""Name of a setting to its value."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting.

    Attributes:
        effect: what a difference does.
        why: why it does so.
        restore: how to get the recorded value back; ``{}`` stands for it.
    """

    effect: Effect
    why: str
    restore: str


_ORDER = "sums are split and added up in another order"
_KERNEL = "another instruction set means other kernels, which round elsewhere"
_DRAWS = "each worker draws its own random numbers"

SETTINGS: Mapping[str, Setting] = MappingProxyType(
    {
        "threads": Setting("breaks", _ORDER, "torch.set_num_threads({})"),
        "interop threads": Setting("harmless", "", "torch.set_num_interop_threads({})"),
        "torch": Setting("breaks", "kernels change from version to version", "torch {}"),
        "torch commit": Setting("breaks", "kernels change from build to build", "torch {}"),
        "python": Setting("may break", "random and hashing may differ", "Python {}"),
        "numpy": Setting("may break", "its generators may differ", "numpy {}"),
        "CPU capability": Setting("breaks", _KERNEL, "a CPU with {}, or ATEN_CPU_CAPABILITY"),
        "CPU": Setting("may break", "libraries choose kernels by model", "the CPU {}"),
        "ATEN_CPU_CAPABILITY": Setting("breaks", _KERNEL, "ATEN_CPU_CAPABILITY={}"),
        "ONEDNN_MAX_CPU_ISA": Setting("breaks", _KERNEL, "ONEDNN_MAX_CPU_ISA={}"),
        "DNNL_MAX_CPU_ISA": Setting("breaks", _KERNEL, "DNNL_MAX_CPU_ISA={}"),
        "MKL_CBWR": Setting("breaks", _KERNEL, "MKL_CBWR={}"),
        "MKL_ENABLE_INSTRUCTIONS": Setting("breaks", _KERNEL, "MKL_ENABLE_INSTRUCTIONS={}"),
        "oneDNN": Setting(
            "breaks", "convolutions use other kernels", "torch.backends.mkldnn.enabled = {}"
        ),
        "memory format": Setting(
            "breaks", "convolutions and norms use other kernels", "model.to(memory_format=torch.{})"
        ),
        "model dtypes": Setting("breaks", "other precision, other rounding", "parameters in {}"),
        "default dtype": Setting("breaks", "other precision", "torch.set_default_dtype(torch.{})"),
        "matmul precision": Setting(
            "may break", "float32 products may be rounded", "torch.set_float32_matmul_precision({})"
        ),
        "deterministic algorithms": Setting("harmless", "", "torch.use_deterministic_algorithms"),
        "flush denormals": Setting("harmless", "", "torch.set_flush_denormal({})"),
        "PYTHONHASHSEED": Setting("harmless", "", "PYTHONHASHSEED={}"),
        "devices": Setting("breaks", "another device has other kernels", "the devices {}"),
        "GPU": Setting("breaks", "another GPU has other kernels", "the GPU {}"),
        "CUDA": Setting("breaks", "libraries change from version to version", "CUDA {}"),
        "cuDNN": Setting("breaks", "kernels change from version to version", "cuDNN {}"),
        "cuDNN benchmark": Setting(
            "may break", "kernels are chosen by speed", "torch.backends.cudnn.benchmark = {}"
        ),
        "cuDNN deterministic": Setting(
            "may break", "kernels may add atomically", "torch.backends.cudnn.deterministic = {}"
        ),
        "TF32 products": Setting(
            "may break", "10 bits instead of 23", "torch.backends.cuda.matmul.allow_tf32 = {}"
        ),
        "TF32 convolutions": Setting(
            "may break", "10 bits instead of 23", "torch.backends.cudnn.allow_tf32 = {}"
        ),
        "attention kernels": Setting("may break", "they round differently", "kernels {}"),
        "CUBLAS_WORKSPACE_CONFIG": Setting(
            "may break", "products may be split", "CUBLAS_WORKSPACE_CONFIG={}"
        ),
        "NCCL_ALGO": Setting("may break", _ORDER, "NCCL_ALGO={}"),
        "world size": Setting("breaks", "each rank sees other samples", "{} processes"),
        "loader workers": Setting("breaks", _DRAWS, "DataLoader(num_workers={})"),
        "loader batch size": Setting("breaks", "other batches", "DataLoader(batch_size={})"),
        "loader samples": Setting("breaks", "other data, another order", "a data set of {}"),
        "loader sampler": Setting("breaks", "another order", "the sampler {}"),
        "loader start method": Setting(
            "may break", "workers start with other generators", "multiprocessing_context={}"
        ),
        "loader persistent workers": Setting(
            "breaks", "generators of workers go on or start anew", "persistent_workers={}"
        ),
        "commit": Setting("may break", "the code may have changed", "git checkout {}"),
    }
)
"""Every setting by name, in the order in which differences are told."""
