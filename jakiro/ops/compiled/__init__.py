"""The C code in `csrc/`, for passes of few rows on CPUs: built on the machine it runs on, where that has a compiler.

It is called from here (linear layers, noise and choices), `jakiro/models/compiled.py` and `jakiro/heads/compiled.py`.
"""
