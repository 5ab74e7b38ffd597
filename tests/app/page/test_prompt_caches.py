"""Prompt caches of the page's /v1 belong to one API key: another key never learns what was asked before."""

import httpx

from tests.app.page.test_v1 import asked, page
from tests.server.served import PATIENCE
from tests.support import tiny_generator


def cached_tokens(address: str, key: str, name: str | None = "a") -> int:
    body = asked("tiny", max_tokens=4, temperature=0) | ({"prompt_cache_key": name} if name else {})
    headers = {"authorization": f"Bearer {key}"}
    answer = httpx.post(f"{address}/v1/chat/completions", json=body, headers=headers, timeout=PATIENCE)
    assert answer.status_code == 200, answer.text
    return answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"]


def test_another_key_never_reads_from_a_keys_prompt_cache():
    with page(tiny_generator(), keys=("first", "second")) as (_, address):
        assert cached_tokens(address, "first") == 0
        assert cached_tokens(address, "first") > 0
        assert cached_tokens(address, "second") == 0, "the same prompt and the same prompt_cache_key"
        assert cached_tokens(address, "first", "b") == 0, "another name of the same key"
        assert cached_tokens(address, "second") > 0
