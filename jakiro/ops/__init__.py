"""Arithmetic that targets and heads share: attention, rotary positions, packed and 8-bit matrices, and the C code."""
