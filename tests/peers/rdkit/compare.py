#!/usr/bin/env python3
"""Compare what grpo-chem says of molecules with what RDKit says.

    grpo describe FILE.smi -o described.csv
    python3 compare.py values described.csv  # every column of every row against RDKit

    python3 compare.py damage FILE.smi --count 20000 --seed 1 > damaged.smi
    grpo describe damaged.smi -o described.csv
    python3 compare.py verdicts described.csv  # only valid or not

    python3 compare.py rewrite FILE.smi --count 5000 --how random > rewritten.smi

Needs RDKit (`pip install rdkit`; measured with 2026.09.1). `values` and `verdicts` exit 1 where a share falls below
its `--at-least`. Numbers are equal when they differ by less than 1e-4.
"""

import argparse
import csv
import random
import sys
from multiprocessing import Pool

from rdkit import Chem, RDLogger
from rdkit.Chem import QED, RDConfig
from rdkit.Chem.Scaffolds import MurckoScaffold

sys.path.append(f"{RDConfig.RDContribDir}/SA_Score")
import sascorer  # noqa: E402  (is installed next to RDKit, not on the path)

RDLogger.DisableLog("rdApp.*")

QED_COLUMNS = ["mw", "logp", "hba", "hbd", "tpsa", "rotatable", "aromatic_rings", "alerts"]
NUMBERS = [*QED_COLUMNS, "qed", "sa"]
TEXTS = ["canonical", "scaffold"]


def rdkit_row(smiles):
    """RDKit's values for one SMILES, or None where it refuses it. A value that RDKit cannot give is None."""
    mol = Chem.MolFromSmiles(smiles)
    if mol is None or mol.GetNumAtoms() == 0:
        return None
    row = dict.fromkeys(QED_COLUMNS)
    row.update(zip(QED_COLUMNS, attempt(QED.properties, mol) or []))
    row["qed"] = attempt(QED.qed, mol)
    row["sa"] = attempt(sascorer.calculateScore, mol)
    row["canonical"] = Chem.MolToSmiles(mol)
    row["scaffold"] = attempt(MurckoScaffold.MurckoScaffoldSmiles, None, mol)
    return row


def attempt(function, *arguments):
    """RDKit raises on some molecules that it has read: a scaffold or a form without hydrogens that breaks valences."""
    try:
        return function(*arguments)
    except Exception:
        return None


def rdkit_verdict(smiles):
    mol = Chem.MolFromSmiles(smiles)
    return mol is not None and mol.GetNumAtoms() > 0


def equal(column, ours, theirs):
    if theirs is None:
        return True
    if column in TEXTS:
        return ours == theirs
    return ours != "" and abs(float(ours) - theirs) < 1e-4


def over(function, items):
    with Pool() as pool:
        yield from pool.imap(function, items, chunksize=200)


def read_rows(path):
    with open(path, newline="") as file:
        yield from csv.DictReader(file)


def values(arguments):
    rows = list(read_rows(arguments.described))
    differing = {column: [] for column in ["valid", *TEXTS, *NUMBERS]}
    both = 0
    for row, theirs in zip(rows, over(rdkit_row, [row["smiles"] for row in rows])):
        if (row["valid"] == "1") != (theirs is not None):
            differing["valid"].append((row["smiles"], row["reason"] or "accepted", "refused" if theirs is None else "ok"))
        elif theirs is not None:
            both += 1
            for column in [*TEXTS, *NUMBERS]:
                if not equal(column, row[column], theirs[column]):
                    differing[column].append((row["smiles"], row[column], theirs[column]))
    report(differing, {column: len(rows) if column == "valid" else both for column in differing}, arguments)


def verdicts(arguments):
    rows = list(read_rows(arguments.described))
    differing = [
        (row["smiles"], row["reason"] or "accepted", "ok" if theirs else "refused")
        for row, theirs in zip(rows, over(rdkit_verdict, [row["smiles"] for row in rows]))
        if (row["valid"] == "1") != theirs
    ]
    report({"valid": differing}, {"valid": len(rows)}, arguments)


def report(differing, totals, arguments):
    failed = False
    for column, cases in differing.items():
        total = totals[column]
        share = 1 - len(cases) / max(1, total)
        failed |= share < arguments.at_least
        print(f"{column:15} {100 * share:8.3f} %  {len(cases)} of {total} differ")
        for smiles, ours, theirs in cases[: arguments.show]:
            print(f"    {smiles!r}: ours {ours}, RDKit {theirs}")
    sys.exit(failed)


SYMBOLS = list("CNOSPFIBcnosp()[]=#-+@/\\123456789%.H:*$~0l r") + ["Cl", "Br", "[nH]", "[C@H]", "[O-]", "[N+]", "%10"]


def damaged(smiles, rng, most):
    """`smiles` with one to `most` random edits: a character deleted, doubled, swapped with the next, or inserted."""
    text = list(smiles)
    for _ in range(rng.randint(1, most)):
        at = rng.randrange(len(text)) if text else 0
        match rng.choice(["delete", "double", "swap", "insert"]):
            case "delete" if len(text) > 1:
                del text[at]
            case "double" if text:
                text.insert(at, text[at])
            case "swap" if at + 1 < len(text):
                text[at], text[at + 1] = text[at + 1], text[at]
            case _:
                text.insert(at, rng.choice(SYMBOLS))
    return "".join(text).replace(" ", "")


def read_smiles(path):
    with open(path) as file:
        return [line.split()[0] for line in file if line.strip()]


def damage(arguments):
    rng = random.Random(arguments.seed)
    molecules = read_smiles(arguments.smiles)
    for _ in range(arguments.count):
        print(damaged(rng.choice(molecules), rng, arguments.edits) or "C")


def rewrite(arguments):
    """The same molecules in other words."""
    rng = random.Random(arguments.seed)
    molecules = read_smiles(arguments.smiles)
    for smiles in rng.sample(molecules, min(arguments.count, len(molecules))):
        mol = Chem.MolFromSmiles(smiles)
        if mol is None:
            continue
        if arguments.how == "random":
            print(Chem.MolToSmiles(mol, canonical=False, doRandom=True))
        elif arguments.how == "kekule":
            Chem.Kekulize(mol, clearAromaticFlags=True)
            print(Chem.MolToSmiles(mol, kekuleSmiles=True, canonical=False, doRandom=True))
        elif arguments.how == "hydrogens":
            print(Chem.MolToSmiles(Chem.AddHs(mol), canonical=False, doRandom=True))
        elif arguments.how == "explicit":
            print(Chem.MolToSmiles(mol, allHsExplicit=True, allBondsExplicit=True, doRandom=True))
        elif arguments.how == "isotopes":
            atom = mol.GetAtomWithIdx(rng.randrange(mol.GetNumAtoms()))
            atom.SetIsotope(Chem.GetPeriodicTable().GetMostCommonIsotope(atom.GetAtomicNum()) + rng.randint(0, 2))
            print(Chem.MolToSmiles(mol))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    for function in [values, verdicts]:
        command = commands.add_parser(function.__name__)
        command.set_defaults(run=function)
        command.add_argument("described")
        command.add_argument("--show", type=int, default=5, help="differences printed for each column")
        command.add_argument("--at-least", type=float, default=0.0, help="smallest share that passes, as 0.998")
    for function in [damage, rewrite]:
        command = commands.add_parser(function.__name__)
        command.set_defaults(run=function)
        command.add_argument("smiles")
        command.add_argument("--count", type=int, default=20_000)
        command.add_argument("--seed", type=int, default=1)
        if function is damage:
            command.add_argument("--edits", type=int, default=1, help="most edits to one string")
        else:
            command.add_argument("--how", default="random", choices="random kekule hydrogens explicit isotopes".split())
    arguments = parser.parse_args()
    arguments.run(arguments)


if __name__ == "__main__":
    main()
