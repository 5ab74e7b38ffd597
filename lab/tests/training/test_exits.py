"""Heads on top of the target's first layers: starts, divergences, resumed runs, and text written by the draft."""

import pytest
import torch

from jakiro.drafters.base import Resources
from jakiro.heads.kinds import make_head
from jakiro.training.schedule import TrainingOptions
from jakiro.training.start import head_config
from jakiro.training.trainer import Trainer, TrainingFolders
from lab import KNOWN
from lab.methods import METHODS
from lab.training import exits, own_text
from tests.support import head_fields
from tests.support import tiny_head as bound_head
from tests.support import tiny_target as whole_target
from tests.training.resuming import assert_resumed_equals_whole
from tests.training.test_trainer import OPTIONS
from tests.training.tiny import tiny_cache, tiny_target

EXITS = [method.name for method in METHODS if method.trains is not None]


def trainer(folder, method: str, divergence: str = "forward-kl", **options) -> Trainer:
    target = tiny_target()
    torch.manual_seed(2)
    fields = {name: value for name, value in head_fields(KNOWN[method]).items() if name != "kind"}
    config = head_config(KNOWN[method].kind, target.config, 12, 30, **fields)
    head = make_head(config, KNOWN.kinds)
    head.draft_token_ids.copy_(torch.arange(30) + 2)
    head.bind(target.get_input_embeddings().weight, target.lm_head.weight)
    cache = tiny_cache(folder / "features", target, config.exit_layers)
    exits.start_exits(head, cache.texts(4, exits.START_TEXTS, torch.device("cpu")), seed=0)
    options, folders = TrainingOptions(**OPTIONS | options), TrainingFolders(folder / "head", folder / "state")
    objective = exits.ExitObjective(head, divergence)
    return Trainer(head, cache, options, folders, clock=lambda: 0.0, kinds=KNOWN.kinds, objective=objective)


@pytest.mark.parametrize("method", EXITS)
def test_a_killed_run_that_is_resumed_equals_an_uninterrupted_one(method, tmp_path):
    options = {"max_steps": 12, "average_from": 0.5}
    assert_resumed_equals_whole(lambda folder: trainer(folder, method, **options), tmp_path, 5, 8)


@pytest.mark.parametrize("divergence", exits.DIVERGENCES)
@pytest.mark.parametrize("method", ["exit", "s2d"])
def test_training_reduces_every_divergence_of_every_exit(method, divergence, tmp_path):
    subject = trainer(tmp_path, method, divergence, max_steps=120, learning_rate=1e-2)
    losses_of: dict[int, list[float]] = {}

    def keep(parts):
        for depth in range(1, subject.head.levels + 1):
            losses_of.setdefault(depth, []).append(parts[f"main_{depth}/token"])

    subject._report_step = keep
    subject.run()
    for losses in losses_of.values():
        assert sum(losses[-15:]) < sum(losses[:15])
        # Only the cross-entropy of a head without training is above 1
        assert (losses[0] <= 1) == (divergence == "total-variation")


def test_the_own_layer_s_start_is_closer_than_chance(tmp_path):
    subject = trainer(tmp_path, "s2d", max_steps=1)
    batch = subject.cache.batch(range(4, 12))
    targets = batch.features[:, 1:-1]
    for output in subject.objective.unroll(batch, subject.head.levels, None):
        error, spread = (output.features[:, :-1] - targets).square().mean(), targets.square().mean()
        assert error < 0.9 * spread


def test_total_variation_is_half_the_sum_of_differences():
    rows, features = torch.eye(3), torch.tensor([[0.7, 0.2, 0.1], [0.1, 0.1, 0.8]]).log()
    target = torch.tensor([[0.5, 0.4, 0.1], [0.1, 0.1, 0.8]])
    assert float(exits.total_variation(features, rows, None, target)) == pytest.approx(0.2 / 2)
    # A row that represents two tokens counts twice
    both = exits.total_variation(torch.zeros(1, 3), torch.eye(2, 3), torch.tensor([0.0, 2.0]).log1p(), torch.eye(2)[:1])
    assert float(both) == pytest.approx(0.75)


def test_a_draft_writes_its_own_samples():
    target = whole_target()
    head = bound_head(target, known=KNOWN, **head_fields(KNOWN["exit"]))
    KNOWN["exit"].load(Resources(target, head))
    prompt = [5, 9, 40, 41]
    complete = own_text.drafted(head, prompt, set(), 12, seed=3)
    assert len(complete) == 12 and complete != own_text.drafted(head, prompt, set(), 12, seed=4)
    # In one pass over the text, every token is the best one under the noise of its position
    cache = head.new_cache(16)
    features = head.extend(torch.tensor(prompt + complete[:-1]), torch.zeros(0), cache).features[0, 3:]
    noise = own_text.KeyedNoise(3).over(head.draft_token_ids).rows(4, 12)
    assert head.draft_token_ids[(head.logits(features) + noise).argmax(-1)].tolist() == complete
    stopped = own_text.drafted(head, prompt, {complete[5]}, 12, seed=3)
    assert stopped == complete[: complete.index(complete[5]) + 1]
