"""The rules of speculative decoding as tensors in and tensors out: trees, choices, verification."""
