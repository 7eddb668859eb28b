#!/usr/bin/env python3
"""Compute the measures of sets of molecules with the code of MOSES and GuacaMol.

    python3 -m venv VENV && VENV/bin/pip install rdkit scipy pandas tqdm
    VENV/bin/pip download --no-deps molsets==0.3.1 guacamol==0.5.5 --dest PACKAGES
    VENV/bin/python measures.py --packages PACKAGES sample MOLECULES.smi.gz FOLDER --count 300
    VENV/bin/python measures.py --packages PACKAGES measure FOLDER
    VENV/bin/python measures.py --packages PACKAGES tables DATA_FOLDER

`sample` draws `generated.smi`, `training.smi` and `test.smi` from a file with one SMILES per line. The generated set
also has invalid strings, duplicates and molecules of the training set. `measure` reads these three files (any others
of these names will do) and writes `peers.json` with all measures and `peers.csv` with what each molecule contributes.
`tables` writes the patterns of MOSES's filters. The committed files were made with RDKit 2026.09.1, scipy 1.17.1,
`--count 300` and `data/molecules/molecules.smi.gz`.

The packages are imported from their wheels and not installed, because they require versions of numpy and pandas from
before 2020. Names that newer versions removed are defined again here. A few lines replace the part of torch that MOSES
uses, in double precision; torch computes similarities in single precision, which changes them by about 1e-7.
"""

import argparse
import csv
import gzip
import importlib
import json
import math
import pathlib
import random
import sys
import types
import zipfile

import numpy
import pandas
import scipy
import scipy.linalg
import scipy.stats
from rdkit import Chem, RDLogger
from rdkit.Chem import Crippen, Descriptors  # noqa: F401  MOSES uses Chem.Crippen

SETS = ["generated", "training", "test"]


class Tensor(numpy.ndarray):
    """The operations of torch's tensors in MOSES, as numpy arrays."""

    def to(self, device):
        return self

    def float(self):
        return self

    def cpu(self):
        return self

    def numpy(self):
        return numpy.asarray(self)

    def transpose(self, *axes):
        return super().transpose()

    def sum(self, axis=None, keepdim=False, **arguments):
        return super().sum(axis, keepdims=keepdim, **arguments)


def module(name, **members):
    found = types.ModuleType(name)
    found.__dict__.update(members)
    sys.modules[name] = found
    return found


def load(packages):
    """Returns the modules of MOSES and GuacaMol from their wheels."""
    folder = pathlib.Path(packages) / "unpacked"
    for wheel in pathlib.Path(packages).glob("*.whl"):
        if not folder.joinpath(wheel.stem).exists():
            zipfile.ZipFile(wheel).extractall(folder / wheel.stem)
    roots = {path.name: path.parent for path in folder.glob("*/*") if path.name in ("moses", "guacamol")}
    module("torch", tensor=lambda values: numpy.asarray(values, float).view(Tensor),
           mm=lambda a, b: (a @ b).view(Tensor), Tensor=Tensor)
    module("fcd_torch", FCD=None)
    module("matplotlib", pyplot=None)
    module("matplotlib.pyplot")
    module("rdkit.six", iteritems=lambda table: table.items())
    numpy.NaN = numpy.nan
    scipy.histogram = numpy.histogram
    pandas.DataFrame.append = lambda first, second, sort: pandas.concat([first, second], sort=sort)
    # Packages without their `__init__`, which would import every model of MOSES.
    for name in ["moses", "moses.metrics"]:
        module(name).__path__ = [str(roots["moses"].joinpath(*name.split(".")))]
    module("moses.dataset", get_dataset=None, get_statistics=None)
    module("moses.metrics.NP_Score", npscorer=None)
    sys.path.insert(0, str(roots["guacamol"]))
    names = ["moses.metrics.metrics", "moses.metrics.utils", "guacamol.distribution_learning_benchmark",
             "guacamol.utils.chemistry"]
    return [importlib.import_module(name) for name in names]


def lines(path):
    with (gzip.open if path.suffix == ".gz" else open)(path, "rt") as file:
        return [line.split()[0] for line in file if line.strip()]


def sample(arguments):
    """Writes three sets of molecules."""
    random.seed(7)
    count, extra = arguments.count, arguments.count // 15
    drawn = random.sample(lines(arguments.molecules), 3 * count - 3 * extra)
    new, training, test = drawn[: count - 3 * extra], drawn[count - 3 * extra: 2 * count - 3 * extra], drawn[-count:]
    broken = [text[: len(text) // 2] + "(" for text in training[:extra]]
    generated = new + broken + random.choices(new, k=extra) + training[-extra:]
    random.shuffle(generated)
    for name, molecules in zip(SETS, [generated, training, test]):
        (arguments.folder / f"{name}.smi").write_text("".join(f"{smiles}\n" for smiles in molecules))


def measure(arguments):
    """Computes all measures of the sets in a folder."""
    metrics, utils, benchmark, chemistry = load(arguments.packages)
    generated, training, test = [lines(arguments.folder / f"{name}.smi") for name in SETS]
    valid = metrics.remove_invalid(generated)
    molecules, references = [utils.get_mol(smiles) for smiles in valid], [utils.get_mol(smiles) for smiles in test]
    result = {
        "validity": metrics.fraction_valid(generated),
        "uniqueness": metrics.fraction_unique(valid),
        "unique_at_100": metrics.fraction_unique(valid, 100),
        "novelty": metrics.novelty(molecules, [utils.canonic_smiles(smiles) for smiles in training]),
        "internal_diversity": metrics.internal_diversity(molecules),
        "internal_diversity_2": metrics.internal_diversity(molecules, p=2),
        "filters": metrics.fraction_passes_filters(molecules),
    }
    # The constructor of MOSES's metrics fails when it is given other arguments than its own.
    compare = {
        "snn": metrics.SNNMetric(), "fragments": metrics.FragMetric(), "scaffolds": metrics.ScafMetric(),
        "logp": metrics.WassersteinMetric(utils.logP), "sa": metrics.WassersteinMetric(utils.SA),
        "qed": metrics.WassersteinMetric(utils.QED), "weight": metrics.WassersteinMetric(utils.weight),
    }
    result["test"] = {name: metric(gen=molecules, ref=references) for name, metric in compare.items()}
    result["guacamol"] = guacamol(benchmark, chemistry, generated, training)
    result["frechet"] = [frechet(*shape) for shape in [(40, 30, 5), (60, 50, 20), (9, 12, 16)]]
    (arguments.folder / "peers.json").write_text(json.dumps(result, indent=1) + "\n")
    table(arguments.folder / "peers.csv", utils, chemistry, benchmark, generated)


def guacamol(benchmark, chemistry, generated, training):
    class Generator:
        def generate(self, number_samples):
            return generated

    valid = [smiles for smiles in generated if chemistry.is_valid(smiles)]
    # GuacaMol draws as many molecules from the training set, and it divides by the number of samples.
    divergence = benchmark.KLDivBenchmark(len(training), training).assess_model(Generator())
    distinct = chemistry.canonicalize_list(generated, include_stereocenters=False)
    novelty = benchmark.NoveltyBenchmark(len(training), training).assess_model(Generator())
    return {
        "uniqueness": len(distinct) / len(valid),
        "novelty": novelty.metadata["number_novel"] / len(distinct),
        "kl_score": divergence.score,
        "kl": divergence.metadata["kl_divs"],
    }


def activations(rows, columns, phase):
    return numpy.array([[math.sin(1.7 * i * (j + 1) + phase * j) + 0.1 * phase * j for j in range(columns)]
                        for i in range(rows)])


def frechet(rows, others, columns):
    first, second = activations(rows, columns, 0.3), activations(others, columns, 0.8)
    a, b = numpy.cov(first, rowvar=False), numpy.cov(second, rowvar=False)
    shift = first.mean(0) - second.mean(0)
    # tr (ab)^½, by the eigenvalues of a^½ b a^½, which are those of ab.
    values, vectors = numpy.linalg.eigh(a)
    root = vectors * numpy.sqrt(numpy.clip(values, 0, None)) @ vectors.T
    overlap = numpy.sqrt(numpy.clip(numpy.linalg.eigvalsh(root @ b @ root), 0, None)).sum()
    value = shift @ shift + numpy.trace(a) + numpy.trace(b) - 2 * overlap
    by_root = shift @ shift + numpy.trace(a + b - 2 * scipy.linalg.sqrtm(a @ b).real)
    return {"rows": [rows, others], "columns": columns, "value": value, "sqrtm": by_root}


def table(path, utils, chemistry, benchmark, generated):
    """Writes what each valid molecule contributes."""
    names = ["BertzCT", "MolLogP", "MolWt", "TPSA", "NumHAcceptors", "NumHDonors", "NumRotatableBonds",
             "NumAliphaticRings", "NumAromaticRings"]
    with open(path, "w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["smiles", "flat", "fragments", "scaffold", "passes", *names])
        for smiles in dict.fromkeys(generated):
            canonical = utils.canonic_smiles(smiles)
            if canonical is None:
                continue
            flat = chemistry.canonicalize(smiles, include_stereocenters=False)
            fragments = ".".join(sorted(utils.fragmenter(canonical)))
            scaffold = utils.compute_scaffold(canonical) or ""
            values = chemistry._calculate_pc_descriptors(flat, names)
            writer.writerow([smiles, flat, fragments, scaffold, int(utils.mol_passes_filters(canonical)),
                             *(repr(float(value)) for value in values)])


def tables(arguments):
    """Writes the patterns of MOSES's filters, one per line."""
    _, utils, _, _ = load(arguments.packages)
    patterns = [text.strip() for text in utils._mcf.append(utils._pains, sort=True)["smarts"]]
    (arguments.folder / "moses_filters.smarts").write_text("".join(f"{pattern}\n" for pattern in patterns))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--packages", required=True, help="folder with the wheels of molsets and guacamol")
    commands = parser.add_subparsers(required=True)
    for function in [sample, measure, tables]:
        command = commands.add_parser(function.__name__)
        if function is sample:
            command.add_argument("molecules", type=pathlib.Path)
            command.add_argument("--count", type=int, default=300)
        command.add_argument("folder", type=pathlib.Path)
        command.set_defaults(function=function)
    arguments = parser.parse_args()
    RDLogger.DisableLog("rdApp.*")
    arguments.function(arguments)


if __name__ == "__main__":
    main()
