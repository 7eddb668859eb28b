"""Reads the evidence of a run with other people's readers, and compares it with metrics.jsonl.

    python -m venv /tmp/evidence && /tmp/evidence/bin/pip install -r tests/peers/evidence/requirements.txt
    /tmp/evidence/bin/python tests/peers/evidence/read_run.py runs/molecules

TensorBoard's EventAccumulator reads the event file: every number of every line of metrics.jsonl must be there, equal in f32.
pandas and pyarrow read the completions, file by file and the folder at once: columns, types and lengths of lists must be
those of docs/files.md, and means over completions those of metrics.jsonl. Exit code 1 at the first difference.
"""

import json
import math
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

SCALARS = {
    "step": "int64", "prompt": "int32", "prompt_text": "string", "sample": "int32", "text": "string",
    "reward": "double", "bonus": "double", "outcome": "string", "reason": "string", "info": "string", "advantage": "double", "actions": "int32",
    "finish": "string", "policy_version": "int64",
}
PROMPT_IDS = "prompt_ids"
LISTS = {
    "completion_ids": "int32", "sampling_logprobs": "float", "logprobs": "float", "ref_logprobs": "float",
    "entropies": "float", "gradients": "float", "surrogate_gradients": "float", "outcomes": "string",
}
# Not in files that were written before there were bonuses.
NEWER = {"bonus"}
# The name of the column `outcomes` in files that were written before it was called so.
OUTCOMES_BEFORE = "fates"
OUTCOMES = {"moved", "not_scored", "zero_advantage", "off_policy", "low_entropy", "mismatch", "clipped"}


def check(is_so, *words):
    if not is_so:
        print("DIFFERS:", *words)
        sys.exit(1)


def close(got, expected, what, tolerance=1e-9):
    is_close = abs(got - expected) <= tolerance * max(1.0, abs(expected))
    check(is_close, f"{what}: {got}, and metrics.jsonl says {expected}")


def event_file(run, lines):
    files = list(run.glob("events.out.tfevents.*"))
    check(len(files) == 1, f"one event file is expected, not {files}")
    events = EventAccumulator(str(files[0]), size_guidance={"scalars": 0})
    events.Reload()
    numbers = 0
    expected_tags = set()
    for line in lines:
        for name, value in line.items():
            if name == "step" or value is None:
                continue
            expected_tags.add(name)
            found = [event for event in events.Scalars(name) if event.step == line["step"]]
            check(len(found) == 1, f"{name} of step {line['step']} is there {len(found)} times")
            check(np.float32(value) == np.float32(found[0].value), f"{name} of step {line['step']}: {found[0].value}, {value}")
            numbers += 1
    tags = set(events.Tags()["scalars"])
    check(tags == expected_tags, "tags:", tags ^ expected_tags)
    times = [event.wall_time for event in events.Scalars("loss")]
    for (before, after), line in zip(zip(times, times[1:]), lines[1:]):
        close(after - before, line["step_time"], "wall time between steps", 1e-6)
    print(f"{files[0].name}: {numbers} numbers under {len(tags)} tags in {len(lines)} steps, all equal in f32")


def renamed(schema):
    return pa.schema([field.with_name("outcomes") if field.name == OUTCOMES_BEFORE else field for field in schema])


def columns(path):
    schema = renamed(pq.read_schema(path))
    parts = [name for name in schema.names if name.startswith("rewards/")]
    check({*schema.names, *NEWER} == {*SCALARS, *LISTS, PROMPT_IDS, *parts}, path, schema.names)
    for name, kind in SCALARS.items():
        is_missing = name in NEWER and name not in schema.names
        check(is_missing or str(schema.field(name).type) == kind, path, name, schema.field(name).type)
    for name, kind in LISTS.items():
        found = schema.field(name).type
        check(str(getattr(found, "value_type", None)) == kind, path, name, found)
    for name in parts:
        check(str(schema.field(name).type) == "double", path, name)
    return parts


def completions(run, lines):
    folder = run / "completions"
    paths = sorted(folder.glob("step-*.parquet"), key=lambda path: int(path.stem[5:]))
    check(paths, f"{folder} has no files")
    frames = [pd.read_parquet(path).rename(columns={OUTCOMES_BEFORE: "outcomes"}) for path in paths]
    parts = columns(paths[0])
    for path in paths:
        check(columns(path) == parts, path, "has other columns than", paths[0])
    whole = pd.read_parquet(folder)
    check(len(whole) == sum(map(len, frames)), "rows of the folder")
    by_step = {line["step"]: line for line in lines}
    tokens = 0
    for path, frame in zip(paths, frames):
        step = int(path.stem[5:])
        check((frame["step"] == step).all(), path, "step")
        line = by_step[step]
        for name in LISTS:
            lengths = frame[name].map(len)
            check((lengths == frame["actions"]).all(), path, name, "has other lengths than actions")
        close(frame["reward"].mean(), line["reward"], f"{path}: reward")
        close(frame["reward"].std(), line["reward_std"], f"{path}: reward_std")
        for name in parts:
            mean = line.get(f"{name}/mean")
            check((mean is None) == bool(frame[name].isna().all()), path, name)
            if mean is not None:
                close(frame[name].mean(), mean, f"{path}: {name}/mean")
        close(frame["actions"].mean(), line["completions/mean_length"], f"{path}: mean_length")
        close((frame["finish"] == "length").mean(), line["completions/clipped_ratio"], f"{path}: clipped_ratio")
        close(frame["text"].nunique() / len(frame), line["completions/unique_ratio"], f"{path}: unique_ratio")
        of = lambda name: np.concatenate(frame[name].to_numpy()).astype(np.float64)
        tokens += len(of("logprobs"))
        close(-of("sampling_logprobs").mean(), line["sampling/entropy"], f"{path}: sampling/entropy", 1e-6)
        gaps = np.abs(of("logprobs") - of("sampling_logprobs"))
        close(gaps.max(), line["sampling/sampling_logp_difference/max"], f"{path}: largest gap to the sampler", 1e-6)
        outcomes = set().union(*(words.split("+") for words in np.concatenate(frame["outcomes"].to_numpy())))
        check(outcomes <= OUTCOMES, path, outcomes)
        # One update a step: what is seen before it is all that the metrics are of.
        if not any("+" in words for words in np.concatenate(frame["outcomes"].to_numpy())) and line.get("ratio/max") == 1:
            close(of("entropies").mean(), line["entropy"], f"{path}: entropy", 1e-6)
            e = of("ref_logprobs") - of("logprobs")
            close((np.exp(e) - e - 1).mean(), line["kl"], f"{path}: kl (k3)", 1e-6)
            unmoved = frame["advantage"] == 0
            for _, row in frame[unmoved].iterrows():
                check(set(row["outcomes"]) <= {"zero_advantage", "not_scored"}, path, row["outcomes"])
                check(not np.any(row["surrogate_gradients"]), path, "a gradient without an advantage")
            for _, row in frame[~unmoved].iterrows():
                # What makes a completion likelier has a negative derivative.
                sign = np.sign(np.sum(row["surrogate_gradients"]))
                check(sign in (0, -math.copysign(1, row["advantage"])), path, "a push against the advantage")
    size = sum(path.stat().st_size for path in paths)
    print(
        f"completions/: {len(paths)} files, {len(whole)} rows, {tokens} tokens, {len(whole.columns)} columns"
        f" ({', '.join(parts)}), {size} bytes, {size / tokens:.1f} a token; sums and means are those of metrics.jsonl"
    )


def main():
    run = Path(sys.argv[1])
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    event_file(run, lines)
    completions(run, lines)


main()
