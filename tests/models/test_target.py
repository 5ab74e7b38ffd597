"""The target model: chunked prompts, bit equality where it is reported, and stop tokens."""

from dataclasses import replace

import pytest
import torch

from jakiro.config import SamplingParams
from jakiro.models import passes
from jakiro.models.probes import is_bit_identical
from jakiro.models.target import TargetModel
from tests.support import (
    DEVICE,
    TREE,
    PassRecorder,
    assert_drafting_took_part,
    byte_tokenizer,
    scripted_generator,
    tiny_model,
    tiny_target,
)

PROMPT = torch.arange(40, device=DEVICE) * 7 % 250


def test_chunked_prompt_gives_the_features_of_one_pass(monkeypatch):
    target = tiny_target()
    whole_cache, chunk_cache = target.new_cache(60 + target.row_bucket(1)), target.new_cache(60 + target.row_bucket(1))
    expected, logits = target.prefill(PROMPT, whole_cache)
    monkeypatch.setattr(passes, "PREFILL_CHUNK", 13)
    chunked, chunk_logits = target.prefill(PROMPT, chunk_cache)
    assert chunk_cache.length == whole_cache.length == 40
    torch.testing.assert_close(chunked, expected, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(chunk_logits, logits, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_ids_and_logits_are_equal_if_the_probe_reports_bit_identical(dtype, monkeypatch):
    generator = scripted_generator(0.3, dtype=dtype)
    recorder, drafted = PassRecorder(monkeypatch, generator.target), []
    for sampling in (SamplingParams(), SamplingParams(0.7, top_p=0.9, seed=1), SamplingParams(1.0, seed=2)):
        ids, logits, flags = [], [], set()
        for method in ("jakiro", "autoregressive"):
            trace = generator.run("Why is the sky blue?", replace(sampling, max_new_tokens=48), method, TREE)
            ids.append(trace.token_ids)
            logits.append(recorder.take_logits(trace.steps))
            flags.add(trace.header.bit_identical)
            drafted += trace.steps if method == "jakiro" else []
        assert flags == {generator.target.bit_identical}
        if generator.target.bit_identical:
            count = min(len(rows) for rows in logits)
            assert ids[0] == ids[1]
            assert count >= 47 and torch.equal(logits[0][:count], logits[1][:count])
        elif dtype == torch.float32:
            assert ids[0] == ids[1]
    assert_drafting_took_part(drafted)


@pytest.mark.parametrize("sizes", [(1,), range(2, 65), (7,), (31,), (64,)], ids=str)
def test_probe_detects_rounding_that_depends_on_the_number_of_rows(sizes, monkeypatch):
    target = tiny_target()
    score = target.score

    def rounding_by_rows(tree, cache):
        scores = score(tree, cache)
        if tree.num_nodes in sizes:
            scores.logits[-1].add_(1e-5)
        return scores

    monkeypatch.setattr(target, "score", rounding_by_rows)
    assert not is_bit_identical(target)


@pytest.mark.parametrize("rows", [1, 2])
def test_plain_passes_use_the_smallest_row_count_with_equal_rounding(monkeypatch, rows):
    target = tiny_target().with_settings(bucketed=False)
    monkeypatch.setattr("jakiro.models.target.is_bit_identical", lambda passes: passes.row_bucket(1) == rows)
    exact = target.with_numerics("exact")
    assert exact.bit_identical and exact.row_bucket(1) == rows and exact.row_bucket(5) == 5


def test_stop_ids_come_from_generation_config_model_config_and_tokenizer():
    model = tiny_model()
    model.generation_config.eos_token_id = [11, 12]
    model.config.eos_token_id = 13
    eos = byte_tokenizer().eos_token_id
    assert TargetModel(model, byte_tokenizer()).stop_ids == {11, 12, 13, eos}
