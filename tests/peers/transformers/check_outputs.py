#!/usr/bin/env python3
"""Check that transformers and PEFT load what `grpo` has written, and compute the same from it.

    python3 check_outputs.py --model DIR                             # loads, with every weight in its place
    python3 check_outputs.py --model DIR --adapter DIR --merged DIR  # the merged model is the model with the adapter
    python3 check_outputs.py --model DIR [--adapter DIR] --logprobs FILE.jsonl [--temperature T] [--tokenizer DIR]

FILE.jsonl is what `grpo logprob` writes: lines with `prompt`, `completion`, `logprobs`, `entropies`, `sum` and, where
it differs from --temperature, `temperature`. Prompt and completion are ids; with --tokenizer they are texts, encoded
one by one and without further tokens. Everything is computed in f32. Prints the largest differences and exits 1 where
one is above 1e-4 (for `sum`: above 1e-4 a token).
"""

import argparse
import json
import pathlib
import sys

import torch
from peft import PeftModel, get_peft_model_state_dict
from safetensors.torch import load_file
from transformers import AutoTokenizer

from reference import load_causal, logits_of, score

LIMIT = 1e-4
PROBE_TOKENS = 24


def load_adapted(model, folder):
    """The model with the adapter, refused unless the adapter's file holds exactly the adapter's weights.

    PEFT too leaves a weight that it does not find as it was made: zero, so that the adapter would do nothing.
    """
    adapted = PeftModel.from_pretrained(model, folder).eval()
    written = load_file(pathlib.Path(folder) / "adapter_model.safetensors")
    loaded = get_peft_model_state_dict(adapted, save_embedding_layers=False)
    if written.keys() != loaded.keys():
        sys.exit(f"{folder}: not in both file and model: {sorted(written.keys() ^ loaded.keys())}")
    wrong = [name for name, value in written.items() if not torch.equal(value.float(), loaded[name].float())]
    if wrong:
        sys.exit(f"{folder}: not loaded as written: {wrong}")
    return adapted


def read_rows(path, tokenizer):
    """The rows of FILE.jsonl with prompt and completion as ids."""
    rows = [json.loads(line) for line in pathlib.Path(path).read_text().splitlines() if line.strip()]
    if not rows:
        sys.exit(f"{path}: no rows")
    if tokenizer:
        encode = AutoTokenizer.from_pretrained(tokenizer)
        for row in rows:
            for key in ["prompt", "completion"]:
                row[key] = encode(row[key], add_special_tokens=False)["input_ids"]
    for number, row in enumerate(rows, start=1):
        counts = {key: len(row[key]) for key in ["completion", "logprobs", "entropies"]}
        if len(set(counts.values())) > 1:
            sys.exit(f"{path}:{number}: one number a token of the completion expected, found {counts}")
    return rows


def logprob_differences(model, rows, temperature):
    """The largest difference of each column between the rows and the model."""
    found = {"logprobs": [], "entropies": [], "sum, a token": []}
    for row in rows:
        prompt, completion = row["prompt"], row["completion"]
        logits = logits_of(model, prompt + completion)
        logprobs, entropies = score(logits, prompt, completion, row.get("temperature", temperature))
        found["logprobs"] += differences(logprobs, row["logprobs"])
        found["entropies"] += differences(entropies, row["entropies"])
        found["sum, a token"] += [(sum(logprobs) - row["sum"]) / len(completion)] if completion else []
    return {column: largest(values) for column, values in found.items()}


def differences(ours, theirs):
    return [a - b for a, b in zip(ours, theirs, strict=True)]


def largest(values):
    """The largest size among the values; NaN where one is NaN, which Python's own `max` would pass over."""
    return torch.tensor([0.0, *values], dtype=torch.float64).abs().max().item()


def main(arguments):
    model = load_causal(arguments.model)
    print(f"{arguments.model}: {sum(value.numel() for value in model.parameters())} weights")
    if arguments.adapter:
        model = load_adapted(model, arguments.adapter)
        print(f"{arguments.adapter}: {sum(v.numel() for v in get_peft_model_state_dict(model).values())} weights")
    rows = read_rows(arguments.logprobs, arguments.tokenizer) if arguments.logprobs else []
    worst = logprob_differences(model, rows, arguments.temperature) if rows else {}
    if arguments.merged:
        merged = load_causal(arguments.merged)
        ids = torch.randint(model.config.vocab_size, [PROBE_TOKENS], generator=torch.Generator().manual_seed(1))
        texts = [row["prompt"] + row["completion"] for row in rows] or [ids.tolist()]
        apart = [(logits_of(model, text) - logits_of(merged, text)).abs().max().item() for text in texts]
        worst["logits of merged"] = largest(apart)
    for name, difference in worst.items():
        print(f"{name}: {difference:.2e}")
    # Said this way about, it refuses NaN too.
    if not all(difference <= LIMIT for difference in worst.values()):
        sys.exit(f"above {LIMIT}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, metavar="DIR")
    parser.add_argument("--adapter", metavar="DIR")
    parser.add_argument("--merged", metavar="DIR")
    parser.add_argument("--logprobs", metavar="FILE.jsonl")
    parser.add_argument("--tokenizer", metavar="DIR")
    parser.add_argument("--temperature", type=float, default=1.0)
    main(parser.parse_args())
