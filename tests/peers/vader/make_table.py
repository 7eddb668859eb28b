"""Writes compound.jsonl: texts of ours, and the compound that Python's vaderSentiment gives each.

    python -m venv venv && venv/bin/pip install -r requirements.txt
    venv/bin/python make_table.py

A test of grpo-rewards reads the table, so that it needs no Python.
"""

import json
from itertools import product
from pathlib import Path

from vaderSentiment.vaderSentiment import SentimentIntensityAnalyzer

BY_HAND = """
The garden is green and the tomatoes are finally red.
AI helps our nurses to read the scans, and nobody waits for hours.
I do not trust a machine with my father's heart.
This is not bad at all.
Not only good, it is the best thing that happened to the clinic!
The plan was good, but the result is a disaster.
The start was horrible, but now it is GREAT!!!
Never so happy in my life.
It was never good.
Without doubt a great idea.
Without a great idea we fail.
I hardly like it.
I kind of like it.
I sort of hate it.
The least good of all.
At least good enough.
It's the very least we can love.
This phone is the bomb.
This phone is the shit.
That was bad ass.
Yeah right, as if that works.
It cuts the mustard.
A kiss of death for small shops.
A hand to mouth life is sad.
I get a bad feeling about this :(
:) :D <3
:-( >:(
lol that's funny xD
LOL
omg this is sooo good
😀 what a day
💔 I miss the old office 😢
🎉🎉🎉
👍🏽 agreed
No.
No, thanks.
No problem, no worries, no pain.
no one loves this
Do you know the answer?
Why??? Why do you hate it????
What!!!!! Really?!?!
GREAT
GREAT work TEAM
THIS IS ALL IN CAPITALS AND GOOD
this is mostly small letters and GOOD
ain't good
isn't good
can't stand it
cannot love it more
can't say that I don't like it
won't be happy
wasn't very good
It was n't good.
doubt it
I don't doubt that it is good.
But what if it is good?
good but bad but good
bad BUT good
Ok.
fine
"quoted love" and (bracketed hate)
well-known, much-loved, ill-fated
love...hate
...
!!!
???

 
a
I
3 of 4 doctors agree: 12.5% better!
https://example.com is good
@friend thanks for the help #happy
#love
I love, love, love it.
The new law is incredibly, extremely, absolutely terrible.
barely any pain
scarcely useful, hardly helpful
an uber cool and friggin awesome trick
kinda nice
less good
marginally better
so so sad
very, very good
VERY good
very GOOD
REALLY not good
not REALLY good
not such a really good idea
nobody is ever really happy here
Rarely do I smile.
Seldom was a meeting so useful.
despite the pain I smile
nor good nor bad
nope, I don't like it
uhuh
Weren't you glad?
I was upset for a while; by now I laugh about it.
Thoughtful reply, thank you. My mother's clinic uses it since May and she likes the shorter lists.
Screening found it early. I am grateful, and a bit scared of what else they know about me.
Our insurer uses the same model to refuse claims. Great for them, awful for us.
Who is responsible when it fails?
naïve but loved
café crème is delicious
it’s good
don’t like it
El gato es terrible
日本 good 日本
good\tbad
a very long sentence that goes on and on about a train, a garden, a bicycle and a kitchen without any feeling in it
friendly
unfriendly
The villain was killed, and everybody cheered with tears of joy.
a+ b- c
1.5 million happy users
fun fun fun fun fun fun fun fun fun fun fun fun
hate hate hate hate hate hate hate hate hate hate
""".strip("\n").replace("\\t", "\t").split("\n")

SUBJECTS = ["The new model", "Our clinic", "This bike lane", "My old laptop"]
VERBS = ["is", "is not", "was never", "isn't"]
DEGREES = ["", "very ", "EXTREMELY ", "slightly ", "not so ", "barely "]
WORDS = ["good", "BAD", "helpful", "boring", "a disaster"]
ENDS = [".", "!", "!!!", "??", " 😊", ", but I love it.", ", BUT it hurts!", " :("]


def texts() -> list[str]:
    every = list(product(SUBJECTS, VERBS, DEGREES, WORDS, ENDS))
    # A stride that shares no divisor with the choices meets all of them.
    combined = [every[(index * 617) % len(every)] for index in range(420)]
    return BY_HAND + [f"{s} {v} {d}{w}{e}" for s, v, d, w, e in combined]


def main() -> None:
    analyzer = SentimentIntensityAnalyzer()
    lines = []
    for text in texts():
        compound = analyzer.polarity_scores(text)["compound"]
        lines.append(json.dumps([text, compound], ensure_ascii=False))
    table = Path(__file__).with_name("compound.jsonl")
    table.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(f"{len(lines)} texts, {table}")


if __name__ == "__main__":
    main()
