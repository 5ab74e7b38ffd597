"""Calls of the public API, checked by `make lint` with pyright; nothing runs this file.

Each ignore comment is an expected error: pyright reports a comment without one, so a mistyped argument that type
checkers accept fails the check.
"""

from collections.abc import Sequence
from typing import assert_type

import jakiro
from jakiro import Grammar, JakiroGenerator, PrefixStore, SamplingParams, Trace, TreeConfig
from jakiro.trace import Step


def accepted(generator: JakiroGenerator) -> None:
    sampling = SamplingParams(
        temperature=0.7,
        top_k=20,
        stop=["\n"],
        logit_bias={42: -5},
        suppress_tokens=[1, 2],
        grammar=Grammar("json_schema", {"type": "object"}),
    )
    for step in generator.stream("Why?", sampling, tree=TreeConfig(nodes=16), raw=True):
        assert_type(step, Step)
    trace = generator.run([{"role": "user", "content": "Why?"}], sampling, "jakiro", prefixes=PrefixStore().of("me"))
    assert_type(trace, Trace)
    assert_type(trace.tau, float | None)
    assert_type(Trace.load("trace.json").text, str)
    assert_type(sampling.stop, tuple[str, ...])
    for method, step in generator.race("Why?", methods=("autoregressive", "jakiro"), raw=True):
        assert_type((method, step), tuple[str, Step])
    names: Sequence[str] = [method.name for method in generator.methods]
    assert_type(jakiro.__version__, str)
    del names


def rejected(generator: JakiroGenerator) -> None:
    SamplingParams(temprature=0.7)  # pyright: ignore[reportCallIssue]
    SamplingParams(temperature="0.7")  # pyright: ignore[reportArgumentType]
    TreeConfig(node=16)  # pyright: ignore[reportCallIssue]
    Grammar(source="")  # pyright: ignore[reportCallIssue]
    generator.run("Why?", {"temperature": 0.7})  # pyright: ignore[reportArgumentType]
    generator.run("Why?", temperature=0.7)  # pyright: ignore[reportCallIssue]
    generator.stream("Why?", raw="yes")  # pyright: ignore[reportArgumentType]
    JakiroGenerator.from_pretrained(targets="smollm2-135m-instruct")  # pyright: ignore[reportCallIssue]
    _ = jakiro.SamplingParameters  # pyright: ignore[reportAttributeAccessIssue]
