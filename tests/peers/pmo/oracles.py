#!/usr/bin/env python3
"""Score molecules with the oracles of PyTDC, and compare grpo-chem's scores with them.

    pip install rdkit==2026.9.1 numpy scipy networkx scikit-learn 'setuptools<81'
    pip download PyTDC==0.4.1 --no-deps && tar xf PyTDC-0.4.1.tar.gz
    export PYTDC=$PWD/PyTDC-0.4.1

    python3 oracles.py score < molecules.smi > theirs.csv
    cargo run --release -p grpo-chem --example pmo < molecules.smi > ours.csv
    python3 oracles.py compare ours.csv theirs.csv

    python3 oracles.py fixture ../../../crates/grpo-chem/tests/fixtures

`score` runs the code of PyTDC itself. Only its module of oracles is loaded, because the package imports many others.
`rdkit.six`, which RDKit no longer has, is replaced. Each oracle runs in its own process: the module keeps targets in
global variables, and `deco_hop` and `scaffold_hop` overwrite each other's. A molecule that RDKit rejects or for which
the oracle raises an exception scores 0, as in `tdc.Oracle`. `compare` exits 1 where a share falls below `--at-least`.
`fixture` writes PyTDC's scores of `pmo.smi` to `pmo.csv`.
"""

import argparse
import csv
import importlib.util
import os
import pathlib
import sys
import types
from multiprocessing import get_context

from rdkit import Chem, RDLogger

NAMES = """albuterol_similarity amlodipine_mpo celecoxib_rediscovery deco_hop fexofenadine_mpo isomers_c7h8n2o2
isomers_c9h10n2o2pf2cl median1 median2 mestranol_similarity osimertinib_mpo perindopril_mpo qed ranolazine_mpo
scaffold_hop sitagliptin_mpo thiothixene_rediscovery troglitazone_rediscovery valsartan_smarts zaleplon_mpo""".split()


def pytdc():
    """PyTDC's `chem_utils/oracle/oracle.py` as a module, without the rest of the package."""
    six = types.ModuleType("rdkit.six")
    six.iteritems = lambda mapping: iter(mapping.items())
    sys.modules["rdkit.six"] = six
    for name in ["tdc", "tdc.utils", "tdc.chem_utils", "tdc.chem_utils.oracle"]:
        sys.modules[name] = types.ModuleType(name)
        sys.modules[name].__path__ = []
    for name in ["oracle_load", "print_sys", "install"]:
        setattr(sys.modules["tdc.utils"], name, None)
    path = pathlib.Path(os.environ["PYTDC"]) / "tdc/chem_utils/oracle/oracle.py"
    spec = importlib.util.spec_from_file_location("tdc.chem_utils.oracle.oracle", path)
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def column(arguments):
    """The scores of one oracle, as text."""
    module, name, molecules = arguments
    oracle = getattr(sys.modules[module], name)
    return [repr(attempt(oracle, smiles)) for smiles in molecules]


def attempt(oracle, smiles):
    if Chem.MolFromSmiles(smiles) is None:
        return 0.0
    try:
        return float(oracle(smiles))
    except Exception:
        return 0.0


def scores(molecules, processes):
    """PyTDC's scores of the molecules as rows of a table."""
    RDLogger.DisableLog("rdApp.*")
    module = pytdc().__name__
    with get_context("fork").Pool(processes, maxtasksperchild=1) as pool:
        columns = pool.map(column, [(module, name, molecules) for name in NAMES], chunksize=1)
    return [["smiles", *NAMES], *([smiles, *row] for smiles, *row in zip(molecules, *columns))]


def read_smiles(file):
    return [line.split()[0] for line in file if line.strip()]


def write(file, rows):
    csv.writer(file, lineterminator="\n").writerows(rows)


def read_table(path):
    with open(path, newline="") as file:
        return {row["smiles"]: row for row in csv.DictReader(file)}


def compare(arguments):
    ours, theirs = read_table(arguments.ours), read_table(arguments.theirs)
    failed = False
    for name in NAMES:
        different = [
            (smiles, ours.get(smiles, {}).get(name), row[name])
            for smiles, row in theirs.items()
            if smiles not in ours or not abs(float(ours[smiles][name]) - float(row[name])) <= arguments.within
        ]
        share = 1 - len(different) / len(theirs)
        failed |= share < arguments.at_least
        print(f"{name:25} {100 * share:8.4f} %  {len(different)} of {len(theirs)} differ")
        for smiles, found, expected in different[: arguments.show]:
            print(f"    {smiles} ours {found}, PyTDC {expected}")
    sys.exit(failed)


def fixture(arguments):
    folder = pathlib.Path(arguments.folder)
    with open(folder / "pmo.smi") as file:
        molecules = read_smiles(file)
    rows = scores(molecules, arguments.processes)
    with open(folder / "pmo.csv", "w", newline="") as file:
        write(file, [rows[0], *([smiles, *(f"{float(value):.10g}" for value in row)] for smiles, *row in rows[1:])])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, default=1)
    commands = parser.add_subparsers(required=True)
    command = commands.add_parser("score")
    command.set_defaults(
        run=lambda arguments: write(sys.stdout, scores(read_smiles(sys.stdin), arguments.processes))
    )
    command = commands.add_parser("compare")
    command.set_defaults(run=compare)
    command.add_argument("ours")
    command.add_argument("theirs")
    command.add_argument("--show", type=int, default=5, help="differences printed for each oracle")
    command.add_argument("--within", type=float, default=1e-6)
    command.add_argument("--at-least", type=float, default=0.0, help="smallest share that passes, as 0.999")
    command = commands.add_parser("fixture")
    command.set_defaults(run=fixture)
    command.add_argument("folder")
    arguments = parser.parse_args()
    arguments.run(arguments)


if __name__ == "__main__":
    main()
