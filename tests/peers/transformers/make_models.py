#!/usr/bin/env python3
"""Write small random checkpoints, and what transformers, PEFT and torch compute from them, for `grpo selftest`.

    python3 -m venv venv && venv/bin/pip install -r requirements.txt
    venv/bin/python make_models.py OUT_DIR [--seed N]

Each folder of OUT_DIR is a checkpoint, an adapter or a training run of a few steps, next to an `expected.json`. README.md
lists the layouts. The same seed gives the same folders; a folder does not change with those made before it.
"""

import argparse
import json
import pathlib
import random
import shutil
import zlib

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import (
    AutoModelForCausalLM,
    BertConfig,
    BertForMaskedLM,
    BertModel,
)

from families import (
    BOS,
    EOS,
    LLAMA3,
    PAD,
    YARN,
    gemma3,
    gpt2,
    granite,
    llama,
    ministral,
    mistral,
    olmo2,
    olmo3,
    qwen2,
    qwen3,
    rope,
    smollm3,
)
from grpo_steps import group_advantages, train
from reference import greedy, load_causal, logits_of, refuse_strays, score
from text_model import LEARNED_TOKENS, text_files

TEMPERATURES = [1.0, 0.8]
GREEDY_TOKENS = 12
# A first and a second that lie closer than this may change places with the order of a sum.
CLEAR_LEAD = 1e-3
SHORT, LONG = [5, 3, 8, 1], [110, 64, 2, 150]
TRAIN_STEPS = 5


def causal_models():
    """Each model: its name, its configuration and what else sets it apart (the arguments of `write_causal`)."""
    short, long = {"prompts": SHORT}, {"prompts": LONG}
    yield "gpt2-inner", gpt2(n_inner=72), short
    yield "gpt2-untied-erf", gpt2(activation_function="gelu", tie_word_embeddings=False), short
    yield "gpt2-hub-keys", gpt2(vocab_size=60, n_embd=32, n_head=4), {"rewrite": as_first_gpt2, **short}
    yield "llama-mha-tied", llama(num_key_value_heads=6, tie_word_embeddings=True), long
    yield "llama-biases", llama(attention_bias=True, mlp_bias=True, num_key_value_heads=3), long
    yield "llama-linear", llama(num_key_value_heads=1, **rope("linear", factor=2.5)), long
    yield "llama-llama3", llama(**rope("llama3", **LLAMA3)), long
    yield "llama-yarn", llama(head_dim=16, **rope("yarn", **YARN)), long
    yield (
        "llama-yarn-set",
        llama(**rope("yarn", **YARN, beta_fast=8.0, beta_slow=2.0, attention_factor=1.25)),
        long,
    )
    yield "llama-old-default", llama(rms_norm_eps=1e-5), {"rewrite": with_old_keys, **long}
    yield "llama-old-linear", llama(**rope("linear", 5000.0, factor=2.0)), {"rewrite": with_old_keys, **long}
    yield "llama-old-llama3", llama(**rope("llama3", 500000.0, **LLAMA3)), {"rewrite": with_old_keys, **long}
    yield "llama-sharded", llama(num_hidden_layers=3), {"shard": "50KB", **short}
    yield "qwen2-tied", qwen2(tie_word_embeddings=True), long
    yield "qwen2-untied-old", qwen2(**rope("default", 1000000.0)), {"rewrite": with_old_keys, **long}
    yield "qwen2-bf16", qwen2(tie_word_embeddings=True), {"dtype": torch.bfloat16, **short}
    yield "qwen3-tied", qwen3(num_key_value_heads=3, tie_word_embeddings=True), long
    yield "qwen3-untied", qwen3(head_dim=4), long
    yield "qwen3-yarn-old", qwen3(**rope("yarn", 1000000.0, **YARN)), {"rewrite": with_old_keys, **long}
    yield (
        "qwen3-bf16-sharded",
        qwen3(tie_word_embeddings=True),
        {"dtype": torch.bfloat16, "shard": "30KB", **short},
    )
    sliding, full = "sliding_attention", "full_attention"
    yield "mistral-window", mistral(), long
    yield "mistral-one-kv", mistral(sliding_window=1, num_key_value_heads=1, tie_word_embeddings=True), long
    yield "mistral-full", mistral(sliding_window=None, head_dim=10), long
    yield "mistral-yarn", mistral(sliding_window=100, **rope("yarn", **YARN)), long
    yield "ministral-mixed", ministral(layer_types=[sliding, full]), long
    yield "ministral-all", ministral(sliding_window=3, head_dim=10), long
    yield "granite-factors", granite(), long
    yield "granite-biases", granite(attention_bias=True, mlp_bias=True, tie_word_embeddings=True), long
    yield "granite-one-kv", granite(num_key_value_heads=1, logits_scaling=0.5), long
    yield "granite-llama3", granite(residual_multiplier=1.0, **rope("llama3", **LLAMA3)), long
    yield "smollm3", smollm3(), long
    yield "smollm3-untied", smollm3(no_rope_layers=[0, 1, 1, 0], tie_word_embeddings=False), long
    yield "smollm3-biases", smollm3(no_rope_layer_interval=2, attention_bias=True, mlp_bias=True), long
    yield "smollm3-window", smollm3(use_sliding_window=True, sliding_window=9), long
    yield "olmo2", olmo2(), long
    yield "olmo2-one-kv", olmo2(num_key_value_heads=1, tie_word_embeddings=True), long
    yield "olmo2-biases", olmo2(attention_bias=True, num_key_value_heads=6), long
    yield "olmo2-llama3", olmo2(**rope("llama3", **LLAMA3)), long
    yield "olmo3", olmo3(), long
    yield "olmo3-types", olmo3(layer_types=[full, sliding, sliding, full], sliding_window=2), long
    yield "olmo3-one-kv", olmo3(num_key_value_heads=1, tie_word_embeddings=True, sliding_window=64), long
    yield "olmo3-yarn", olmo3(rope_scaling={"rope_type": "yarn", **YARN}, sliding_window=33), long
    yield "gemma3", gemma3(), long
    yield "gemma3-one-kv", gemma3(num_key_value_heads=1, sliding_window=2), long
    yield "gemma3-untied", gemma3(tie_word_embeddings=False, attention_bias=True, sliding_window_pattern=2), long
    yield "gemma3-linear", gemma3(rope_scaling={"rope_type": "linear", "factor": 8.0}, sliding_window=100), long


GPT2_TARGETS = ["c_attn", "c_proj", "c_fc"]
GATED_TARGETS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
ADAPTERS = {
    **{
        f"lora-{base}": (base, {"r": 4, "lora_alpha": 6, "target_modules": GATED_TARGETS})
        for base in ["mistral-window", "granite-factors", "smollm3", "olmo2", "olmo3", "gemma3"]
    },
    "lora-gpt2": ("gpt2-inner", {"r": 4, "lora_alpha": 8, "target_modules": GPT2_TARGETS, "fan_in_fan_out": True}),
    "lora-llama": ("llama-biases", {"r": 2, "lora_alpha": 7, "target_modules": ["q_proj", "v_proj"]}),
    "lora-qwen3-rslora": (
        "qwen3-untied",
        {"r": 8, "lora_alpha": 4, "target_modules": GATED_TARGETS, "use_rslora": True},
    ),
    "lora-qwen3-patterns": (
        "qwen3-tied",
        {
            "r": 3,
            "lora_alpha": 6,
            "target_modules": ["q_proj", "o_proj", "down_proj"],
            "rank_pattern": {"o_proj": 5, "model.layers.1.self_attn.q_proj": 1},
            "alpha_pattern": {"down_proj": 1, "layers.0.self_attn.o_proj": 20},
        },
    ),
    # Every kind of layer: DoRA on layers with and without biases, on the embedding and on the output layer.
    "dora-gpt2": (
        "gpt2-inner",
        {"r": 2, "lora_alpha": 3, "target_modules": GPT2_TARGETS, "fan_in_fan_out": True, "use_dora": True},
    ),
    "dora-qwen3": (
        "qwen3-untied",
        {
            "r": 2,
            "lora_alpha": 3,
            "target_modules": ["q_proj", "down_proj", "embed_tokens", "lm_head"],
            "use_dora": True,
            "use_rslora": True,
        },
    ),
    # The base ties its output layer to its embedding; in PEFT, only the module that is named changes.
    "tied-embedding-qwen2": ("qwen2-bf16", {"r": 2, "lora_alpha": 5, "target_modules": ["v_proj", "embed_tokens"]}),
    "tied-head-qwen2": ("qwen2-bf16", {"r": 2, "lora_alpha": 5, "target_modules": ["v_proj", "lm_head"]}),
    "saved-qwen2": (
        "qwen2-bf16",
        {
            "r": 1,
            "lora_alpha": 2,
            "target_modules": ["q_proj", "v_proj"],
            "modules_to_save": ["embed_tokens", "norm", "gate_proj"],
            "bias": "lora_only",
        },
    ),
    "saved-gpt2": (
        "gpt2-inner",
        {
            "r": 1,
            "lora_alpha": 2,
            "target_modules": ["c_fc"],
            "fan_in_fan_out": True,
            "modules_to_save": ["lm_head"],
            "bias": "all",
        },
    ),
}

# Loss, optimizer and batch of each training. The rows of `prompts` are the lengths of the groups' prompts.
TRAININGS = {
    **{
        f"train-{name}": {
            "model": model,
            "config": {"loss_type": "dapo", "beta": 0.02, "num_generations": 4, "temperature": 0.9},
            "optimizer": {"lr": 2e-4, "betas": [0.9, 0.95], "eps": 1e-8, "weight_decay": 0.05},
            "max_grad_norm": 0.5,
            "prompts": [5, 30],
        }
        for name, model in {
            "mistral": mistral(sliding_window=6),
            "ministral": ministral(sliding_window=6, layer_types=["full_attention", "sliding_attention"]),
            "granite": granite(),
            "smollm3": smollm3(),
            "olmo2": olmo2(),
            "olmo3": olmo3(sliding_window=6),
            "gemma3": gemma3(sliding_window=6),
        }.items()
    },
    "train-gpt2-dapo": {
        "model": gpt2(n_inner=72),
        "config": {"loss_type": "dapo", "beta": 0.03, "num_generations": 4, "epsilon_high": 0.28, "temperature": 0.7},
        "optimizer": {"lr": 3e-4, "betas": [0.9, 0.999], "eps": 1e-8, "weight_decay": 0.05},
        "max_grad_norm": 1.0,
        "prompts": [4, 4],
    },
    "train-llama-grpo": {
        "model": llama(attention_bias=True, mlp_bias=True),
        "config": {"loss_type": "grpo", "beta": 0.1, "num_generations": 3, "temperature": 1.2},
        "optimizer": {"lr": 2e-4, "betas": [0.9, 0.95], "eps": 1e-6, "weight_decay": 0.2},
        "max_grad_norm": 0.3,
        "prompts": [2, 7, 5],
    },
    "train-qwen2-grpo": {
        "model": qwen2(tie_word_embeddings=True),
        "config": {"loss_type": "grpo", "beta": 0.01, "num_generations": 2, "temperature": 1.0},
        "optimizer": {"lr": 1e-4, "betas": [0.9, 0.95], "eps": 1e-8, "weight_decay": 0.1},
        "max_grad_norm": 100.0,
        "prompts": [6, 6, 6, 6],
    },
    "train-qwen3-dapo": {
        "model": qwen3(),
        "config": {"loss_type": "dapo", "beta": 0.05, "num_generations": 6, "epsilon_high": 0.25, "temperature": 0.9},
        "optimizer": {"lr": 2e-4, "betas": [0.8, 0.9], "eps": 1e-8, "weight_decay": 0.01},
        "max_grad_norm": 0.5,
        "prompts": [3, 9],
    },
}


def randomize(model):
    """Give every weight a random value that matters: transformers starts biases at 0 and norms at 1."""
    for name, value in model.named_parameters():
        with torch.no_grad():
            if value.ndim > 1:
                fan_in = value.shape[0] if "c_" in name else value.shape[1]
                value.normal_(0, min(0.3, 1.4 / fan_in**0.5))
            elif "norm" in name.lower() or ".ln_" in name:
                value.normal_(1.0 if name.endswith("weight") else 0.0, 0.15)
            else:
                value.normal_(0, 0.15)


class Vocabulary:
    """The ids that a model's prompts and completions are drawn from."""

    def __init__(self, plain, special, ends):
        self.plain, self.special, self.ends = plain, special, ends

    def prompt(self, rng, length):
        """Any ids, the padding's and the end's among them: what an id means hangs on its place, not on its value."""
        return rng.choices([*self.plain, *self.special], k=length)

    def completion(self, rng, length, ended):
        """Plain ids, so that nothing but the last one ends the completion."""
        return rng.choices(self.plain, k=length - ended) + [self.ends[0]] * ended


def vocabulary(config):
    return Vocabulary(plain=range(3, config.vocab_size), special=[PAD, BOS, EOS], ends=[EOS])


def sequences(rng, model, ids, lengths):
    """Scored prompts and completions of a model."""
    rows = []
    for number, length in enumerate(lengths):
        prompt, continuation = clear_prompt(rng, model, ids, length)
        size = rng.randrange(3, 12) if length <= 8 else rng.randrange(20, 40)
        completion = ids.completion(rng, size, ended=number != len(lengths) - 1)
        rows.append(sequence(model, prompt, completion, continuation))
    return rows


def clear_prompt(rng, model, ids, length):
    """A prompt whose greedy continuation hangs on no rounding, does not end, and has only ids that mean something."""
    allowed = {*ids.plain, *ids.special} - {*ids.ends}
    for _ in range(1000):
        prompt = ids.prompt(rng, length)
        continuation, lead = greedy(model, prompt, GREEDY_TOKENS)
        if lead >= CLEAR_LEAD and allowed.issuperset(continuation):
            return prompt, continuation
    raise SystemExit(f"no clear greedy continuation of {length} tokens in 1000 prompts")


def sequence(model, prompt, completion, continuation):
    logits = logits_of(model, prompt + completion)
    row = {"prompt": prompt, "completion": completion, "last_logits": logits[-1].tolist()}
    for temperature in TEMPERATURES:
        logprobs, entropies = score(logits, prompt, completion, temperature)
        row |= {f"logprobs_t{temperature}": logprobs, f"entropy_t{temperature}": entropies}
    return {**row, "greedy": continuation}


def write_causal(folder, config, rng, prompts, rewrite=None, dtype=torch.float32, shard="1GB", ids=None):
    """A checkpoint and what the model says that is read back from it: what counts is what the files hold."""
    model = AutoModelForCausalLM.from_config(config)
    randomize(model)
    model.to(dtype).save_pretrained(folder, max_shard_size=shard)
    if rewrite:
        rewrite(folder)
    rows = sequences(rng, load_causal(folder), ids or vocabulary(config), prompts)
    write_json(folder / "expected.json", {"source": "transformers", "sequences": rows})


def with_old_keys(folder):
    """Rewrite config.json as transformers 4 wrote it: most checkpoints of today have it so."""
    config = read_json(folder / "config.json")
    parameters = config.pop("rope_parameters")
    kind, theta = parameters.pop("rope_type"), parameters.pop("rope_theta")
    if kind == "default":
        config["rope_scaling"] = None
    else:
        # Before transformers 4.45 the key was `type`, and the first kinds of scaling still have it so.
        config["rope_scaling"] = {"type" if kind == "linear" else "rope_type": kind, **parameters}
    # The first Llama had no `rope_theta`: 10000 goes without saying.
    if theta != 10000.0:
        config["rope_theta"] = theta
    config["torch_dtype"] = config.pop("dtype")
    config["transformers_version"] = "4.43.0"
    if config["model_type"] != "qwen3":
        config.pop("head_dim", None)
    if config["model_type"] != "llama":
        # Qwen checkpoints name a window that `use_sliding_window` switches off.
        config.pop("layer_types")
        config["sliding_window"] = 16
    write_json(folder / "config.json", config, indent=2)


def as_first_gpt2(folder):
    """Rename the tensors as the first GPT-2 checkpoints have them: no `transformer.`, and the causal masks stored."""
    config = read_json(folder / "config.json")
    weights = load_file(folder / "model.safetensors")
    weights = {name.removeprefix("transformer."): value for name, value in weights.items()}
    size = config["n_positions"]
    for layer in range(config["n_layer"]):
        weights[f"h.{layer}.attn.bias"] = torch.ones(1, 1, size, size).tril()
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    for key in [
        "n_inner",
        "tie_word_embeddings",
        "dtype",
        "transformers_version",
        "scale_attn_weights",
        "pad_token_id",
    ]:
        del config[key]
    write_json(folder / "config.json", {**config, "n_ctx": size}, indent=2)


def write_bert(folder, kind, config, rng, lengths):
    """An encoder and its sentence vectors: the mean over a sequence's own tokens, and that mean at unit length."""
    model = kind(config)
    randomize(model)
    model.save_pretrained(folder)
    model, report = BertModel.from_pretrained(
        folder, add_pooling_layer=kind is BertModel, dtype=torch.float32, output_loading_info=True
    )
    # An encoder inside a masked-language model is stored next to the head of that model.
    heads = {key for key in report["unexpected_keys"] if key.startswith("cls.")}
    refuse_strays(folder, {**report, "unexpected_keys": set(report["unexpected_keys"]) - heads})
    rows = [vocabulary(config).completion(rng, length, ended=False) for length in lengths]
    ids = torch.tensor([row + [PAD] * (max(lengths) - len(row)) for row in rows])
    mask = torch.tensor([[1] * length + [0] * (max(lengths) - length) for length in lengths])
    with torch.no_grad():
        hidden = model.eval()(input_ids=ids, attention_mask=mask).last_hidden_state
    means = (hidden * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)
    units = means / means.norm(dim=1, keepdim=True)
    write_json(
        folder / "expected.json",
        {
            "source": "transformers",
            "sequences": [
                {"input_ids": row, "mean_pooled": mean.tolist(), "unit": unit.tolist()}
                for row, mean, unit in zip(rows, means, units)
            ],
        },
    )


def bert_models():
    sizes = {
        "vocab_size": 83,
        "hidden_size": 36,
        "intermediate_size": 52,
        "num_hidden_layers": 3,
        "num_attention_heads": 6,
        "max_position_embeddings": 32,
        "pad_token_id": PAD,
    }
    yield "bert-other", BertModel, BertConfig(**sizes), [14, 3, 32, 1, 9]
    # Checkpoints of a masked-language model keep the encoder under `bert.` and have a head that an encoder ignores.
    yield "bert-masked-lm", BertForMaskedLM, BertConfig(**sizes, layer_norm_eps=1e-5), [5, 20, 12]


def write_adapter(folder, base, settings, rng):
    """An adapter with both halves random, the logits with it, and how far the merged model is from that."""
    model = get_peft_model(load_causal(folder.parent / base), LoraConfig(task_type="CAUSAL_LM", **settings))
    for name, value in model.named_parameters():
        with torch.no_grad():
            if "lora_magnitude" in name:
                value.mul_(1 + 0.2 * torch.randn_like(value))
            elif "lora_" in name:
                value.normal_(0, 0.15)
            elif value.requires_grad:
                value.add_(0.1 * torch.randn_like(value))
    # A path of this machine would mean nothing elsewhere; the folders are next to each other.
    model.peft_config["default"].base_model_name_or_path = base
    # Left to itself, PEFT asks the network for the base, to learn whether its vocabulary has grown. It always stores
    # adapted embeddings with their unchanged base.
    targets_ends = {"embed_tokens", "lm_head"} & {*settings["target_modules"]}
    model.save_pretrained(folder, save_embedding_layers=bool(targets_ends))
    (folder / "README.md").unlink()
    # PEFT keeps the targets as a set, whose order changes from run to run.
    written = read_json(folder / "adapter_config.json")
    written["target_modules"].sort()
    if written["modules_to_save"]:
        written["modules_to_save"].sort()
    write_json(folder / "adapter_config.json", written, indent=2)

    # In f64, so that the values have no rounding of their own.
    model = PeftModel.from_pretrained(load_causal(folder.parent / base), folder, is_trainable=True).eval().double()
    ids = vocabulary(model.config).prompt(rng, 17)
    logits = logits_of(model, ids)
    norms = gradient_norms(model, ids)
    merged = logits_of(model.merge_and_unload(), ids)
    write_json(
        folder / "expected.json",
        {
            "source": "peft",
            "base": base,
            "input_ids": ids,
            "logits": logits.tolist(),
            "gradient_norms": norms,
            "max_merged_difference": (logits - merged).abs().max().item(),
        },
    )


def train_padding(model):
    """torch leaves out the gradient of the padding's row. Here, the id of the padding is one like others."""
    for module in model.modules():
        if isinstance(module, torch.nn.Embedding):
            module.padding_idx = None


def gradient_norms(model, ids):
    """The norms of the gradients of the mean square of the logits, one for each trained tensor, in order."""
    train_padding(model)
    model(input_ids=torch.tensor([ids])).logits.square().mean().backward()
    return sorted(value.grad.norm().item() for value in model.parameters() if value.requires_grad)


def write_training(folder, training, rng):
    """A checkpoint before and after a few steps on random completions, and the metrics of each step."""
    model = AutoModelForCausalLM.from_config(training["model"])
    randomize(model)
    model.save_pretrained(folder / "before")
    model = load_causal(folder / "before")
    train_padding(model)
    ids = vocabulary(model.config)
    group = training["config"]["num_generations"]
    prompts = [prompt for length in training["prompts"] for prompt in [ids.prompt(rng, length)] * group]
    completions = [ids.completion(rng, rng.randrange(2, 11), ended=number % 5 != 4) for number in range(len(prompts))]
    rewards = [round(rng.random(), 3) for _ in prompts]
    task = {
        "source": "torch",
        "config": {**training["config"], "rewards": rewards},
        "optimizer": training["optimizer"],
        "max_grad_norm": training["max_grad_norm"],
        "prompts": prompts,
        "completions": completions,
        "advantages": group_advantages(rewards, group),
    }
    old, steps = train(model, task, TRAIN_STEPS)
    model.save_pretrained(folder / "after")
    write_json(folder / "expected.json", {**task, "old_logprobs": old.tolist(), "steps": steps})


def write_text(folder, rng):
    """A small qwen3 with a tokenizer of its own, a chat template, and two ids that end a completion."""
    tokenizer, chats, texts = text_files(folder)
    # Qwen's checkpoints have more rows than their tokenizers have tokens.
    config = qwen3(
        vocab_size=len(tokenizer) + 21,
        tie_word_embeddings=True,
        max_position_embeddings=1024,
        bos_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    generation = {
        "bos_token_id": tokenizer.pad_token_id,
        "do_sample": True,
        "eos_token_id": [tokenizer.eos_token_id, tokenizer.pad_token_id],
        "pad_token_id": tokenizer.pad_token_id,
        "temperature": 0.6,
        "top_k": 20,
        "top_p": 0.95,
    }
    ends = generation["eos_token_id"]
    ids = Vocabulary(plain=range(LEARNED_TOKENS), special=range(LEARNED_TOKENS, len(tokenizer)), ends=ends)
    write_causal(folder, config, rng, SHORT, ids=ids)
    write_json(folder / "generation_config.json", generation, indent=2)
    expected = read_json(folder / "expected.json")
    write_json(folder / "expected.json", {**expected, "chats": chats, "texts": texts})


def read_json(path):
    return json.loads(path.read_text())


def write_json(path, value, indent=None):
    path.write_text(json.dumps(value, indent=indent, ensure_ascii=False, allow_nan=False) + "\n")


def main(out, seed):
    def fresh(name):
        folder = out / name
        if folder.exists():
            shutil.rmtree(folder)
        folder.mkdir(parents=True)
        # From the name, not from a running count: another folder before this one changes nothing here.
        start = zlib.crc32(f"{seed}:{name}".encode())
        torch.manual_seed(start)
        print(name, flush=True)
        return folder, random.Random(start)

    for name, config, settings in causal_models():
        folder, rng = fresh(name)
        write_causal(folder, config, rng, **settings)
    for name, kind, config, lengths in bert_models():
        folder, rng = fresh(name)
        write_bert(folder, kind, config, rng, lengths)
    for name, (base, settings) in ADAPTERS.items():
        folder, rng = fresh(name)
        write_adapter(folder, base, settings, rng)
    for name, training in TRAININGS.items():
        folder, rng = fresh(name)
        write_training(folder, training, rng)
    folder, rng = fresh("text-qwen3")
    write_text(folder, rng)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=pathlib.Path, metavar="OUT_DIR")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    main(arguments.out, arguments.seed)
