#!/usr/bin/env python3
"""Write an infiller and a judge with random weights, or a copy of a model of ours, and what torch computes of them.

    venv/bin/python make_models.py OUT_DIR [--seed N] [--of FOLDER]

README.md says what `grpo selftest --golden OUT_DIR` compares.
"""

import argparse
import json
import pathlib
import random
import shutil
import zlib

import torch
from safetensors.torch import save_file

from reference import Model

CHARACTERS = "\n !,.?abcdefgiéλ"
SIZES = {
    "vocab_size": len(CHARACTERS) + 3,
    "block_size": 12,
    "n_layer": 2,
    "n_head": 3,
    "n_embd": 24,
    "rope_theta": 500.0,
}
CONFIGS = {
    "infiller": {"model_type": "infiller", **SIZES, "critic": True},
    "sequence-scorer": {"model_type": "sequence_scorer", **SIZES},
}


def random_weights(config):
    width, size = config["n_embd"], config["vocab_size"]
    shapes = {"tok_emb.weight": (size, width)}
    for layer in range(config["n_layer"]):
        at = f"blocks.{layer}"
        linears = {"attn.query": (1, 1), "attn.key": (1, 1), "attn.value": (1, 1), "attn.proj": (1, 1)}
        for name, (outputs, inputs) in {**linears, "mlp.up": (4, 1), "mlp.down": (1, 4)}.items():
            shapes[f"{at}.{name}.weight"] = (outputs * width, inputs * width)
            shapes[f"{at}.{name}.bias"] = (outputs * width,)
        for name in ["ln1", "ln2"]:
            shapes |= {f"{at}.{name}.weight": (width,), f"{at}.{name}.bias": (width,)}
    shapes |= {"ln_f.weight": (width,), "ln_f.bias": (width,)}
    if config["model_type"] == "sequence_scorer":
        shapes |= {"score_head.direction.weight": (1, width), "score_head.scale": (1,), "score_head.shift": (1,)}
    elif config["critic"]:
        shapes |= {"critic.weight": (1, width), "critic.bias": (1,)}

    def value(name, shape):
        if ".ln" in f".{name}" and name.endswith("weight"):
            return 1 + 0.15 * torch.randn(shape)
        return torch.randn(shape) * (min(0.3, 1.4 / shape[-1] ** 0.5) if len(shape) > 1 else 0.15)

    weights = {name: value(name, shape) for name, shape in shapes.items()}
    if "score_head.scale" in weights:
        weights["score_head.scale"] += 1
    return weights


def write_random(folder, config):
    characters = {"characters": CHARACTERS}
    characters |= {name: len(CHARACTERS) + i for i, name in enumerate(["mask", "pad", "cls"])}
    write_json(folder / "config.json", config, indent=2)
    write_json(folder / "characters.json", characters, indent=2)
    save_file(random_weights(config), folder / "model.safetensors", {"format": "pt"})


def expected(model, rng):
    """What the model, read back from its files, says of texts with and without blanks."""

    def text(length, blanks=0):
        ids = [rng.randrange(model.mask) for _ in range(length)]
        for place in rng.sample(range(length), blanks):
            ids[place] = model.mask
        return ids

    block = model.config["block_size"]
    if model.config["model_type"] == "sequence_scorer":
        padded = text(block // 2)
        texts = [text(block), text(1), [], padded, padded + [model.pad] * 3, text(block + 5), text(block, 2)]
        return [{"text": ids, "score": model.score(ids)} for ids in texts]
    texts = [text(block, block // 3), text(1, 1), text(block // 2), text(block - 1, block - 1)]
    rows = [{"text": ids, "logits": model.logits(ids).tolist()} for ids in texts]
    if model.config.get("critic"):
        rows = [{**row, "critic": model.critic(row["text"]).tolist()} for row in rows]
    return rows


def write_json(path, value, indent=None):
    path.write_text(json.dumps(value, indent=indent, ensure_ascii=False, allow_nan=False) + "\n")


def main(out, seed, of):
    for name in [of.resolve().name] if of else CONFIGS:
        folder = out / name
        if folder.exists():
            raise SystemExit(f"{folder} exists; give another folder or move it away")
        folder.mkdir(parents=True)
        start = zlib.crc32(f"{seed}:{name}".encode())
        torch.manual_seed(start)
        if of:
            for file in ["config.json", "characters.json", "model.safetensors"]:
                shutil.copyfile(of / file, folder / file)
        else:
            write_random(folder, CONFIGS[name])
        model = Model(folder)
        rows = expected(model, random.Random(start))
        model.finish()
        write_json(folder / "expected.json", {"source": "torch", "sequences": rows})
        print(folder)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=pathlib.Path, metavar="OUT_DIR")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--of", type=pathlib.Path, metavar="FOLDER")
    arguments = parser.parse_args()
    main(arguments.out, arguments.seed, arguments.of)
