"""Trial passes of a new target: does a pass over a tree give what the stock model computes for each path alone?

A model is tried once when it is taken over: a small tree under each way of attending, against the stock model's logits
for the whole text. What does not agree is not used.
"""

import torch
from torch import Tensor, nn

from jakiro.core.tree import DraftTree
from jakiro.models.families import TRIAL_ERRORS
from jakiro.system import is_out_of_memory

TRIAL_PROMPT, TRIAL_CHAIN = 12, 4
# Why a trial fails whose numbers are too large for the dtype
OVERFLOW = "numbers that are not finite"
FULL_PRECISION = (torch.float32, torch.float64)
# Relative to the spread of a row of logits. Half precision rounds by a few per cent, experts that a rounded router
# chooses otherwise cost more in single rows; a wrong mask or position costs tens of per cent in every row.
FULL_TOLERANCE, HALF_TOLERANCE = 2e-3, 0.15


class Trial:
    """A prompt and a small tree, with the stock model's logits along the tree's chain.

    Args:
        model: the stock model, before its layers are taken over.
        vocab_size: random tokens are below this.
        device: of the tokens.
    """

    def __init__(self, model: nn.Module, vocab_size: int, device: torch.device) -> None:
        # Imported here: transformers' models take seconds, and a list of methods needs none
        from jakiro.models.attention_modes import register

        register()
        ids = random_ids(TRIAL_PROMPT + 2 * TRIAL_CHAIN, vocab_size, device)
        self._prompt, self._chain, self._siblings = ids.split([TRIAL_PROMPT, TRIAL_CHAIN, TRIAL_CHAIN])
        self._reference = trial_reference(model, ids[: TRIAL_PROMPT + TRIAL_CHAIN])[TRIAL_PROMPT - 1 :]

    @torch.inference_mode()
    def failure(self, target) -> str | None:
        """Why a `TargetModel`, with its present numerics, does not give the stock model's logits; None if it does."""
        only_chain = target.chains_only
        tree = chain_alone(self._chain) if only_chain else chain_among_siblings(self._chain, self._siblings)
        try:
            cache = target.new_cache(TRIAL_PROMPT + target.row_bucket(tree.num_nodes))
            last = target.prefill(self._prompt, cache)[1]
            logits = target.score(tree, cache).logits
        except TRIAL_ERRORS as error:
            if is_out_of_memory(error):
                raise
            return " ".join(str(error).split())[:120] or type(error).__name__
        logits = torch.cat([last, logits if only_chain else logits[::2]])
        if not (logits.isfinite().all() and self._reference.isfinite().all()):
            return OVERFLOW
        return None if agrees(logits, self._reference, target.dtype) else "other logits"


@torch.inference_mode()
def trial_reference(model: nn.Module, token_ids: Tensor) -> Tensor:
    """(tokens, vocabulary) logits of a whole text by the untouched model in the attention that defines its family.

    That is "eager": torch's fused attention knows no soft cap and no sinks.
    """
    config = model.config.get_text_config()
    before = config._attn_implementation
    config._attn_implementation = "eager"
    try:
        return model(input_ids=token_ids[None], use_cache=False).logits[0].float()
    finally:
        config._attn_implementation = before


def agrees(logits: Tensor, reference: Tensor, dtype: torch.dtype) -> bool:
    """Whether rows of logits are the reference's: every row in full precision, the median row in half precision.

    A row's difference is the root mean square relative to the spread of the reference's row.
    """
    difference = (logits.float() - reference).pow(2).mean(-1).sqrt()
    relative = (difference / reference.std(-1).clamp_min(1e-12)).nan_to_num(torch.inf)
    if dtype in FULL_PRECISION:
        return bool(relative.amax() <= FULL_TOLERANCE)
    return bool(relative.median() <= HALF_TOLERANCE)


def random_ids(count: int, vocab_size: int, device: torch.device) -> Tensor:
    """(count,) int64 token ids, always the same ones."""
    generator = torch.Generator("cpu").manual_seed(0)
    return torch.randint(0, vocab_size, (count,), generator=generator, device="cpu").to(device)


def chain_among_siblings(chain: Tensor, siblings: Tensor) -> DraftTree:
    """Nodes chain[0], siblings[0], chain[1], siblings[1], …; every second node continues the chain."""
    count = chain.shape[0]
    depths = torch.arange(count, device=chain.device)
    nodes = torch.stack([chain, siblings], dim=1).flatten()
    parents = torch.stack([2 * (depths - 1), 2 * depths], dim=1).flatten()
    parents[0] = -1
    depths = torch.stack([depths, depths + 1], dim=1).flatten()
    return DraftTree.unscored(nodes, parents, depths, count)


def star_tree(chain: Tensor, num_nodes: int) -> DraftTree:
    """chain[0] and below it only chain[1], over and over."""
    depths = torch.ones(num_nodes, dtype=torch.int64, device=chain.device)
    depths[0] = 0
    return DraftTree.unscored(chain[depths], depths - 1, depths, min(num_nodes - 1, 1))


def chain_alone(chain: Tensor) -> DraftTree:
    """Each node the child of the one before."""
    depths = torch.arange(chain.shape[0], device=chain.device)
    return DraftTree.unscored(chain, depths - 1, depths, chain.shape[0] - 1)
