"""The clients `llm` and litellm, configured as their documentation describes."""

import os
import subprocess
import sys

import pytest

from jakiro.config import SamplingParams
from tests.server.served import PROMPT, served
from tests.support import tiny_generator

LITELLM = """
import sys, litellm
request = {"model": "openai/tiny", "api_base": sys.argv[1], "api_key": "any", "temperature": 0, "max_tokens": 20,
           "messages": [{"role": "user", "content": sys.argv[2]}]}
answer = litellm.completion(**request)
assert answer.usage.completion_tokens == 20 and answer.choices[0].finish_reason == "length"
chunks = litellm.completion(**request, stream=True)
streamed = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
assert streamed == answer.choices[0].message.content
sys.stdout.buffer.write(streamed.encode())
"""

pytestmark = pytest.mark.rare


@pytest.fixture(scope="module")
def served_text():
    """Yield the address of a server and the text that the library decodes."""
    generator = tiny_generator()
    with served(generator) as (address, _):
        yield address, generator.run(PROMPT, SamplingParams(0, max_new_tokens=20)).text


def run(*command: str, **variables: str) -> str:
    done = subprocess.run(
        [sys.executable, *command], env=os.environ | variables, capture_output=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()


@pytest.mark.parametrize("streamed", [True, False])
def test_llm_uses_a_model_of_its_configuration_file(served_text, tmp_path, streamed):
    address, text = served_text
    entry = f"- model_id: here\n  model_name: tiny\n  api_base: {address}\n"
    (tmp_path / "extra-openai-models.yaml").write_text(entry, encoding="utf-8")
    options = ["--no-log", "--key", "any", "-o", "temperature", "0", "-o", "max_tokens", "20"]
    options += [] if streamed else ["--no-stream"]
    # The client reads no other configuration of the user
    said = run("-m", "llm", "-m", "here", *options, PROMPT, LLM_USER_PATH=str(tmp_path))
    assert said.strip() == text.strip()


def test_litellm_reads_text_usage_and_stream(served_text):
    address, text = served_text
    assert run("-c", LITELLM, address, PROMPT, LITELLM_LOCAL_MODEL_COST_MAP="True") == text
