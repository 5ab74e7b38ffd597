"""A draft tree in one compiled call on a CPU; the result equals that of `TreeGrower`, which grows level by level."""

import torch
from torch import Tensor

from jakiro.backends.native.head_layer import MOST_ROWS, Growth, GrowthLimits
from jakiro.backends.native.linear import BlockLinear, NativeLinear
from jakiro.backends.native.sampling import ranks_up_to
from jakiro.config import SamplingParams, TreeConfig
from jakiro.core.tree import FLOAT_COLUMNS, INT_COLUMNS, DraftTree
from jakiro.drafters.base import Proposal
from jakiro.drafters.candidates import Candidates, Chain, best_tree
from jakiro.drafters.tree_growth import GrowthInputs, ends_in_a_pair, width_of
from jakiro.heads.base import DraftHead
from jakiro.heads.calibration import Calibration, Weights
from jakiro.heads.eagle.network import EagleHead
from jakiro.heads.jakiro.network import JakiroHead
from jakiro.heads.layer_head import LayerHead
from jakiro.ops.cache import RowCache


def can_grow_in_one_call(head: DraftHead, tree: TreeConfig) -> bool:
    """Return whether `grow_in_one_call` grows such trees with this head.

    Other subclasses of `LayerHead` may have a pass of their own, which the compiled code does not run.
    """
    if (
        type(head) not in (LayerHead, EagleHead, JakiroHead)
        or head.kernel is None
        or not isinstance(head.output_layer, NativeLinear)
    ):
        return False
    tables = (head.embedding, head.output_weight)
    readable = (isinstance(t, BlockLinear) or (t.dtype == torch.float32 and t.is_contiguous()) for t in tables)
    return all(readable) and ranks_up_to(width_of(head, tree))


def grow_in_one_call(
    head: LayerHead, cache: RowCache, pending: tuple[Tensor, Tensor], inputs: GrowthInputs
) -> Proposal:
    """Read committed tokens and grow a tree after them.

    Args:
        head: A head for which `can_grow_in_one_call` is true.
        cache: The head's cache; afterwards it counts the committed tokens.
        pending: (rows,) int64 committed tokens that the cache has no rows for, the last one being the root, and
            (rows, feature_size) features of the target one position before each.
        inputs: As in `TreeGrower`; with any function in `evidence` nodes have the experts' evidence.
    """
    (token_ids, features), tree, chain = pending, inputs.tree, inputs.chain
    schema = head.evidence_schema if inputs.evidence is not None else ()
    if token_ids.shape[0] > MOST_ROWS:
        # Kernels for many rows read a prompt faster
        head.extend(token_ids[:-1], features[:-1], cache)
        token_ids, features = token_ids[-1:], features[-1:]
    growth = Growth(
        output=head.output_layer,
        embedding=head.embedding,
        draft_token_ids=head.draft_token_ids,
        directions=(head.output_weight, head.mean_output_row) if schema else None,
        token_ids=token_ids,
        features=features,
        cache=cache,
        weights=_level_weights(head, inputs.sampling, tree),
        noise=inputs.noise,
        limits=_limits(head, inputs.sampling, tree, chain),
    )
    int_columns, float_columns = head.kernel.grow(growth)
    columns = dict(zip((*INT_COLUMNS, *FLOAT_COLUMNS), (*int_columns, *float_columns[:2]), strict=True))
    matrices = float_columns[2:].T.split([width for _, width in schema], dim=1)
    evidence = {name: matrix for (name, _), matrix in zip(schema, matrices, strict=True)}
    draft = DraftTree(**columns, evidence=evidence, max_depth=tree.depth)
    return Proposal(draft if chain is None else _merged(draft, chain, tree))


def _limits(head: LayerHead, sampling: SamplingParams, tree: TreeConfig, chain: Chain | None) -> GrowthLimits:
    contrastive, width = ends_in_a_pair(head, tree), width_of(head, tree)
    # A chain may raise the score of any candidate, so all of them are kept until it is merged
    all_nodes = 1 + width * (1 + width * (tree.depth - 1))
    return GrowthLimits(
        width=width,
        passes=tree.depth - 1 - contrastive,
        explored=tree.nodes,
        contrastive=contrastive,
        kept=tree.nodes if chain is None else all_nodes,
        temperature=1.0 if sampling.greedy else sampling.temperature,
    )


def _level_weights(head: LayerHead, sampling: SamplingParams, tree: TreeConfig) -> list[Weights]:
    """Return the calibration of each level."""
    contrastive, calibration = ends_in_a_pair(head, tree), Calibration(head.config.calibration, sampling)
    branches = ["main"] * (tree.depth - contrastive) + ["contrastive"] * contrastive
    return [calibration.at(f"{branch}/{depth}") for depth, branch in enumerate(branches, start=1)]


def _merged(full_tree: DraftTree, chain: Chain, tree: TreeConfig) -> DraftTree:
    """Return the best nodes of a tree of all candidates and a chain."""
    rows = torch.arange(1, full_tree.num_nodes, device=full_tree.token_ids.device)
    columns = {name: column[1:] for name, column in full_tree.columns.items()}
    candidates = Candidates(**columns, rows=rows).merged_with(chain)

    def evidence(chosen: Candidates) -> tuple[dict[str, Tensor], Tensor]:
        # Nodes that only the chain proposed have row 0, as the root has
        return {name: numbers[chosen.rows] for name, numbers in full_tree.evidence.items()}, chosen.proposers

    most, depth = min(tree.nodes, full_tree.num_nodes) - 1, max(tree.depth, chain.token_ids.shape[0])
    return best_tree(full_tree.token_ids[:1], candidates, most, depth, evidence)
