#!/usr/bin/env python3
"""Write random cages, polycycles and macrocycles, whose rings, aromaticity and stereocenters are hard to perceive.

    python3 hard_molecules.py cages --count 2500 --seed 1 > cages.smi
    python3 hard_molecules.py macrocycles --count 2500 --seed 1 > macrocycles.smi
    python3 hard_molecules.py spell FILE.smi --count 20 > spellings.smi  # for `grpo describe` and `compare.py values`
    python3 hard_molecules.py fixture ../../../crates/grpo-chem/tests/fixtures

Each line of the first two is RDKit's canonical SMILES of another molecule. `spell` writes random spellings and a Kekule
form of each molecule. `fixture` writes RDKit's values for grpo-chem's own test. Needs RDKit (measured with 2026.09.1).
"""

import argparse
import csv
import pathlib
import random

from rdkit import Chem, RDLogger

from compare import attempt, rdkit_row
from components import NUMBERS, framework

RDLogger.DisableLog("rdApp.*")


def cage(rng):
    """A random connected graph of degree at most four with three to six more bonds than a tree, some heteroatoms, a few
    double bonds, and random configurations."""
    atoms = rng.randint(6, 16)
    molecule = Chem.RWMol()
    for _ in range(atoms):
        molecule.AddAtom(Chem.Atom(rng.choices(["C", "N", "O", "S", "P", "Si"], [70, 20, 4, 3, 2, 1])[0]))
    degree = [0] * atoms
    most = [
        {"C": 4, "N": 3, "O": 2, "S": 2, "P": 3, "Si": 4}[atom.GetSymbol()] for atom in molecule.GetAtoms()
    ]

    def bond(a, b, order=Chem.BondType.SINGLE):
        if a == b or molecule.GetBondBetweenAtoms(a, b) or degree[a] >= most[a] or degree[b] >= most[b]:
            return False
        molecule.AddBond(a, b, order)
        degree[a] += 1
        degree[b] += 1
        return True

    for b in range(1, atoms):
        if not any(bond(rng.randrange(max(0, b - 4), b), b) for _ in range(20)):
            return None
    for _ in range(rng.randint(3, 6)):
        for _ in range(20):
            if bond(rng.randrange(atoms), rng.randrange(atoms)):
                break
    for each in list(molecule.GetBonds()):
        a, b = each.GetBeginAtomIdx(), each.GetEndAtomIdx()
        if rng.random() < 0.06 and degree[a] < most[a] and degree[b] < most[b]:
            each.SetBondType(Chem.BondType.DOUBLE)
            degree[a] += 1
            degree[b] += 1
    if rng.random() < 0.3:
        tags = [Chem.ChiralType.CHI_TETRAHEDRAL_CW, Chem.ChiralType.CHI_TETRAHEDRAL_CCW]
        for atom in molecule.GetAtoms():
            if atom.GetDegree() >= 3 and rng.random() < 0.7:
                atom.SetChiralTag(rng.choice(tags))
    return molecule


UNITS = [
    "c1ccc({})cc1{}", "c1cc({})ccc1{}", "c1ccc({})c({})c1", "c1cc({})oc1{}", "c1cc({})sc1{}", "c1c({})oc({})n1",
    "c1c({})sc({})n1", "n1nc({})oc1{}", "n1nc({})sc1{}", "c1cc({})[nH]c1{}", "c1cc({})nc({})c1", "n1cc({})ccc1{}",
    "c1({})ccn({})n1", "C1({})CCC({})CC1", "C1({})CCC({})O1", "C1=CC({})=CC=C1{}", "C1=CC({})OC1={}", "c1c({})occ1{}",
    "c1c({})scc1{}", "c1ccc2c({})cc({})cc2c1", "n1({})ccc2cc({})ccc21", "C1({})=CC=C({})S1", "N1({})CCN({})CC1",
    "c1cc({})[se]c1{}", "C1({})CC2CCC1C2{}", "O=C1NC({})=CC1={}", "C1(={})C=CC({})=N1", "C1({})=CC=C(O1)={}",
]
LINKERS = [
    "", "C", "CC", "CCC", "CCCC", "CCCCCC", "O", "S", "N", "C=C", "/C=C/", "/C=C\\", "C#C", "OCCO", "OCCOCCO", "C(=O)N",
    "NC(=O)", "C(=O)O", "N=C", "C=N", "CN(C)C", "COC", "CSC", "C(=O)", "S(=O)(=O)N", "[C@H](C)N", "C=CC=C", "=C", "=N",
    "N=N", "[Si](C)(C)", "P(=O)(O)O", "=C=", "OC", "SCCS", "[C@@H](O)C", "C(=C)", "=CC=", "=NN=", "=C(C)C=C",
]


def macrocycle(rng):
    """One to five units in a large ring, joined by linkers. Some have another bond across the ring."""
    count = rng.choices([1, 2, 3, 4, 5], [1, 4, 4, 3, 1])[0]
    molecule = Chem.RWMol()
    ends = []
    for _ in range(count):
        for text in [rng.choice(UNITS).replace("{}", "[*:1]", 1).replace("{}", "[*:2]"), spacer(rng)]:
            part = Chem.MolFromSmiles(text)
            if part is None:
                return None
            Chem.Kekulize(part, clearAromaticFlags=True)
            offset = molecule.GetNumAtoms()
            molecule.InsertMol(part)
            marked = {
                atom.GetAtomMapNum(): atom.GetIdx() + offset for atom in part.GetAtoms() if atom.GetAtomMapNum()
            }
            if len(marked) != 2:
                return None
            ends.append((marked[1], marked[2]))
    gone = []
    for (_, out), (into, _) in zip(ends, ends[1:] + ends[:1]):
        a, b = (molecule.GetAtomWithIdx(end).GetBonds()[0] for end in (out, into))
        if a.GetBondType() != b.GetBondType():
            return None
        first, second = a.GetOtherAtomIdx(out), b.GetOtherAtomIdx(into)
        if first == second or molecule.GetBondBetweenAtoms(first, second):
            return None
        molecule.AddBond(first, second, a.GetBondType())
        gone += [out, into]
    if rng.random() < 0.25:
        # Another bridge: a bond between two atoms with hydrogens.
        free = [a.GetIdx() for a in molecule.GetAtoms() if a.GetAtomicNum() and a.GetTotalNumHs() > 0]
        if len(free) > 2:
            a, b = rng.sample(free, 2)
            if not molecule.GetBondBetweenAtoms(a, b):
                molecule.AddBond(a, b, Chem.BondType.SINGLE)
    for index in sorted(set(gone), reverse=True):
        molecule.RemoveAtom(index)
    for atom in molecule.GetAtoms():
        atom.SetNoImplicit(False)
        atom.SetNumExplicitHs(0)
    return molecule


def spacer(rng):
    linker = "".join(rng.choice(LINKERS) for _ in range(rng.choices([1, 2], [3, 1])[0]))
    if not linker:
        return "[*:1][*:2]"
    return f"[*:1]{linker}[*:2]"


def generated(kind, count, seed):
    rng = random.Random(seed)
    make = {"cages": cage, "macrocycles": macrocycle}[kind]
    seen = set()
    while len(seen) < count:
        try:
            molecule = make(rng)
            if molecule is None:
                continue
            molecule = molecule.GetMol()
            Chem.SanitizeMol(molecule)
            smiles = Chem.MolToSmiles(molecule)
        except Exception:
            continue
        if len(smiles) <= 250 and smiles not in seen and Chem.MolFromSmiles(smiles) is not None:
            seen.add(smiles)
            yield smiles


def spell(path, count):
    for line in pathlib.Path(path).read_text().splitlines():
        molecule = Chem.MolFromSmiles(line.split()[0])
        for smiles in Chem.MolToRandomSmilesVect(molecule, count - 1, randomSeed=11):
            print(smiles)
        Chem.Kekulize(molecule, clearAromaticFlags=True)
        print(Chem.MolToSmiles(molecule, kekuleSmiles=True, canonical=False, doRandom=True))


# Molecules for which releases of RDKit or this project had wrong or several answers.
REPORTED = [
    "CCCC12C3CCNC1C32", "CN1CNC2C3CNCC21N3", "C1C3CN2[SiH]3CCC2[SiH2]1", "C12CCCC3C1C23", "N1CCC2CCN3N2CN13",
    "NC1C2CN3CN1CCCN23", "C1COCCOCCN2CCOCCOCCN1CCOCCOCC2", "C1CCCCCCCCc2ccc(s2)C1", "C12CCCCCCC(=CC=1)S2",
    "C1COCCOc2c3cccc2Cc2cccc(c2OC)Cc2cccc(c2OCCO1)Cc1cccc(c1OC)C3", "C1=CC=C2C=CC(=CC=C1)S2",
    "CC(C)(C)c1ccc2c(c1)c1cc3ccc1n2c1ccc(C#N)cc1c1ccncc1n1c2ccc(C(C)(C)C)cc2c2cc(ccc21)c1ccccc1c1ccccc31",
    "C1c2ccc(o2)Cc2ccc(o2)Cc2ccc(o2)Cc2ccc1o2", "C1=Cc2occc2C=Nc2ccccc2-c2ccc1s2", "CN1CCO[C@H](CCNCc2cnc(-c1cccs3)s2)C3",
    "C1=C2CC3=CC=C(CC4=CC=C(CC5=CC=C(CC(=C1)O2)O5)O4)O3", "c19ccc(cc1)-c1ccc(cc1)-c1ccc(cc1)-c1ccc9cc1",
    "C12C3C14[N@]1[C@@]35[C@@H]2[C@@]145", "C1CC23C4C5SCC6(OC26C43)N15", "c1ccc2c3ccccc3c3ccccc3c2c1",
]


def fixture(folder):
    molecules = [*REPORTED, *generated("cages", 160, 7), *generated("macrocycles", 160, 7)]
    texts = ["input", "canonical", "scaffold", "framework"]
    with open(pathlib.Path(folder) / "hard.csv", "w", newline="") as file:
        writer = csv.DictWriter(file, [*texts, *NUMBERS], lineterminator="\n")
        writer.writeheader()
        for smiles in molecules:
            molecule = Chem.MolFromSmiles(smiles)
            row = {name: attempt(function, molecule) for name, function in NUMBERS.items()}
            both = rdkit_row(smiles)
            row.update(input=smiles, canonical=both["canonical"], scaffold=both["scaffold"])
            row["framework"] = attempt(framework, molecule)
            writer.writerow({name: round(value, 9) if isinstance(value, float) else value for name, value in row.items()})


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True, dest="kind")
    for kind in ["cages", "macrocycles"]:
        command = commands.add_parser(kind)
        command.add_argument("--count", type=int, default=2500)
        command.add_argument("--seed", type=int, default=1)
    command = commands.add_parser("spell")
    command.add_argument("smiles")
    command.add_argument("--count", type=int, default=20)
    command = commands.add_parser("fixture")
    command.add_argument("folder")
    arguments = parser.parse_args()
    if arguments.kind == "fixture":
        fixture(arguments.folder)
    elif arguments.kind == "spell":
        spell(arguments.smiles, arguments.count)
    else:
        for smiles in generated(arguments.kind, arguments.count, arguments.seed):
            print(smiles, flush=True)


if __name__ == "__main__":
    main()
