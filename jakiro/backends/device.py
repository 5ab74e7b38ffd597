"""Names of devices, and waiting for their work."""

import platform

import torch

from jakiro.system import num_cores, processor_name


def device_name(device: torch.device) -> str:
    """Return a readable name: "2-core CPU", or the GPU's name."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{num_cores()}-core CPU" if device.type == "cpu" else str(device)


def hardware_name(device: torch.device) -> str:
    """Return the model of the GPU or of the processor."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{processor_name()} ({platform.machine()})"


def synchronize(device: torch.device) -> None:
    """Block until the device has finished its work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
