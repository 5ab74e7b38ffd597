"""Chat templates of published targets without one in their tokenizers, as Jinja text by name.

Vicuna v1.1 and Llama 2 have the templates of FastChat and Meta; Vicuna's system prompt is part of its format.
"""

_VICUNA_SYSTEM = (
    "A chat between a curious user and an artificial intelligence assistant. "
    "The assistant gives helpful, detailed, and polite answers to the user's questions."
)
_VICUNA = (
    "{{ bos_token }}"
    "{% if messages[0].role == 'system' %}{{ messages[0].content }}{% else %}" + _VICUNA_SYSTEM + "{% endif %} "
    "{% for message in messages %}"
    "{% if message.role == 'user' %}USER: {{ message.content }} "
    "{% elif message.role == 'assistant' %}ASSISTANT: {{ message.content }}{{ eos_token }}{% endif %}"
    "{% endfor %}"
    "{% if add_generation_prompt %}ASSISTANT:{% endif %}"
)
_LLAMA_2 = (
    "{% if messages[0].role == 'system' %}"
    "{% set first = '<<SYS>>\\n' + messages[0].content + '\\n<</SYS>>\\n\\n' %}{% set turns = messages[1:] %}"
    "{% else %}{% set first = '' %}{% set turns = messages %}{% endif %}"
    "{% for message in turns %}"
    "{% if message.role == 'user' %}"
    "{{ bos_token }}[INST] {{ first if loop.first else '' }}{{ message.content }} [/INST]"
    "{% else %} {{ message.content }} {{ eos_token }}{% endif %}"
    "{% endfor %}"
)
TEMPLATES = {"vicuna-v1.1": _VICUNA, "llama-2": _LLAMA_2}
