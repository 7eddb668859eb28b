"""Tests of the Python package: `PYTHONPATH=python python3 -m unittest discover tests/python`.

Tests of DataFrames and Parquet are skipped without pandas and pyarrow. With the path of the program
in `GRPO_BIN`, a run of two steps is trained and loaded.
"""

import importlib.util
import json
import math
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

import grpo


def has(*modules):
    return all(importlib.util.find_spec(module) for module in modules)


with_pandas = unittest.skipUnless(has("pandas", "pyarrow"), "needs pandas and pyarrow")
with_toml = unittest.skipUnless(has("tomllib") or has("tomli"), "needs tomllib or tomli")

METRICS = [
    {"step": 1, "reward": 0.5, "kl": None},
    {"step": 2, "reward": 0.75, "kl": None, "eval_reward": 0.625, "eval_self_bleu": None},
]
EVENTS = [{"step": 0, "event": "started"}, {"step": 2, "event": "best", "checkpoint": None}]


class WithRun(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = Path(folder.name) / "run"
        self.path.mkdir()
        self.write("run.json", '{"seed": 42}\n')
        self.write("config.toml", 'run = "runs/x"\n[train]\nsteps = 2\n')
        self.write("metrics.jsonl", lines(METRICS))
        self.write("events.jsonl", lines(EVENTS))

    def write(self, name, text):
        path = self.path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())

    def write_completions(self, step, **columns):
        import pyarrow
        from pyarrow import parquet

        (self.path / "completions").mkdir(exist_ok=True)
        table = pyarrow.table({"step": [step], **columns})
        parquet.write_table(table, self.path / "completions" / f"step-{step}.parquet")

    def refuses(self, error, message, read):
        """Checks that an error has one line that contains the message."""
        with self.assertRaises(error) as raised:
            read()
        text = str(raised.exception)
        self.assertIn(message, text)
        self.assertNotIn("\n", text)


def lines(rows):
    return "".join(json.dumps(row) + "\n" for row in rows)


class Folders(WithRun):
    def test_a_folder_that_is_not_a_run(self):
        self.refuses(FileNotFoundError, "does not exist", lambda: grpo.load_run(self.path / "no"))
        (self.path / "model").mkdir()
        for other in ["model", "config.toml"]:
            path = self.path / other
            self.refuses(FileNotFoundError, f"{path} is not a run", lambda: grpo.load_run(path))

    def test_single_objects(self):
        run = grpo.load_run(str(self.path))
        self.assertEqual(run.info, {"seed": 42})
        self.assertIsNone(run.comparison)
        self.assertEqual(repr(run), f"Run({str(self.path)!r})")
        self.write("comparison.json", '{"count": 50}')
        self.assertEqual(grpo.load_run(self.path).comparison, {"count": 50})
        self.write("comparison.json", '{"count":\n 50')
        run = grpo.load_run(self.path)
        self.refuses(ValueError, "comparison.json: not valid JSON", lambda: run.comparison)
        self.write("run.json", "[]")
        self.refuses(ValueError, "run.json: expected a JSON object, found list", lambda: run.info)

    @with_toml
    def test_the_configuration(self):
        config = grpo.load_run(self.path).config
        self.assertEqual(config, {"run": "runs/x", "train": {"steps": 2}})
        self.write("config.toml", "steps = \n")
        run = grpo.load_run(self.path)
        self.refuses(ValueError, "config.toml: not valid TOML", lambda: run.config)

    def test_the_configuration_needs_a_toml_parser(self):
        run = grpo.load_run(self.path)
        with mock.patch.dict(sys.modules, {"tomllib": None, "tomli": None}):
            self.refuses(ImportError, "pip install tomli", lambda: run.config)


class Rows(WithRun):
    def test_lines(self):
        run = grpo.load_run(self.path)
        self.assertEqual(run.rows("metrics"), METRICS)
        self.assertEqual(run.rows("events"), EVENTS)
        evaluation = {"step": 2, "eval_reward": 0.625, "eval_self_bleu": None}
        self.assertEqual(run.rows("evaluations"), [evaluation])
        self.refuses(ValueError, "metrics, evaluations, completions, events", lambda: run.rows("x"))

    def test_a_run_that_is_being_written(self):
        run = grpo.load_run(self.path)
        for part in [b'{"step": 3, "rew', '{"a": "é'.encode()[:-1], b"{}"]:
            self.write("metrics.jsonl", lines(METRICS).encode() + part)
            self.assertEqual(run.rows("metrics"), METRICS)
        (self.path / "metrics.jsonl").unlink()
        self.assertEqual(run.rows("metrics"), [])

    def test_damaged_lines(self):
        run = grpo.load_run(self.path)
        damages = {
            b"{\n": "not valid JSON",
            b"\n": "not valid JSON",
            b"[1]\n": "expected a JSON object, found list",
            b'{"a": "\xff"}\n': "not valid JSON",
            '{"a": 1}'.encode("utf-16-le") + b"\n": "not valid JSON",
            b"[" * 100_000 + b"\n": "not valid JSON",
        }
        for damage, message in damages.items():
            self.write("metrics.jsonl", lines(METRICS[:1]).encode() + damage + b"{}\n")
            place = f"{self.path / 'metrics.jsonl'}:2: "
            self.refuses(ValueError, place + message, lambda: run.rows("metrics"))

    @unittest.skipUnless(hasattr(os, "mkfifo"), "there are no named pipes")
    def test_files_that_are_not_regular(self):
        (self.path / "metrics.jsonl").unlink(missing_ok=True)
        os.mkfifo(self.path / "metrics.jsonl")
        run = grpo.load_run(self.path)
        for _ in ("pipe", "folder"):
            place = f"{self.path / 'metrics.jsonl'} is not a regular file"
            self.refuses(ValueError, place, lambda: run.rows("metrics"))
            if not (self.path / "metrics.jsonl").is_dir():
                (self.path / "metrics.jsonl").unlink()
                (self.path / "metrics.jsonl").mkdir()

    def test_characters_that_only_python_takes_for_line_ends(self):
        self.write("events.jsonl", '{"message": "a\u2028b\x85"}\n')
        self.assertEqual(grpo.load_run(self.path).rows("events"), [{"message": "a\u2028b\x85"}])


class Missing(WithRun):
    def test_pandas(self):
        run = grpo.load_run(self.path)
        with mock.patch.dict(sys.modules, {"pandas": None}):
            for read in [lambda: run.metrics, lambda: run.events, lambda: run.completions]:
                self.refuses(ImportError, "DataFrames need pandas", read)
            self.assertEqual(run.rows("metrics"), METRICS)

    def test_pyarrow(self):
        run = grpo.load_run(self.path)
        with mock.patch.dict(sys.modules, {"pyarrow": None}):
            self.refuses(ImportError, "completions need pyarrow", lambda: run.rows("completions"))


@with_pandas
class Frames(WithRun):
    def test_metrics(self):
        run = grpo.load_run(self.path)
        self.assertEqual(list(run.metrics), list(METRICS[1]))
        self.assertEqual(run.metrics["reward"].tolist(), [0.5, 0.75])
        # Columns without any number stay numeric.
        self.assertEqual(run.metrics["kl"].dtype, "float64")
        self.assertTrue(math.isnan(run.metrics["eval_reward"][0]))
        self.assertIs(run.metrics, run.metrics)
        self.assertEqual(run.evaluations["step"].tolist(), [2])
        self.assertEqual(run.events["event"].tolist(), ["started", "best"])

    def test_completions_are_ordered_by_step(self):
        for step in [10, 2]:
            bonus = {"bonus": [0.5]} if step == 10 else {}
            self.write_completions(step, text=[f"C{step}"], logprobs=[[-1.0, -2.0]], **bonus)
        run = grpo.load_run(self.path)
        # The order of `os.listdir` is arbitrary.
        names = ["step-10.parquet", "step-03.parquet", "step-4.parquet.tmp", "step-2.parquet"]
        with mock.patch("os.listdir", return_value=names):
            self.assertEqual(run.completions["step"].tolist(), [2, 10])
        self.assertEqual(run.completions["text"].tolist(), ["C2", "C10"])
        self.assertEqual(list(run.completions), ["step", "text", "logprobs", "bonus"])
        self.assertEqual(run.completions["bonus"].isna().tolist(), [True, False])
        first = {"step": 2, "text": "C2", "logprobs": [-1.0, -2.0]}
        self.assertEqual(run.rows("completions")[0], first)

    def test_completions_that_cannot_be_read(self):
        run = grpo.load_run(self.path)
        self.refuses(FileNotFoundError, "save.completions_every", lambda: run.completions)
        self.write_completions(1, text=["C"])
        whole = (self.path / "completions/step-1.parquet").read_bytes()
        for damaged in [b"", b"text", whole[:-10], whole[:20] + b"\xff" * 20 + whole[40:]]:
            self.write("completions/step-1.parquet", damaged)
            message = "step-1.parquet: not a valid Parquet file"
            self.refuses(ValueError, message, lambda: run.completions)


@with_pandas
@unittest.skipUnless(os.environ.get("GRPO_BIN"), "needs the program in GRPO_BIN")
class RealRun(unittest.TestCase):
    def test_a_run_of_two_steps(self):
        program = os.path.abspath(os.environ["GRPO_BIN"])
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run([program, "--quiet", "init-project", "demo"], cwd=folder, check=True)
            settings = {
                "train.steps": 2,
                "train.prompts_per_step": 2,
                "train.group_size": 4,
                "eval.samples": 10,
                "save.completions_every": 1,
            }
            command = [program, "--quiet", "train", "configs/molecules/grpo.toml", "--run", "run"]
            command += [f"--set={key}={value}" for key, value in settings.items()]
            subprocess.run(command, cwd=Path(folder) / "demo", check=True)
            self.check(grpo.load_run(Path(folder) / "demo" / "run"))

    def check(self, run):
        self.assertEqual(run.metrics["step"].tolist(), [1, 2])
        self.assertTrue((run.metrics.dtypes != object).all(), run.metrics.dtypes)
        groups = run.completions.groupby(["step", "prompt"])["sample"].apply(list)
        self.assertEqual(groups.tolist(), [[0, 1, 2, 3]] * 4)
        # The program's means and those of pandas.
        mean = run.completions.groupby("step")[["reward", "rewards/valid"]].mean()
        for step, reward, valid in run.metrics[["step", "reward", "rewards/valid/mean"]].values:
            self.assertAlmostEqual(mean["reward"][step], reward, places=12)
            self.assertAlmostEqual(mean["rewards/valid"][step], valid, places=12)
        tokens = run.completions["logprobs"].map(len)
        self.assertEqual(tokens.tolist(), run.completions["actions"].tolist())
        self.assertEqual(run.rows("completions")[-1]["text"], run.completions["text"].iloc[-1])
        self.assertEqual(run.events["event"].iloc[-1], "finished")
        self.assertEqual(run.comparison["count"], 10)
        self.assertIn("train", run.info["command"])
        if has("tomllib") or has("tomli"):
            self.assertEqual(run.config["train"]["steps"], 2)


if __name__ == "__main__":
    unittest.main()
