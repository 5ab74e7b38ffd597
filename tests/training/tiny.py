"""Tiny random targets, a corpus of random ids with its features, and heads."""

from pathlib import Path

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from jakiro.heads.kind import Kinds
from jakiro.heads.kinds import KINDS, make_head
from jakiro.models import features
from jakiro.training.features import FeatureCache, FeatureSource, write_features
from jakiro.training.start import head_config
from tests.support import byte_tokenizer

VOCAB_SIZE, HIDDEN = 40, 16


def tiny_target() -> LlamaForCausalLM:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=VOCAB_SIZE,
        hidden_size=HIDDEN,
        intermediate_size=24,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=128,
        eos_token_id=1,
    )
    model = LlamaForCausalLM(config).eval().requires_grad_(False)
    # Peaked distributions; a new model has nearly flat ones
    model.lm_head.weight.mul_(20.0)
    return model


def byte_target(num_layers: int) -> LlamaForCausalLM:
    """Return a random target that writes bytes, for `byte_tokenizer`."""
    torch.manual_seed(0)
    tokenizer = byte_tokenizer()
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=num_layers,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=256,
        initializer_range=0.3,
        eos_token_id=tokenizer.eos_token_id,
        bos_token_id=None,
    )
    return LlamaForCausalLM(config).eval()


def features_of(target: LlamaForCausalLM, layers: tuple[int, ...] = ()):
    def run(ids: torch.Tensor) -> torch.Tensor:
        with torch.inference_mode():
            return features.features_of(target.model, layers, input_ids=ids, use_cache=False)

    return run


def tiny_sequences(count: int = 24) -> list[tuple[list[int], int]]:
    generator = torch.Generator().manual_seed(1)
    lengths = torch.randint(9, 20, (count,), generator=generator).tolist()
    return [(torch.randint(2, VOCAB_SIZE, (length,), generator=generator).tolist(), 3) for length in lengths]


def tiny_cache(folder: Path, target: LlamaForCausalLM, layers: tuple[int, ...] = ()) -> FeatureCache:
    source = FeatureSource(HIDDEN, layers)
    for _ in write_features(folder, tiny_sequences(), source, features_of(target, layers), batch_tokens=64, group=8):
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


def start(head, cache: FeatureCache, seed: int = 0, first: int = 0, kinds: Kinds = KINDS) -> None:
    """Initialize a head as its kind does, with all texts that are not held out."""
    kinds[head.config.kind].start(head, cache.texts(first, len(cache), torch.device("cpu")), seed)
