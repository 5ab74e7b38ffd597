"""Trial passes of a new target: a pass over a tree must give the stock model's results for each separate path.

Each model is tried once when it is taken over: a small tree with each attention implementation is compared with the
stock model's logits for the whole text. Implementations that disagree are not used.
"""

import torch
from torch import Tensor, nn

from jakiro.core.tree import DraftTree
from jakiro.models.families import TRIAL_ERRORS
from jakiro.system import is_out_of_memory

TRIAL_PROMPT, TRIAL_CHAIN = 12, 4
# Sizes of the trees that are compared with single tokens: kernels compute 4, 6, 8 or 14 rows at a time and the
# remaining rows separately
PROBED_NODES = (2, 3, 7, 15, 31, 64)
# Reason of a trial that fails because numbers are too large for the dtype
OVERFLOW = "numbers that are not finite"
FULL_PRECISION = (torch.float32, torch.float64)
# Relative to the spread of a row of logits. Half precision rounds by a few per cent; in single rows a rounded router
# may choose other experts, which costs more. A wrong mask or position costs tens of per cent in every row.
FULL_TOLERANCE, HALF_TOLERANCE = 2e-3, 0.15


class Trial:
    """A prompt and a small tree, with the stock model's logits along the tree's chain.

    Args:
        model: The stock model, before its layers are taken over.
    """

    def __init__(self, model: nn.Module) -> None:
        # Imported here: transformers' models take seconds to import, and listing methods does not need them
        from jakiro.models.attention_modes import register

        register()
        vocab_size = model.get_input_embeddings().weight.shape[0]
        device = model.get_output_embeddings().weight.device
        ids = random_ids(TRIAL_PROMPT + 2 * TRIAL_CHAIN, vocab_size, device)
        self._prompt, self._chain, self._siblings = ids.split([TRIAL_PROMPT, TRIAL_CHAIN, TRIAL_CHAIN])
        self._reference = trial_reference(model, ids[: TRIAL_PROMPT + TRIAL_CHAIN])[TRIAL_PROMPT - 1 :]

    @torch.inference_mode()
    def failure(self, target) -> str | None:
        """Return why a target's passes do not give the stock model's logits; None if they do.

        Args:
            target: `jakiro.models.passes.TargetPasses`.
        """
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
    """Return the logits of a whole text by the unchanged model with the attention that defines its family.

    That is "eager": torch's fused attention supports neither soft caps nor sinks.

    Args:
        model: A stock causal language model.
        token_ids: (tokens,) int64.

    Returns:
        (tokens, vocab_size) float32.
    """
    config = model.config.get_text_config()
    previous = config._attn_implementation
    config._attn_implementation = "eager"
    try:
        return model(input_ids=token_ids[None], use_cache=False).logits[0].float()
    finally:
        config._attn_implementation = previous


def agrees(logits: Tensor, reference: Tensor, dtype: torch.dtype) -> bool:
    """Return whether rows of logits agree with the reference: every row in full precision, the median row in half.

    The difference of a row is its root mean square relative to the standard deviation of the reference's row.
    """
    difference = (logits.float() - reference).pow(2).mean(-1).sqrt()
    relative = (difference / reference.std(-1).clamp_min(1e-12)).nan_to_num(torch.inf)
    if dtype in FULL_PRECISION:
        return bool(relative.amax() <= FULL_TOLERANCE)
    return bool(relative.median() <= HALF_TOLERANCE)


def random_ids(count: int, vocab_size: int, device: torch.device) -> Tensor:
    """Return (count,) int64 pseudorandom token ids with a fixed seed."""
    generator = torch.Generator("cpu").manual_seed(0)
    return torch.randint(0, vocab_size, (count,), generator=generator, device="cpu").to(device)


def chain_among_siblings(chain: Tensor, siblings: Tensor) -> DraftTree:
    """Return the tree chain[0], siblings[0], chain[1], siblings[1], …; every second node continues the chain."""
    count = chain.shape[0]
    depths = torch.arange(count, device=chain.device)
    nodes = torch.stack([chain, siblings], dim=1).flatten()
    parents = torch.stack([2 * (depths - 1), 2 * depths], dim=1).flatten()
    parents[0] = -1
    depths = torch.stack([depths, depths + 1], dim=1).flatten()
    return DraftTree.unscored(nodes, parents, depths, count)


def star_tree(chain: Tensor, num_nodes: int) -> DraftTree:
    """Return the tree of chain[0] with num_nodes - 1 equal children, chain[1]."""
    depths = torch.ones(num_nodes, dtype=torch.int64, device=chain.device)
    depths[0] = 0
    return DraftTree.unscored(chain[depths], depths - 1, depths, min(num_nodes - 1, 1))


def chain_alone(chain: Tensor) -> DraftTree:
    """Return the tree in which each node is the child of the previous one."""
    depths = torch.arange(chain.shape[0], device=chain.device)
    return DraftTree.unscored(chain, depths - 1, depths, chain.shape[0] - 1)


@torch.inference_mode()
def is_bit_identical(target, num_tokens: int = 8) -> bool:
    """Return whether passes over trees of several sizes give the same bits as one token at a time.

    Args:
        target: `jakiro.models.passes.TargetPasses`.
        num_tokens: Length of the chain.
    """
    ids = random_ids(24 + 2 * num_tokens, target.vocab_size, target.device)
    prompt, chain, siblings = ids[:24], ids[24 : 24 + num_tokens], ids[24 + num_tokens :]
    cache = target.new_cache(24 + num_tokens + target.row_bucket(max(2 * num_tokens, *PROBED_NODES)))
    target.prefill(prompt, cache)
    together = target.score(chain_among_siblings(chain, siblings), cache).logits[::2]
    cache.keep(24, [])
    for index in range(num_tokens):
        committed = cache.length
        alone = target.score(DraftTree.root_only(chain[index : index + 1]), cache).logits
        if not torch.equal(alone[0], together[index]):
            return False
        cache.keep(committed, [0])
    # All children of the root are equal, so any row that a kernel computes in another way is noticed
    for num_nodes in {target.row_bucket(nodes): nodes for nodes in PROBED_NODES}.values():
        cache.keep(24, [])
        tree = star_tree(chain, num_nodes)
        rows = zip(target.score(tree, cache).logits, tree.depths.tolist(), strict=True)
        # Row by row: the logits of a large vocabulary are the memory peak of a start
        if not all(torch.equal(row, together[depth]) for row, depth in rows):
            return False
    return True
