"""Writes the weights of small models with torch.save, in the ways that model folders have them.

    python make_model_weights.py STORED_HEADS OUT_DIR

Reads the folders of ../transformers/make_stored_heads.py, which are fixtures of crates/grpo-model
(tests/fixtures/stored_head), so that the tests there can compare both formats. The files go to
tests/fixtures/torch_models. Needs torch and safetensors alone (measured with 2.15.0 and 0.8.0).
"""

import json
import os
import sys
from collections import OrderedDict
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import nn

HEADS, OUT = Path(sys.argv[1]), Path(sys.argv[2])


def tensors_of(family):
    return OrderedDict(sorted(load_file(HEADS / family / "model.safetensors").items()))


def save(name, state, **options):
    torch.save(state, OUT / name, **options)


def sharded():
    """GPT-2 in two files, with the causal masks that old versions of transformers stored."""
    tensors = tensors_of("gpt2")
    tensors["transformer.h.0.attn.bias"] = torch.ones(32, 32, dtype=torch.uint8).tril().view(1, 1, 32, 32)
    tensors["transformer.h.0.attn.masked_bias"] = torch.tensor(-1e4)
    names = sorted(tensors)
    files = ["pytorch_model-00001-of-00002.bin", "pytorch_model-00002-of-00002.bin"]
    places = {name: files[at % 2] for at, name in enumerate(names)}
    for file in files:
        save(file, OrderedDict((name, tensors[name]) for name in names if places[name] == file))
    index = {"metadata": {"total_size": 1}, "weight_map": places}
    (OUT / "pytorch_model.bin.index.json").write_text(json.dumps(index, indent=1) + "\n")


def views():
    """Matrices that are columns of one matrix, transposed, or parameters, as in Qwen2."""
    tensors = tensors_of("qwen2")
    names = [name for name in tensors if name.endswith(("q_proj.weight", "k_proj.weight", "v_proj.weight"))]
    fused = torch.cat([tensors[name].T for name in names], dim=1)
    begin = 0
    for name in names:
        rows = tensors[name].shape[0]
        tensors[name] = fused[:, begin : begin + rows].T
        begin += rows
    down = next(name for name in tensors if name.endswith("down_proj.weight"))
    tensors[down] = nn.Parameter(tensors[down].T.contiguous().T)
    return tensors


def tied():
    """An output layer that is the embedding, as `model.state_dict()` has it."""
    tensors = tensors_of("llama")
    tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"]
    tensors._metadata = OrderedDict({"": {"version": 1}, "model": {"version": 1}})
    return tensors


class Code:
    def __reduce__(self):
        return (os.system, ("touch /tmp/grpo-was-here",))


def adapter():
    """A LoRA adapter of Qwen2, in both formats."""
    torch.manual_seed(3)
    weight = tensors_of("qwen2")["model.layers.0.self_attn.q_proj.weight"]
    name = "base_model.model.model.layers.0.self_attn.q_proj"
    matrices = {
        f"{name}.lora_A.weight": torch.randn(2, weight.shape[1]),
        f"{name}.lora_B.weight": torch.randn(weight.shape[0], 2),
    }
    save("adapter_model.bin", matrices)
    save_file(matrices, OUT / "adapter_model.safetensors")
    config = {"peft_type": "LORA", "r": 2, "lora_alpha": 4, "target_modules": ["q_proj"], "bias": "none"}
    (OUT / "adapter_config.json").write_text(json.dumps(config) + "\n")


OUT.mkdir(parents=True, exist_ok=True)
save("qwen2.bin", tensors_of("qwen2"))
save("qwen2-views.bin", views())
save("qwen3.bin", dict(tensors_of("qwen3")))  # In bfloat16.
save("llama-legacy.bin", tensors_of("llama"), _use_new_zipfile_serialization=False)
save("llama-tied.bin", tied())
save("llama-f8.bin", {name: tensor.to(torch.float8_e4m3fn) for name, tensor in tensors_of("llama").items()})
save("llama-code.bin", {**tensors_of("llama"), "extra": Code()})
sharded()
adapter()
