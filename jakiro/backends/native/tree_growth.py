"""Growing a tree in one call of compiled code, on a CPU: the tree that `TreeGrower` grows level by level."""

import torch
from torch import Tensor

from jakiro.backends.native.head_layer import MOST_ROWS
from jakiro.backends.native.linear import BlockLinear, NativeLinear
from jakiro.backends.native.sampling import ranks_up_to
from jakiro.config import SamplingParams, TreeConfig
from jakiro.core.tree import FLOAT_COLUMNS, INT_COLUMNS, DraftTree
from jakiro.drafters.base import Proposal
from jakiro.drafters.candidates import Candidates, Chain, best_tree
from jakiro.drafters.experts import EVIDENCE
from jakiro.drafters.tree_growth import ends_in_a_pair, width_of
from jakiro.heads.base import DraftHead
from jakiro.heads.calibration import Calibration
from jakiro.heads.layer_head import LayerHead
from jakiro.ops.cache import RowCache


def can_grow_in_one_call(head: DraftHead, tree: TreeConfig) -> bool:
    """Return whether `grow_in_one_call` grows such trees with this head.

    A subclass of `LayerHead` may have a pass of its own, which the compiled code does not run.
    """
    if type(head) is not LayerHead or head.kernel is None or not isinstance(head.output_layer, NativeLinear):
        return False
    tables = (head.embedding, head.output_weight)
    readable = (isinstance(t, BlockLinear) or (t.dtype == torch.float32 and t.is_contiguous()) for t in tables)
    return all(readable) and ranks_up_to(width_of(head, tree))


def grow_in_one_call(
    head: LayerHead,
    cache: RowCache,
    pending: tuple[Tensor, Tensor],
    sampling: SamplingParams,
    tree: TreeConfig,
    noise: Tensor | None,
    chain: Chain | None,
    with_evidence: bool,
) -> Proposal:
    """Reads committed tokens and grows a tree on them.

    Args:
        pending: (rows,) int64 and (rows, feature_size), committed tokens that the cache has no rows for, the root the
            last of them, and the target's features one position before each.
        noise, chain: as `TreeGrower` takes them. with_evidence: whether nodes have the experts' evidence.
    """
    contrastive, width = ends_in_a_pair(head, tree), width_of(head, tree)
    passes, calibration = tree.depth - 1 - contrastive, Calibration(head.config.calibration, sampling)
    branches = ["main"] * (passes + 1) + ["contrastive"] * contrastive
    weights = [calibration.at(f"{branch}/{depth}") for depth, branch in enumerate(branches, start=1)]
    # A chain may give any candidate a better score
    kept = tree.nodes if chain is None else 1 + width * (1 + width * (tree.depth - 1))
    growth = {"width": width, "passes": passes, "explored": tree.nodes, "contrastive": contrastive, "kept": kept}
    growth["temperature"] = 1.0 if sampling.greedy else sampling.temperature
    token_ids, features = pending
    if token_ids.shape[0] > MOST_ROWS:
        # Kernels for many rows read a prompt faster
        head.extend(token_ids[:-1], features[:-1], cache)
        token_ids, features = token_ids[-1:], features[-1:]
    directions = (head.output_weight, head.mean_output_row) if with_evidence else None
    vocabulary = (head.output_layer, head.embedding, head.draft_token_ids, directions)
    ints, floats = head.kernel.grow(*vocabulary, token_ids, features, cache, weights, noise, **growth)
    columns, evidence = dict(zip((*INT_COLUMNS, *FLOAT_COLUMNS), (*ints, *floats[:2]), strict=True)), {}
    if with_evidence:
        evidence = dict(zip(EVIDENCE, floats[2:].T.split(head.config.num_experts, dim=1), strict=True))
    found = DraftTree(**columns, evidence=evidence, max_depth=tree.depth)
    return Proposal(found if chain is None else _merged(found, chain, tree))


def _merged(everyone: DraftTree, chain: Chain, tree: TreeConfig) -> DraftTree:
    """The best nodes of a tree of all candidates with a chain."""
    rows = torch.arange(1, everyone.num_nodes, device=everyone.token_ids.device)
    columns = {name: column[1:] for name, column in everyone.columns.items()}
    candidates = Candidates(**columns, rows=rows).merged_with(chain)

    def evidence(chosen: Candidates) -> tuple[dict[str, Tensor], Tensor]:
        # A chain's own nodes have row 0, as the root has
        return {name: numbers[chosen.rows] for name, numbers in everyone.evidence.items()}, chosen.proposers

    most, depth = min(tree.nodes, everyone.num_nodes) - 1, max(tree.depth, chain.token_ids.shape[0])
    return best_tree(everyone.token_ids[:1], candidates, most, depth, evidence)
