#!/usr/bin/env python3
"""Write RDKit's two lists of SMARTS behind QED into the files that grpo-chem embeds.

    python3 make_qed_smarts.py ../../../crates/grpo-chem/data

Needs RDKit (`pip install rdkit`). The lists are `AcceptorSmarts` and `StructuralAlertSmarts` of rdkit.Chem.QED
(BSD-3-Clause, Novartis 2009-2017), one pattern a line, in RDKit's order.
"""

import pathlib
import sys

from rdkit.Chem import QED


def main(folder):
    for name, patterns in [("acceptors", QED.AcceptorSmarts), ("alerts", QED.StructuralAlertSmarts)]:
        text = "".join(f"{pattern}\n" for pattern in patterns)
        (pathlib.Path(folder) / f"qed_{name}.smarts").write_text(text)
        print(f"{len(patterns)} {name}")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
