"""Requests of five clients to a running server: `python clients.py http://127.0.0.1:8000/v1`, see README.md.

Every client answers the same question at temperature 0, as one response and as a stream, so all texts must be equal.
Each line of the output has one client, its version and the values that it received.
"""

import asyncio
import json
import sys
from collections.abc import Callable
from importlib.metadata import version
from typing import Literal

from pydantic import BaseModel

QUESTION = "Why is the sky blue?"
TOKENS, KEY = 24, "none"
FORM_QUESTION = "Which colour is the sky at noon, and is it warm?"


class Sky(BaseModel):
    """An answer of bounded length: a model may fill free text until the limit."""

    colour: Literal["red", "blue", "green"]
    warm: bool


def messages(text: str) -> list[dict]:
    return [{"role": "user", "content": text}]


def ask_openai(url: str, model: str) -> dict:
    import openai

    client = openai.OpenAI(base_url=url, api_key=KEY, max_retries=0)
    request = {"model": model, "messages": messages(QUESTION), "temperature": 0, "max_tokens": TOKENS}
    answer = client.chat.completions.create(**request, logprobs=True, top_logprobs=2, n=2)
    text = answer.choices[0].message.content
    chunks = list(client.chat.completions.create(**request, stream=True, stream_options={"include_usage": True}))
    predicted = client.chat.completions.create(**request, prediction={"type": "content", "content": text})
    parsed = client.chat.completions.parse(
        model=model, messages=messages(FORM_QUESTION), temperature=0, response_format=Sky
    )
    completed = {"model": model, "temperature": 0, "logprobs": 1, "echo": True}
    scored = client.completions.create(**completed, prompt="The sky is blue.", max_tokens=0)
    by_ids = client.completions.create(**completed, prompt=[504, 6376, 314, 4461, 30], max_tokens=0)
    try:
        client.chat.completions.create(**request, tools=[{"type": "function"}])
        refused = None
    except openai.BadRequestError as error:
        refused = {"param": error.param, "message": error.body["message"]}
    return {
        "text": text,
        "second_choice_is_equal": answer.choices[1].message.content == text,
        "stream": "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices),
        "parsed": parsed.choices[0].message.parsed.model_dump(),
        "retrieved": client.models.retrieve(model).id,
        "tokens": chunks[-1].usage.completion_tokens,
        "first_logprob": round(answer.choices[0].logprobs.content[0].logprob, 3),
        "prediction_tokens": predicted.usage.completion_tokens_details.accepted_prediction_tokens,
        "prediction_is_equal": predicted.choices[0].message.content == text,
        "prompt_logprobs": [logprob and round(logprob, 2) for logprob in scored.choices[0].logprobs.token_logprobs],
        "prompt_ids_logprobs": [logprob and round(logprob, 2) for logprob in by_ids.choices[0].logprobs.token_logprobs],
        "refused": refused,
    }


def ask_litellm(url: str, model: str) -> dict:
    import litellm

    common = {"model": f"openai/{model}", "api_base": url, "api_key": KEY, "temperature": 0}
    request = common | {"messages": messages(QUESTION), "max_tokens": TOKENS}
    answer = litellm.completion(**request)
    chunks = litellm.completion(**request, stream=True)
    form = litellm.completion(**common, messages=messages(FORM_QUESTION), response_format=Sky)
    text = litellm.text_completion(
        model=f"text-completion-openai/{model}", api_base=url, api_key=KEY, prompt="The sky is", max_tokens=4,
        temperature=0,
    )  # fmt: skip
    return {
        "text": answer.choices[0].message.content,
        "stream": "".join(chunk.choices[0].delta.content or "" for chunk in chunks),
        "parsed": json.loads(form.choices[0].message.content),
        "tokens": answer.usage.completion_tokens,
        "completion": text.choices[0].text,
    }


def ask_langchain(url: str, model: str) -> dict:
    from langchain_openai import ChatOpenAI, OpenAI

    common = {"base_url": url, "api_key": KEY, "model": model, "temperature": 0}
    chat = ChatOpenAI(**common, max_completion_tokens=TOKENS, logprobs=True)
    answer = chat.invoke(QUESTION)
    form = ChatOpenAI(**common).with_structured_output(Sky, method="json_schema").invoke(FORM_QUESTION)
    return {
        "text": answer.content,
        "stream": "".join(chunk.content for chunk in chat.stream(QUESTION)),
        "parsed": form.model_dump(),
        "batch_is_equal": [message.content for message in chat.batch([QUESTION] * 2)] == [answer.content] * 2,
        "tokens": answer.usage_metadata["output_tokens"],
        "first_logprob": round(answer.response_metadata["logprobs"]["content"][0]["logprob"], 3),
        "completion": OpenAI(**common, max_tokens=4).invoke("The sky is"),
    }


def ask_instructor(url: str, model: str) -> dict:
    import instructor
    import openai

    client = openai.OpenAI(base_url=url, api_key=KEY, max_retries=0)
    request = {"model": model, "temperature": 0}
    plain = client.chat.completions.create(**request, messages=messages(QUESTION), max_tokens=TOKENS)
    request |= {"response_model": Sky, "messages": messages(FORM_QUESTION)}
    patched = instructor.from_openai(client, mode=instructor.Mode.JSON_SCHEMA)
    parsed = patched.create(**request).model_dump()
    return {
        "text": plain.choices[0].message.content,
        "parsed": parsed,
        "partial_is_equal": list(patched.create_partial(**request))[-1].model_dump() == parsed,
    }


def ask_pydantic_ai(url: str, model: str) -> dict:
    from pydantic_ai import Agent, NativeOutput
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    chat = OpenAIChatModel(model, provider=OpenAIProvider(base_url=url, api_key=KEY))
    agent = Agent(chat, model_settings={"temperature": 0, "max_tokens": TOKENS})
    form = Agent(chat, output_type=NativeOutput(Sky), model_settings={"temperature": 0})
    answer = agent.run_sync(QUESTION)

    async def stream() -> str:
        async with agent.run_stream(QUESTION) as result:
            return await result.get_output()

    return {
        "text": answer.output,
        "stream": asyncio.run(stream()),
        "parsed": form.run_sync(FORM_QUESTION).output.model_dump(),
        "second_turn": bool(agent.run_sync("And at night?", message_history=answer.all_messages()).output),
    }


CLIENTS: dict[str, Callable[[str, str], dict]] = {
    "openai": ask_openai,
    "litellm": ask_litellm,
    "langchain-openai": ask_langchain,
    "instructor": ask_instructor,
    "pydantic-ai-slim": ask_pydantic_ai,
}


def main(url: str) -> None:
    import openai

    model = openai.OpenAI(base_url=url, api_key=KEY).models.list().data[0].id
    texts, forms = set(), set()
    for name, ask in CLIENTS.items():
        result = ask(url, model)
        sys.stdout.write(json.dumps({"client": name, "version": version(name), "model": model} | result) + "\n")
        texts |= {result["text"], result.get("stream", result["text"])}
        forms.add(json.dumps(result["parsed"], sort_keys=True))
    if len(texts) > 1 or len(forms) > 1:
        sys.exit(f"The clients read different answers: {sorted(texts)}, {sorted(forms)}")


if __name__ == "__main__":
    main(sys.argv[1])
