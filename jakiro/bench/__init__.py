"""The benchmark: prompts run with every method, interleaved, and what comes out as tables, files and plots."""
