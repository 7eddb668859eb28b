#!/usr/bin/env python3
"""Compare grpo-chem's scoring components with RDKit.

    python3 components.py patterns --count 200 > patterns.smarts
    shuf -n 5000 --random-source=<(yes) FILE.smi > molecules.smi
    head -3 FILE.smi > references.smi
    cargo run --release -p grpo-chem --example descriptors -- --patterns patterns.smarts \\
        --references references.smi < molecules.smi > components.csv
    python3 components.py compare components.csv --patterns patterns.smarts --references references.smi

    python3 components.py fixture ../../../crates/grpo-chem/tests/fixtures

`patterns` draws SMARTS patterns from those that come with RDKit: PAINS, the structural alerts of QED (Brenk),
functional groups, fragment descriptors and Lewis acids and bases. `compare` exits 1 where a share falls below
`--at-least`. `fixture` writes RDKit's values for `molecules.smi` and `patterns.smarts` of grpo-chem's own test. Needs RDKit (`pip install rdkit`;
measured with 2026.09.1).
"""

import argparse
import csv
import pathlib
import random
import re
import sys
from multiprocessing import Pool

import numpy
from rdkit import Chem, DataStructs
from rdkit.Chem import QED, Crippen, Descriptors, RDConfig, rdFingerprintGenerator, rdMolDescriptors
from rdkit.Chem.Scaffolds import MurckoScaffold

from compare import QED_COLUMNS, attempt, sascorer

TEXTS = ["formula", "framework", "block"]


def hybridized(kind):
    return lambda mol: sum(atom.GetHybridization() == kind for atom in mol.GetAtoms())


def qed_property(index):
    return lambda mol: QED.properties(mol)[index]


def graph_length(mol):
    """The longest distance within a fragment. RDKit's distance between fragments is 100,000,000."""
    distances = Chem.GetDistanceMatrix(mol)
    return int(numpy.max(distances[distances < 1e8]))


NUMBERS = {
    "qed": QED.qed,
    "sa": sascorer.calculateScore,
    "logp": Crippen.MolLogP,
    "mw": Descriptors.MolWt,
    "tpsa": rdMolDescriptors.CalcTPSA,
    "hba": qed_property(QED_COLUMNS.index("hba")),
    "hbd": rdMolDescriptors.CalcNumHBD,
    "rotatable": rdMolDescriptors.CalcNumRotatableBonds,
    "aromatic_rings": qed_property(QED_COLUMNS.index("aromatic_rings")),
    "alerts": qed_property(QED_COLUMNS.index("alerts")),
    "heavy_atoms": rdMolDescriptors.CalcNumHeavyAtoms,
    "hetero_atoms": rdMolDescriptors.CalcNumHeteroatoms,
    "rings": rdMolDescriptors.CalcNumRings,
    "largest_ring": lambda mol: max(map(len, mol.GetRingInfo().AtomRings()), default=0),
    "aliphatic_rings": rdMolDescriptors.CalcNumAliphaticRings,
    "fraction_csp3": rdMolDescriptors.CalcFractionCSP3,
    "stereo_centers": rdMolDescriptors.CalcNumAtomStereoCenters,
    "charge": Chem.GetFormalCharge,
    "sp_atoms": hybridized(Chem.HybridizationType.SP),
    "sp2_atoms": hybridized(Chem.HybridizationType.SP2),
    "sp3_atoms": hybridized(Chem.HybridizationType.SP3),
    "graph_length": graph_length,
}


def framework(mol):
    generic = MurckoScaffold.MakeScaffoldGeneric(MurckoScaffold.GetScaffoldForMol(mol))
    return Chem.MolToSmiles(generic, isomericSmiles=False)


def fingerprints(mol):
    """The fingerprints whose similarities are columns, as `{name: fingerprint}`."""
    found = {}
    for radius in [2, 3]:
        generator = rdFingerprintGenerator.GetMorganGenerator(radius=radius, fpSize=2048)
        found[f"bits{radius}"] = generator.GetFingerprint(mol)
        found[f"counts{radius}"] = generator.GetSparseCountFingerprint(mol)
    return found


def theirs(smiles):
    """RDKit's values for one SMILES. A value that RDKit cannot give is None."""
    mol = Chem.MolFromSmiles(smiles)
    row = {name: attempt(function, mol) for name, function in NUMBERS.items()}
    row["formula"] = rdMolDescriptors.CalcMolFormula(mol)
    row["framework"] = attempt(framework, mol)
    row["block"] = Chem.MolToSmiles(mol)
    ours = fingerprints(mol)
    for i, reference in enumerate(REFERENCES):
        for name, fingerprint in fingerprints(Chem.MolFromSmiles(reference)).items():
            row[f"{name}_{i}"] = DataStructs.TanimotoSimilarity(ours[name], fingerprint)
    for i, pattern in enumerate(PATTERNS):
        row[f"pattern_{i}"] = len(mol.GetSubstructMatches(pattern))
    return row


def set_up(patterns, references):
    global PATTERNS, REFERENCES
    PATTERNS = [Chem.MolFromSmarts(smarts, mergeHs=True) for smarts in patterns]
    REFERENCES = references


def read_back(block):
    """The canonical SMILES of a mol block whose lines are separated by `|`."""
    mol = Chem.MolFromMolBlock(block.replace("|", "\n"))
    return None if mol is None else Chem.MolToSmiles(mol)


def equal(column, found, expected):
    if expected is None:
        return True
    if column == "block":
        return read_back(found) == expected
    if column in TEXTS:
        return found == expected
    return found != "" and abs(float(found) - expected) < 1e-4


def lines(path):
    return [line for line in pathlib.Path(path).read_text().splitlines() if line] if path else []


def compare(arguments):
    patterns, references = lines(arguments.patterns), lines(arguments.references)
    csv.field_size_limit(10**8)
    with open(arguments.components, newline="") as file:
        rows = list(csv.DictReader(file))
    cases = {}
    with Pool(initializer=set_up, initargs=(patterns, references)) as pool:
        for row, expected in zip(rows, pool.imap(theirs, [row["input"] for row in rows], chunksize=50)):
            for column, value in expected.items():
                group = column.rsplit("_", 1)[0] if re.search(r"_\d+$", column) else column
                different = cases.setdefault(group, [0, []])
                different[0] += 1
                if not equal(column, row[column], value):
                    different[1].append((row["input"], column, row[column], value))
    failed = False
    for group, (total, different) in cases.items():
        share = 1 - len(different) / total
        failed |= share < arguments.at_least
        print(f"{group:15} {100 * share:8.4f} %  {len(different)} of {total} differ")
        for smiles, column, found, value in different[: arguments.show]:
            name = patterns[int(column.rsplit("_", 1)[1])] if group == "pattern" else column
            print(f"    {smiles!r} {name}: ours {found[:60]}, RDKit {value}")
    sys.exit(failed)


def known_patterns():
    """The SMARTS patterns in RDKit's data files, by file."""
    folder = pathlib.Path(RDConfig.RDDataDir)
    with open(folder / "Pains/wehi_pains.csv", newline="") as file:
        yield [row[0] for row in csv.reader(file)]
    with open(folder / "FragmentDescriptors.csv") as file:
        yield [fields[2] for fields in map(str.split, file) if len(fields) > 2]
    for name in ["Functional_Group_Hierarchy.txt", "FunctionalGroups.txt", "SmartsLib/RLewis_smarts.txt"]:
        yield re.findall(r"\t([^\s/]\S*)", (folder / name).read_text())
    yield [Chem.MolToSmarts(pattern) for pattern in QED.StructuralAlerts]


def patterns(arguments):
    rng = random.Random(arguments.seed)
    files = [sorted({text for text in found if attempt(Chem.MolFromSmarts, text)}) for found in known_patterns()]
    chosen = [text for found in files for text in rng.sample(found, min(len(found), arguments.count // len(files) + 1))]
    rest = sorted({text for found in files for text in found} - set(chosen))
    missing = max(0, arguments.count - len(chosen))
    print("\n".join((chosen + rng.sample(rest, min(missing, len(rest))))[: arguments.count]))


def fixture(arguments):
    folder = pathlib.Path(arguments.folder)
    molecules = [line.split()[0] for line in lines(folder / "molecules.smi")]
    set_up([], REFERENCES_OF_THE_FIXTURE)
    rows = [{"input": smiles, **theirs(smiles)} for smiles in molecules]
    with open(folder / "components.csv", "w", newline="") as file:
        columns = [column for column in rows[0] if column not in {*QED_COLUMNS, "qed", "sa", "block"}]
        writer = csv.DictWriter(file, columns, extrasaction="ignore", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    mols = [Chem.MolFromSmiles(smiles) for smiles in molecules[:: EVERY]]
    with open(folder / "patterns.csv", "w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["pattern", "counts"])
        for smarts in lines(folder / "patterns.smarts"):
            pattern = Chem.MolFromSmarts(smarts, mergeHs=True)
            counts = [] if pattern is None else [len(mol.GetSubstructMatches(pattern)) for mol in mols]
            writer.writerow([smarts, " ".join(map(str, counts))])


# Aspirin and caffeine.
REFERENCES_OF_THE_FIXTURE = ["CC(=O)Oc1ccccc1C(=O)O", "Cn1cnc2c1c(=O)n(C)c(=O)n2C"]
# The fixture counts patterns in every fifth molecule.
EVERY = 5


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    command = commands.add_parser("compare")
    command.set_defaults(run=compare)
    command.add_argument("components")
    command.add_argument("--patterns")
    command.add_argument("--references")
    command.add_argument("--show", type=int, default=5, help="differences printed for each column")
    command.add_argument("--at-least", type=float, default=0.0, help="smallest share that passes, as 0.999")
    command = commands.add_parser("patterns")
    command.set_defaults(run=patterns)
    command.add_argument("--count", type=int, default=200)
    command.add_argument("--seed", type=int, default=1)
    command = commands.add_parser("fixture")
    command.set_defaults(run=fixture)
    command.add_argument("folder")
    arguments = parser.parse_args()
    arguments.run(arguments)


if __name__ == "__main__":
    main()
