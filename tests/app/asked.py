"""A question as the page passes it on, an answer that has begun, and all that comes of it."""

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


def begun(service: ModelService, asked: Asking) -> AnswerRun:
    run = AnswerRun(service, asked)
    run.start()
    return run


def events_of(run: AnswerRun) -> list[tuple]:
    """All events of an answer, once it has ended."""
    return [event for batch in batches(run.events, 0.01) for event in batch]
