"""The process in which llama.cpp decodes: reads one JSON request per line and writes one answer per line.

`python -P llama_worker.py MODEL THREADS [lookup]`. It imports nothing of our package, which would change how threads
wait.
"""

import json
import sys
import time
from itertools import islice

# In tokens; enough for the longest prompt that we measure
CONTEXT = 8192


def answer(model, request: dict) -> dict:
    """Return the token ids of an answer and the seconds from its first token to its last.

    Args:
        model: a `llama_cpp.Llama`.
        request: "prompt" (token ids), "text" (the text of these ids), "end" (the id that ends an answer),
            "max_new_tokens", "seed" and "sampling" (arguments of `Llama.generate`).

    Returns:
        {"token_ids", "seconds"}, or {"error"} if llama.cpp tokenizes the text differently.
    """
    token_ids_here = model.tokenize(request["text"].encode(), add_bos=False, special=True)
    if token_ids_here != request["prompt"]:
        return {"error": f"its tokenizer has other ids ({len(token_ids_here)}) than ours ({len(request['prompt'])})."}
    token_ids, times = [], []
    model.set_seed(request["seed"])
    stream = model.generate(request["prompt"], reset=True, **request["sampling"])
    for token_id in islice(stream, request["max_new_tokens"]):
        times.append(time.perf_counter())
        token_ids.append(token_id)
        if token_id == request["end"]:
            break
    stream.close()
    return {"token_ids": token_ids, "seconds": times[-1] - times[0]}


def read(model, token_ids: list[int]) -> dict:
    """Return the seconds to read a prompt, up to the logits of its last position."""
    model.reset()
    start = time.perf_counter()
    model.eval(token_ids)
    return {"seconds": time.perf_counter() - start}


def main() -> None:
    from llama_cpp import Llama

    path, threads, drafts = sys.argv[1], int(sys.argv[2]), {}
    if sys.argv[3:] == ["lookup"]:
        from llama_cpp.llama_speculative import LlamaPromptLookupDecoding

        # The value that its documentation recommends for machines without a GPU
        drafts["draft_model"] = LlamaPromptLookupDecoding(num_pred_tokens=2)
    # A cache for a model's full context may take gigabytes
    model = Llama(path, n_ctx=CONTEXT, n_threads=threads, n_threads_batch=threads, verbose=False, **drafts)
    for line in sys.stdin:
        request = json.loads(line)
        reply = read(model, request["read"]) if "read" in request else answer(model, request)
        print(json.dumps(reply), flush=True)  # noqa: T201 - the answer


if __name__ == "__main__":
    main()
