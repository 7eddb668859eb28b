"""An infiller and a sequence scorer in torch, from a model folder of ours."""

import json

import torch
import torch.nn.functional as F
from safetensors.torch import load_file

# Always as many: sums then run in one order, and a folder made again has the same digits.
torch.set_num_threads(2)


class Model:
    """A model of either family, as a function of ids. It is refused unless each tensor of the file is used."""

    def __init__(self, folder):
        self.config = json.loads((folder / "config.json").read_text())
        self.weights = {name: value.float() for name, value in load_file(folder / "model.safetensors").items()}
        self.used = set()
        size = self.config["vocab_size"]
        # Behind the characters stand MASK, PAD and CLS.
        self.mask, self.pad, self.cls = size - 3, size - 2, size - 1

    def __getitem__(self, name):
        self.used.add(name)
        return self.weights[name]

    def linear(self, name, x):
        bias = self[f"{name}.bias"] if f"{name}.bias" in self.weights else None
        return F.linear(x, self[f"{name}.weight"], bias)

    def norm(self, name, x):
        return F.layer_norm(x, x.shape[-1:], self[f"{name}.weight"], self[f"{name}.bias"], 1e-5)

    def rotated(self, x):
        """Each head's vector as complex numbers, the second half its imaginary parts, turned by position · θ^(−2i/width)."""
        tokens, _, width = x.shape
        pairs = torch.arange(width // 2, dtype=torch.float64)
        frequencies = self.config.get("rope_theta", 10000.0) ** (-2 * pairs / width)
        angles = torch.arange(tokens, dtype=torch.float64)[:, None] * frequencies
        turned = torch.complex(*x.double().chunk(2, -1)) * torch.polar(torch.ones_like(angles), angles)[:, None]
        return torch.cat([turned.real, turned.imag], -1).float()

    def attention(self, name, x):
        heads = self.config["n_head"]

        def split(part):
            return self.linear(f"{name}.{part}", x).unflatten(-1, (heads, -1))

        query, key, value = self.rotated(split("query")), self.rotated(split("key")), split("value")
        # [heads, tokens, width]; no mask: all tokens see each other.
        mixed = F.scaled_dot_product_attention(*(part.transpose(0, 1)[None] for part in (query, key, value)))[0]
        return self.linear(f"{name}.proj", mixed.transpose(0, 1).flatten(1))

    def hidden(self, ids):
        x = F.embedding(torch.tensor(ids), self["tok_emb.weight"])
        for layer in range(self.config["n_layer"]):
            at = f"blocks.{layer}"
            x = x + self.attention(f"{at}.attn", self.norm(f"{at}.ln1", x))
            x = x + self.linear(f"{at}.mlp.down", F.gelu(self.linear(f"{at}.mlp.up", self.norm(f"{at}.ln2", x))))
        return self.norm("ln_f", x)

    @torch.no_grad()
    def logits(self, ids):
        """[tokens, ids]"""
        return F.linear(self.hidden(ids), self["tok_emb.weight"])

    @torch.no_grad()
    def critic(self, ids):
        """[tokens]"""
        return self.linear("critic", self.hidden(ids))[:, 0]

    @torch.no_grad()
    def score(self, text):
        """0 (natural) to 1 (corrupted)."""
        seen = [id for id in text if id != self.pad][: self.config["block_size"]]
        raw = self.linear("score_head.direction", self.hidden([self.cls, *seen])[0])
        return torch.sigmoid(self["score_head.scale"] * raw + self["score_head.shift"]).item()

    def finish(self):
        if stray := self.weights.keys() - self.used:
            raise SystemExit(f"tensors that nothing reads: {sorted(stray)}")
