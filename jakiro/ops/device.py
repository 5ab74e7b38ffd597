"""Costs that differ between devices, by which code chooses between two ways to compute the same."""

import torch


def reads_are_free(device: torch.device) -> bool:
    """Return whether reading a tensor does not wait for the device."""
    return device.type == "cpu"


def launches_dominate(device: torch.device) -> bool:
    """Return whether a pass over few tokens is mostly launches of operations, so that fewer operations are faster."""
    return device.type == "cuda"
