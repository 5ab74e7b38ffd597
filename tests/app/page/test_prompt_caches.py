"""Prompt caches of the page's /v1 belong to one API key, so that another key cannot detect earlier prompts."""

import httpx

from tests.app.page.test_v1 import body_of, page
from tests.server.served import PATIENCE
from tests.support import tiny_generator


def cached_tokens(address: str, key: str, name: str | None = "a") -> int:
    body = body_of("tiny", max_tokens=4, temperature=0) | ({"prompt_cache_key": name} if name else {})
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
