"""Solutions of the exercise sheet lesson.ipynb: paste a function over the one with its name."""

import math


def accepted(nodes):
    path, end = [], 0
    while True:
        right = nodes[end].target_choice
        end = next((i for i, node in enumerate(nodes) if node.parent == end and node.token_id == right), None)
        if end is None:
            return path
        path.append(end)


def expected_tokens(rates):
    return 1 + sum(math.prod(rates[: level + 1]) for level in range(len(rates)))


def break_even(plain_ms, draft_ms, verify_ms, other_ms):
    return (draft_ms + verify_ms + other_ms) / plain_ms


def slowest_stretch(trace, steps, plain_ms):
    def speedup(first):
        stretch = trace.steps[first : first + steps]
        tokens = sum(len(step.committed_ids) for step in stretch)
        return tokens * plain_ms / sum(step.total_ms for step in stretch)

    return min(range(len(trace.steps) - steps + 1), key=speedup)


def draw(p, q, dice):
    proposal = dice.choices(range(len(q)), q)[0]
    if dice.random() < min(1, p[proposal] / q[proposal]):
        return proposal
    rest = [max(0, target - draft) for target, draft in zip(p, q, strict=True)]
    return dice.choices(range(len(p)), rest)[0]


def choice(p, noise):
    return max(range(len(p)), key=lambda token: math.log(p[token]) + noise[token])


def step(target, draft, text, k, dice):
    proposals, draft_chances = [], []
    for _ in range(k):
        (q,) = draft.read([(text + proposals)[-1]])
        draft_chances.append(q)
        proposals.append(dice.choices(range(len(q)), q)[0])
    target_chances = target.read([text[-1], *proposals])
    new = []
    for token, q, p in zip(proposals, draft_chances, target_chances, strict=False):
        if dice.random() >= min(1, p[token] / q[token]):
            rest = [max(0, a - b) for a, b in zip(p, q, strict=True)]
            new.append(dice.choices(range(len(p)), rest)[0])
            break
        new.append(token)
        if token == 0:  # END
            break
    else:
        bonus = target_chances[-1]
        new.append(dice.choices(range(len(bonus)), bonus)[0])
    known = (text + new)[:-1]
    target.rewind(len(known))
    draft.rewind(len(known))
    if len(draft.cache) < len(known):
        draft.read(known[len(draft.cache) :])
    return new
