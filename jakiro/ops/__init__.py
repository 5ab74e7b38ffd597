"""Arithmetic for targets and heads: attention, rotary positions, packed and 8-bit matrices, and the kernel registry."""
