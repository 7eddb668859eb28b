"""Checks that random SMILES are other spellings of the same molecule, as RDKit reads them.

    cut -d' ' -f1 FILE | cargo run --release -p grpo-chem --example randomized > random.tsv
    python randomized.py random.tsv

Prints the number of random SMILES, how many are another molecule, how many are the canonical SMILES, and how many have
stereochemistry.
"""

import sys

from rdkit import Chem, RDLogger

RDLogger.DisableLog("rdApp.*")


def main(path):
    count = wrong = canonical = stereo = 0
    for line in open(path, encoding="utf-8"):
        expected, *spellings = line.rstrip("\n").split("\t")
        for spelling in spellings:
            molecule = Chem.MolFromSmiles(spelling)
            count += 1
            canonical += spelling == expected
            stereo += any(mark in expected for mark in "@/\\")
            if molecule is None or Chem.MolToSmiles(molecule) != expected:
                wrong += 1
                print(f"{spelling} is not {expected}")
    print(f"{count} random SMILES: {wrong} other molecules, {canonical} canonical, {stereo} with stereochemistry")
    return wrong > 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
