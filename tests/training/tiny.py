"""Tiny random targets, a corpus of random ids with its features, and heads for them."""

from pathlib import Path

import torch
from transformers import LlamaForCausalLM

from jakiro.heads.kinds import KINDS, make_head
from jakiro.training.features import FeatureCache, write_features
from jakiro.training.start import head_config
from tests.support import tiny_model

VOCAB_SIZE, HIDDEN = 40, 16


def tiny_target() -> LlamaForCausalLM:
    return tiny_model(vocab_size=VOCAB_SIZE, hidden_size=HIDDEN)


def byte_target(num_layers: int) -> LlamaForCausalLM:
    """A random target that writes bytes, for `byte_tokenizer`."""
    return tiny_model(hidden_size=16, layers=num_layers)


def features_of(target: LlamaForCausalLM):
    def run(ids: torch.Tensor) -> torch.Tensor:
        with torch.inference_mode():
            return target.model(input_ids=ids, use_cache=False).last_hidden_state

    return run


def tiny_sequences(count: int = 24) -> list[tuple[list[int], int]]:
    generator = torch.Generator().manual_seed(1)
    lengths = torch.randint(9, 20, (count,), generator=generator).tolist()
    return [(torch.randint(2, VOCAB_SIZE, (length,), generator=generator).tolist(), 3) for length in lengths]


def tiny_cache(folder: Path, target: LlamaForCausalLM) -> FeatureCache:
    for _ in write_features(folder, tiny_sequences(), HIDDEN, features_of(target), batch_tokens=64, group=8):
        pass
    return FeatureCache(folder)


def tiny_head(
    target: LlamaForCausalLM,
    fusion: str = "summed",
    draft_vocab: int | None = None,
    seed: int = 2,
    kind: str = "jakiro",
):
    torch.manual_seed(seed)
    fields = {"fusion": fusion} if kind == "jakiro" else {}
    head = make_head(head_config(KINDS[kind], target.config, 12, draft_vocab, **fields))
    if draft_vocab:
        head.draft_token_ids.copy_(torch.arange(draft_vocab) + 2)
    return head.bind(target.get_input_embeddings().weight, target.lm_head.weight)


def start(head, cache: FeatureCache, source=None, seed: int = 0, first: int = 0) -> None:
    """First weights of a head as its kind gives them, from all texts that are not held out."""
    KINDS[head.config.kind].start(head, cache.texts(first, len(cache), torch.device("cpu")), seed, source)
