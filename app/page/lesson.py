"""The tab "Learn": one component drawn by the browser, its scripts, words and recordings.

The scripts are a separate block, so that saved replay pages stay small. The browser computes the content of each stop
from the shipped recordings.
"""

import gradio as gr

from app.page import web
from app.page.view import build_view
from app.words import lesson as lesson_words
from app.words.formulas import FORMULAS, LETTERS

RECORDINGS = web.TRACES / "lesson" / "recordings.json"


def script() -> str:
    """Return the lesson's modules, after its words."""
    texts = zip(lesson_words.STOPS, FORMULAS, strict=True)
    stops = [stop | {"formula": formula, "letters": LETTERS.get(n)} for n, (stop, formula) in enumerate(texts)]
    words, stops = web.for_script(lesson_words.BROWSER), web.for_script(stops)
    return f"Object.assign(Jakiro.words, {words}); Jakiro.lessonTexts = {stops};\n{web.bundle('lesson.js')}"


def style() -> str:
    return web.bundle("lesson.css")


def head() -> str:
    """Return the block for the page's <head>; it follows that of `web.head`."""
    return f"<style>\n{style()}</style>\n<script>\n{script()}</script>"


def component() -> gr.HTML:
    """Add the lesson to the page; it loads its recordings when it is opened for the first time."""

    def recordings() -> str | None:
        return RECORDINGS.read_text(encoding="utf-8") if RECORDINGS.is_file() else None

    return build_view("lesson", "mountLesson(element, server)", {"lesson_recordings": recordings}, tab="lesson")
