"""Heads of parallel levels: what is learned at each level is what drafting computes there; training goes on exactly.

A kind from outside is asked the same: a module of tests that imports everything from here and sets `KNOWN` and
`SUBJECTS` to its own.
"""

import pytest
import torch

from jakiro.config import SamplingParams, TreeConfig
from jakiro.core.noise import KeyedNoise
from jakiro.drafters.base import TreeLimits
from jakiro.drafters.registry import METHODS, Methods
from jakiro.heads.kinds import KINDS, make_head
from jakiro.training.features import Batch
from jakiro.training.losses import LossWeights, objective_for
from jakiro.training.schedule import TrainingOptions
from jakiro.training.start import head_config
from jakiro.training.trainer import Trainer, TrainingFolders
from tests.support import committed, prompt_of
from tests.training.resuming import assert_resumed_equals_whole
from tests.training.test_trainer import OPTIONS
from tests.training.tiny import HIDDEN, start, tiny_cache, tiny_target

KNOWN = METHODS
# The methods whose heads are asked
SUBJECTS = tuple(
    name for name, method in METHODS.items() if method.trains is not None and KINDS[method.needs.head[0]].levels
)


def pytest_generate_tests(metafunc):
    if "method" in metafunc.fixturenames:
        metafunc.parametrize("method", metafunc.module.SUBJECTS)


@pytest.fixture(scope="module")
def known(request):
    return request.module.KNOWN


def head_of(known: Methods, method: str, target, draft_vocab: int | None = None):
    torch.manual_seed(2)
    kind = known.kinds[known[method].needs.head[0]]
    head = make_head(head_config(kind, target.config, 12, draft_vocab, **known[method].trains), known.kinds)
    if draft_vocab:
        head.draft_token_ids.copy_(torch.arange(draft_vocab) + 2)
    return head.bind(target.get_input_embeddings().weight, target.lm_head.weight)


def trainer(folder, known: Methods, method: str, **options) -> Trainer:
    target = tiny_target()
    cache = tiny_cache(folder / "features", target)
    head = head_of(known, method, target, draft_vocab=30)
    start(head, cache, first=4, kinds=known.kinds)
    folders, options = TrainingFolders(folder / "head", folder / "state"), TrainingOptions(**OPTIONS | options)
    return Trainer(head, cache, options, folders, clock=lambda: 0.0, kinds=known.kinds)


def test_drafting_gives_each_level_the_probabilities_that_training_teaches_along_that_text(known, method, tmp_path):
    target = tiny_target()
    head = head_of(known, method, target)
    start(head, tiny_cache(tmp_path, target), kinds=known.kinds)
    for parameter in head.parameters():
        parameter.data.add_(0.05 * torch.randn_like(parameter))
    head.eval().requires_grad_(False)
    levels, ids, features = head.levels, torch.tensor([5, 7, 9]), 0.5 * torch.randn(64, HIDDEN)
    session = known.drafter_of(head).start(prompt_of(ids, features[:2]), SamplingParams(), KeyedNoise(0))
    drafted = []
    for _ in range(6):
        # The text goes on along a chain of the best tokens, so that all levels can be compared
        tree = session.propose(TreeLimits(TreeConfig(width=1, depth=levels, nodes=levels + 1))).tree
        path, probs = tree.token_ids.tolist()[1:], tree.draft_probs.tolist()[1:]
        drafted += [(len(ids) - 2, *each) for each in zip(range(1, levels + 1), path, probs, strict=True)]
        new = torch.tensor(path)
        session.observe(committed(new, features[len(ids) - 1 : len(ids) - 1 + len(new)]))
        ids = torch.cat([ids, new])
    batch = Batch(ids[None], features[None, : len(ids)], torch.tensor([len(ids)]), torch.tensor([0]), HIDDEN)
    learned = [each.features for each in objective_for(head, LossWeights(), known.kinds).unroll(batch, levels, None)]
    for row, depth, token_id, draft_prob in drafted:
        probs = head.logits(learned[depth - 1][0, row + depth - 1]).softmax(-1)
        assert draft_prob == pytest.approx(float(probs[token_id]), rel=1e-3)


def test_levels_are_learned(known, method, tmp_path):
    subject = trainer(tmp_path, known, method, max_steps=150, learning_rate=1e-2)
    gaps = []
    deepest = f"main_{subject.head.levels}/token"
    subject._report_step = lambda parts: gaps.append(parts[deepest] - parts["target_entropy"])
    subject.run()
    assert sum(gaps[-10:]) < 0.92 * sum(gaps[:10])


def test_a_killed_run_that_is_resumed_equals_an_uninterrupted_one(known, method, tmp_path):
    options = {"max_steps": 12, "average_from": 0.5}
    assert_resumed_equals_whole(lambda folder: trainer(folder, known, method, **options), tmp_path, 5, 8)
