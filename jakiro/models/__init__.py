"""Target models: any causal language model with `prefill`, `score` and a cache."""
