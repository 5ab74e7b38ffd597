"""Passes of few rows in compiled code, for CPUs: C built on the machine it runs on, where that has a compiler."""
