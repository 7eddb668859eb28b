"""Run folders. docs/files.md describes their files, docs/metrics.md the metrics."""

from __future__ import annotations

import json
import math
import os
import re
import stat
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Dict, List, Literal, Union, get_args

if TYPE_CHECKING:
    import pandas
    import pyarrow

Row = Dict[str, Any]
Table = Literal["metrics", "evaluations", "completions", "events"]

_COMPLETIONS_FILE = re.compile(r"step-(0|[1-9][0-9]*)\.parquet")


def load_run(path: Union[str, os.PathLike[str]]) -> Run:
    """Opens a run folder, of a finished run or of one that is being written.

    Each file is read when it is first used and then kept. Call `load_run` again to read what a run
    has written since.

    Raises:
        FileNotFoundError: The folder does not exist or is not a run folder.
    """
    folder = Path(path)
    if not folder.exists():
        raise FileNotFoundError(f"run folder {folder} does not exist")
    if not (folder / "run.json").is_file():
        raise FileNotFoundError(
            f"{folder} is not a run folder (no run.json); "
            "give the run folder itself, for example runs/molecules"
        )
    return Run(folder)


class Run:
    """A run folder. Use `load_run` to open one.

    Tables are pandas DataFrames as attributes, and lists of dicts from `rows`. Both have the names
    of the files: keys of metrics.jsonl and columns of the recorded completions.

    A damaged file raises ValueError with its path and, for JSON lines, the line. An incomplete last
    line, of a run that is being written, is left out.
    """

    path: Path
    """The run folder."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __repr__(self) -> str:
        return f"Run({str(self.path)!r})"

    @cached_property
    def metrics(self) -> pandas.DataFrame:
        """Metrics, one row per step. Non-finite numbers are NaN."""
        return _numbers(self.rows("metrics"))

    @cached_property
    def evaluations(self) -> pandas.DataFrame:
        """Step and `eval_…` metrics of the steps with an evaluation (`eval.every`)."""
        return _numbers(self.rows("evaluations"))

    @cached_property
    def completions(self) -> pandas.DataFrame:
        """Recorded completions of all recorded steps, one row per completion, in order of `step`.

        `prompt` is the index of the group in its step, and `sample` that of the completion in its
        group. Each reward component is a column `rewards/NAME`.

        Raises:
            FileNotFoundError: The run has not recorded completions.
        """
        _pandas()
        pyarrow = _pyarrow()
        tables = self._completion_tables()
        # In a resumed run, files of an older version may lack a column.
        return pyarrow.concat_tables(tables, promote_options="default").to_pandas()

    @cached_property
    def events(self) -> pandas.DataFrame:
        """Events: checkpoints, interruptions, guards, the end."""
        return _pandas().DataFrame(self.rows("events"))

    @cached_property
    def config(self) -> Dict[str, Any]:
        """The configuration with all defaults. Needs Python 3.11, or the package tomli."""
        path = self.path / "config.toml"
        toml = _toml()
        try:
            config: Dict[str, Any] = toml.loads(_read(path).decode("utf-8"))
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{path}: not valid TOML ({error})") from None
        return config

    @cached_property
    def info(self) -> Dict[str, Any]:
        """What the run was made from (run.json): command, versions, seed, device, input files."""
        return _object(self.path / "run.json")

    @cached_property
    def comparison(self) -> Union[Dict[str, Any], None]:
        """The policy before and after training (comparison.json).

        None if the run has not finished or does not evaluate.
        """
        path = self.path / "comparison.json"
        return _object(path) if path.exists() else None

    def rows(self, table: Table) -> List[Row]:
        """Reads `"metrics"`, `"evaluations"`, `"completions"` or `"events"` as a list of dicts.

        Does not need pandas; completions need pyarrow. The list is read again on each call.

        Raises:
            FileNotFoundError: The run has not recorded completions. Other tables are empty if the
                run has not written any line yet.
        """
        tables = get_args(Table)
        if table not in tables:
            raise ValueError(f"table {table!r} does not exist; expected one of {', '.join(tables)}")
        if table == "completions":
            return [row for part in self._completion_tables() for row in part.to_pylist()]
        if table == "evaluations":
            rows = _lines(self.path / "metrics.jsonl")
            return [kept for row in rows if len(kept := _evaluation(row)) > 1]
        return _lines(self.path / f"{table}.jsonl")

    def _completion_tables(self) -> List[pyarrow.Table]:
        pyarrow = _pyarrow()
        from pyarrow.parquet import ParquetFile

        folder = self.path / "completions"
        names = os.listdir(folder) if folder.is_dir() else []
        steps = sorted(int(name[1]) for name in map(_COMPLETIONS_FILE.fullmatch, names) if name)
        if not steps:
            raise FileNotFoundError(
                f"{self.path} has no recorded completions; `grpo train` records those of "
                "every step that is a multiple of save.completions_every"
            )
        tables = []
        for path in (folder / f"step-{step}.parquet" for step in steps):
            try:
                if not path.is_file():
                    raise ValueError(f"{path} is not a regular file")
                with ParquetFile(path) as file:
                    tables.append(file.read())
            except (FileNotFoundError, PermissionError):
                raise
            except (pyarrow.ArrowException, OSError) as error:
                reason = str(error).split("\n")[0]
                raise ValueError(f"{path}: not a valid Parquet file ({reason})") from None
        return tables


def _evaluation(row: Row) -> Row:
    steps = ("step", "train_step")
    return {key: value for key, value in row.items() if key in steps or key.startswith("eval_")}


def _numbers(rows: List[Row]) -> pandas.DataFrame:
    """Returns rows of numbers as a DataFrame. JSON has no NaN, so files have null in its place."""
    null = math.nan
    filled = [{key: null if value is None else value for key, value in row.items()} for row in rows]
    return _pandas().DataFrame(filled)


def _lines(path: Path) -> List[Row]:
    if not path.exists():
        return []
    whole_lines = _read(path).split(b"\n")[:-1]
    return [_parse(line, f"{path}:{number}") for number, line in enumerate(whole_lines, 1)]


def _object(path: Path) -> Row:
    return _parse(_read(path), str(path))


def _read(path: Path) -> bytes:
    """Reads a regular file. Pipes and devices could block or never end."""
    if not stat.S_ISREG(path.stat().st_mode):
        raise ValueError(f"{path} is not a regular file")
    return path.read_bytes()


def _parse(text: bytes, place: str) -> Row:
    try:
        value = json.loads(text.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{place}: not valid JSON ({error})") from None
    if not isinstance(value, dict):
        raise ValueError(f"{place}: expected a JSON object, found {type(value).__name__}")
    return value


def _pandas() -> Any:
    return _import(
        "pandas", "DataFrames need", "`pip install pandas pyarrow`, or use `Run.rows` for lists"
    )


def _pyarrow() -> Any:
    return _import("pyarrow", "recorded completions need", "`pip install pyarrow`")


def _import(name: str, purpose: str, fix: str) -> Any:
    try:
        return import_module(name)
    except ImportError as error:
        raise ImportError(f"{purpose} {name} ({error}): run {fix}", name=name) from None


def _toml() -> Any:
    for name in ("tomllib", "tomli"):
        try:
            return import_module(name)
        except ImportError:
            continue
    raise ImportError(
        "config.toml needs Python 3.11 or later, or the package tomli: run `pip install tomli`",
        name="tomllib",
    )
