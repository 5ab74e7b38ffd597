"""The sandbox of chat templates: the same text as transformers, and limits on time and memory."""

import copy
import threading

import pytest

from jakiro.text import encode_messages, find_omitted_messages, sandbox
from jakiro.text.sandbox import TemplateLimitError, render_template
from tests.support import byte_tokenizer

TALK = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": " Hi <b>&</b> é\n\n"},
    {"role": "assistant", "content": "Hello."},
    {"role": "user", "content": "Why?"},
]
ORDINARY = {
    "ChatML": "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content }}{{ '<|im_end|>' ~ '\n' }}"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}",
    "loop variables": "{% for m in messages %}{{ loop.index0 }}/{{ loop.length }}{{ '.' if loop.last else ',' }}"
    "{{ loop.previtem.role if loop.previtem }}{% else %}none{% endfor %}",
    "loop with a condition": "{% for m in messages if m.role == 'user' %}{{ loop.revindex }}"
    "{{ m.content }}{% endfor %}",
    "loop controls": "{% for m in messages %}{% if loop.first %}{% continue %}{% endif %}{{ m.role }}{% break %}"
    "{% endfor %}",
    "slices": "{% for m in messages[1:][::-1] %}{{ m.content[:-1] }}{% endfor %}{{ 'abc'[1] }}",
    "filters": "{{ messages | map(attribute='role') | join(', ') }}{{ messages[1].content | trim | upper }}"
    "{{ messages | tojson(indent=2) }}{{ messages | selectattr('role', 'equalto', 'user') | list | length }}"
    "{{ 'x' | center(9) | replace('x', 'yz') | indent(3) }}{{ undefined_name | default('d') }}",
    "methods": "{{ messages[1].content.strip().replace('Hi', 'Ho').split(' ')[0].rjust(9) }}{{ '{:>5}'.format(7) }}"
    "{{ '%5d|%s' % (7, 'a') }}{{ 'a-b'.split('-') }}",
    "namespace and macro": "{% set ns = namespace(n=0, text='') %}{% macro f(x) %}[{{ x }}]{% endmacro %}"
    "{% for i in range(5) %}{% set ns.n = ns.n + i * 2 ** 2 %}{% set ns.text = ns.text ~ f(i) %}{% endfor %}"
    "{{ ns.n }}{{ ns.text }}{% set block %}{{ ns.n }}{% endset %}{{ block }}",
    "recursion": "{% for m in [[1, [2]], [3]] recursive %}<{% if m is iterable %}{{ loop(m) }}{% else %}{{ m }}"
    "{% endif %}>{% endfor %}",
    "generation": "{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %}{% endfor %}",
    "special tokens": "{{ bos_token }}{{ eos_token }}{{ [1, 'a'] }}{{ {'a': none} }}",
}


@pytest.mark.parametrize("template", ORDINARY.values(), ids=ORDINARY)
def test_a_template_writes_what_transformers_writes(template):
    tokenizer = copy.deepcopy(byte_tokenizer())
    tokenizer.chat_template = template
    expected = tokenizer.apply_chat_template(TALK, tokenize=False, add_generation_prompt=True)
    variables = {"messages": TALK, "tools": None, "documents": None, "add_generation_prompt": True}
    assert render_template(template, variables | tokenizer.special_tokens_map) == expected


LARGE = {
    "product": "{{ 'a' * 20000000000 }}",
    "product of a list": "{{ [0] * 20000000000 }}",
    "product from the left": "{{ 20000000000 * 'a' }}",
    "power": "{{ 10 ** 20000000000 }}",
    "sums": "{% set ns = namespace(x='ab') %}{% for i in range(60) %}{% set ns.x = ns.x + ns.x %}{% endfor %}",
    "concatenations": "{% set ns = namespace(x='ab') %}{% for i in range(60) %}{% set ns.x = ns.x ~ ns.x %}"
    "{% endfor %}",
    "nested lists": "{% set ns = namespace(x=['ab']) %}{% for i in range(60) %}{% set ns.x = [ns.x, ns.x] %}"
    "{% endfor %}{{ ns.x }}",
    "nested lists as JSON": "{% set ns = namespace(x=['ab']) %}{% for i in range(60) %}{% set ns.x = [ns.x, ns.x] %}"
    "{% endfor %}{{ ns.x | tojson }}",
    "center": "{{ 'a' | center(20000000000) }}",
    "ljust": "{{ 'a'.ljust(20000000000) }}",
    "percent format": "{{ '%20000000000d' % 1 }}",
    "percent format with a computed width": "{{ '%*d' % (20000000000, 1) }}",
    "format method": "{{ '{:>20000000000}'.format(1) }}",
    "format method with a computed width": "{{ '{:>{}}'.format(1, 20000000000) }}",
    "format filter": "{{ '%20000000000d' | format(1) }}",
    "replace": "{% set x = 'a' * 1000000 %}{{ x.replace('a', x) }}",
    "replace filter": "{% set x = 'a' * 1000000 %}{{ x | replace('a', x) }}",
    "join": "{{ range(99999) | join('a' * 1000000) }}",
    "indent": "{{ ('\n' * 100000) | indent(1000000) }}",
    "indented JSON": "{{ range(99999) | list | tojson(indent=1000000) }}",
    "centered many times": "{{ range(99999) | map('string') | map('center', 1000000) | list }}",
    "slices kept": "{% set x = 'a' * 1000000 %}{% set ns = namespace(l=[]) %}"
    "{% for i in range(99999) %}{% set ns.l = ns.l + [x[1:]] %}{% endfor %}",
    "output": "{% set x = 'a' * 1000000 %}{% for i in range(99999) %}{{ x }}{% endfor %}",
    "captured output": "{% set y %}{% for i in range(99999) %}" + "a" * 10_000 + "{% endfor %}{% endset %}",
    "lists": "{% for i in range(99999) %}{% set x = range(99999) | list %}{% endfor %}",
    "long source": "a" * 2_000_000,
}


@pytest.mark.parametrize("template", LARGE.values(), ids=LARGE)
def test_a_template_that_would_fill_the_memory_is_stopped(template):
    with pytest.raises(TemplateLimitError):
        render_template(template, {"messages": TALK})


ENDLESS = {
    "nested loops": "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
    "loops over a text": "{% set x = 'a' * 99999 %}{% for i in x %}{% for j in x %}{% endfor %}{% endfor %}",
    "recursive macro": "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}",
    "filter": "{% for i in range(99999) %}{{ range(99999) | map('string') | list | length }}{% endfor %}",
}


@pytest.mark.parametrize("template", ENDLESS.values(), ids=ENDLESS)
def test_a_template_that_would_not_end_is_stopped_in_any_thread(template, monkeypatch):
    monkeypatch.setattr(sandbox, "MAX_SECONDS", 0.05)
    errors = []

    def run() -> None:
        try:
            render_template(template, {"messages": TALK})
        except TemplateLimitError as error:
            errors.append(str(error))

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(errors) == 2 and all("0.05 seconds" in error or "too much text" in error for error in errors)


def test_a_long_conversation_stays_within_the_limits():
    talk = [{"role": "user", "content": "word " * 2000}] * 400
    template = (
        "{% set ns = namespace(x='') %}{% for m in messages %}{% set ns.x = ns.x + m.content | trim %}{% endfor %}"
    )
    assert len(render_template(template + "{{ ns.x }}", {"messages": talk})) == 400 * 9999


def test_a_stopped_template_is_one_sentence_and_is_tried_once(monkeypatch):
    tokenizer = copy.deepcopy(byte_tokenizer())
    tokenizer.chat_template = LARGE["product"]
    runs = []
    monkeypatch.setattr(
        sandbox, "_compile_template", lambda template: (runs.append(1), sandbox._environment().from_string(template))[1]
    )
    sentence = r"^The model's chat template was stopped: it produces too much text; choose another model\.$"
    with pytest.raises(ValueError, match=sentence):
        find_omitted_messages(tokenizer)
    assert len(runs) == 1
    with pytest.raises(ValueError, match=sentence):
        encode_messages(tokenizer, "Why?")
