"""Jakiro: trees of a draft head with a mixture of experts (arXiv 2502.06282), and which expert proposed what.

The session's cache has the rows that the target's has: one for each committed token; drafted rows are dropped.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from jakiro.config import SamplingParams
from jakiro.core.noise import NoiseSource
from jakiro.drafting.base import (
    Drafter,
    DraftSession,
    FixedBuffers,
    HeadEvidence,
    Kept,
    Method,
    Needs,
    Prompt,
    Proposal,
    Proposer,
    Resources,
    TreeLimits,
)
from jakiro.drafting.candidates import Candidates
from jakiro.drafting.growing import TreeGrower
from jakiro.drafting.limited import LimitedDrafter
from jakiro.heads.base import DraftHead
from jakiro.heads.config import DraftConfig
from jakiro.heads.jakiro import JakiroHead
from jakiro.heads.layers import HeadOutput
from jakiro.target.cache import RowCache

LAYERS = Needs(head=("mixture", "dense"))


def proposers_of(num_experts: int, decoupled: bool, contrastive: bool) -> tuple[Proposer, ...]:
    """The experts, and the contrastive branch of a head that has one."""
    did = "Guessed the candidate itself" if decoupled else "Pushed the candidate most"
    found = [
        Proposer(f"expert_{number}", f"Expert {number + 1}", f"{did}: expert {number + 1} of {num_experts}.")
        for number in range(num_experts)
    ]
    if contrastive:
        sentence = "The contrastive branch of the same pass, one position further."
        found.append(Proposer("contrastive", "Contrastive", sentence))
    return tuple(found)


def experts_of(config: DraftConfig) -> tuple[Proposer, ...]:
    """The proposers of a head's own trees."""
    return proposers_of(config.num_experts, config.fusion == "decoupled", config.contrastive)


@dataclass(eq=False)
class HeadDrafter(Drafter):
    """Drafts with a head that is bound to its target.

    Attributes:
        grower: makes what grows a step's tree, from the arguments of `TreeGrower`.
        proposers: of all its heads, or by a head's config.
        tells: whether its trees carry the experts' evidence, see `expert_evidence`.
    """

    head: JakiroHead
    info: dict | None = None
    grower: Callable[..., TreeGrower] = TreeGrower
    proposers: tuple[Proposer, ...] | Callable[[DraftConfig], tuple[Proposer, ...]] = experts_of
    tells: bool = True

    def __post_init__(self) -> None:
        if callable(self.proposers):
            self.proposers = self.proposers(self.head.config)
        count = self.head.config.num_experts
        widths = {"router_weights": count, "expert_contributions": count, "residual_contribution": 1}
        self.evidence = tuple(widths.items()) if self.tells else ()

    def start(self, prompt: Prompt, sampling: SamplingParams, noise: NoiseSource) -> "HeadSession":
        capacity = len(prompt.token_ids) + sampling.max_new_tokens
        told = partial(expert_evidence, self.head) if self.tells else None
        session = HeadSession(self.head, sampling, noise, capacity, self.grower, told)
        read = session.begin_with(prompt.head_rows.get(self.head))
        session.take(prompt.ids[self.head.lag + read :], prompt.features[read:])
        return session

    def fixed(self, buffers: FixedBuffers) -> Drafter | None:
        # Other growers run beside captured passes of the target
        if self.grower is not TreeGrower:
            return None
        return buffers.head_drafter(self.head, partial(expert_evidence, self.head) if self.tells else None, self)


class HeadSession(DraftSession):
    """Drafting for one answer: the head's cache, the features it has not read yet, the noise it ranks with.

    Args:
        capacity: rows the cache starts with; it grows where a wide tree needs more.
        grower: see `HeadDrafter`.
        evidence: see `TreeGrower`.
    """

    def __init__(
        self,
        head: DraftHead,
        sampling: SamplingParams,
        noise: NoiseSource,
        capacity: int,
        grower: Callable[..., TreeGrower] = TreeGrower,
        evidence: HeadEvidence | None = None,
    ) -> None:
        self.head, self.sampling, self.grower, self.evidence = head, sampling, grower, evidence
        self.device, self.dtype = head.output_weight.device, head.output_weight.dtype
        self.cache = head.new_cache(capacity)
        self.noise_rows = noise.over(head.draft_token_ids)
        self._pending: list[tuple[Tensor, Tensor]] = []
        self._root: HeadOutput | None = None
        self._root_token: Tensor | None = None

    def observe(self, kept: Kept) -> None:
        self.take(kept.ids, kept.features)

    def take(self, ids: Tensor, features: Tensor) -> None:
        """Committed tokens, (n,) int64, and the target's features one position before each, read with the next tree."""
        self._pending.append((ids.to(self.device), features.to(device=self.device, dtype=self.dtype)))

    def begin_with(self, rows: Tensor | None) -> int:
        """Fills the empty cache with an earlier answer's rows; returns how many they are."""
        if rows is not None:
            self.cache.begin_with(rows)
        return self.cache.length

    def head_rows(self) -> Mapping[object, Tensor]:
        return {self.head: self.cache.first(self.cache.length).clone()} if isinstance(self.cache, RowCache) else {}

    def rewind(self, length: int) -> None:
        self._pending = []
        self.cache.keep(length - self.head.lag)

    @torch.inference_mode()
    def catch_up(self) -> None:
        """Reads what is pending in one pass; then the cache holds all committed rows, the root's being the last."""
        if not self._pending:
            return
        token_ids = torch.cat([ids for ids, _ in self._pending])
        features = torch.cat([rows for _, rows in self._pending])
        self._pending = []
        committed = self.cache.length
        self._reserve(token_ids.shape[0] + self.head.root_rows - 1)
        self._root = _last_rows(self.head.read(token_ids, features, self.cache), self.head.root_rows)
        self.cache.keep(committed + token_ids.shape[0])
        self._root_token = token_ids[-1:]

    @torch.inference_mode()
    def propose(self, limits: TreeLimits) -> Proposal:
        """Grows a tree; afterwards the cache holds the committed rows again."""
        self.catch_up()
        committed = self.cache.length
        self._reserve(max(limits.tree.depth * limits.tree.width, limits.tree.nodes))
        noise = None
        if limits.tree.shared_noise and not self.sampling.greedy:
            noise = self.noise_rows.rows(committed + self.head.lag, limits.tree.depth)
        explored, sizes = self._explored(limits)
        grower = self.grower(
            self.head,
            self.cache,
            self._root,
            self._root_token,
            self.sampling,
            limits.tree,
            noise,
            sizes,
            limits.chain,
            self.evidence,
            explored,
        )
        proposal = grower.grow()
        self.cache.keep(committed)
        return proposal

    def _explored(self, limits: TreeLimits) -> tuple[int | None, tuple[int, ...]]:
        """Nodes of the largest tree to look at, and the sizes to forecast: its own, or up to the next one above.

        On a GPU everything: reading scores on the host would cost more than the rows it saves.
        """
        if self.device.type != "cpu":
            return None, limits.sizes
        own = limits.tree.nodes
        explored = min((size for size in limits.sizes if size > own and limits.further), default=own)
        return explored, tuple(size for size in limits.sizes if size <= explored)

    def _reserve(self, rows: int) -> None:
        """Makes room for `rows` more rows."""
        needed = self.cache.length + rows
        if needed > self.cache.capacity:
            smaller, self.cache = self.cache, self.head.new_cache(2 * needed)
            self.cache.begin_with(smaller.first(smaller.length))


def expert_evidence(
    head: JakiroHead, outputs: list[HeadOutput], chosen: Candidates
) -> tuple[dict[str, Tensor], Tensor]:
    """Router weights, contributions and residual of each node, and its proposer; the root has none.

    By linearity expert e gave w_e (W[x] − mean W)·y_e of the logit of x; decoupled experts give w_e times their own
    logit. Candidates of the contrastive branch and of other sources have no such parts. With summed fusion the expert
    that contributed most is named.

    Args:
        outputs: of all passes, the root's row first.
    """
    config, rows = head.config, chosen.rows

    def of_chosen(name: str, dim: int) -> Tensor:
        # `index_select`, not `[rows]`, which on a CPU wakes all threads from 3,000 numbers on
        parts = [getattr(output, name) for output in outputs]
        return (torch.cat(parts, dim=dim) if len(parts) > 1 else parts[0]).index_select(dim, rows).float()

    weights = of_chosen("router_weights", 1)[0]
    shown = weights
    if config.contrastive:
        pair = of_chosen("contrastive_weights", 1)[0].abs()
        shown = torch.where((chosen.proposers == config.num_experts)[:, None], pair, weights)
    index = chosen.token_ids
    if config.draft_vocab_size is not None:
        index = torch.searchsorted(head.draft_token_ids, index).clamp(max=head.draft_token_ids.shape[0] - 1)
    directions = (head.output_weight.index_select(0, index) - head.mean_output_row).float()
    parts = of_chosen("features" if config.fusion == "decoupled" else "expert_outputs", 2)[:, 0]
    contributions = weights * (directions * parts).sum(-1).T
    residuals = (directions * of_chosen("residual", 1)[0]).sum(-1, keepdim=True)
    proposers = chosen.proposers
    root = proposers < 0
    other = (root | (proposers >= config.num_experts))[:, None]
    foreign = (root | (proposers >= config.num_experts + config.contrastive))[:, None]
    if config.fusion == "summed":
        proposers = torch.where(other[:, 0], proposers, contributions.argmax(-1))
    evidence = {
        "router_weights": torch.where(foreign, torch.nan, shown),
        "expert_contributions": torch.where(other, torch.nan, contributions),
        "residual_contribution": torch.where(other, torch.nan, residuals),
    }
    return evidence, proposers


def _last_rows(output: HeadOutput, count: int) -> HeadOutput:
    """The output at the last rows only, as a pass over them alone would give it."""
    return HeadOutput(*(None if part is None else part[..., -count:, :] for part in output))


def head_method(drafter: Callable[[DraftHead, dict | None], HeadDrafter], needs: Needs = LAYERS, **fields) -> Method:
    """A method that drafts with the head that suits it, within the length that the head was trained for."""

    def load(resources: Resources) -> Drafter:
        head, info = resources.head_for(needs)
        head.attach(resources.target)
        loaded, head_positions = drafter(head, info), head.config.max_position_embeddings
        return LimitedDrafter(loaded, head_positions) if head_positions < resources.target.max_positions else loaded

    return Method(needs=needs, load=load, drafter=drafter, **fields)


METHOD = head_method(
    HeadDrafter,
    name="jakiro",
    title="Jakiro",
    sentence="A small head with a mixture of experts drafts a tree; the target checks it in one pass.",
    paper="2502.06282",
    proposers=proposers_of(2, decoupled=False, contrastive=True),
    trains={},
)
