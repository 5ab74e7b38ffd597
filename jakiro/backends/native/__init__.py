"""Compiled kernels for CPUs, which the passes of the torch backend call; this package is not a `Backend`.

The C code in `csrc/` is built on the machine that runs it, if that has a compiler.
The registry in `jakiro.ops.kernels` names `kernels.py`; no other package imports this one.
"""
