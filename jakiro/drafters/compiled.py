"""Growing a tree in one call of compiled code, on a CPU: the tree that `TreeGrower` grows level by level."""

import torch
from torch import Tensor

from jakiro.config import SamplingParams, TreeConfig
from jakiro.core.tree import FLOAT_COLUMNS, INT_COLUMNS, DraftTree
from jakiro.drafters.base import Proposal
from jakiro.drafters.candidates import Candidates, Chain, best_tree
from jakiro.drafters.experts import EVIDENCE
from jakiro.drafters.tree_growth import ends_in_a_pair, width_of
from jakiro.heads.calibration import Calibration
from jakiro.heads.layer_head import LayerHead
from jakiro.ops.cache import RowCache
from jakiro.ops.compiled import sampling as native


def grows_in_one_call(head: LayerHead, tree: TreeConfig) -> bool:
    """Whether `grow_in_one_call` grows such trees with this head."""
    return head.grows and native.ranks_up_to(width_of(head, tree))


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
    ints, floats = head.grow(*pending, cache, weights, noise, with_evidence=with_evidence, **growth)
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
