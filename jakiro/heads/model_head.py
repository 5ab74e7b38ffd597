"""A small language model as a draft head, which reads tokens only.

Its draft vocabulary are the ids for which both models have rows; `refuse_other_tokens` checks that they mean the same.
"""

import torch
from torch import Tensor

from jakiro.heads.base import DraftHead
from jakiro.heads.config import DraftConfig
from jakiro.heads.layers import HeadOutput, row_output
from jakiro.models.families import num_kv_heads
from jakiro.models.passes import PREFILL_CHUNK
from jakiro.models.target import TargetModel
from jakiro.ops.cache import RowCache

# Largest share of tokens that only one of two tokenizers has, such as padding that a file adds
UNSHARED = 0.01


class ModelConfig(DraftConfig):
    """Config of a draft model; no config.json has this kind."""

    kind = "model"


class ModelHead(DraftHead):
    """A draft model; its rows are tokens, so `embed` returns the ids.

    Args:
        model: A model with the target's tokenizer.
        vocab_size: Rows of the target's embedding.

    Raises:
        ValueError: the model scores chains only, so it has no pass over the rows of a tree.
    """

    skipped_tokens = 0
    capturable = False

    def __init__(self, model: TargetModel, vocab_size: int) -> None:
        if model.chains_only:
            raise ValueError(
                f"{model.name} cannot draft: it counts positions inside its own attention; choose another."
            )
        rows = min(model.vocab_size, vocab_size)
        super().__init__(
            ModelConfig(
                hidden_size=model.hidden_size,
                vocab_size=vocab_size,
                draft_vocab_size=rows if rows < vocab_size else None,
                max_position_embeddings=model.max_positions,
            )
        )
        self.draft_token_ids = torch.arange(rows, device=model.device)
        self.model, self.output_weight = model, model.output_weight

    def embed(self, token_ids: Tensor) -> Tensor:
        """Return the ids, limited to the model's rows; larger ids are the target's padding, which no text contains."""
        return token_ids.clamp(max=self.model.vocab_size - 1)

    def logits(self, features: Tensor) -> Tensor:
        return self.model.logits(features)[..., : self.draft_token_ids.shape[0]]

    def new_cache(self, capacity: int) -> RowCache:
        config, model = self.model.config, self.model
        head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        shape = (config.num_hidden_layers, 2, num_kv_heads(config), capacity, head_dim)
        return RowCache(shape[0], capacity, rows=torch.zeros(shape, dtype=model.cache_dtype, device=model.device))

    def extend(self, token_ids: Tensor, features: Tensor, cache: RowCache) -> HeadOutput:
        """Read committed tokens, (rows,) int64, in chunks; the target's features are not used."""
        features_of_chunks = []
        for ids in self.embed(token_ids).split(PREFILL_CHUNK):
            order = torch.arange(ids.shape[0], device=ids.device)
            visible = cache.visible(order <= order[:, None])
            features_of_chunks.append(self.model.features(ids, order + cache.length, visible, cache))
        return row_output(torch.cat(features_of_chunks)[None])

    def forward(
        self, embeddings: Tensor, features: Tensor, positions: Tensor, mask: Tensor, cache: RowCache
    ) -> HeadOutput:
        """Run (1, rows) ids from `embed` and extend the cache."""
        return row_output(self.model.features(embeddings[0], positions[0], mask[0, 0], cache)[None])


def refuse_other_tokens(ours: dict[str, int], theirs: dict[str, int], name: str, target: str) -> None:
    """Check that a draft model has the tokenizer of its target.

    Args:
        ours: Ids by token of the target.
        theirs: Ids by token of the draft model.

    Raises:
        ValueError: the tokenizers differ.
    """
    same = len(ours.items() & theirs.items())
    our_tokens, their_tokens = ({number: token for token, number in ids.items()} for ids in (ours, theirs))
    common_ids = sorted(our_tokens.keys() & their_tokens)
    differs = next((number for number in common_ids if our_tokens[number] != their_tokens[number]), None)
    if differs is None and same >= (1 - UNSHARED) * max(len(ours), len(theirs)):
        return
    difference = f"token {differs} is {their_tokens.get(differs)!r} there and {our_tokens.get(differs)!r} here"
    if differs is None:
        difference = f"they share {same:,} of {max(len(ours), len(theirs)):,} tokens"
    raise ValueError(
        f"The draft model {name} has another tokenizer than {target} ({difference}); choose a smaller model of the "
        "target's family."
    )
