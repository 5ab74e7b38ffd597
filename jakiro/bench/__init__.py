"""The benchmark: prompts run with every method, interleaved, with results as tables and a JSON file."""
