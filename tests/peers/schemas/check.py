"""Checks the JSON schemas of configurations with an independent validator: every shipped configuration is accepted, as it
is and with the files that it extends, and wrong ones are refused.

`cargo xtask ci` runs it with Python 3.11 or later.
"""

import copy
import json
import sys
import tomllib
from pathlib import Path

from jsonschema import Draft7Validator

ROOT = Path(__file__).parents[3]
CONFIGS = ROOT / "configs"

# Schema, file, path of a key, wrong value. Without a value, the key is removed.
WRONG = [
    ("train", "molecules/grpo.toml", "train.steps", 0),
    ("train", "molecules/grpo.toml", "train.steps", 1.5),
    ("train", "molecules/grpo.toml", "train.group_size", 1),
    ("train", "molecules/grpo.toml", "train.group_sise", 8),
    ("train", "molecules/grpo.toml", "train.prompts_per_step", None),
    ("train", "molecules/grpo.toml", "train.staleness", 17),
    ("train", "molecules/grpo.toml", "train.max_reward_calls", 1),
    ("train", "molecules/grpo.toml", "train.precision", "f64"),
    ("train", "molecules/grpo.toml", "model", None),
    ("train", "molecules/grpo.toml", "seed", -1),
    ("train", "molecules/grpo.toml", "reward.type", "molecul"),
    ("train", "molecules/grpo.toml", "reward.qed", 1.5),
    ("train", "molecules/grpo.toml", "loss", {"preset": "ppo"}),
    ("train", "molecules/grpo.toml", "loss", {"surrogate": {"type": "sapo", "temperature": 1.0}}),
    ("train", "molecules/grpo.toml", "sampling.top_p", 0),
    ("train", "molecules/grpo.toml", "sampling.stop", "###"),
    ("train", "molecules/grpo.toml", "optimizer", {"betas": [0.9]}),
    ("train", "molecules/grpo.toml", "optimizer", {"betas": [0.9, 1.0]}),
    ("train", "molecules/grpo.toml", "guards", [{"watch": "kl", "above": 1.0}]),
    ("train", "molecules/grpo.toml", "schedule", {"decay": {"type": "linear"}}),
    ("train", "molecules/grpo.toml", "replay", {"updates": 1001}),
    ("train", "molecules/grpo.toml", "diversity_filter", {"bucket_size": 5}),
    ("train", "molecules/grpo.toml", "rollout", {"engine": "sglang"}),
    ("train", "molecules/grpo.toml", "episode", {"type": "two_turns"}),
    ("train", "molecules/grpo.toml", "sampler_check", {"tolerance": 0.01}),
    ("train", "molecules/components.toml", "reward.components", "qed"),
    ("train", "text/grpo-base.toml", "lora", {"rank": 0, "alpha": 16}),
    ("pretrain", "molecules/pretrain.toml", "pretrain.epochs", 0),
    ("pretrain", "molecules/pretrain.toml", "model.n_layer", "four"),
    ("pretrain", "molecules/pretrain.toml", "data.validation_fraction", 1.0),
    ("pretrain-infiller", "infill/generator.toml", "masked_lm.dropout", 0.95),
    ("pretrain-infiller", "infill/generator.toml", "masking", {"preset": "simple"}),
    ("train-judge", "infill/judge.toml", "gate", {"max_zero_p90": 2}),
    ("train-engagement", "replies/engagement.toml", "objective", {"type": "mse"}),
    ("run", "infill/pipeline.toml", "stages", [{"nam": "a", "command": "train"}]),
]


def merged(path):
    """Reads a file with the ones that it extends, section by section."""
    own = tomllib.loads(path.read_text())
    if "extends" not in own:
        return own
    return over(merged(path.parent / own.pop("extends")), own)


def over(below, above):
    for key, value in above.items():
        known = below.get(key)
        replaces = not (isinstance(known, dict) and isinstance(value, dict))
        if not replaces and value.get("type", known.get("type")) == known.get("type"):
            over(known, value)
        else:
            below[key] = value
    return below


def with_value(config, path, value):
    config = copy.deepcopy(config)
    *sections, key = path.split(".")
    table = config
    for section in sections:
        table = table.setdefault(section, {})
    if value is None:
        del table[key]
    else:
        table[key] = value
    return config


def main():
    validators = {}
    for path in sorted((CONFIGS / "schema").glob("*.json")):
        schema = json.loads(path.read_text())
        Draft7Validator.check_schema(schema)
        validators[path.stem] = Draft7Validator(schema)
    failures = accepted = refused = 0
    for path in sorted(CONFIGS.glob("*/*.toml")):
        text = path.read_text()
        name = text.splitlines()[0].removeprefix("#:schema ../schema/").removesuffix(".json")
        for config in (tomllib.loads(text), merged(path)):
            accepted += 1
            for error in validators[name].iter_errors(config):
                failures += 1
                print(f"{path.relative_to(ROOT)}: {error.json_path}: {error.message[:300]}")
    for name, file, key, value in WRONG:
        config = merged(CONFIGS / file)
        assert validators[name].is_valid(config), file
        refused += 1
        if validators[name].is_valid(with_value(config, key, value)):
            failures += 1
            print(f"{file}: {key} = {value!r} is not refused")
    print(f"{len(validators)} schemas, {accepted} configurations, {refused} wrong ones, {failures} failures")
    return failures > 0


if __name__ == "__main__":
    sys.exit(main())
