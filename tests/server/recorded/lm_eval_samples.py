"""Samples of an lm-eval run as compact lines: `python lm_eval_samples.py FOLDER`, the folder of `--output_path`."""

import json
import sys
from pathlib import Path


def line_of(task: str, sample: dict) -> dict:
    """Return the server's result for a sample, and its score."""
    line = {"task": task, "doc": sample["doc_id"], "target": sample["target"]}
    if "exact_match" in sample:
        return line | {"text": sample["resps"][0][0], "exact_match": sample["exact_match"]}
    scores = [round(float(response[0][0]), 4) for response in sample["resps"]]
    return line | {"loglikelihoods": scores, "acc": sample["acc"]}


def main(folder: str) -> None:
    for task in ("facts", "copies"):
        (path,) = Path(folder).glob(f"*/samples_{task}_*.jsonl")
        samples = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        for sample in sorted(samples, key=lambda sample: sample["doc_id"]):
            sys.stdout.write(json.dumps(line_of(task, sample)) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
