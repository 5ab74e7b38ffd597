"""HTML of traces and steps for notebooks: a table of numbers and the draft tree as indented text, without scripts.

`trace` is a `jakiro.trace.Trace` and `step` a `Step`; their methods call these functions.
"""

import html
import math


def to_dataframe(trace):
    """Return a pandas DataFrame with one row per step: sizes, tokens, milliseconds and text."""
    import pandas

    rows = [
        {
            "step": step.index,
            "nodes": len(step.nodes),
            "accepted": len(step.accepted_path),
            "tokens": len(step.committed_ids),
            "draft_ms": step.draft_ms,
            "verify_ms": step.verify_ms,
            "other_ms": step.other_ms,
            "text": step.text,
        }
        for step in trace.steps
    ]
    return pandas.DataFrame(rows, columns=list(rows[0]) if rows else ["step", "nodes", "accepted", "tokens"])


def trace_html(trace) -> str:
    """Return a summary and the tree of the step that accepted most."""
    numbers = {"method": trace.header.method, "tokens": len(trace.token_ids), "steps": len(trace.steps)}
    if trace.steps:
        numbers |= {"τ": f"{trace.tau:.2f}", "tokens/s": f"{trace.tokens_per_second or 0:.1f}"}
    numbers["ended"] = trace.end_reason or "still running"
    names = "".join(f"<th>{html.escape(name)}</th>" for name in numbers)
    values = "".join(f"<td>{html.escape(str(value))}</td>" for value in numbers.values())
    text = trace.text if len(trace.text) <= 400 else f"{trace.text[:400]}…"
    best = max(trace.steps, key=lambda step: len(step.accepted_path), default=None)
    tree = "" if best is None else step_html(best)
    return f"<table><tr>{names}</tr><tr>{values}</tr></table><p>{html.escape(text)}</p>{tree}"


def step_html(step) -> str:
    """Return the tree of a step: one line per node, children indented below their parent; ✓ marks accepted nodes."""
    children: dict[int, list[int]] = {}
    for index, node in enumerate(step.nodes):
        children.setdefault(node.parent, []).append(index)
    accepted, lines, waiting = {0, *step.accepted_path}, [], [0]
    while waiting:
        index = waiting.pop()
        node = step.nodes[index]
        piece = html.escape(repr(node.piece.decode("utf-8", errors="replace")))
        detail = f" {math.exp(node.score):.0%} {html.escape(node.proposer)}" if index else ""
        line = f"{'  ' * node.depth}{'✓' if index in accepted else '·'} {piece}{detail}"
        lines.append(f"<b>{line}</b>" if index in accepted else line)
        waiting += reversed(children.get(index, []))
    title = f"step {step.index}: {len(step.nodes) - 1} candidates, {len(step.accepted_path)} accepted"
    return f"<details open><summary>{title}</summary><pre>{chr(10).join(lines)}</pre></details>"
