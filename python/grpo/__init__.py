"""Loads the runs of the program `grpo`.

>>> import grpo
>>> run = grpo.load_run("runs/molecules")
>>> run.metrics.plot("step", "reward")
>>> run.completions.nlargest(10, "reward")[["step", "text", "reward"]]

The package needs only the standard library. DataFrames need pandas, and recorded completions need
pyarrow: `pip install pandas pyarrow`.
"""

from ._run import Run, load_run

__all__ = ["Run", "load_run"]
