#!/usr/bin/env python3
"""Send each checkpoint of a golden folder through `grpo` and check with transformers and PEFT what comes out.

    python3 round_trip.py --grpo PATH_OF_THE_PROGRAM GOLDEN_DIR

For each causal model: its log-probabilities; the model trained whole; a LoRA adapter trained on it; the adapter merged.
Each is written by `grpo`, loaded by transformers or PEFT, and compared by check_outputs.py. Exits 1 if one is off.
"""

import argparse
import json
import pathlib
import random
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROWS = 12
TRAINING = """
run = "RUN"
start = "START"
seed = 1
{lora}
[data]
file = "DATA"
validation_fraction = 0.2

[pretrain]
epochs = 2
batch_size = 4
activation_checkpointing = true

[pretrain.optimizer]
learning_rate = 1e-3
"""
LORA = """
[lora]
rank = 3
alpha = 5
rslora = true
"""


def run(*command):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    return done.stdout


def write_rows(path, vocab_size):
    """Random ids: no tokenizer is needed, and every row of the tables may come."""
    draw = random.Random(1)
    with open(path, "w") as file:
        for _ in range(ROWS):
            ids = lambda least: [draw.randrange(vocab_size) for _ in range(draw.randrange(least, 20))]
            file.write(json.dumps({"prompt_ids": ids(1), "completion_ids": ids(2)}) + "\n")


def train(grpo, model, rows, folder, lora):
    config = folder.with_suffix(".toml")
    text = TRAINING.format(lora=LORA if lora else "")
    text = text.replace("RUN", str(folder)).replace("START", str(model)).replace("DATA", str(rows))
    config.write_text(text)
    run(grpo, "pretrain", config)
    return folder / ("adapter" if lora else "model")


def check(grpo, work, model, rows, **adapter):
    """Log-probabilities by grpo against transformers; the words of the largest differences."""
    logprobs = work / "logprobs.jsonl"
    given = ["--adapter", adapter["adapter"]] if "adapter" in adapter else []
    run(grpo, "logprob", "--model", model, *given, "--input", rows, "-o", logprobs)
    merged = ["--merged", adapter["merged"]] if "merged" in adapter else []
    checker = [sys.executable, HERE / "check_outputs.py"]
    found = run(*checker, "--model", model, *given, *merged, "--logprobs", logprobs)
    return ", ".join(line for line in found.splitlines() if "e-" in line or "e+" in line)


def main(arguments):
    grpo = arguments.grpo.resolve()
    folders = [path.parent for path in sorted(arguments.golden.glob("*/config.json"))]
    causal = [path for path in folders if not path.name.startswith("bert")]
    if not causal:
        sys.exit(f"{arguments.golden}: no causal models")
    for model in causal:
        vocab_size = json.loads((model / "config.json").read_text())["vocab_size"]
        with tempfile.TemporaryDirectory() as name:
            work = pathlib.Path(name)
            rows = work / "rows.jsonl"
            write_rows(rows, vocab_size)
            print(f"{model.name}: as it is: {check(grpo, work, model, rows)}")
            whole = train(grpo, model, rows, work / "whole", lora=False)
            print(f"{model.name}: trained whole: {check(grpo, work, whole, rows)}")
            adapter = train(grpo, model, rows, work / "lora", lora=True)
            merged = work / "merged"
            run(grpo, "merge", "--model", model, "--adapter", adapter, "-o", merged)
            print(f"{model.name}: adapter, merged: {check(grpo, work, model, rows, adapter=adapter, merged=merged)}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--grpo", required=True, type=pathlib.Path, metavar="PROGRAM")
    parser.add_argument("golden", type=pathlib.Path, metavar="GOLDEN_DIR")
    main(parser.parse_args())
