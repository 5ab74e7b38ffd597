"""Passes at fixed addresses, so that a GPU can capture them once as CUDA graphs and replay them."""
