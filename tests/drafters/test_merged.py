"""Two drafters as one method: copied chains continue where the first drafter proposes nothing."""

import math
from dataclasses import replace
from functools import partial
from unittest.mock import Mock

import pytest
import torch

from jakiro.config import SamplingParams, TreeConfig
from jakiro.core.tree import DraftTree
from jakiro.decode.device_profile import DeviceProfile
from jakiro.drafters.base import DraftRequest, Proposal, Resources
from jakiro.drafters.candidates import Candidates, Chain, best_tree
from jakiro.drafters.head import HeadDrafter
from jakiro.drafters.merged import ChainSession, MergedDrafter, MergedSession
from jakiro.drafters.prompt_lookup import PromptLookupDrafter
from jakiro.drafters.registry import WITH_COPIES
from jakiro.generator import JakiroGenerator
from tests.support import TREE, assert_is_a_tree, tiny_head, tiny_target

REPEATING = "the cat sat on the mat; the cat sat on the mat; the cat sat on"
COSTS = DeviceProfile(verify_ms=((1, 10.0), (64, 12.0)), draft_ms=((1, 0.1), (4, 0.3)))


@pytest.mark.parametrize("tree", [TREE, TreeConfig(nodes=16, depth=4, policy="auto")], ids=["fixed", "automatic"])
@pytest.mark.parametrize("chains_only", [False, True])
def test_chains_are_copied_beyond_the_positions_of_the_head(tree, chains_only, monkeypatch):
    target = tiny_target()
    monkeypatch.setattr(type(target), "chains_only", chains_only)
    drafter = MergedDrafter(HeadDrafter(tiny_head(target), max_positions=8), PromptLookupDrafter())
    generator = JakiroGenerator(Resources(target), {WITH_COPIES.name: drafter})
    generator.profile = COSTS
    sampling = SamplingParams(max_new_tokens=48)
    trace = generator.run(REPEATING, sampling, WITH_COPIES.name, tree)
    assert trace.token_ids == generator.run(REPEATING, sampling, "autoregressive").token_ids
    accepted = [step.nodes[node].proposer for step in trace.steps for node in step.accepted_path]
    assert accepted and set(accepted) == {"copied"}
    for step in trace.steps:
        assert len(step.nodes) <= tree.nodes
        words = (
            ("Copied from",)
            if len(step.nodes) > 1
            else ("after them, decoding is plain", "No draft", "Nothing to copy")
        )
        assert any(text in step.plan.why for text in words), step.plan


class CertainCopies(ChainSession):
    """A session that copies eight tokens, each with the same given probability."""

    def __init__(self, root, chance=0.9):
        super().__init__(root)
        self.chance = chance

    def chain(self):
        return list(range(10, 18)), [math.log(self.chance)] * 8

    def rewind(self, length):
        pass


ROOT = torch.tensor([3])
SIZED = DraftRequest(TreeConfig(depth=2, nodes=6), undrafted_nodes=9, min_probability=0.1, drafted_tokens=1.2)


def test_copies_replace_a_draft_that_is_not_expected_to_be_longer():
    drafts = Mock()
    drafts.propose.return_value = Proposal(DraftTree.root_only(ROOT), "drafted")

    def note_of(chance, limits):
        chains = CertainCopies(ROOT, chance)
        return MergedSession(drafts, chains, partial(Chain.of, device=ROOT.device)).propose(limits).note

    # 0.6 + 0.36 + 0.22 + 0.13 exceeds 1.2, without the tokens below 0.1; 0.5 + 0.25 + 0.13 does not
    assert note_of(0.6, SIZED) == "Copied from an earlier place: 4 candidates."
    assert note_of(0.5, SIZED) == "drafted"
    assert note_of(0.6, DraftRequest(SIZED.tree)) == "drafted", "trees of a fixed size are drafted"
    nothing = replace(SIZED, tree=TreeConfig(depth=0, nodes=1), drafted_tokens=0.0)
    assert note_of(0.5, nothing) == "Copied from an earlier place: 3 candidates."
    assert note_of(0.05, nothing) == "Nothing to copy from at this place."


def candidates(token_ids: list[int], parents: list[int], depths: list[int], scores: list[float]) -> Candidates:
    columns = (torch.tensor(column) for column in (token_ids, parents, depths, scores))
    return Candidates.of(*columns)


def test_merging_names_both_proposers_and_appends_only_new_nodes():
    head = candidates([10, 11, 20, 21], [0, 0, 2, 2], [1, 1, 2, 2], [-1.0, -2.0, -2.5, -3.0])
    chain = Chain(torch.tensor([11, 21, 30]), torch.tensor([-0.5, -0.5, -0.5]), proposer=3)
    merged = head.merged_with(chain)
    assert merged.also.tolist() == [0, 0b1000, 0, 0b1000, 0, 0, 0]
    assert merged.proposers.tolist() == [0, 0, 0, 0, 3, 3, 3]
    assert merged.scores.tolist() == [-1.0, -0.5, -2.5, -1.0, -math.inf, -math.inf, -1.5]
    assert merged.token_ids[-1] == 30 and merged.parents[-1] == 4 and merged.depths[-1] == 3


def test_node_that_several_chains_propose_names_all_of_them():
    head = candidates([10, 11], [0, 0], [1, 1], [-1.0, -2.0])
    first, second = (Chain(torch.tensor([11]), torch.tensor([-0.5]), proposer) for proposer in (1, 2))
    assert head.merged_with(first).merged_with(second).also[1] == 0b110
    assert head.merged_with(second).merged_with(first).also[1] == 0b110


def test_nan_scores_are_the_lowest_and_no_node_loses_its_parent():
    nan = math.nan
    tokens, parents, depths = [10, 11, 20, 21, 30, 31], [0, 0, 1, 2, 3, 4], [1, 1, 2, 2, 3, 3]
    head = candidates(tokens, parents, depths, [nan, -1.0, nan, -2.0, nan, -3.0])
    tree = best_tree(torch.tensor([7]), head, 4, 3)
    assert_is_a_tree(tree)
    assert tree.token_ids.tolist() == [7, 10, 11, 21, 31] and not tree.scores.isnan().any()
    chain = Chain(torch.tensor([10, 20, 40]), torch.full((3,), -0.1), proposer=2)
    assert_is_a_tree(best_tree(torch.tensor([7]), head.merged_with(chain), 3, 3))
