"""Target models: any causal language model behind `prefill` and `score`, with its cache."""
