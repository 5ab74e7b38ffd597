"""Text offsets of tokens that split characters or are not valid UTF-8."""

import random
from itertools import accumulate, pairwise

from jakiro.server.logprobs import TextOffsets
from jakiro.trace import Scored
from tests.server.utf8 import characters_of_bytes


def offsets(pieces: list[bytes]) -> list[int]:
    counted = TextOffsets({}, "")
    return [counted.next(Scored(token_id=7, piece=piece, logprob=-1.0)) for piece in pieces]


def test_token_after_an_incomplete_character_begins_after_its_replacement():
    assert offsets([b"\xe2", b"A", b"B"]) == [0, 1, 2]
    assert offsets(["€".encode()[:2], "€".encode()[2:], b"A"]) == [0, 0, 1]
    assert offsets([b"\xe2", b"\xe2\x82\xac"]) == [0, 1]


def test_offset_is_the_character_of_the_first_byte_for_random_splits():
    chance = random.Random(5)
    for _ in range(500):
        parts = ["a", "é", "€", "🌍", "\ufffd", " "]
        data = b"".join(
            chance.choice(parts).encode() if chance.random() < 0.8 else bytes([chance.randrange(1, 256)])
            for _ in range(9)
        )
        if data.startswith(b" "):
            continue
        cuts = sorted({0, len(data), *(chance.randrange(len(data)) for _ in range(6))})
        pieces = [data[start:end] for start, end in pairwise(cuts)]
        starts = [0, *accumulate(map(len, pieces))][:-1]
        assert offsets(pieces) == [characters_of_bytes(data)[start] for start in starts], (data, pieces)
