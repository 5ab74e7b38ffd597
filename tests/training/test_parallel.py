"""Heads of parallel levels: each level learns the probabilities of drafting, and training is resumed exactly.

Kinds outside the package are tested in the same way, by a test module that imports everything from this one and sets
`KNOWN` and `SUBJECTS`.
"""

import pytest
import torch

from jakiro.config import SamplingParams, TreeConfig
from jakiro.core.noise import KeyedNoise
from jakiro.drafters.base import DraftRequest
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
# Methods under test
SUBJECTS = tuple(
    name for name, method in METHODS.items() if method.trains is not None and KINDS[method.needs.head[0]].levels
)


def pytest_generate_tests(metafunc):
    if "method" in metafunc.fixturenames:
        metafunc.parametrize("method", metafunc.module.SUBJECTS)


@pytest.fixture(scope="module")
def methods(request):
    return request.module.KNOWN


def head_of(methods: Methods, method: str, target, draft_vocab: int | None = None):
    torch.manual_seed(2)
    kind = methods.kinds[methods[method].needs.head[0]]
    head = make_head(head_config(kind, target.config, 12, draft_vocab, **methods[method].trains), methods.kinds)
    if draft_vocab:
        head.draft_token_ids.copy_(torch.arange(draft_vocab) + 2)
    return head.bind(target.get_input_embeddings().weight, target.lm_head.weight)


def trainer(folder, methods: Methods, method: str, **options) -> Trainer:
    target = tiny_target()
    cache = tiny_cache(folder / "features", target)
    head = head_of(methods, method, target, draft_vocab=30)
    start(head, cache, first=4, kinds=methods.kinds)
    folders, options = TrainingFolders(folder / "head", folder / "state"), TrainingOptions(**OPTIONS | options)
    return Trainer(head, cache, options, folders, clock=lambda: 0.0, kinds=methods.kinds)


def test_drafted_probabilities_of_each_level_equal_those_in_training(methods, method, tmp_path):
    target = tiny_target()
    head = head_of(methods, method, target)
    start(head, tiny_cache(tmp_path, target), kinds=methods.kinds)
    for parameter in head.parameters():
        parameter.data.add_(0.05 * torch.randn_like(parameter))
    head.eval().requires_grad_(False)
    levels, ids, features = head.levels, torch.tensor([5, 7, 9]), 0.5 * torch.randn(64, HIDDEN)
    session = methods.drafter_of(head).start(prompt_of(ids, features[:2]), SamplingParams(), KeyedNoise(0))
    drafted = []
    for _ in range(6):
        # The text continues with the best tokens, so that all levels can be compared
        tree = session.propose(DraftRequest(TreeConfig(width=1, depth=levels, nodes=levels + 1))).tree
        path, probs = tree.token_ids.tolist()[1:], tree.draft_probs.tolist()[1:]
        drafted += [(len(ids) - 2, *draft) for draft in zip(range(1, levels + 1), path, probs, strict=True)]
        new = torch.tensor(path)
        session.observe(committed(new, features[len(ids) - 1 : len(ids) - 1 + len(new)]))
        ids = torch.cat([ids, new])
    batch = Batch(ids[None], features[None, : len(ids)], torch.tensor([len(ids)]), torch.tensor([0]), HIDDEN)
    learned = [
        output.features for output in objective_for(head, LossWeights(), methods.kinds).unroll(batch, levels, None)
    ]
    for row, depth, token_id, draft_prob in drafted:
        probs = head.logits(learned[depth - 1][0, row + depth - 1]).softmax(-1)
        assert draft_prob == pytest.approx(float(probs[token_id]), rel=1e-3)


@pytest.mark.rare
def test_levels_are_learned(methods, method, tmp_path):
    subject = trainer(tmp_path, methods, method, max_steps=150, learning_rate=1e-2)
    gaps = []
    deepest = f"main_{subject.head.levels}/token"
    subject._report_step = lambda parts: gaps.append(parts[deepest] - parts["target_entropy"])
    subject.run()
    assert sum(gaps[-10:]) < 0.92 * sum(gaps[:10])


def test_resumed_run_equals_an_uninterrupted_one(methods, method, tmp_path):
    options = {"max_steps": 12, "average_from": 0.5}
    assert_resumed_equals_whole(lambda folder: trainer(folder, methods, method, **options), tmp_path, 5, 8)
