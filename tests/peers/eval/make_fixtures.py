"""Writes inputs and the results of NLTK, rouge-score, SciPy and scikit-learn for a test of grpo-eval."""

import argparse
import json
import math
from collections import Counter
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace

import numpy as np
from nltk.stem.porter import PorterStemmer
from nltk.translate.bleu_score import SmoothingFunction, sentence_bleu
from rouge_score.rouge_scorer import RougeScorer
from scipy import stats
from sklearn.calibration import calibration_curve
from sklearn.metrics import cohen_kappa_score
from sklearn.metrics.pairwise import cosine_distances

TOPICS = ["the garden", "our early train", "a new library", "the old bakery", "machine learning",
          "the football club", "this city council", "my neighbour's dog"]
FORMS = ["I really love {0}, it makes the whole street happier!",
         "Honestly, {0} is overrated and everybody knows it.",
         "What are the three most interesting facts about {0}?",
         "{0} {0} {0}... nothing else matters.",
         "Has anyone tried relating {0} to national policies or rationalization?",
         "Agreed. Don't forget that {0} isn't what it used to be in '98."]
ODD = ["", "🎉", "...", "Ok", "ok ok", "It\u2019s \u201cfine\u201d", "STRASSE Straße", "naïve café №5 \u212a", "'quoted' don't",
       "a b c d e f g", "g f e d c b a", "running runs runner ran", "İstanbul", "x" * 40, "1st 2nd 3rd 4th"]


def own_texts():
    rows = []
    for index, topic in enumerate(TOPICS):
        completions = [form.format(topic) for form in FORMS[index % 3:index % 3 + 4]]
        rows.append({"completions": completions, "reference": FORMS[index % 6].format(TOPICS[index - 1])})
    rows.append({"completions": ODD, "reference": "It's fine to run in a café"})
    return rows + [{"completions": ["Only one text here."], "reference": ""}]


def words(text):
    """The words of grpo-eval: runs of letters, digits and inner apostrophes in lower case."""
    is_apostrophe = lambda c: c in "'\u2019"
    separated = "".join(c if c.isalnum() or is_apostrophe(c) else " " for c in text)
    runs = (run.strip("'\u2019") for run in separated.split(" "))
    return [run.lower().replace("\u2019", "'") for run in runs if run]


def ngrams(tokens, n):
    return [tuple(tokens[i:i + n]) for i in range(len(tokens) - n + 1)]


def diversity(texts):
    tokens = [words(text) for text in texts]
    found = {}
    for n in (1, 2, 3):
        grams = [gram for text in tokens for gram in ngrams(text, n)]
        found[f"distinct_{n}"] = len(set(grams)) / len(grams) if grams else None
    smooth = SmoothingFunction(epsilon=0.1).method1
    scores = [sentence_bleu(tokens[:i] + tokens[i + 1:], text, smoothing_function=smooth)
              for i, text in enumerate(tokens)] if len(texts) > 1 else []
    found["self_bleu"] = math.fsum(scores) / len(scores) if scores else None
    return found


def vocabulary(texts):
    tokens = [word for text in texts for word in words(text)]
    return {"unique_words": len(set(tokens)), "total_words": len(tokens),
            "type_token_ratio": len(set(tokens)) / len(tokens),
            "avg_word_length": sum(map(len, tokens)) / len(tokens)}


def rouge(reference, text, stem):
    scores = RougeScorer(["rouge1", "rouge2", "rougeL"], use_stemmer=stem).score(reference, text)
    return [[float(number) for number in scores[name]] for name in ("rouge1", "rouge2", "rougeL")]


def make_texts(rows):
    groups = []
    for row in rows:
        completions, reference = row["completions"], row["reference"]
        groups.append({
            "completions": completions, "reference": reference, "diversity": diversity(completions),
            "rouge": [rouge(reference, text, False) for text in completions],
            "rouge_stemmed": [rouge(reference, text, True) for text in completions]})
    everything = [text for row in rows for text in row["completions"]]
    return {"groups": groups, "pooled": diversity(everything), "vocabulary": vocabulary(everything)}


SUFFIXES = """s es ies ed eed ied ing y ly ational tional enci anci izer bli abli alli entli eli ousli ization ation ator
alism iveness fulness ousness aliti iviti biliti fulli fully logi logy icate ative alize iciti icity ical ful ness al ance
ence er ic able ible ant ement ment ent ion sion tion ou ism ate iti ity ous ive ize e ll le ss sses ying yed yy at bl iz
ating bling izing tting lling sses zzed e's 1""".split()
IRREGULAR = """sky skies dying lying tying news innings inning outings outing cannings canning howe proceed exceed succeed
die dies died tie tied ties spied flies geology theology as is ye yyyy aye""".split()


def make_stems(rows, count, rng):
    found = Counter(IRREGULAR)
    found.update(word for row in rows for text in row["completions"] for word in words(text) if word.isascii())
    parts = ["a", "e", "i", "o", "u", "y", "b", "c", "d", "f", "g", "h", "l", "m", "n", "p", "r", "s", "t", "v", "w", "x",
             "z", "st", "tr", "ee", "io", "ll", "ss", "at", "on", "er"]
    while len(found) < count:
        root = "".join(rng.choice(parts, size=rng.integers(1, 5)))
        endings = "".join(rng.choice(SUFFIXES, size=rng.integers(0, 3)))
        found[(root + endings).replace("'", "")] += 1
    chosen = sorted(found)
    stemmer = PorterStemmer()
    return {"words": " ".join(chosen), "stems": " ".join(stemmer.stem(word) for word in chosen)}


def philox(counter, key):
    """Philox4x32-10 (Salmon et al. 2011)."""
    c, k = list(counter), list(key)
    for _ in range(10):
        a, b = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(b >> 32) ^ c[1] ^ k[0], b & 0xFFFFFFFF, (a >> 32) ^ c[3] ^ k[1], a & 0xFFFFFFFF]
        k = [(k[0] + 0x9E3779B9) & 0xFFFFFFFF, (k[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return c


def bootstrap(values, draws, seed):
    """The draws of grpo-eval, and SciPy's intervals for them."""
    key = philox([seed & 0xFFFFFFFF, seed >> 32, 5, 0], [0x243F6A88, 0x85A308D3])[:2]
    means = []
    for draw in range(draws):
        indices = []
        for block in range((len(values) + 1) // 2):
            a, b, c, d = philox([block, draw, 0, int.from_bytes(b"boot")], key)
            indices += [(low | high << 32) * len(values) >> 64 for low, high in ((a, b), (c, d))]
        means.append(np.mean([values[index] for index in indices[:len(values)]]))
    drawn = SimpleNamespace(bootstrap_distribution=np.array(means))
    found = {"values": values, "draws": draws, "seed": seed}
    for method in ("percentile", "BCa"):
        ends = stats.bootstrap((values,), np.mean, n_resamples=0, bootstrap_result=drawn, method=method,
                               confidence_level=0.9).confidence_interval
        found[method.lower()] = [float(ends.low), float(ends.high)]
    return found


def test_results(x, y):
    found = {"x": x, "y": y, "wasserstein": float(stats.wasserstein_distance(x, y)),
             "cliffs_delta": sum((a > b) - (a < b) for a in x for b in y) / len(x) / len(y)}
    n, m = len(x), len(y)
    pooled = math.sqrt(((n - 1) * np.var(x, ddof=1) + (m - 1) * np.var(y, ddof=1)) / (n + m - 2))
    found["cohens_d"] = (np.mean(x) - np.mean(y)) / pooled
    tests = {"mann_whitney": stats.mannwhitneyu}
    if n == m:
        tests |= {"wilcoxon": stats.wilcoxon, "paired_t": stats.ttest_rel}
        found["pearson"], found["spearman"] = ([float(number) for number in test(x, y)]
                                               for test in (stats.pearsonr, stats.spearmanr))
    for name, test in tests.items():
        results = [test(x, y, alternative=alternative) for alternative in ("two-sided", "greater", "less")]
        found[name] = [[float(result.statistic), float(result.pvalue)] for result in results]
    return found


def sign_tests():
    """The binomial test of wins and losses with probability 1/2."""
    counts = [(1, 0), (0, 4), (5, 5), (3, 4), (8, 2), (2, 8), (60, 40), (61, 40), (510, 420), (9_800, 10_200)]
    alternatives = ("two-sided", "greater", "less")
    return [[wins, losses, [float(stats.binomtest(wins, wins + losses, alternative=alternative).pvalue)
                            for alternative in alternatives]] for wins, losses in counts]


def make_statistics(rng):
    normal = lambda n, shift=0.0, digits=15: [round(float(value), digits) for value in rng.normal(shift, 1, n)]
    pairs = [(normal(n, shift), normal(n)) for n, shift in ((3, 1), (8, 0.5), (12, 2), (20, 0.3), (50, 0.1), (51, 0.4))]
    pairs += [(normal(n, 0.4, 0), normal(n, 0, 0)) for n in (6, 12, 13, 14, 30, 80)]
    pairs += [(normal(n, 0.5), normal(m)) for n, m in ((1, 9), (8, 40), (5, 7), (9, 9), (25, 60))][1:]
    pairs += [([1.0, 2.0, 3.0, 4.0], [1.0, 1.0, 2.0, 2.0]), (normal(150, 0, 1), normal(150, 0.3, 1))]
    p_values = [round(float(p), 6) for p in rng.uniform(0, 0.2, 12)] + [0.01, 0.01, 1.0, 0.0]
    order = sorted(range(len(p_values)), key=lambda index: p_values[index])
    holm, largest = [0.0] * len(order), 0.0
    for rank, index in enumerate(order):
        largest = max(largest, min(1.0, (len(order) - rank) * p_values[index]))
        holm[index] = largest
    ratings = [[int(rating) for rating in rng.integers(1, 6, 40)] for _ in range(2)]
    ratings[1] = [a if index % 3 else b for index, (a, b) in enumerate(zip(*ratings))]
    kappa = [float(cohen_kappa_score(*ratings, weights=weights)) for weights in (None, "linear", "quadratic")]
    probabilities = [round(float(p), 3) for p in rng.uniform(0, 1, 60)] + [index / 10 for index in range(11)]
    outcomes = [bool(rng.uniform() < p * p) for p in probabilities]
    observed, predicted = calibration_curve(outcomes, probabilities, n_bins=10)
    vectors = rng.normal(size=(9, 5)).astype(np.float32)
    distances = cosine_distances(vectors.astype(np.float64))
    choices = [(n, c, k) for n in (1, 2, 5, 10, 64) for c in sorted({0, 1, n // 2, n}) for k in (1, 2, 5, 10) if k <= n]
    passes = [[n, c, k, float(1 - Fraction(math.comb(n - c, k), math.comb(n, k)))] for n, c, k in choices]
    return {
        "tests": [test_results(x, y) for x, y in pairs],
        "bootstrap": [bootstrap(normal(n), 400, seed) for n, seed in ((7, 3), (20, 2**40 + 1))],
        "p_values": p_values, "holm": holm,
        "benjamini_hochberg": [float(p) for p in stats.false_discovery_control(p_values)],
        "ratings": ratings, "kappa": kappa, "probabilities": probabilities, "outcomes": outcomes,
        "observed": [float(number) for number in observed], "predicted": [float(number) for number in predicted],
        "vectors": [[float(number) for number in vector] for vector in vectors],
        "cosine_distance": float(distances[np.triu_indices(len(vectors), 1)].mean()),
        "pass_at_k": passes, "sign_tests": sign_tests()}


def make_low_rank(rng):
    """Sizes of updates scale * B @ A, by NumPy's singular value decomposition."""
    cases = []
    for rank, out, inp, dependent in ((1, 5, 7, False), (4, 9, 6, False), (8, 12, 40, True), (16, 48, 32, False)):
        a = rng.normal(size=(rank, inp)).round(6)
        b = (rng.normal(size=(out, rank)) * 10.0 ** -rng.integers(0, 4, rank)).round(6)
        if dependent:
            a[-1] = 2 * a[0]
        scale = round(float(rng.uniform(0.1, 3)), 3)
        values = np.linalg.svd(scale * b @ a, compute_uv=False)[:rank]
        values = np.append(values, np.zeros(rank - len(values)))
        shares = values[values > values[0] * 1e-14] / values.sum()
        cases.append({"rank": rank, "scale": scale, "a": a.ravel().tolist(), "b": b.ravel().tolist(),
                      "norms": [float(np.linalg.norm(matrix)) for matrix in (a, b, scale * b @ a)],
                      "effective_rank": float(np.exp(-(shares * np.log(shares)).sum())),
                      "singular_values": values.tolist()})
    return cases


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--texts", type=Path, help="JSON lines with `completions` and `reference`")
    parser.add_argument("--words", type=int, default=2500, help="number of words for the stemmer")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent)
    arguments = parser.parse_args()
    rows = own_texts()
    if arguments.texts:
        rows = [json.loads(line) for line in arguments.texts.read_text("utf-8").splitlines() if line.strip()]
    rng = np.random.default_rng(arguments.seed)
    arguments.out.mkdir(parents=True, exist_ok=True)
    files = {"texts": make_texts(rows), "stems": make_stems(rows, arguments.words, rng), "statistics": make_statistics(rng),
             "low_rank": {"cases": make_low_rank(rng)}}
    for name, content in files.items():
        text = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
        (arguments.out / f"{name}.json").write_text(text.replace("},{", "},\n{") + "\n", "utf-8")


if __name__ == "__main__":
    main()
