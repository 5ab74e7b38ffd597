"""The prefix cache: visible to its owner only, bounded in size, and without effect on the text."""

import threading
from types import SimpleNamespace

import pytest
import torch

from jakiro.config import SamplingParams, TreeConfig
from jakiro.decode import prefix_cache as prefix
from jakiro.decode.prefix_cache import MAX_TEXTS, GrowingPrefix, PrefixStore
from jakiro.drafters.base import DraftSession
from jakiro.drafters.head import HeadSession
from jakiro.drafters.plain import PlainSession
from jakiro.drafters.registry import DEFAULT, METHODS, PLAIN
from jakiro.models import passes
from jakiro.trace import Trace
from tests.backends.static import static_generator
from tests.support import DEVICE, TREE, heads_of, prompt_ids, tiny_generator

SAMPLINGS = [SamplingParams(max_new_tokens=8), SamplingParams(0.8, seed=3, max_new_tokens=8)]


def conversation(*texts: str) -> list[dict]:
    """Return a conversation of alternating user and assistant messages."""
    return [{"role": ("user", "assistant")[i % 2], "content": text} for i, text in enumerate(texts)]


@pytest.fixture(scope="module")
def generator():
    return tiny_generator("summed")


@pytest.fixture(scope="module")
def by_head(generator):
    """Return a generator for each head."""
    return {"summed": generator} | {head: tiny_generator(head) for head in ("eagle3", "dflash")}


def rows_of(stream) -> torch.Tensor:
    """Return the target's committed rows of all layers."""
    cache = stream._backend.cache
    return torch.cat([part[:, :, : cache.length] for layer in cache.layers for part in (layer.keys, layer.values)])


def fresh_rows(generator, token_ids) -> torch.Tensor:
    cache = generator.target.new_cache(len(token_ids))
    generator.target.prefill(torch.tensor(token_ids, device=DEVICE), cache)
    return torch.cat([part for layer in cache.layers for part in (layer.keys, layer.values)])


def assert_same_with_and_without(generator, prefixes, messages, sampling, method, steps=None) -> Trace:
    """Check the ids against an answer without reuse, and the cache against a fresh prefill, bit by bit."""
    expected = generator.run(messages, sampling, method, TREE)
    stream = generator.stream(messages, sampling, method, TREE, prefixes=prefixes)
    while not stream.finished and (steps is None or len(stream.trace.steps) < steps):
        next(stream)
    stream.close()
    assert stream.trace.token_ids == expected.token_ids[: len(stream.trace.token_ids)]
    assert steps is not None or stream.trace.end_reason == expected.end_reason
    token_ids = stream._growing_prefix.token_ids[:-1]
    if generator.max_reusable_tokens:
        assert torch.equal(rows_of(stream), fresh_rows(generator, token_ids))
    assert Trace.from_json(stream.trace.to_json()) == stream.trace
    return stream.trace


@pytest.mark.parametrize("chunk", [1, 2, 7, 16, 41])
def test_rows_do_not_depend_on_how_a_prompt_is_split_into_passes(generator, chunk):
    target = generator.target
    if not target.max_reusable_tokens:
        pytest.skip("only compiled code guarantees this")
    ids = torch.tensor(prompt_ids("Which way does the wind blow?"), device=DEVICE)
    single_pass, parts = target.new_cache(len(ids)), target.new_cache(len(ids))
    features, logits = target.prefill(ids, single_pass)
    results = [target.prefill(part, parts) for part in ids.split(chunk)]
    assert torch.equal(single_pass.store.rows, parts.store.rows)
    assert torch.equal(features, torch.cat([part for part, _ in results]))
    assert torch.equal(logits, results[-1][1])


@pytest.mark.parametrize("method", [PLAIN.name, DEFAULT.name])
def test_beginning_of_a_text_longer_than_the_store_is_reused(monkeypatch, generator, method):
    monkeypatch.setattr(passes, "PREFILL_CHUNK", 8)
    question, full_store, reused = "a" * 25, PrefixStore(), []
    read = generator.run(question, SAMPLINGS[1], method, TREE, prefixes=full_store.of())
    num_rows = read.header.num_prompt_tokens + len(read.token_ids) - 1
    store = PrefixStore(max_bytes=full_store.num_bytes * 24 // num_rows)
    for more in ("", "b", "bcdefghijklmnop", "bcdefghijklmnopqrstuvwxyz", "b"):
        expected = generator.run(question + more, SAMPLINGS[1], method, TREE)
        trace = generator.run(question + more, SAMPLINGS[1], method, TREE, prefixes=store.of())
        assert trace.token_ids == expected.token_ids and store.num_bytes <= store.max_bytes
        reused.append(trace.header.num_reused_tokens)
    assert 16 <= max(reused) < 24 if generator.max_reusable_tokens else not any(reused)


def test_answers_do_not_depend_on_reused_prefixes(generator):
    """Includes edits, other seeds, temperatures and methods, stopped answers, and shorter and identical prompts."""
    prefixes = PrefixStore().of()
    chat = conversation("Tell me of the cat.", "It sat on the mat.", "And then it slept?")
    greedy, warm = SAMPLINGS
    shared = []
    for messages, sampling, method, steps in [
        (chat, greedy, "jakiro", None),
        (chat, greedy, "jakiro", None),
        (chat, warm, "autoregressive", None),
        (chat, SamplingParams(1.0, seed=9, max_new_tokens=8), "small_model", None),
        (conversation("Tell me of the dog.", "It sat on the mat.", "And then it slept?"), greedy, "eagle2", None),
        (chat[:1], greedy, "parallelspec", 2),
        (chat[:1], greedy, "parallelspec", None),
        (chat, SamplingParams(0.7, top_p=0.9, seed=1, max_new_tokens=8), "medusa", 0),
        ([*chat[:2], {"role": "user", "content": "And"}], warm, "jakiro+prompt_lookup", 3),
        (conversation("x"), greedy, "prompt_lookup", None),
    ]:
        header = assert_same_with_and_without(generator, prefixes, messages, sampling, method, steps).header
        assert header.num_reused_tokens < header.num_prompt_tokens
        shared.append(header.num_prompt_tokens - header.num_reused_tokens)
    if generator.max_reusable_tokens:
        assert shared[1:4] == [1, 1, 1], "only the last token of an identical prompt is read again"
        assert shared[6] == 1, "the rows of a stopped answer are reused"


def head_of(session: DraftSession) -> HeadSession:
    """Return the part of a session that has a cache."""
    while not isinstance(session, HeadSession):
        inner = (getattr(session, name, None) for name in ("session", "head", "first"))
        session = next(part for part in inner if isinstance(part, DraftSession))
    return session


# One head for each method; Medusa stores no rows
WITH_ROWS = [
    (heads_of(method)[0], method.name) for method in METHODS.values() if method.needs.head and method.name != "medusa"
]


@pytest.mark.parametrize(("head", "method"), WITH_ROWS)
def test_head_reuses_its_rows(by_head, head, method):
    generator = by_head[head]
    if not generator.max_reusable_tokens:
        pytest.skip("only compiled code resumes")
    prefixes = PrefixStore().of()
    messages = conversation("The head has a cache of its own, has it not?")
    messages += conversation("", generator.run(messages, SAMPLINGS[0], method, TREE, prefixes=prefixes).text, "Yes.")[
        1:
    ]
    streams = (generator.stream(messages, SAMPLINGS[0], method, TREE, prefixes=store) for store in (prefixes, None))
    resumed, fresh = (head_of(stream._session) for stream in streams)
    num_reused = resumed.cache.length
    assert fresh.cache.length == 0 and num_reused > 40
    for session in (resumed, fresh):
        session.catch_up()
    assert fresh.cache.length == resumed.cache.length > num_reused
    rows, expected = (session.cache.first(session.cache.length) for session in (resumed, fresh))
    torch.testing.assert_close(rows, expected, atol=1e-4, rtol=1e-4)


def test_lanes_of_a_race_share_the_rows_of_the_first_one(generator):
    methods = (PLAIN.name, DEFAULT.name, "prompt_lookup")
    separate = generator.race("Who wins?", SAMPLINGS[1], methods, TREE)
    together = generator.race("Who wins?", SAMPLINGS[1], methods, TREE, prefixes=PrefixStore().of())
    list(separate)
    list(together)
    for method, trace in together.traces.items():
        assert trace.token_ids == separate.traces[method].token_ids
        unread = trace.header.num_prompt_tokens - trace.header.num_reused_tokens
        assert unread == (
            1 if generator.max_reusable_tokens and method != PLAIN.name else trace.header.num_prompt_tokens
        )


def test_prefixes_are_visible_to_their_owner_only(generator):
    store = PrefixStore()

    def num_reused(owner) -> int:
        header = generator.run("The very same question?", SAMPLINGS[0], prefixes=store.of(owner)).header
        return header.num_reused_tokens - header.num_prompt_tokens + 1

    everything, nothing = 0 if generator.max_reusable_tokens else num_reused(None), num_reused(None)
    assert [num_reused(owner) for owner in ("ada", "bob", "ada", "eve")] == [nothing, nothing, everything, nothing]
    store.drop("ada")
    assert [num_reused("ada"), num_reused("bob")] == [nothing, everything]
    store.clear()
    assert store.num_bytes == len(store) == 0


def add(prefixes, token_ids, head_rows=()) -> bool:
    """Add a text with its tokens as rows; return whether the rows were copied."""
    copies, tokens = [], torch.tensor(token_ids, dtype=torch.float32)

    def copy_rows():
        copies.append(tokens)
        return tokens.view(1, 1, 1, -1, 1), tokens[:, None]

    prefixes.add("target", token_ids, copy_rows, {name: torch.zeros((1, 2, 1, rows, 1)) for name, rows in head_rows})
    return bool(copies)


def test_unused_prefixes_are_dropped_at_the_next_access(monkeypatch):
    clock = [1000.0]
    monkeypatch.setattr(prefix.time, "monotonic", lambda: clock[0])
    store = PrefixStore(max_seconds=60)
    add(store.of("ada"), [1, 2, 3])
    add(store.of("bob"), [1, 2, 3])
    clock[0] += 40
    assert store.of("ada").find("target", [1, 2, 3, 4]) is not None
    clock[0] += 40
    assert store.of("eve").find("target", [1, 2, 3, 4]) is None
    assert [part.owner for part in store._prefixes] == ["ada"]


def test_longer_text_replaces_its_beginning_and_keeps_the_longest_rows_of_each_head():
    store = PrefixStore()
    prefixes = store.of("ada")
    assert add(prefixes, [1, 2, 3], [("a", 2)])
    assert add(prefixes, [1, 2, 3, 4, 5], [("b", 4)])
    assert not add(prefixes, [1, 2, 3, 4], [("a", 3), ("b", 1)])
    assert len(store) == 1
    match = prefixes.find("target", [1, 2, 3, 4, 5, 6, 7])
    assert match.token_ids == (1, 2, 3, 4, 5) and match.rows.flatten().tolist() == [1, 2, 3, 4, 5]
    assert {head: rows.shape[-2] for head, rows in match.head_rows.items()} == {"a": 3, "b": 4}
    assert add(prefixes, [1, 2, 3, 4, 9, 9], [("b", 5), ("c", 5)])
    match = prefixes.find("target", [1, 2, 3, 4, 5, 6, 7])
    assert match.token_ids == (1, 2, 3, 4, 5), "the longest common prefix of another text is reused"
    assert {head: rows.shape[-2] for head, rows in match.head_rows.items()} == {"a": 3, "b": 4, "c": 3}
    edited = prefixes.find("target", [1, 2, 9, 4, 5])
    assert edited.token_ids == (1, 2) and edited.features.tolist() == [[1], [2]]
    assert {rows.shape[-2] for rows in edited.head_rows.values()} == {1}
    assert len(prefixes.find("target", [1, 2, 3, 4, 5]).token_ids) == 4, "the last token is always read again"
    for prompt, target in (([9, 2, 3], "target"), ([1], "target"), ([1, 2, 3], "another")):
        assert prefixes.find(target, prompt) is None


def test_owner_keeps_the_most_recently_used_texts():
    store = PrefixStore()
    for owner in ("ada", "bob"):
        for first in range(MAX_TEXTS):
            add(store.of(owner), [first, 5, 6])
    assert store.of("ada").find("target", [0, 5, 6, 7])
    add(store.of("ada"), [9, 5, 6])
    assert len(store) == 2 * MAX_TEXTS
    is_stored = [store.of("ada").find("target", [first, 5, 6, 7]) is not None for first in (0, 1, 2, 9)]
    assert is_stored == [True, False, True, True]


def test_static_buffers_do_not_reuse_prefixes(without_compiled_functions):
    generator, prefixes, tree = static_generator("summed"), PrefixStore().of(), TreeConfig(width=5, depth=4, nodes=18)
    assert not generator.max_reusable_tokens and not generator.status["max_reusable_tokens"]
    for _ in range(2):
        trace = generator.run("Once more?", SAMPLINGS[0], tree=tree, prefixes=prefixes)
        assert trace.header.num_reused_tokens == 0


@pytest.mark.parametrize("access", ["find", "add", "drop", "of", "clear"])
def test_every_access_waits_for_the_lock(access):
    store = PrefixStore()
    prefixes = store.of("ada")
    call = {
        "find": lambda: prefixes.find("target", [1, 2, 3]),
        "add": lambda: add(prefixes, [1, 2, 3]),
        "drop": lambda: store.drop("ada"),
        "of": lambda: store.of("bob"),
        "clear": store.clear,
    }[access]
    thread = threading.Thread(target=call)
    with store._lock:
        thread.start()
        thread.join(0.2)
        assert thread.is_alive()
    thread.join(180)
    assert not thread.is_alive()


def test_store_drops_the_oldest_prefix_beyond_its_size_and_ignores_dropped_owners():
    store = PrefixStore(max_bytes=2 * 24)
    dropped = store.of("zoe")
    for owner in ("zoe", "nobody"):
        store.drop(owner)
    assert not add(dropped, [1, 2, 3]) and len(store) == 0
    for owner in ("ada", "bob", "eve"):
        add(store.of(owner), [1, 2, 3])
        assert store.num_bytes <= 48
    assert [part.owner for part in store._prefixes] == ["bob", "eve"] and store.num_bytes == 48


def test_answer_is_stored_without_its_last_token_which_has_no_rows():
    prefixes = PrefixStore().of()
    backend = SimpleNamespace(target="target", max_reusable_tokens=10)
    session = SimpleNamespace(export_cache=lambda length: torch.zeros((1, 1, 1, length, 1)))
    growing = GrowingPrefix(prefixes, backend, [1, 2, 3], torch.zeros((2, 4)))
    growing.add([4], torch.zeros((1, 4)))
    growing.keep(session, PlainSession())
    assert prefixes.find("target", [1, 2, 3, 4, 5]).token_ids == (1, 2, 3)
