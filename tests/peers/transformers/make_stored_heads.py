#!/usr/bin/env python3
"""Write tiny checkpoints with an output layer that `tie_word_embeddings = true` ties, and what transformers computes.

    venv/bin/python make_stored_heads.py OUT_DIR

Transformers 5 uses a stored output layer if it differs from the token embedding. The folders are fixtures of
`crates/grpo-model` (`tests/fixtures/stored_head`).
"""

import argparse
import json
import pathlib

import torch
from families import gpt2, llama, qwen2, qwen3
from reference import load_causal, logits_of, score
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

PROMPT, COMPLETION = [3, 5, 7, 9], [4, 6, 8, 10, 12]
GATED = {
    "vocab_size": 19,
    "hidden_size": 8,
    "intermediate_size": 12,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "max_position_embeddings": 32,
    "tie_word_embeddings": True,
    "initializer_range": 0.5,
}
GPT2 = {"vocab_size": 19, "n_positions": 32, "n_embd": 8, "n_head": 2, "n_layer": 1, "initializer_range": 0.5}
MODELS = {
    "gpt2": (gpt2(**GPT2, tie_word_embeddings=True), torch.float32),
    "llama": (llama(**GATED), torch.float32),
    "qwen2": (qwen2(**GATED), torch.float32),
    "qwen3": (qwen3(**GATED, **{"head_dim": 4}), torch.bfloat16),
}


def write(folder, config, dtype):
    """Write a checkpoint whose output layer differs from its embedding, and its log-probabilities."""
    torch.manual_seed(7)
    model = AutoModelForCausalLM.from_config(config).to(dtype)
    with torch.no_grad():
        # Norms and biases start at 1 and 0, which would hide a mistake in them.
        for parameter in model.parameters():
            parameter += 0.1 * torch.randn_like(parameter)
    model.save_pretrained(folder)
    file = folder / "model.safetensors"
    tensors = load_file(file)
    table = next(tensors[name] for name in tensors if name.endswith(("embed_tokens.weight", "wte.weight")))
    tensors["lm_head.weight"] = table + 0.3 * torch.randn_like(table)
    save_file(tensors, file, metadata={"format": "pt"})
    (folder / "generation_config.json").unlink(missing_ok=True)

    model = load_causal(folder)
    logits = logits_of(model, PROMPT + COMPLETION)
    logprobs, _ = score(logits, PROMPT, COMPLETION, 1.0)
    model.lm_head.weight = model.get_input_embeddings().weight
    tied, _ = score(logits_of(model, PROMPT + COMPLETION), PROMPT, COMPLETION, 1.0)
    difference = max(abs(a - b) for a, b in zip(logprobs, tied, strict=True))
    if difference < 0.1:
        raise SystemExit(f"{folder}: the stored output layer makes no difference ({difference})")
    expected = {"prompt": PROMPT, "completion": COMPLETION, "logprobs": logprobs}
    (folder / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")
    print(f"{folder}: a tied output layer differs by up to {difference:.2f} nats")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=pathlib.Path)
    out = parser.parse_args().out
    for name, (config, dtype) in MODELS.items():
        (out / name).mkdir(parents=True, exist_ok=True)
        write(out / name, config, dtype)


if __name__ == "__main__":
    main()
