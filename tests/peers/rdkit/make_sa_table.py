#!/usr/bin/env python3
"""Pack RDKit's fragment table of the SA score into the form that grpo-chem embeds.

    python3 make_sa_table.py fpscores.pkl.gz ../../../crates/grpo-chem/data/sa_fragments.bin

`fpscores.pkl.gz` lies in RDKit's package under Contrib/SA_Score (BSD-3-Clause, Novartis 2013). It is a pickle, so it
is read here and nowhere else; only use a file that you trust. Needs the standard library only.

The packed form, all integers little-endian:

    "SAF1"  magic
    u32     number of groups
    group*  i32 score * 10,000 | u32 number of identifiers | u8 Rice parameter k
    bits    for each group in turn, its identifiers ascending, as gaps to the one before (the first to 0):
            gap >> k in unary (that many 1s, then a 0), then the low k bits of the gap, highest first
"""

import gzip
import math
import pickle
import struct
import sys


class Bits:
    """A string of bits, highest first, padded with zeros at the end."""

    def __init__(self):
        self.bytes = bytearray()
        self.pending = 0
        self.length = 0

    def push(self, value, count):
        self.pending = self.pending << count | value
        self.length += count
        while self.length >= 8:
            self.length -= 8
            self.bytes.append(self.pending >> self.length)
            self.pending &= (1 << self.length) - 1

    def finish(self):
        if self.length:
            self.push(0, 8 - self.length)
        return bytes(self.bytes)


def rice_parameter(identifiers):
    """The k that needs the fewest bits for these gaps."""
    gaps = [b - a for a, b in zip([0] + identifiers, identifiers)]
    guess = max(0, int(math.log2(max(1, identifiers[-1] / len(identifiers)))))
    candidates = range(max(0, guess - 2), min(31, guess + 2) + 1)
    return min(candidates, key=lambda k: sum((gap >> k) + 1 + k for gap in gaps))


def main(source, target):
    with gzip.open(source) as file:
        rows = pickle.load(file)
    score_of = {}
    for row in rows:
        for identifier in row[1:]:
            score_of[identifier] = float(row[0])  # a later row wins, as in RDKit's reader
    groups = {}
    for identifier, score in score_of.items():
        scaled = round(score * 10_000)
        assert scaled / 10_000 == score, f"{score} has more than four decimals"
        groups.setdefault(scaled, []).append(identifier)

    header, bits = bytearray(b"SAF1" + struct.pack("<I", len(groups))), Bits()
    for scaled, identifiers in sorted(groups.items()):
        identifiers.sort()
        k = rice_parameter(identifiers)
        header += struct.pack("<iIB", scaled, len(identifiers), k)
        last = 0
        for identifier in identifiers:
            gap, last = identifier - last, identifier
            for _ in range(gap >> k):
                bits.push(1, 1)
            bits.push(gap & ((1 << k) - 1), k + 1)
    with open(target, "wb") as file:
        file.write(header + bits.finish())
    print(f"{len(score_of)} fragments, {len(groups)} scores")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(sys.argv[1], sys.argv[2])
