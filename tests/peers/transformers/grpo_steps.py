#!/usr/bin/env python3
"""Whole steps of GRPO in plain torch: the clipped surrogate, KL to the reference, AdamW, clipping by the global norm.

    python3 grpo_steps.py FOLDER...   # replays the steps of train folders and prints the largest differences

A train folder holds checkpoints `before` and `after` and the numbers of each step in `expected.json`. What those
numbers mean (found by replaying folders that TRL 1.16 and torch made, which this reproduces bit for bit):

- weight decay is AdamW's own on every tensor, norms' weights and biases too: p -= lr * weight_decay * p;
- the metrics of a step, `grad_norm` among them, are of the weights before the step and of the gradient before clipping;
- old = reference = the log-probabilities under `before`, without dropout;
- the KL term, and the metric `kl`, are k3 times the differentiable ratio (TRL's bias correction, its default);
- `grpo` means over a sequence's tokens, then over sequences; `dapo` sums and divides by the tokens of all sequences.
"""

import json
import pathlib
import sys

import torch
from safetensors.torch import load_file

from reference import load_causal

CLIP = 0.2  # TRL's default on both sides; `epsilon_high` in a folder's config replaces the upper one


def token_scores(model, prompts, completions, temperature):
    """Log-probabilities, entropies and mask of the completions: [rows, longest completion].

    The padding is right of the completion, so that prompts of other lengths keep their positions.
    """
    longest = max(map(len, completions))
    rows = [prompt + completion for prompt, completion in zip(prompts, completions)]
    ids, attended = padded(rows)
    logits = model(input_ids=ids, attention_mask=attended).logits / temperature
    targets, mask = padded(completions)
    starts = torch.tensor([len(prompt) - 1 for prompt in prompts])[:, None]
    places = (starts + torch.arange(longest)).clamp(max=ids.shape[1] - 1)
    log_policy = logits[torch.arange(len(rows))[:, None], places].log_softmax(-1)
    chosen = log_policy.gather(-1, targets[..., None])[..., 0]
    entropies = -(log_policy.exp() * log_policy).sum(-1).detach()
    return chosen, entropies, mask.to(logits.dtype)


def padded(rows):
    """Rows of ids with 0 to the right, and the mask of what is theirs."""
    longest = max(map(len, rows))
    ids = torch.tensor([row + [0] * (longest - len(row)) for row in rows])
    mask = torch.tensor([[1] * len(row) + [0] * (longest - len(row)) for row in rows])
    return ids, mask


def group_advantages(rewards, group):
    """Rewards less their group's mean, over its sample deviation + 1e-4."""
    groups = torch.tensor(rewards).view(-1, group)
    return ((groups - groups.mean(1, keepdim=True)) / (groups.std(1, keepdim=True) + 1e-4)).flatten().tolist()


def grpo_loss(logprobs, entropies, mask, old, advantages, config):
    """The loss and TRL's metrics of it. The reference's log-probabilities are the old ones."""
    advantages = advantages[:, None]
    low, high = 1 - CLIP, 1 + config.get("epsilon_high", CLIP)
    ratio = (logprobs - old).exp()
    toward_reference = old - logprobs
    kl = (toward_reference.exp() - toward_reference - 1) * ratio
    surrogate = torch.min(ratio * advantages, ratio.clamp(low, high) * advantages)
    per_token = (-surrogate + config["beta"] * kl) * mask
    if config["loss_type"] == "grpo":
        loss = (per_token.sum(1) / mask.sum(1)).mean()
    elif config["loss_type"] == "dapo":
        loss = per_token.sum() / mask.sum()
    else:
        raise ValueError(config["loss_type"])

    def mean(values):
        return ((values * mask).sum() / mask.sum()).item()

    def row_means(values):
        return (values * mask).sum(1) / mask.sum(1)

    cut_low = ((ratio < low) & (advantages < 0)).to(mask.dtype)
    cut_high = ((ratio > high) & (advantages > 0)).to(mask.dtype)
    return loss, {
        "kl": mean(kl),
        "entropy": mean(entropies),
        "clip_ratio/low_mean": mean(cut_low),
        "clip_ratio/high_mean": mean(cut_high),
        "clip_ratio/region_mean": mean(cut_low + cut_high),
        "clip_ratio/low_min": row_means(cut_low).min().item(),
        "clip_ratio/high_max": row_means(cut_high).max().item(),
    }


def train(model, task, steps):
    """Take the steps of a task (the keys of expected.json) on the model; the old log-probabilities and the metrics."""
    optimizer = torch.optim.AdamW(model.parameters(), **task["optimizer"])
    dtype = next(model.parameters()).dtype
    advantages = torch.tensor(task["advantages"], dtype=dtype)
    old, rows = None, []
    for _ in range(steps):
        logprobs, entropies, mask = token_scores(
            model, task["prompts"], task["completions"], task["config"]["temperature"]
        )
        old = logprobs.detach() if old is None else old
        loss, metrics = grpo_loss(logprobs, entropies, mask, old, advantages, task["config"])
        optimizer.zero_grad()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), task["max_grad_norm"])
        optimizer.step()
        rows.append({"loss": loss.item(), "grad_norm": norm.item(), **metrics})
    return old, rows


def replay(folder):
    """Print the largest differences between a train folder and the same steps taken again, in f32 and in f64.

    What differs in f64 alone is f32's rounding. Where a gradient is nothing but rounding, AdamW makes whole steps of
    it: GPT-2's biases of keys, which shift all scores of a row alike, are such a place and counted by themselves.
    """
    folder = pathlib.Path(folder)
    task = json.loads((folder / "expected.json").read_text())
    after = load_file(folder / "after" / "model.safetensors")
    for dtype in [torch.float32, torch.float64]:
        model = load_causal(folder / "before").to(dtype)
        _, rows = train(model, task, len(task["steps"]))
        metrics = max(abs(row[key] - step[key]) for row, step in zip(rows, task["steps"]) for key in step)
        trained = model.state_dict()
        weights, key_biases = 0.0, 0.0
        for name, value in after.items():
            difference = (trained[name] - value).abs()
            if name.endswith("c_attn.bias"):
                query, key, value = difference.chunk(3)
                key_biases = max(key_biases, key.max().item())
                difference = torch.cat([query, value])
            weights = max(weights, difference.max().item())
        print(f"{folder.name}: {dtype}: metrics {metrics:.1e}, weights {weights:.1e}, key biases {key_biases:.1e}")


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    for argument in sys.argv[1:]:
        replay(argument)
