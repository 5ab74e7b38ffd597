"""The tab "How it works": one component drawn by the browser, its scripts, words and recordings.

The scripts are a block of their own, so that saved replay pages stay small. What a stop shows is computed in the
browser from the shipped recordings; the server adds this device's own costs where a model is loaded.
"""

from functools import partial

import gradio as gr

from app.page import web
from app.page.drawn import drawn
from app.serving.worker import ModelService
from app.words import lesson as lesson_words

RECORDINGS = web.TRACES / "lesson" / "recordings.json"


def script() -> str:
    """The lesson's modules, its words first."""
    words, stops = web.for_script(lesson_words.BROWSER), web.for_script(lesson_words.STOPS)
    return (
        f"Object.assign(Jakiro.words, {words}); Jakiro.lessonTexts = {stops};\n{web.joined(web.module_names('lesson'))}"
    )


def style() -> str:
    return web.tight(["lesson/lesson.css"])


def head() -> str:
    """The block for the page's <head>, after the page's own."""
    return f"<style>\n{style()}</style>\n<script>\n{script()}</script>"


def component(service: ModelService) -> gr.HTML:
    """The lesson's place on the page; it loads its recordings when it is opened for the first time."""

    def recordings() -> str | None:
        return RECORDINGS.read_text(encoding="utf-8") if RECORDINGS.is_file() else None

    functions = {"lesson_recordings": recordings, "lesson_device": partial(device_costs, service)}
    return drawn("lesson", "mountLesson(element, server)", functions, tab="lesson")


def device_costs(service: ModelService) -> dict | None:
    """This device's measured passes; None without a loaded model or a draft head."""
    values = service.device.costs if service.ready else None
    if values is None:
        return None
    return {"name": values["key"].get("device", ""), "profile": {key: values[key] for key in ("verify_ms", "draft_ms")}}
