"""Helpers to build an answer request, start it, and collect its events."""

from app.asking import Asking
from app.serving.worker import AnswerRun, ModelService, batches
from jakiro.config import SamplingParams, TreeConfig


def asking(
    question: str = "Why?",
    length: int = 8,
    methods: tuple[str, ...] = ("jakiro",),
    temperature: float = 0.0,
    tree: TreeConfig | None = None,
) -> Asking:
    messages = ({"role": "user", "content": question},)
    return Asking(messages, SamplingParams(temperature, seed=3, max_new_tokens=length), tree or TreeConfig(), methods)


def start_answer(service: ModelService, request: Asking) -> AnswerRun:
    run = AnswerRun(service, request)
    run.start()
    return run


def events_of(run: AnswerRun) -> list[tuple]:
    """Return all events of an answer; block until it has ended."""
    return [event for batch in batches(run.events, 0.01) for event in batch]
