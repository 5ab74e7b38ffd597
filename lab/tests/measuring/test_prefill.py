"""Reading prompts: every lane reads the same tokens as often, in turns, and shares compare neighbours in time."""

import json

import torch

from jakiro.bench.peers import llama_worker
from lab.measuring.prefill import OURS, STOCK, Reading, as_json, our_reader, read_prompts, sentence_of, stock_reader
from tests.support import tiny_model, tiny_target


def test_lanes_take_turns_after_an_untimed_reading():
    log = []

    def reader(lane):
        return lambda prompt: (log.append((lane, len(prompt))), float(len(log)))[1]

    found = list(read_prompts({OURS: reader(OURS), STOCK: reader(STOCK)}, range(9), (4, 9), 2))
    order = [OURS, STOCK, OURS, STOCK, STOCK, OURS]
    assert log == [(lane, length) for length in (4, 9) for lane in order]
    assert [reading.num_tokens for reading in found] == [4, 9]
    assert found[0].seconds == {OURS: (3.0, 6.0), STOCK: (4.0, 5.0)}


def test_our_share_is_that_of_the_fastest_other_lane_in_the_median_round():
    reading = Reading(100, {OURS: (2.0, 4.0, 2.0), STOCK: (1.0, 8.0, 4.0), "third": (9.0, 6.0, 3.0)})
    assert reading.share == 1.5
    assert reading.tokens_per_second(OURS) == 50.0
    assert sentence_of(reading).endswith("tokens/s; ours is 150 % of the faster other.")


def test_both_readers_read_a_whole_prompt():
    prompt = [5, 9, 2, 7] * 5
    assert our_reader(tiny_target())(prompt) > 0
    seen = []
    model = tiny_model()
    model.register_forward_pre_hook(lambda _, args, options: seen.append(options), with_kwargs=True)
    assert stock_reader(model)(prompt) > 0
    assert torch.equal(seen[0]["input_ids"], torch.tensor([prompt])) and seen[0]["logits_to_keep"] == 1


def test_llama_cpp_reads_from_the_beginning_each_time():
    calls = []

    class Model:
        def reset(self):
            calls.append("reset")

        def eval(self, token_ids):
            calls.append(token_ids)

    for _ in range(2):
        assert llama_worker.read(Model(), [1, 2])["seconds"] >= 0
    assert calls == ["reset", [1, 2]] * 2


def test_all_seconds_are_kept_with_where_they_were_measured():
    readings = [Reading(30, {OURS: (0.1, 0.3), STOCK: (0.2, 0.2)}), Reading(500, {OURS: (1.0, 2.0), STOCK: (3.0, 4.0)})]
    kept = json.loads(as_json({"cpu": "A processor"}, 2, readings))
    assert kept["environment"] == {"cpu": "A processor"} and kept["rounds"] == 2
    again = [
        Reading(each["num_tokens"], {lane: tuple(s) for lane, s in each["seconds"].items()})
        for each in kept["readings"]
    ]
    assert again == readings
