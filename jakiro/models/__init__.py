"""Target models: causal language models of transformers with `prefill`, `score` and a cache."""
