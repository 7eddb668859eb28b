"""What transformers says of token ids: the numbers that every program in this folder writes or compares."""

import torch
import transformers
from transformers import AutoModelForCausalLM

transformers.utils.logging.disable_progress_bar()
# It would report stray weights, which `refuse_strays` does for us, and asks for masks that single rows do not need.
transformers.utils.logging.set_verbosity_error()

# Two threads, and always as many: sums then run in one order, and a folder made again has the same digits.
torch.set_num_threads(2)


def load_causal(folder):
    """A model in f32 and without dropout, refused unless the folder holds exactly its weights.

    `from_pretrained` fills what is missing with random numbers and only warns, which would hide a misnamed tensor.
    """
    model, report = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, output_loading_info=True)
    refuse_strays(folder, report)
    return model.eval()


def refuse_strays(folder, report):
    for problem in ["missing_keys", "unexpected_keys", "mismatched_keys", "error_msgs"]:
        if report.get(problem):
            raise SystemExit(f"{folder}: {problem}: {sorted(map(str, report[problem]))}")


@torch.no_grad()
def logits_of(model, ids):
    """The logits after each of the ids: [tokens, vocabulary]."""
    return model(torch.tensor([ids])).logits[0]


def score(logits, prompt, completion, temperature):
    """Log-probabilities and entropies of the completion's tokens, from f32 logits in f64."""
    logits = logits[len(prompt) - 1 : len(prompt) + len(completion) - 1].double() / temperature
    log_policy = logits.log_softmax(-1)
    chosen = log_policy.gather(-1, torch.tensor(completion)[:, None])[:, 0]
    return chosen.tolist(), (-(log_policy.exp() * log_policy).sum(-1)).tolist()


def greedy(model, prompt, count):
    """The most likely continuation, which nothing ends early, and the smallest lead of a first over a second."""
    ids, lead = list(prompt), float("inf")
    for _ in range(count):
        top = logits_of(model, ids)[-1].topk(2)
        lead = min(lead, (top.values[0] - top.values[1]).item())
        ids.append(top.indices[0].item())
    return ids[len(prompt) :], lead
