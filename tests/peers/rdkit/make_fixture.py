#!/usr/bin/env python3
"""Write RDKit's values for the molecules of grpo-chem's own test.

    python3 make_fixture.py ../../../crates/grpo-chem/tests/fixtures

Reads `molecules.smi` there (simple chemistry and well-known drugs, written down for this test) and writes `rdkit.csv`.
Needs RDKit (`pip install rdkit`; the committed file was made with 2026.09.1).
"""

import csv
import pathlib
import sys

from compare import NUMBERS, TEXTS, rdkit_row


def main(folder):
    folder = pathlib.Path(folder)
    columns = ["input", *TEXTS, *NUMBERS]
    with open(folder / "rdkit.csv", "w", newline="") as file:
        writer = csv.DictWriter(file, columns, lineterminator="\n")
        writer.writeheader()
        for line in (folder / "molecules.smi").read_text().splitlines():
            smiles = line.split()[0]
            row = rdkit_row(smiles)
            if row is None:
                sys.exit(f"RDKit refuses {line}")
            writer.writerow({"input": smiles, **row})


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
