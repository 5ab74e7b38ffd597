"""The lesson in a tab by itself, over the shipped recordings, and the same sums done in Python."""

import json

import numpy as np

from app.page import lesson, web

MOUNT = """data => {
  Jakiro.mountLesson(document.querySelector("#lesson"), { lesson_recordings: async () => data });
  Jakiro.setTab("lesson");
}"""


def mount(tab) -> None:
    """Puts the lesson into an empty tab and waits for its first stop."""
    tab.set_content(
        f'<!doctype html><html lang="en"><head><title>Jakiro</title><style>{web.style()}{lesson.style()}'
        'body { margin: 0; padding: 16px }</style></head><body><main id="lesson">'
        '<div class="jk-view jk-lesson" data-tab="lesson"></div></main>'
        f"{web.plotly_element()}</body></html>"
    )
    tab.add_script_tag(content=web.script())
    tab.add_script_tag(content=lesson.script())
    tab.evaluate(MOUNT, lesson.RECORDINGS.read_text(encoding="utf-8"))
    tab.wait_for_selector(".stop")


def go(tab, stop: int) -> None:
    if not tab.is_visible(f'.stop-title[data-stop="{stop}"]'):
        tab.click(".more-stops summary")
    tab.click(f'.stop-title[data-stop="{stop}"]')
    tab.wait_for_selector(f'.stop[data-stop="{stop}"]')


def slide(tab, control: str, value: float) -> None:
    tab.fill(f'input[data-control="{control}"]', str(value))


def press(tab, control: str, value: str | None = None) -> None:
    tab.click(f'.stop [data-control="{control}"]' + (f'[data-value="{value}"]' if value is not None else ""))


def result(tab, name: str) -> str:
    return tab.inner_text(f'[data-result="{name}"]')


def shown(tab) -> int:
    """The index of the step that a stop says it shows."""
    words = tab.inner_text(".stop-screen :text('of the recording')")
    return int(words.split()[1]) - 1


class Recorded:
    """The shipped file, read without the page's code."""

    def __init__(self) -> None:
        content = json.loads(lesson.RECORDINGS.read_text(encoding="utf-8"))
        self.device, self.recordings = content["device"], content["recordings"]

    def payloads(self, name: str, method: str, wanted: str) -> list[dict]:
        return [payload for kind, whose, payload in self.recordings[name] if (kind, whose) == (wanted, method)]

    def steps(self, name: str, method: str = "jakiro") -> list[dict]:
        """Steps with their nodes' columns beside the rest, rows of evidence written out."""
        return [
            step | step["nodes"] | {what: _rows(column) for what, column in step["evidence"].items()}
            for step in self.payloads(name, method, "step")
        ]

    def begins(self, name: str, method: str) -> dict[int, dict]:
        """Steps by the number of tokens that had been written when they began."""
        found, written = {}, 1
        for step in self.steps(name, method):
            found[written] = step
            written += step.get("committed", len(step["accepted_path"]) + 1)
        return found

    def ids(self, name: str, method: str) -> list[int]:
        name = name.replace("own", "shared") if method == "autoregressive" else name
        (header,) = self.payloads(name, method, "header")
        ids = [header["first_token_id"]]
        for step in self.steps(name, method):
            path = step["accepted_path"]
            bonus = step.get("bonus_token_id", step["target_choice"][path[-1] if path else 0])
            tokens = [*(step["token_id"][node] for node in path), bonus]
            ids += tokens[: step.get("committed", len(tokens))]
        return ids

    def tau(self, name: str) -> float:
        return (len(self.ids(name, "jakiro")) - 1) / len(self.steps(name))

    def check_ms(self, nodes: int) -> float:
        """Between the numbers of nodes that were measured, along a straight line."""
        return float(np.interp(nodes, *np.transpose(self.device["profile"]["verify_ms"])))


def _rows(column: list) -> list:
    """A number in a column stands for the row of the node with this number."""
    return [column[row] if isinstance(row, int) else row for row in column]


def depths(step: dict) -> list[int]:
    found = []
    for parent in step["parent"]:
        found.append(0 if parent < 0 else found[parent] + 1)
    return found


def likeliest(step: dict, candidates: int) -> list[int]:
    """The nodes that stay when a tree is cut to so many candidates, root included."""
    level = depths(step)
    order = sorted(range(1, len(step["parent"])), key=lambda i: (-step["score"][i], level[i], i))
    return sorted([0, *order[:candidates]])


def accepted(step: dict, nodes: list[int]) -> int:
    """How many of the kept nodes the target accepts, judged anew."""
    at, count = 0, 0
    while True:
        choice = step["target_choice"][at]
        following = [i for i in nodes if step["parent"][i] == at and step["token_id"][i] == choice]
        if not following:
            return count
        at, count = following[0], count + 1


def favourite(step: dict) -> list[int]:
    chain, at = [], 0
    while children := [i for i, parent in enumerate(step["parent"]) if parent == at]:
        at = max(children, key=lambda i: (step["score"][i], -i))
        chain.append(at)
    return chain
