"""Reading prompts: every lane reads the same tokens as often, in turns, and shares compare neighbours in time."""

from lab.measuring.prefill import OURS, STOCK, Reading, read_prompts, sentence_of


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
