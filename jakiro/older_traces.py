"""Converts traces of schema 1, as dictionaries, to the present schema; `trace.py` reads the result.

Schema 1 knew one draft head, two experts, a contrastive branch and text copied from the context.
"""

_METHODS = {"context": "prompt_lookup"}
_PROPOSERS = {"context": "copied"}
_LABELS = {
    "contrastive": ("Contrastive", "The contrastive branch of the same pass, one position further."),
    "copied": ("Copied from context", "What followed the same words earlier in the text; nobody guessed it."),
}
_EVIDENCE = ("router_weights", "expert_contributions", "residual_contribution")


def upgraded(values: dict) -> dict:
    """A trace of schema 1 in the present schema; `values` is not changed.

    Raises:
        KeyError, TypeError, AttributeError: a field is missing or of another type.
    """
    steps = [step | {"nodes": [_node(node) for node in step["nodes"]]} for step in values["steps"]]
    return values | {"header": _header(values["header"], steps), "steps": steps}


def _header(header: dict, steps: list[dict]) -> dict:
    method = header["method"]
    if header["tree"].get("context") and method not in _METHODS:
        method = f"{method}+{_METHODS['context']}"
    rest = {name: value for name, value in header.items() if name != "head"}
    return rest | {
        "schema_version": 2,
        "method": _METHODS.get(method, method),
        "drafter": header["head"],
        "proposers": _proposers(steps),
    }


def _node(node: dict) -> dict:
    evidence = {name: node[name] for name in _EVIDENCE if node[name] not in (None, [])}
    if "residual_contribution" in evidence:
        evidence["residual_contribution"] = [evidence["residual_contribution"]]
    rest = {name: value for name, value in node.items() if name not in _EVIDENCE}
    return rest | {
        "proposer": _PROPOSERS.get(node["proposer"], node["proposer"]),
        "also_proposed_by": [_PROPOSERS.get(name, name) for name in node["also_proposed_by"]],
        "evidence": evidence,
    }


def _proposers(steps: list[dict]) -> list[dict]:
    """All proposers of nodes: the experts of the head in their order, then the others."""
    nodes = [node for step in steps for node in step["nodes"][1:]]
    named = {name for node in nodes for name in (node["proposer"], *node["also_proposed_by"])}
    experts = max((len(node["evidence"].get("router_weights", ())) for node in nodes), default=0)
    names = [f"expert_{number}" for number in range(experts)]
    return [_proposer(name) for name in (*names, *sorted(named - set(names)))]


def _proposer(name: str) -> dict:
    if name in _LABELS:
        label, sentence = _LABELS[name]
    else:
        label = f"Expert {int(name.removeprefix('expert_')) + 1}"
        sentence = "The expert that pushed the candidate most, or whose own guess it was."
    return {"id": name, "label": label, "sentence": sentence}
