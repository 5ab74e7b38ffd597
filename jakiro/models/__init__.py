"""Target models: transformers causal language models with `prefill`, `score` and a cache."""
