"""Other programs that decode the same prompts beside ours: transformers' own `generate`, and llama.cpp."""
