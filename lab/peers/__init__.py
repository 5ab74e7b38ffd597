"""Other programs that decode the same prompts: `bench --methods-from lab --methods …,llama-cpp`."""

from functools import partial


def _llama(name: str, status: dict):
    """Return the runner; torch and the program are imported only if it is used."""
    import torch

    from lab.peers.llama import LlamaCppRunner

    return LlamaCppRunner(name, status["target"], torch.get_num_threads())


PEERS = {name: partial(_llama, name) for name in ("llama-cpp", "llama-cpp-lookup")}
