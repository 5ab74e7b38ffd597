"""The machine that is measured: what it is, and programs that compute beside the benchmark."""
