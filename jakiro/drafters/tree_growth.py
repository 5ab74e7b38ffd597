"""Growth of one draft tree: the draft head is run once per level, on the best nodes of the newest level (the frontier).

If the head has a contrastive branch, its last pass gives two levels. The candidates of all levels stay on the device;
the best ones become the tree. Dynamic trees follow EAGLE-2 (arXiv 2406.16858), the contrastive last level follows
Jakiro (CEPD in arXiv 2502.06282, section 3), with one difference. In the official code, the contrastive candidates of
output row r become children of the r-th selected node of the level above. Here they become children of the nodes that
row r proposed.
"""

from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from jakiro.config import SamplingParams, TreeConfig
from jakiro.core.sampling import DeviceSampling, tempered
from jakiro.drafters.base import HeadEvidence, Proposal
from jakiro.drafters.candidates import Candidates, Chain, best_tree
from jakiro.heads.base import DraftHead
from jakiro.heads.calibration import Calibration, Weights
from jakiro.heads.layer_head import mixture
from jakiro.heads.layers import HeadOutput
from jakiro.ops import kernels
from jakiro.ops.cache import PassCache


class Children(NamedTuple):
    """The best K children of some nodes.

    Attributes:
        token_ids: (nodes, K) int64.
        estimates: (nodes, K) float32, log probability that the target accepts the child after its parent.
        draft_probs: (nodes, K) float32, softmax of the draft's logits.
        proposers: (nodes, K) int64, see `TreeGrower`.
    """

    token_ids: Tensor
    estimates: Tensor
    draft_probs: Tensor
    proposers: Tensor

    def at(self, rows: Tensor) -> "Children":
        """Select rows."""
        return Children(*(column.index_select(0, rows) for column in self))


class Experts(NamedTuple):
    """Outputs of decoupled experts before they are mixed.

    Attributes:
        logits: (experts, rows, draft vocabulary) float32, divided by the temperature.
        log_weights: (experts, rows) float32, log of the router's weights.
    """

    logits: Tensor
    log_weights: Tensor

    @classmethod
    def of(cls, logits: Tensor, weights: Tensor) -> "Experts":
        """Return experts from logits and the router's weights, (rows, experts)."""
        return cls(logits, weights.float().log().T)

    def mixed(self) -> tuple[Tensor, Tensor]:
        """Return the mixture of the experts, and each expert's offset.

        Returns:
            (rows, draft vocabulary) log q up to a constant, with q = Σ_e w_e q_e, and (experts, rows) offsets. The
            logits of expert e plus its offset are log(w_e q_e).
        """
        offsets = self.log_weights - self.logits.logsumexp(-1)
        return mixture(self.logits + offsets[..., None]), offsets

    def proposers(self, offsets: Tensor, indices: Tensor) -> Tensor:
        """Return the expert that contributes most to the probability of each candidate, (rows, K).

        Only candidates are compared: doing it for the whole vocabulary would take longer than the pass of the head.
        """
        parts = self.logits.gather(-1, indices.expand(len(self.logits), -1, -1))
        return (parts + offsets[..., None]).argmax(0)


# Scores for selecting children: (rows, draft vocabulary) log q up to a constant, or experts
Scores = Tensor | Experts


def width_of(head: DraftHead, tree: TreeConfig) -> int:
    """Return the maximum number of children per node and of expanded nodes per level."""
    return min(tree.width, tree.nodes - 1, head.draft_token_ids.shape[0])


def ends_in_a_pair(head: DraftHead, tree: TreeConfig) -> bool:
    """Return whether one pass gives the last two levels (CEPD)."""
    return head.has_contrastive_branch and tree.contrastive and tree.depth >= 2


class Ranking:
    """Ranks the children of nodes by kept · softmax(a · log q + b · g), the probability that the target chooses them.

    q are the draft's probabilities, g is the target's noise; a, b and kept are the calibration weights of the level.

    Args:
        calibration: Calibration of the head at the sampling temperature.
        noise: (depth, draft vocabulary), the target's noise at the positions after the root, or None.
    """

    def __init__(self, calibration: Calibration, noise: Tensor | None) -> None:
        self.calibration, self.noise = calibration, noise

    def best(self, log_q: Tensor, width: int, depth: int, contrastive: bool = False) -> tuple[Tensor, Tensor, Tensor]:
        """Return the best children of nodes at this depth.

        Returns:
            Indices into the draft vocabulary, log probabilities of acceptance, and draft probabilities, all
            (nodes, width).
        """
        weights, noise, on_host = self._at(depth, contrastive)
        native = kernels.current().sampling_for(log_q) if on_host else None
        if native is not None and native.ranks_up_to(width):
            indices, estimates, draft_probs = native.best_tokens(log_q, weights.log_q, noise, weights.noise, width)
        else:
            is_unchanged = on_host and weights.log_q == 1 and noise is None
            ranked = log_q if is_unchanged else log_q * weights.log_q
            if isinstance(weights.noise, Tensor) and noise is not None:
                ranked.addcmul_(noise, weights.noise)
            elif noise is not None:
                ranked.add_(noise, alpha=weights.noise)
            indices = ranked.topk(width, dim=-1).indices
            # log_softmax is one fused kernel; a sum of exponentials would need four passes over the vocabulary
            estimates = ranked.log_softmax(-1).gather(-1, indices)
            draft_probs = log_q.softmax(-1).gather(-1, indices)
        if not on_host or weights.log_kept:
            estimates = estimates + weights.log_kept
        return indices, estimates, draft_probs

    def best_of(self, experts: Experts, width: int, depth: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return the same as `best` for the mixture of the experts, and the expert that proposes each child."""
        weights, noise, on_host = self._at(depth)
        native = kernels.current().sampling_for(experts.logits) if on_host else None
        if native is not None and native.ranks_up_to(width):
            indices, estimates, *rest = native.best_of_mixture(*experts, weights.log_q, noise, weights.noise, width)
            return indices, estimates + weights.log_kept if weights.log_kept else estimates, *rest
        log_q, offsets = experts.mixed()
        indices, *rest = self.best(log_q, width, depth)
        return indices, *rest, experts.proposers(offsets, indices)

    def _at(self, depth: int, contrastive: bool = False) -> tuple[Weights, Tensor | None, bool]:
        """Return weights and noise of a level, and whether the weights are numbers on the host."""
        weights = self.calibration.at(f"{'contrastive' if contrastive else 'main'}/{depth}")
        noise = None if self.noise is None else self.noise[depth - 1]
        return weights, noise, not any(isinstance(weight, Tensor) for weight in weights)


@dataclass(frozen=True, slots=True)
class GrowthInputs:
    """Everything that a tree is grown from, besides the head and its rows.

    Attributes:
        tree: Bounds of the tree.
        noise: (depth, draft vocabulary), the target's noise after the root; None to rank candidates without noise.
        chain: Tokens from another source, to be merged into the tree at its root.
        evidence: Computes the evidence of the selected candidates, see `DraftHead.node_evidence`, or None.
        explored: Number of nodes of the requested tree. If set, nodes that cannot have a child in this tree are not
            expanded, so that passes have fewer rows or are skipped; this copies scores to the host. If None, every
            level expands `width` nodes, so that all passes have a fixed shape.
    """

    sampling: SamplingParams | DeviceSampling
    tree: TreeConfig
    noise: Tensor | None = None
    chain: Chain | None = None
    evidence: HeadEvidence | None = None
    explored: int | None = None


class TreeGrower:
    """Grows the tree of one step.

    A frontier is a tensor of indices into the newest level; index 3 is the fourth candidate of this level.

    Args:
        head: A head that is bound to its target.
        cache: The head's cache of committed tokens only. The passes append rows, which the caller removes afterwards.
            Its length, a number or a () tensor on the device, gives the position of the root: the length itself, or one
            less if `skipped_tokens` is 0.
        root: Output of the head at the root's row, (1, 1, …).
        root_token: (1,) int64.

    Proposers are the head's experts, then its contrastive branch. With summed fusion all candidates have proposer 0
    until `evidence` sets the expert that contributed most.

    Attributes:
        by_level: Whether the proposer of a candidate is the index of its level, not of an expert.
    """

    by_level = False

    def __init__(
        self, head: DraftHead, cache: PassCache, root: HeadOutput, root_token: Tensor, inputs: GrowthInputs
    ) -> None:
        self.head, self.cache, self.root_token = head, cache, root_token
        self.sampling, self.noise, self.chain = inputs.sampling, inputs.noise, inputs.chain
        self.evidence, self.explored = inputs.evidence, inputs.explored
        self.nodes, self.depth = inputs.tree.nodes, inputs.tree.depth
        self.contrastive, self.width = ends_in_a_pair(head, inputs.tree), width_of(head, inputs.tree)
        self.ranking = Ranking(Calibration(head.config.calibration, inputs.sampling), inputs.noise)
        self.device = root_token.device
        # Constant columns are views of this tensor, so that they need no operations
        self.numbers = torch.arange(1 + max(self.depth * self.width, head.num_experts), device=self.device)
        self.root_position = cache.length
        # Position of a drafted row, by its depth − 1
        self.positions = self.numbers[: self.depth] + self.root_position
        # All candidates of each depth from 1 on, in the order (parent, rank)
        self.levels: list[Candidates] = []
        self.outputs = [root]
        # For each pass, the index of its first row among the rows of all passes; the root is row 0
        self.first_rows = [0]
        self.last_expanded = self.depth - 1 - self.contrastive
        self.ahead: Tensor | None = None

    def grow(self) -> Proposal:
        """Run the passes and return the tree of the best nodes."""
        frontier = self._grow_serially()
        if self.contrastive and frontier.shape[0]:
            self._add_contrastive(frontier)
        return self._select()

    def _grow_serially(self) -> Tensor:
        """Add the levels that need a pass each; return the frontier of the newest level."""
        self._add(self._children(self._main_scores(self.outputs[0]), 1))
        places = self.numbers[: self.width]
        frontier, visible = self._worth_expanding(places), None
        own_row = places[:, None] == places
        for depth in range(1, self.last_expanded + 1):
            count = frontier.shape[0]
            if not count:
                break
            rows, new_columns = self._rows_in_pass(frontier), own_row[:count, :count]
            visible = new_columns if visible is None else torch.cat([visible.index_select(0, rows), new_columns], dim=1)
            self._expand(frontier, rows, visible, depth)
            self._add(self._children(self._main_scores(self.outputs[-1]), depth + 1), frontier)
            frontier = self._worth_expanding(self._best(self.levels[-1]))
        return frontier

    def _worth_expanding(self, frontier: Tensor) -> Tensor:
        """Return the nodes of a frontier, best first, that can have a child in the tree of `explored` nodes.

        A child's score is at most its parent's. Besides the root and the child, the tree has explored − 2 nodes, so a
        parent must be one of the best explored − 2 candidates of all levels.
        """
        if self.explored is None:
            return frontier
        scores = torch.cat([level.scores for level in self.levels])
        most = self.explored - 2
        if most < 1:
            return frontier[:0]
        if most >= scores.shape[0]:
            return frontier
        last = scores.topk(most).values[-1]
        return frontier[: int((self.levels[-1].scores[frontier] >= last).sum())]

    def _rows_in_pass(self, frontier: Tensor) -> Tensor:
        """Return the row of the newest pass that proposed each frontier node."""
        return self.levels[-1].rows.index_select(0, frontier) - self.first_rows[-1]

    def _best(self, level: Candidates) -> Tensor:
        """Return the next frontier: the best K candidates of a level; ties keep their order."""
        return level.scores.sort(descending=True, stable=True).indices[: self.width]

    def _expand(self, frontier: Tensor, rows: Tensor, visible: Tensor, depth: int) -> None:
        """Run one pass over the frontier; a node attends to the committed tokens, its ancestors and itself.

        Args:
            frontier: Indices of nodes of the newest level.
            rows: Rows of the newest pass that proposed these nodes.
            visible: (frontier, drafted rows) bool.
            depth: Depth of the nodes.
        """
        newest, output = self.levels[-1], self.outputs[-1]
        features = self._features(frontier, output, rows)
        mask = self.cache.visible(visible)[None, None]
        positions = self.positions[depth - 1].expand(1, frontier.shape[0])
        self.first_rows.append(self.first_rows[-1] + output.features.shape[-2])
        embeddings = self.head.embed(newest.token_ids.index_select(0, frontier))
        self.outputs.append(self._run(embeddings[None], features[None], positions, mask))

    def _run(self, embeddings: Tensor, features: Tensor, positions: Tensor, mask: Tensor) -> HeadOutput:
        """Run the head over rows that follow the cache."""
        return self.head(embeddings, features, positions, mask, self.cache)

    def _features(self, frontier: Tensor, output: HeadOutput, rows: Tensor) -> Tensor:
        """Return (frontier, hidden): features of the rows and experts that proposed nodes of the newest level."""
        # With decoupled experts, feature rows are numbered expert by expert
        if self.head.mixes_experts:
            proposers = self.levels[-1].proposers.index_select(0, frontier)
            rows = torch.add(rows, proposers, alpha=output.features.shape[-2])
        return output.features.flatten(0, -2).index_select(0, rows)

    def _add_contrastive(self, frontier: Tensor) -> None:
        """Add the deepest level: the best nodes of the level above get the contrastive candidates of their rows."""
        children = self._children(self.ahead, self.depth, contrastive=True)
        rows = self._rows_in_pass(frontier)
        self._add(children.at(rows), frontier, rows + self.first_rows[-1])

    def _add(self, children: Children, frontier: Tensor | None = None, rows: Tensor | None = None) -> None:
        """Append the next level.

        Args:
            children: Children of the frontier's nodes, in their order.
            frontier: Parents in the newest level; None for the root.
            rows: Output row that proposed the children of each parent, counted over all passes; None if the rows of the
                newest pass belong to the parents in this order.
        """
        token_ids, width = children.token_ids.flatten(), children.token_ids.shape[1]
        parents, scores = self.numbers[:1], children.estimates
        if frontier is not None:
            # In `parents` the root is 0 and candidate c is c + 1
            parents = frontier + (1 + sum(level.count for level in self.levels[:-1]))
            scores = self.levels[-1].scores.index_select(0, frontier)[:, None] + scores
        if rows is None:
            rows = self.numbers[self.first_rows[-1] :][: parents.shape[0]]
        self.levels.append(
            Candidates(
                token_ids=token_ids,
                parents=parents.repeat_interleave(width),
                depths=self._same(len(self.levels) + 1, token_ids),
                scores=scores.flatten(),
                draft_passes=self._same(len(self.outputs), token_ids),
                draft_probs=children.draft_probs.flatten(),
                proposers=children.proposers.flatten(),
                also=self._same(0, token_ids),
                rows=rows.repeat_interleave(width),
            )
        )

    def _same(self, number: int, like: Tensor) -> Tensor:
        """Return a number expanded to the shape of a tensor, without an operation on the device."""
        return self.numbers[number].expand(like.shape)

    def _scaled(self, features: Tensor) -> Tensor:
        return tempered(self.head.logits(features), self.sampling)

    def _main_scores(self, output: HeadOutput) -> Scores:
        """Return the scores of the children of a pass's rows.

        The last pass also computes the scores of its contrastive branch, so that the output weights are read once.
        """
        if self.contrastive and len(self.outputs) > self.last_expanded:
            both = self._scaled(torch.cat([output.features[0], output.contrastive[0]]))
            scores, self.ahead = both.split(output.features.shape[1])
            return scores
        if not self.head.mixes_experts:
            return self._scaled(output.features[0])
        return Experts.of(self._scaled(output.features[:, 0]), output.router_weights[0])

    def _children(self, scores: Scores, depth: int, contrastive: bool = False) -> Children:
        """Return the best K children of every row."""
        if isinstance(scores, Experts):
            indices, estimates, draft_probs, proposers = self.ranking.best_of(scores, self.width, depth)
        else:
            indices, estimates, draft_probs = self.ranking.best(scores, self.width, depth, contrastive)
            proposer = self.head.num_experts if contrastive else 0
            proposers = self._same(depth - 1 if self.by_level else proposer, indices)
        return Children(self._token_ids(indices), estimates, draft_probs, proposers)

    def _token_ids(self, indices: Tensor) -> Tensor:
        """Convert indices into the draft vocabulary to token ids."""
        return indices if self.head.config.draft_vocab_size is None else self.head.draft_token_ids[indices]

    def _select(self) -> Proposal:
        """Return the tree of the best candidates."""
        candidates, depth = Candidates.joined(self.levels), self.depth
        # A chain token that the head also proposed stays as a copy with score −inf, which must never be selected
        most = min(self.nodes - 1, candidates.count)
        if self.chain is not None:
            candidates, depth = candidates.merged_with(self.chain), max(depth, self.chain.token_ids.shape[0])
        evidence = None if self.evidence is None else partial(self.evidence, self.outputs)
        return Proposal(best_tree(self.root_token, candidates, most, depth, evidence))
