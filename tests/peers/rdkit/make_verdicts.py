#!/usr/bin/env python3
"""Write RDKit's verdicts on malformed and tricky strings, for grpo-chem's own test.

    python3 make_verdicts.py ../../../crates/grpo-chem/tests/fixtures

Writes `verdicts.csv` there: the string as JSON, and 1 where RDKit reads a molecule with at least one atom. Needs RDKit
(`pip install rdkit`; the committed file was made with 2026.09.1).
"""

import csv
import json
import pathlib
import sys

from compare import rdkit_verdict

UNCLOSED = """
    C( C(C C(C(C) CC(=O C( ((C (C ( ) C) CC)C C(C)) C1 C1CC C1CC2 C1CC1C1 c1ccccc C%10CC C%(10)CC C12CC1 C0 [ [C C[ ] C]
    [C][ []C [[C]] [C]] C[N+ [nH c1cc[nH]c c1ccccc1( C(C1CC1 C1(CC C(C)1CC
""".split()
BRANCHES = """
    () C() C()C C((C)) C((C))C (C)C (C)(C) C(C)(C) C(C)(C)C C(C)(C)(C)C C(C(C(C)C)C)C C(=O)O C(=)O C=(C)C C=(O) C(1CC1)
    C(1)CC1 C1(CC1) C(C)1CC1 C(.C)C C(C.)C C(C.C)C C(C)(.C)C C(C.C)(C)C CC(C)=
""".split()
BONDS = """
    =C -C #C :C /C \\C $C .C C= C- C# C: C/ C\\ C$ C. C== C=- C==C C#-C C--C C//C C/\\C C\\\\C C-/C =1CC1 C=1CC1 C1CC=1
    C=1CC=1 C=1CC#1 C-1CC=1 C/1CC\\1 C:C C-C C=C C#C C$C C#CC C=C=C C~C C->[Pt] [Pt]<-C C<-C C>C C>>C C<C CC>O>N =1 C=.C
    C.=C C=(C F/C=C/F F/C=C\\F F\\C=C\\F F/C(Cl)=C(/Br)I C/C=C C/C
""".split()
PARTS = """
    . .. .C C. C..C C.C C.C.C [Na+].[Cl-] C1.C1 C1.C2.C12 C.(C) C(C).C .[Na+] [Na+]. C.1CC1 C1.CC1 O.O.O.O
""".split()
RINGS = """
    C11 C1C1 C12CC12 C12CC12C C1CC1 C1CC11 C1C1C C0CC0 1CC1 1 12 %10 C% C%1 C%1CC%1 C%01CC%01 C%00CC%00 C%10CC%10 C%10CC%11
    C%100CC%100 C%10C%10 C%99CC%99 C%(1)CC%(1) C%(1)CC1 C%(100)CC%(100) C%(12345)CC%(12345) C%(123456)CC%(123456) C%()CC%()
    C%(1CC1 C%(a)C C%(-1)C C%(01)CC%(1) C%(0)CC0 C1CC%01 C%1C1 C123CC1CC2CC3 C1CC2CC1CC2 C1CCC2(CC1)CC2 c1ccc2ccccc2c1
    C12C3C4C1C5C2C3C45 C1=CC=CC=C1 C1CCCCCCCCCCC1 C=%10CCC%10 C(%10)C%10
""".split()
VALENCES = """
    C(C)(C)(C)(C)C CN(C)(C)C C[N+](C)(C)C C[N](C)(C)C N(=O)=O CN(=O)=O C[N+](=O)[O-] C=N(=O)C FF FC(F)(F)F CF(C) F(F)F
    C=F C=Cl Cl(=O)(=O)(=O)O ClCl OCl(=O)=O C=O=C O=O O#C [C-]#[O+] [O+]#C C[O](C)C C[O+](C)C C#N N#N C#N=C C[N+]#[C-]
    S(=O)(=O)(O)O CS(C)(=O)=O S(F)(F)(F)(F)(F)F S(F)(F)(F)(F)(F)(F)F P(C)(C)(C)(C)C P(C)(C)(C)(C)(C)C F[P-](F)(F)(F)(F)F
    OP(=O)(O)O B(C)(C)C B(C)(C)(C)C [B-](C)(C)(C)C I(=O)(=O)O I(C)(C)C BrBr(Br)Br [Si](C)(C)(C)C [Si](C)(C)(C)(C)C
    [SiH4] [CH5] [CH5+] [CH4] [CH3] [CH2] [CH] [C] [NH4] [NH4+] [NH5+] [OH3] [OH3+] [OH4+2] [H] [H][H] [H]C [HH] [H+] [H-]
    [H+2] [H-2] [HH2] [H]([H])[H] [He] [Xe](F)F [Na]C [Na+]C [Mg](C)C [Fe](C)(C)(C)(C)(C)(C)(C)C [U](F)(F)(F)(F)(F)F
    [Cl-]C [Cl+](C)C [C-](C)(C)C [C+](C)(C)C [C+](C)(C)(C)C [N-](C)C [N-](C)(C)C [O-]C [O-](C)C C=[O+]C =O [AlH3] [Al](C)(C)(C)C
""".split()
AROMATIC = """
    c c1cccc1 c1ccccc1 c1ccc1 c1ccccccc1 c1ccncc1 c1cc[nH]c1 c1ccnc1 c1cccn1 c1ccoc1 c1ccsc1 [cH-]1cccc1 [cH+]1cccccc1
    c1cccccc1 c1ccccc1c1ccccc1 c1ccccc1-c1ccccc1 c1ccccc1=c1ccccc1 c1ccc2c(c1)cccc2 c1ccc2[nH]ccc2c1 c1ccc2nccc2c1
    n1cccc1 n1ccccc1 [nH]1ccccc1 C[n]1cccc1 Cn1cccc1 Cn1ccccc1 C[n+]1ccccc1 o1ccccc1 [o+]1ccccc1 s1cccc1 S1ccccc1 p1ccccc1
    b1ccccc1 cc ccc cC ccccc c1ccccc1c c1cc(=O)cc1 O=c1cccc[nH]1 O=c1ccccn1 O=c1cc[nH]cc1 c1ncnc2c1ncn2 c1ncnc2c1[nH]cn2
    c1c[nH]nn1 c1cnnn1 c1nnn[nH]1 c1=cc=cc=c1 c1ccc[se]1 [se]1cccc1 se1cccc1 [te]1cccc1 [as]1ccccc1 [si]1ccccc1 f1cccc1 i
    c1cccc1=O C1=CC=Cc1 c1(C)(C)ccccc1 c1ccccc1=O c1cc[n-]c1 [n-]1cccc1 c:1:c:c:c:c:c1 c-1ccccc1 *1cccc1 *1ccccc1 n n1nnnn1
    c1ccc2cccc2c1 c1ccc2cc3ccccc3cc2c1 c12ccccc1cccc2 Oc1ccccc1(O) c1cnc[nH]1 c1c[nH]c[nH]1
""".split()
BRACKETS = """
    [] [ ] [1] [13] [013C] [0C] [13C] [13CH4] [999C] [2147483647C] [2147483648C] [99999999999999999999C] [C12] [CH0] [CH9] [CH10]
    [HC] [CHH] [CH-H] [H2] [2H] [3H] [2H]C [D] [D]C [T] D T [C+] [C-] [C++] [C--] [C+++] [C+2] [C++2] [C+-] [C+0] [C-0] [Fe+2]
    [Fe++] [Fe+++] [Fe+99] [C:1] [C:0] [C:] [C:a] [CH3:12] [C:1:2] [C;H] [C,N] [!C] [C&H] [#6] [#] [#0] [#118] [#119] [6] [c] [Cc]
    [cl] [CL] [cL] [Xx] [R] [A] [a] [*] * *C [*H] [2*] C* [*+] [Q] [X] Xx R A a Na Fe Si si se L M Z Cl cl CL cL Br br BR Clc Sc
    [Sc] Sn [Sn] Co [Co] CO Cn Nb No Os Pb N+ O- C+ C@ C@@ C@C C@@C [C@] [C@@] [C@@@] [C@H](F)(Cl)Br [C@@H](F)(Cl)Br [@C] [@]
    [C@?] [C@TH1](F)(Cl)(Br)I [C@TH2] [C@TH3] [C@AL1] [C@SP1] [C@XX1] [P@TB20](F)(Cl)(Br)(N)I [P@TB21](F)(Cl)(Br)(N)I [Co@OH30]
    [Co@OH31] [H@] [C@H2] [C@](F)(F)(Cl)Br [C@@](N)(O)(F)Cl [N@](C)(F)Cl [S@](=O)(C)CC [Og] [Uue] [Cm] [Lr] [Ts] [Nh]
""".split()
# Blanks stay inside these, so they stand one by one.
BLANKS = [
    "", " ", "\t", "\n", "   ", " C", "C ", "\tC", "C\n", "\nC", "C\r\n", "C C", "CC O", "C\tmethane", "C name of it", "C(",
    "C( C)", "[C ]", "[ C]", "C  ", "C\nC", "C |$A$|", "C |", "C \x0b", "CCO ethanol |x|", "C\x0bC", "C\x0cC", "C\rC",
]
CONTROLS = ["\0", "C\0", "\0C", "C\0C", "\x01", "C\x01C", "\x7f", "C\x7f", "\x1b[0mC", "C\b", "C\x85", "\ufeffC", "C\ufeff"]
UNICODE = [
    "é", "Cé", "С", "СС", "C–C", "C−C", "C＝C", "Ｃ", "🧪", "C🧪C", "[C⁺]", "C₂", "苯", "C‑C", "c1ccccc1\u200b", "\u00a0C",
    "C\u00a0", "C\u2028C", "İ", "ﬀ", "[é]", "C%é0", "C\u0301", "[\u0301C]", "ß",
]
WORDS = """
    aspirin water H2O CH4 C6H6 NaCl benzene SMILES none None null nan true 0 -1 3.14 + - = # @ / \\ % $ & ! ? ; , ' " ` ^ _ {} <>
    <eos> [BOS]CC[EOS] <pad> InChI=1S/CH4/h1H4 BSYNRYMUTXBXSQ-UHFFFAOYSA-N [C][Branch1] CCO>>CC=O C&N [#6]-[#6] [C,c] [R1] C!@C
    CHEMBL25 COOH CHO HO OH NH3 CF3 OMe Ph
""".split()
LONG = [
    "C" * 1_000, "C" * 1_001, "CO" * 500, "C=" * 499 + "C", "C(" * 333 + "C", "C" + "(C" * 333 + ")" * 333,
    "C" + "C(F)(F)" * 140 + "C", "c1ccccc1" * 100, "c1ccccc1" * 12 + "c1cccc1", "C1CC1" * 100, "C1CC1" * 101,
    "C1" + "C" * 997 + "1", "C1" + "C" * 997 + "2", "C." * 499 + "C", "C." * 500, "[C@H](F)" * 120 + "C", "[" * 1_000,
    "(" * 1_000, ")" * 1_000, "1" * 1_000, "." * 1_000, "%" * 1_000, "[" + "C" * 998 + "]", "N" + "(C)" * 300, "#" * 500 + "C",
    "C" + "%10" * 300, "c" * 1_000, "c1" + "c" * 200 + "1", "c1" + "c" * 196 + "1", "N[C@@H](C)C(=O)" * 60 + "O",
]
DRUGS = """
    CC(=O)Oc1ccccc1C(=O)O CC(=O)Oc1ccccc1C(=O)O) CC(=O)Oc1cccccC(=O)O CN1C=NC2=C1C(=O)N(C(=O)N2C)C Cn1cnc2c1c(=O)n(C)c(=O)n2C
    Cn1cnc2c1c(=O)n(C)c(=O)n2(C)C CC(C)Cc1ccc(cc1)[C@@H](C)C(=O)O CC(C)Cc1ccc(cc1[C@@H](C)C(=O)O
    CC1(C)S[C@@H]2[C@H](NC(=O)Cc3ccccc3)C(=O)N2[C@H]1C(=O)O CC1(C)S[C@@H]2[C@H](NC(=O)Cc3ccccc3)C(=O)N3[C@H]1C(=O)O
    CN1CCC[C@H]1c1cccnc1 CN1CCC[C@H]1c1ccnc1 OC[C@H]1OC(O)[C@H](O)[C@@H](O)[C@@H]1O O=C1NC(=O)C(N1)(c1ccccc1)c1ccccc1
    C[C@]12CC[C@H]3[C@@H](CCC4=CC(=O)CC[C@@]34C)[C@@H]1CC[C@@H]2O [O-][n+]1ccccc1 O=n1ccccc1 CS(=O)(=O)Nc1ccccc1
""".split()


def main(folder):
    strings = [*UNCLOSED, *BRANCHES, *BONDS, *PARTS, *RINGS, *VALENCES, *AROMATIC, *BRACKETS, *BLANKS, *CONTROLS]
    strings += [*UNICODE, *WORDS, *LONG, *DRUGS]
    with open(pathlib.Path(folder) / "verdicts.csv", "w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["smiles_json", "valid"])
        for smiles in dict.fromkeys(strings):
            writer.writerow([json.dumps(smiles), int(rdkit_verdict(smiles))])


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
