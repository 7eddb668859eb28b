"""Writes small checkpoints with torch.save, and what torch computes from them.

    python make_checkpoints.py OUT_DIR

The tests of `grpo-model`, `grpo-molecules` and `grpo-cli` read the files from crates/grpo-model/tests/fixtures/torch. Needs torch alone
(measured with 2.15.0). `MolGpt` has the modules and parameter names of MolGPT's published class: conditions are vectors
in front of the tokens, and their logits are dropped. The expected numbers are computed in f64.
"""

import json
import sys
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F

TOKENS = "# ( ) - 1 2 3 4 5 6 < = Br C Cl F N O S [H] [SH] [nH] c n o s".split()
BLOCK, LAYERS, HEADS, WIDTH = 24, 2, 4, 16
MOLECULES = [
    ["C", "C", "O"],
    ["C", "c", "1", "c", "c", "c", "c", "c", "1"],
    ["C", "C", "(", "=", "O", ")", "N", "c", "1", "c", "c", "[nH]", "c", "1", "Br"],
]
SCAFFOLD = ["c", "1", "c", "c", "c", "c", "c", "1"]


class Attention(nn.Module):
    def __init__(self, positions):
        super().__init__()
        self.key = nn.Linear(WIDTH, WIDTH)
        self.query = nn.Linear(WIDTH, WIDTH)
        self.value = nn.Linear(WIDTH, WIDTH)
        self.proj = nn.Linear(WIDTH, WIDTH)
        lower = torch.tril(torch.ones(positions, positions))
        self.register_buffer("mask", lower.view(1, 1, positions, positions))

    def forward(self, x):
        b, t, d = x.shape
        heads = [f(x).view(b, t, HEADS, d // HEADS).transpose(1, 2) for f in (self.query, self.key, self.value)]
        scores = heads[0] @ heads[1].transpose(-2, -1) / (d // HEADS) ** 0.5
        scores = scores.masked_fill(self.mask[:, :, :t, :t] == 0, float("-inf"))
        mixed = F.softmax(scores, dim=-1) @ heads[2]
        return self.proj(mixed.transpose(1, 2).reshape(b, t, d))


class Block(nn.Module):
    def __init__(self, positions):
        super().__init__()
        self.ln1 = nn.LayerNorm(WIDTH)
        self.ln2 = nn.LayerNorm(WIDTH)
        self.attn = Attention(positions)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x):
        x = x + self.attn(self.ln1(x))
        return x + self.mlp(self.ln2(x))


class MolGpt(nn.Module):
    def __init__(self, properties=0, scaffold=0, lstm_layers=0):
        super().__init__()
        self.tok_emb = nn.Embedding(len(TOKENS), WIDTH)
        self.type_emb = nn.Embedding(2, WIDTH)
        if properties:
            self.prop_nn = nn.Linear(properties, WIDTH)
        self.pos_emb = nn.Parameter(torch.zeros(1, BLOCK, WIDTH))
        self.lstm = nn.LSTM(WIDTH, WIDTH, lstm_layers, dropout=0.3) if lstm_layers else None
        # The published code sizes the masks by the scaffold's length, with an LSTM too.
        positions = BLOCK + (1 if properties else 0) + scaffold
        self.blocks = nn.Sequential(*[Block(positions) for _ in range(LAYERS)])
        self.ln_f = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, len(TOKENS), bias=False)

    def forward(self, ids, properties=None, scaffold=None):
        x = self.tok_emb(ids) + self.pos_emb[:, : ids.shape[1]] + self.type_emb.weight[1]
        if properties is not None:
            x = torch.cat([self.prop_nn(properties)[:, None] + self.type_emb.weight[0], x], 1)
        if scaffold is not None:
            vectors = self.tok_emb(scaffold)
            if self.lstm is not None:
                # The last hidden state of each layer.
                vectors = self.lstm(vectors.transpose(0, 1))[1][0].transpose(0, 1)
            x = torch.cat([vectors + self.type_emb.weight[0], x], 1)
        x = self.ln_f(self.blocks(x))
        return self.head(x)[:, -ids.shape[1] :]


class EncoderModel(nn.Module):
    """A model from torch's own layers, as the repository's weight converter expects it."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(len(TOKENS), WIDTH)
        layer = nn.TransformerEncoderLayer(
            WIDTH, HEADS, 4 * WIDTH, 0.0, activation="gelu", batch_first=True, norm_first=True
        )
        self.transformer = nn.TransformerEncoder(layer, LAYERS, nn.LayerNorm(WIDTH), enable_nested_tensor=False)
        self.fc = nn.Linear(WIDTH, len(TOKENS))

    def forward(self, ids):
        mask = nn.Transformer.generate_square_subsequent_mask(ids.shape[1], dtype=self.fc.weight.dtype)
        return self.fc(self.transformer(self.embedding(ids), mask=mask))


def shaken(model):
    """Random values far from the initial ones, so that no part of the model can be left out unnoticed."""
    generator = torch.Generator().manual_seed(7)
    for name, value in model.named_parameters():
        is_scale = name.endswith("weight") and ("ln" in name or "norm" in name)
        deviation = 0.5 if value.ndim > 1 else 0.2
        value.data = torch.randn(value.shape, generator=generator) * deviation + (1.0 if is_scale else 0.0)
    return model.eval()


def log_probabilities(model, **conditions):
    """Of each token after the first one, and of the end token, for each molecule."""
    model = model.double()
    rows = []
    with torch.no_grad():
        for molecule in MOLECULES:
            ids = torch.tensor([[TOKENS.index(token) for token in molecule + ["<"]]])
            logp = F.log_softmax(model(ids[:, :-1], **conditions), -1)
            rows.append(logp[0].gather(1, ids[0, 1:, None])[:, 0].tolist())
    model.float()
    return rows


def tensors():
    """Views, shared storages and number formats."""
    base = torch.arange(24, dtype=torch.float32).reshape(2, 3, 4) - 5.5
    return {
        "plain": base,
        "transposed": base.permute(2, 0, 1),
        "column": base[:, 1, 1:3],
        "every_other": base.flatten()[1::2],
        "scalar": torch.tensor(2.5),
        "empty": torch.zeros(0, 3),
        "half": torch.tensor([1.0, -0.333251953125], dtype=torch.float16),
        "bfloat16": torch.tensor([1.5, -3.0e38], dtype=torch.bfloat16),
        "double": torch.tensor([0.1, -1e-30], dtype=torch.float64),
        "long": torch.tensor([-3, 2**40]),
        "int": torch.tensor([-7, 70000], dtype=torch.int32),
        "short": torch.tensor([-7, 7], dtype=torch.int16),
        "char": torch.tensor([-7, 7], dtype=torch.int8),
        "byte": torch.tensor([0, 200], dtype=torch.uint8),
        "bool": torch.tensor([[True, False], [False, True]]),
        "parameter": nn.Parameter(base[0]),
    }


def main(folder):
    folder.mkdir(parents=True, exist_ok=True)
    expected = {"molecules": ["".join(molecule) for molecule in MOLECULES], "n_head": HEADS}

    def save(name, model, old=False, wrap=None, **conditions):
        state = model.state_dict()
        state = wrap(state) if wrap else state
        torch.save(state, folder / f"{name}.pt", _use_new_zipfile_serialization=not old)
        expected[name] = {"logprobs": log_probabilities(model, **conditions)}
        expected[name].update({key: value[0].tolist() for key, value in conditions.items()})

    plain = shaken(MolGpt())
    save("molgpt", plain)
    # As of PyTorch before 1.6, from a script that trains on several GPUs and keeps more than the weights.
    save(
        "legacy",
        plain,
        old=True,
        wrap=lambda state: {
            "epoch": 3,
            "loss": 0.25,
            "model_state_dict": {f"module.{name}": value for name, value in state.items()},
        },
    )
    properties = torch.tensor([[2.5, 0.6]])
    scaffold = torch.tensor([[TOKENS.index(token) for token in SCAFFOLD]])
    save("property", shaken(MolGpt(properties=2)), properties=properties.double())
    save(
        "scaffold",
        shaken(MolGpt(properties=2, scaffold=len(SCAFFOLD))),
        properties=properties.double(),
        scaffold=scaffold,
    )
    save("lstm", shaken(MolGpt(scaffold=len(SCAFFOLD), lstm_layers=2)), scaffold=scaffold)
    encoder = shaken(EncoderModel())
    encoder.fc.bias.data.zero_()
    save("encoder", encoder)

    mixed = tensors()
    torch.save(mixed, folder / "tensors.pt")
    torch.save(mixed, folder / "tensors-legacy.pt", _use_new_zipfile_serialization=False)
    flat = {name: [list(value.shape), value.flatten().tolist()] for name, value in mixed.items()}
    (folder / "tensors.json").write_text(json.dumps(flat) + "\n")
    (folder / "vocabulary.json").write_text(json.dumps({token: i for i, token in enumerate(TOKENS)}) + "\n")
    (folder / "expected.json").write_text(json.dumps(expected) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
