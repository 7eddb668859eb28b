"""A byte-level BPE tokenizer in the manner of Qwen's, trained on a few lines of our own, and what it makes of texts.

The chat template is our own. It uses what real templates use (a namespace, a loop backwards, methods of strings,
`is defined`), because a reader in another language has to know these.
"""

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

LEARNED_TOKENS = 420
# Qwen's way of cutting a text: contractions, words with their space, single digits, punctuation, line ends, spaces.
CUTS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"

LINES = """
The kettle was on before the first tram came down the hill, and the kitchen smelled of bread.
She counts the boats each morning: seven of them, then six, then seven again.
What would you say to someone who asked how long the bridge has been closed?
I don't know whether it's the wind or the old door, but something's knocking.
They'll ask for a shorter answer. We've written three, and none of them is short.
Write a short reply to the message above, and do not repeat its words.
Please explain in one sentence why the sum of two even numbers is even.
First add the numbers, then divide by their count; the mean of 3, 4 and 8 is 5.
The reward is 1 when the answer is right, and 0 when it is not.
for row in rows:
    total += row["price"] * row["count"]
    if total > 1000: print("enough")
fn mean(values: &[f64]) -> f64 { values.iter().sum::<f64>() / values.len() as f64 }
CC(=O)Oc1ccccc1C(=O)O is written from left to right, and so is c1ccncc1.
Am Morgen lag Schnee auf den Dächern, und die Straßenbahn fuhr später als sonst.
Le café était fermé, mais la boulangère nous a donné deux croissants.
El niño preguntó cuántos días faltaban para el otoño.
Утром на крышах лежал снег, и трамвай опоздал на десять минут.
今天早上屋顶上有雪,电车晚了十分钟。
A question is answered by a reply, and a good reply answers the question that was asked.
The train that was late was the train that we had to take, so we were late as well.
Numbers such as 17, 289 and 4913 are powers of seventeen; 2026 is a year.
"""

CHAT_TEMPLATE = """\
{%- if messages[0].role == 'system' %}
    {{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}
{%- endif %}
{%- set last = namespace(asked=messages|length - 1, found=false) %}
{%- for message in messages[::-1] %}
    {%- if not last.found and message.role == 'user' %}
        {%- set last.asked = messages|length - 1 - loop.index0 %}
        {%- set last.found = true %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- if message.role == 'user' or (message.role == 'system' and not loop.first) %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}
    {%- elif message.role == 'assistant' %}
        {%- set content = message.content %}
        {%- if loop.index0 < last.asked and '</think>' in content %}
            {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
        {%- endif %}
        {{- '<|im_start|>assistant\\n' + content.rstrip() }}
        {{- '<|im_end|>\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\\n\\n</think>\\n\\n' }}
    {%- endif %}
{%- endif %}
"""

QUESTION = {"role": "user", "content": "How long has the bridge been closed?"}
SYSTEM = {"role": "system", "content": "Write a short reply."}
THOUGHT = {"role": "assistant", "content": "<think>\nTwo even numbers.\n</think>\n\nThe sum is even.  \n"}
CHATS = [
    ([QUESTION], {"add_generation_prompt": True}),
    ([QUESTION], {"add_generation_prompt": True, "enable_thinking": True}),
    ([QUESTION], {"add_generation_prompt": True, "enable_thinking": False}),
    ([SYSTEM, QUESTION], {"add_generation_prompt": True, "enable_thinking": False}),
    ([QUESTION, THOUGHT], {"add_generation_prompt": False}),
    ([SYSTEM, QUESTION, THOUGHT, {"role": "user", "content": "Explain it."}], {"add_generation_prompt": True}),
    ([QUESTION, SYSTEM, QUESTION], {"add_generation_prompt": True}),
    # Marks of the template inside of a message are tokens too: whoever takes foreign text must know it.
    ([{"role": "user", "content": "Say <|im_end|> and <think> twice."}], {"add_generation_prompt": True}),
    ([{"role": "user", "content": "  Ein Café — 今天?\n\n\n\tü\r\n 🙂 "}], {"add_generation_prompt": True}),
    ([{"role": "user", "content": ""}], {"add_generation_prompt": True}),
]
TEXTS = [
    "",
    " ",
    "   three spaces, two behind  ",
    "I don't, WE'LL, it'S",
    "line\n\n\nline\r\n\tend\n",
    "2026 is 17 times 119.176",
    "Cafe\u0301 and Caf\u00e9 are one text after normalization",
    "🙂👩‍🔬 нет 今天早上",
    "\u00a0\u2028\u0000",
    "before<|im_end|>after <|endoftext|><|endoftext|>",
    "<think>\n\n</think>\n\nyes",
    "<|im_star|> <|IM_END|> <| im_end |>",
    "CC(=O)Oc1ccccc1C(=O)O",
]


def text_files(folder):
    """Write the tokenizer and the template into the folder; the tokenizer, rendered chats and encoded texts."""
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=trained(),
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        additional_special_tokens=["<|im_start|>", "<|im_end|>"],
        clean_up_tokenization_spaces=False,
        model_max_length=1024,
    )
    tokenizer.chat_template = CHAT_TEMPLATE
    tokenizer.save_pretrained(folder)
    # What is compared is what the files say, not what was in memory.
    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
    return tokenizer, [chat(tokenizer, *case) for case in CHATS], [text(tokenizer, case) for case in TEXTS]


def trained():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(CUTS), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=LEARNED_TOKENS,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(LINES.splitlines(keepends=True), trainer)
    tokenizer.add_special_tokens(
        [AddedToken(token, normalized=False) for token in ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]]
    )
    # As in Qwen 3: added, cut out whole, but not special, so that they stay in decoded text.
    tokenizer.add_tokens([AddedToken(token, normalized=False) for token in ["<think>", "</think>"]])
    return tokenizer


def chat(tokenizer, messages, settings):
    rendered = tokenizer.apply_chat_template(messages, tokenize=False, **settings)
    ids = tokenizer.apply_chat_template(messages, tokenize=True, return_dict=False, **settings)
    return {"messages": messages, **settings, "rendered": rendered, "ids": ids}


def text(tokenizer, content):
    ids = tokenizer(content, add_special_tokens=False)["input_ids"]
    return {
        "text": content,
        "ids": ids,
        "decoded": tokenizer.decode(ids),
        "decoded_without_special": tokenizer.decode(ids, skip_special_tokens=True),
    }
