#!/usr/bin/env python3
"""Measures PyTorch, transformers and TRL on what `grpo-bench` measures, for `cargo xtask bench --against`.

    python3 bench.py --case sampling-small --threads 4 --repeat 3    # a JSON line a repetition
    python3 bench.py --case training-medium --threads 4 --serve      # one for each line `run` on standard input

Names, sizes, shapes and the lines exchanged are those of crates/grpo-bench. Everything is f32 unless the name says bf16, on the
CPU unless `--device` says otherwise. A comment explains each setting that is not a default of the other program and makes it
faster here.
"""

import argparse
import json
import logging
import multiprocessing
import os
import pathlib
import resource
import sys
import tempfile
import threading
import time
import warnings


def end_after(seconds):
    """Ends this process and those of vLLM after a time, even while a library waits forever."""

    def end():
        print(f"error: it took longer than {seconds} s", file=sys.stderr, flush=True)
        for child in multiprocessing.active_children():
            child.kill()
        os._exit(1)

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()


if "BENCH_TIME_LIMIT" in os.environ:
    end_after(int(os.environ["BENCH_TIME_LIMIT"]))

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
warnings.filterwarnings("ignore")

import torch
import torch.nn.functional as F
import transformers
from transformers import GPT2Config, GPT2LMHeadModel, Qwen3Config, Qwen3ForCausalLM

SMALL = {"n_embd": 256, "n_layer": 8, "n_head": 8, "vocab_size": 100, "n_positions": 64, "tie_word_embeddings": False}
MEDIUM = {"n_embd": 512, "n_layer": 12, "n_head": 8, "vocab_size": 32_000, "n_positions": 256, "tie_word_embeddings": True}

QWEN = {"num_hidden_layers": 28, "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151_936}
LARGE = QWEN | {"hidden_size": 1024, "intermediate_size": 3072}
EXTRA_LARGE = QWEN | {"hidden_size": 2048, "intermediate_size": 6144}

# Of tensors and models; `main` sets it.
DEVICE = "cpu"


def qwen_config(sizes):
    return Qwen3Config(
        **sizes,
        max_position_embeddings=256,
        rms_norm_eps=1e-6,
        rope_theta=1e6,
        hidden_act="silu",
        tie_word_embeddings=True,
        attention_dropout=0.0,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=0,
        attn_implementation="sdpa",
    )


def model_of(sizes):
    """Random weights and no dropout. Both activations are torch's own operations: `gelu_new`, GPT-2's name for the second,
    is seven operations in Python. A MolGPT is this architecture with a table of types next to that of tokens."""
    torch.manual_seed(1)
    if "hidden_size" in sizes:
        with torch.device(DEVICE):
            return Qwen3ForCausalLM(qwen_config(sizes))
    activation = "gelu" if sizes is SMALL else "gelu_pytorch_tanh"
    config = GPT2Config(
        **sizes,
        activation_function=activation,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=0,
        attn_implementation="sdpa",
    )
    return GPT2LMHeadModel(config).to(DEVICE)


def since(started, work):
    if DEVICE != "cpu":
        torch.cuda.synchronize()
    return {"seconds": time.perf_counter() - started, "work": work}


def matmul(width, rows, dtype=torch.float32):
    """The two products of a block's perceptron."""
    x, up, down = (torch.rand(shape, device=DEVICE).to(dtype) for shape in ((rows, width), (width, 4 * width), (4 * width, width)))

    @torch.inference_mode()
    def run():
        started, times = time.perf_counter(), 0
        while time.perf_counter() - started < 0.5:
            (x @ up @ down)[0, 0].item()  # as ours does: a GPU would otherwise only be asked
            times += 1
        return since(started, times * 2.0 * 2 * rows * width * 4 * width)

    return run


def sampling(sizes, rows, tokens, dtype=torch.float32):
    """`generate` with its cache, over one token a row; nothing ends a row, and nothing is cut from the distribution."""
    model = model_of(sizes).to(dtype).eval()
    prompts = torch.randint(sizes["vocab_size"], (rows, 1), device=DEVICE)
    settings = transformers.GenerationConfig(
        do_sample=True,
        temperature=1.0,
        top_k=0,
        top_p=1.0,
        max_new_tokens=tokens,
        use_cache=True,
        pad_token_id=0,
    )

    @torch.inference_mode()
    def run():
        started = time.perf_counter()
        drawn = model.generate(prompts, attention_mask=torch.ones_like(prompts), generation_config=settings)
        answer = since(started, rows * tokens)
        assert drawn.shape == (rows, 1 + tokens), drawn.shape
        return answer

    return run


def scoring(sizes, rows, tokens):
    """Log-probabilities of given tokens, as TRL takes them of a reference: logits, log-softmax, gather."""
    model = model_of(sizes).eval()
    ids = torch.randint(sizes["vocab_size"], (rows, 1 + tokens), device=DEVICE)

    @torch.inference_mode()
    def run():
        started = time.perf_counter()
        logits = model(input_ids=ids[:, :-1], use_cache=False).logits
        scores = logits.log_softmax(-1).gather(-1, ids[:, 1:, None]).squeeze(-1)
        assert scores.sum().isfinite()  # reads a number: a GPU would otherwise only be asked
        return since(started, rows * tokens)

    return run


def vllm_sampling(sizes, rows, tokens, dtype=torch.float32):
    """vLLM's `generate`, with the same weights in shape, one token a row and no end."""
    from vllm import LLM, SamplingParams

    folder = tempfile.TemporaryDirectory()
    qwen_config(sizes | {"architectures": ["Qwen3ForCausalLM"]}).save_pretrained(folder.name)
    engine = LLM(
        model=folder.name,
        load_format="dummy",  # random weights
        skip_tokenizer_init=True,
        dtype=str(dtype).removeprefix("torch."),
        max_model_len=256,
        enable_prefix_caching=False,
        seed=1,
    )
    prompts = [{"prompt_token_ids": [i % sizes["vocab_size"]]} for i in range(rows)]
    settings = SamplingParams(temperature=1.0, max_tokens=tokens, ignore_eos=True, detokenize=False)

    def run():
        started = time.perf_counter()
        drawn = engine.generate(prompts, settings, use_tqdm=False)
        answer = since(started, rows * tokens)
        assert all(len(of.outputs[0].token_ids) == tokens for of in drawn)
        return answer

    run.folder = folder  # removed at the end
    return run


def training(sizes, rows, tokens, steps, bf16=False):
    """Forward, cross-entropy, backward, clipping by the global norm, AdamW (fused: one pass over all parameters). In bf16, with
    PyTorch's mixed precision."""
    model = model_of(sizes).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, weight_decay=0.01, fused=True)

    def run():
        batches = torch.randint(sizes["vocab_size"], (steps, rows, tokens + 1), device=DEVICE)
        started = time.perf_counter()
        for batch in batches:
            with torch.autocast(DEVICE.partition(":")[0], dtype=torch.bfloat16, enabled=bf16):
                logits = model(input_ids=batch[:, :-1], use_cache=False).logits
                loss = F.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            loss.item()  # as a training that reports its loss does
        return since(started, steps * rows * tokens)

    return run


def step(sizes, prompts, group, tokens, steps, bf16=False, rank=None):
    """Whole steps of TRL's GRPOTrainer, of all weights, or of an adapter of the given rank on all linear layers. It runs in its
    own loop, which a callback holds between two repetitions."""
    # TRL is imported only here: PyTorch's cases do without it.
    from datasets import Dataset
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast, TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    # The end mark is a token that the model has no logit for, so that no completion ends and no processor forbids it.
    words = {f"t{i}": i for i in range(sizes["vocab_size"])} | {"<end>": sizes["vocab_size"]}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="t0"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<end>", pad_token="<end>", unk_token="t0")

    def reward(completions, **_):
        return [float("t1 " in text or "t2 " in text) for text in completions]

    class Gate(TrainerCallback):
        """Lets `steps` steps go each time that the loop below asks for them."""

        def on_train_begin(self, args, state, control, **_):
            self.begin()

        def on_step_end(self, args, state, control, **_):
            self.done += 1
            if self.done == steps:
                answers.append(since(self.started, steps))
                self.begin()

        def begin(self):
            wait()
            self.done, self.started = 0, time.perf_counter()

    answers, waiting = [], iter(())

    def wait():
        if answers:
            emit(answers.pop())
        next(waiting)

    def train(requests):
        """Trains until `requests` are at their end."""
        nonlocal waiting
        waiting = requests
        rows = prompts * group
        with tempfile.TemporaryDirectory() as folder:
            adapter, model, settings = None, model_of(sizes), None
            if rank is None:
                # TRL makes the reference by reading the model's folder once more. With an adapter, it is the model without it.
                saved = pathlib.Path(folder) / "model"
                model.save_pretrained(saved)
                model, settings = str(saved), {"dtype": "float32", "attn_implementation": "sdpa"}
            else:
                from peft import LoraConfig

                adapter = LoraConfig(r=rank, lora_alpha=2 * rank, target_modules="all-linear", task_type="CAUSAL_LM")
            arguments = GRPOConfig(
                output_dir=folder,
                use_cpu=DEVICE == "cpu",
                bf16=bf16,
                gradient_checkpointing=False,  # on by default: a third more time
                per_device_train_batch_size=rows,
                num_generations=group,
                max_completion_length=tokens,
                temperature=1.0,
                top_k=0,
                beta=0.04,
                loss_type="grpo",
                num_iterations=1,
                learning_rate=1e-6,
                weight_decay=0.01,
                max_grad_norm=1.0,
                optim="adamw_torch_fused",
                lr_scheduler_type="constant",
                max_steps=1_000_000,
                save_strategy="no",
                logging_strategy="no",
                report_to="none",
                disable_tqdm=True,
                model_init_kwargs=settings,
            )
            trainer = GRPOTrainer(
                model=model,
                peft_config=adapter,
                args=arguments,
                reward_funcs=reward,
                train_dataset=Dataset.from_dict({"prompt": [f"t{i}" for i in range(sizes["vocab_size"])]}),
                processing_class=tokenizer,
                callbacks=[Gate()],
            )
            lengths = []
            reward_of = trainer.reward_funcs[0]

            def checked(completion_ids, **rest):
                lengths.extend(map(len, completion_ids))
                return reward_of(**rest)

            trainer.reward_funcs[0] = checked
            try:
                trainer.train()
            except StopIteration:
                pass
            if set(lengths) != {tokens}:
                sys.exit(f"error: TRL's completions have {sorted(set(lengths))} tokens, not {tokens}")

    return train


CASES = {
    "matmul-small": lambda: matmul(256, 64 * 48),
    "matmul-medium": lambda: matmul(512, 8 * 256),
    "sampling-small": lambda: sampling(SMALL, 64, 48),
    "training-small": lambda: training(SMALL, 64, 48, steps=4),
    "step-small": lambda: step(SMALL, 8, 8, 48, steps=2),
    "sampling-medium": lambda: sampling(MEDIUM, 16, 256),
    "scoring-medium": lambda: scoring(MEDIUM, 16, 256),
    "training-medium": lambda: training(MEDIUM, 8, 256, steps=1),
    "matmul-small-bf16": lambda: matmul(256, 64 * 48, torch.bfloat16),
    "matmul-medium-bf16": lambda: matmul(512, 8 * 256, torch.bfloat16),
    "sampling-small-bf16": lambda: sampling(SMALL, 64, 48, torch.bfloat16),
    "training-small-bf16": lambda: training(SMALL, 64, 48, steps=4, bf16=True),
    "step-small-bf16": lambda: step(SMALL, 8, 8, 48, steps=2, bf16=True),
    "sampling-medium-bf16": lambda: sampling(MEDIUM, 16, 256, torch.bfloat16),
    "training-medium-bf16": lambda: training(MEDIUM, 8, 256, steps=1, bf16=True),
    "sampling-large": lambda: sampling(LARGE, 32, 64),
    "sampling-large-bf16": lambda: sampling(LARGE, 32, 64, torch.bfloat16),
    "scoring-large": lambda: scoring(LARGE, 32, 64),
    "adapter-step-large": lambda: step(LARGE, 4, 8, 64, steps=1, rank=16),
    "adapter-step-large-bf16": lambda: step(LARGE, 4, 8, 64, steps=1, bf16=True, rank=16),
    "sampling-extra-large": lambda: sampling(EXTRA_LARGE, 32, 64),
    "adapter-step-extra-large": lambda: step(EXTRA_LARGE, 4, 8, 64, steps=1, rank=16),
    "adapter-step-extra-large-bf16": lambda: step(EXTRA_LARGE, 4, 8, 64, steps=1, bf16=True, rank=16),
}

# With `--engine vllm`.
VLLM_CASES = {
    "sampling-large": lambda: vllm_sampling(LARGE, 32, 64),
    "sampling-large-bf16": lambda: vllm_sampling(LARGE, 32, 64, torch.bfloat16),
    "sampling-extra-large": lambda: vllm_sampling(EXTRA_LARGE, 32, 64),
}


def emit(answer):
    # Kibibytes on Linux.
    answer["peak_bytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print_line(answer)


def print_line(value):
    LINES.write(json.dumps(value) + "\n")
    LINES.flush()


def requests(arguments):
    """One item for each repetition that is asked for; the first, which warms up, is not printed."""
    if arguments.serve:
        for line in sys.stdin:
            if line.strip() != "run":
                sys.exit(f"error: standard input says `{line.strip()}`; expected `run`")
            yield
    else:
        yield from range(arguments.repeat)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", required=True, choices=CASES)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--device", default="cpu", help="`cpu`, or PyTorch's name of a GPU, e.g. `cuda:0`")
    parser.add_argument("--engine", choices=["transformers", "vllm"], default="transformers", help="which samples")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--serve", action="store_true")
    arguments = parser.parse_args()
    global DEVICE
    DEVICE = arguments.device
    if DEVICE != "cpu":
        torch.cuda.set_device(DEVICE)
    torch.set_num_threads(arguments.threads)
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    logging.disable(logging.WARNING)

    # The widest vectors, by the name in our program.
    capability = torch.backends.cpu.get_cpu_capability()
    ready = {
        "case": arguments.case,
        "threads": torch.get_num_threads(),
        "instruction_set": {"AVX512": "AVX-512"}.get(capability, capability),
    }
    cases = VLLM_CASES if arguments.engine == "vllm" else CASES
    if arguments.case not in cases:
        sys.exit(f"error: {arguments.engine} does not have the case {arguments.case}")
    run = cases[arguments.case]()
    asked = requests(arguments)
    if "step-" in arguments.case:
        run(warmed_up(asked, ready))
        return
    run()
    print_line(ready)
    for _ in asked:
        emit(run())


def warmed_up(asked, ready):
    """`asked` for a loop that is not ours: one repetition in front, whose answer is thrown away."""
    global LINES
    lines, LINES = LINES, open(os.devnull, "w")
    yield
    LINES = lines
    print_line(ready)
    yield from asked


# Standard output is for the lines alone; whatever a library or its processes print goes to standard error.
LINES = os.fdopen(os.dup(sys.stdout.fileno()), "w")
os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
sys.stdout = sys.stderr

if __name__ == "__main__":
    main()
