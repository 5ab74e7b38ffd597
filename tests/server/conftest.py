"""A tiny pair behind the API, and OpenAI's client of it."""

import openai
import pytest

from tests.server.served import served
from tests.support import tiny_generator


@pytest.fixture(scope="module")
def generator():
    return tiny_generator()


@pytest.fixture(scope="module")
def address(generator):
    with served(generator) as (address, _):
        yield address


@pytest.fixture(scope="module")
def client(address):
    with openai.OpenAI(base_url=address, api_key="any", max_retries=0) as client:
        yield client
