"""Backends, which run the passes of a generation on one kind of device, and `native`, compiled kernels for CPUs."""
