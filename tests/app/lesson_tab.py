"""The lesson in its own tab over the shipped recordings, and the same calculations in Python."""

import json

import numpy as np

from app.page import lesson, web

MOUNT = """data => {
  Jakiro.mountLesson(document.querySelector("#lesson"), { lesson_recordings: async () => data });
  Jakiro.setTab("lesson");
}"""


def mount(tab) -> None:
    """Put the lesson into an empty tab and wait for its first stop."""
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


def shown_step(tab) -> int:
    """Return the index of the step that is named on a stop."""
    words = tab.inner_text(".stop-screen :text('of the recording')")
    return int(words.split()[1]) - 1


class Recorded:
    """The shipped recordings, read without the page's code."""

    def __init__(self) -> None:
        content = json.loads(lesson.RECORDINGS.read_text(encoding="utf-8"))
        self.device, self.recordings = content["device"], content["recordings"]

    def payloads(self, name: str, method: str, kind: str) -> list[dict]:
        return [payload for *lane, payload in self.recordings[name] if lane == [kind, method]]

    def steps(self, name: str, method: str = "jakiro") -> list[dict]:
        """Return the steps as flat dictionaries that include the columns of nodes and evidence."""
        return [
            step | step["nodes"] | {key: _rows(column) for key, column in step["evidence"].items()}
            for step in self.payloads(name, method, "step")
        ]

    def begins(self, name: str, method: str) -> dict[int, dict]:
        """Return the steps by the number of tokens written before them."""
        steps, written = {}, 1
        for step in self.steps(name, method):
            steps[written] = step
            written += step.get("committed", len(step["accepted_path"]) + 1)
        return steps

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
        """Return the verification milliseconds of a tree, interpolated between the measured sizes."""
        return float(np.interp(nodes, *np.transpose(self.device["profile"]["verify_ms"])))


def _rows(column: list) -> list:
    """Return a column in which references to the rows of other nodes are resolved."""
    return [column[row] if isinstance(row, int) else row for row in column]


def depths(step: dict) -> list[int]:
    levels = []
    for parent in step["parent"]:
        levels.append(0 if parent < 0 else levels[parent] + 1)
    return levels


def most_likely(step: dict, candidates: int) -> list[int]:
    """Return the nodes of a tree that is pruned to so many candidates, root included."""
    level = depths(step)
    order = sorted(range(1, len(step["parent"])), key=lambda i: (-step["score"][i], level[i], i))
    return sorted([0, *order[:candidates]])


def accepted(step: dict, nodes: list[int]) -> int:
    """Return the number of candidates of a pruned tree that the target accepts."""
    at, count = 0, 0
    while True:
        choice = step["target_choice"][at]
        following = [i for i in nodes if step["parent"][i] == at and step["token_id"][i] == choice]
        if not following:
            return count
        at, count = following[0], count + 1


def most_likely_chain(step: dict) -> list[int]:
    chain, at = [], 0
    while children := [i for i, parent in enumerate(step["parent"]) if parent == at]:
        at = max(children, key=lambda i: (step["score"][i], -i))
        chain.append(at)
    return chain
