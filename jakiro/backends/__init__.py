"""Backends: the passes of a generation on one kind of device."""
