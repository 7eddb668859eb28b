"""Runs the reward functions of a Python file for grpo: reads one JSON request and writes one JSON reply per line.

Requires only Python 3.8 or later and its standard library. `python3 -c HELPER FILE FUNCTION...`
"""
import asyncio
import importlib.machinery
import importlib.util
import inspect
import itertools
import json
import numbers
import os
import sys
import time
import traceback
import types


def load(file, names):
    """Returns the functions of a file; raises LookupError with a sentence."""
    file = os.path.abspath(file)
    sys.path[0] = os.path.dirname(file)
    # A file that was renamed to keep it, as in my_reward.py.old-1, is still a Python file.
    name, renamed = os.path.basename(file), None
    original, _, number = name.rpartition(".old-")
    if original.endswith(".py") and number.isdigit():
        name, renamed = original, importlib.machinery.SourceFileLoader(original[:-3], file)
    stem = os.path.splitext(name)[0]
    spec = importlib.util.spec_from_file_location(stem, file, loader=renamed)
    if spec is None:
        raise LookupError(f"{file} is not a Python file; its name must end with .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[stem] = module
    try:
        # Without a bytecode cache, nothing is written next to the file, and no older version of it is run.
        exec(spec.loader.source_to_code(spec.loader.get_data(file), file), vars(module))
    except (Exception, SystemExit) as error:
        raise LookupError(f"{os.path.basename(file)} cannot be imported:\n{described(error)}") from None
    functions = []
    for name in names:
        function = getattr(module, name, None)
        if not callable(function):
            own = [key for key, value in vars(module).items() if inspect.isfunction(value) and value.__module__ == stem]
            has = ", ".join(own) if own else "none"
            raise LookupError(f"{os.path.basename(file)} has no function '{name}'; its functions: {has}")
        functions.append(Function(name, function))
    return functions


# Longest description of an exception, in characters. The end has the type and the message.
LONGEST = 4000


def described(error):
    """Returns the traceback without the frames of this helper."""
    frames = error.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename in ("<string>", "<frozen importlib._bootstrap>", "<frozen importlib._bootstrap_external>"):
        frames = frames.tb_next
    if is_group(error):
        # The drawing of a group has no line with its reason.
        listed = "; ".join(leaves(error))
        text = "Traceback (most recent call last):\n" + "".join(traceback.format_tb(frames)) + f"{type(error).__name__}: {error}: {listed}"
    else:
        text = "".join(traceback.format_exception(type(error), error, frames)).rstrip()
    if len(text) > LONGEST:
        text = text[: LONGEST // 2] + "\n...\n" + text[-LONGEST // 2 :]
    if isinstance(error, ModuleNotFoundError):
        text += f".\nThe interpreter is {sys.executable}; install the module for it, or set reward.interpreter to a Python that has it"
    return text


def is_group(error):
    """Returns whether an exception is a group of others, which Python has since 3.11."""
    return any(kind.__name__ == "BaseExceptionGroup" for kind in type(error).__mro__)


def leaves(error):
    """Returns the type and the message of each exception of a group."""
    if not is_group(error):
        return ["".join(traceback.format_exception_only(type(error), error)).strip()]
    return [leaf for one in error.exceptions for leaf in leaves(one)]


class WrongResult(Exception):
    """The function returned something else than one number per completion. Asking again would not help."""


def shown(value):
    """Returns the beginning of a value's representation."""
    try:
        text = repr(value)
    except Exception:
        text = f"a {type(value).__name__}"
    return text if len(text) <= 80 else text[:80] + "..."


def number(name, value):
    """Returns a float or None, from numbers of any library."""
    if value is None:
        return None
    dtype = getattr(value, "dtype", None)
    kind = getattr(dtype, "kind", "")
    if isinstance(value, (str, bytes, bytearray, memoryview)) or kind in ("S", "U", "T"):
        raise WrongResult(f"{name} returned {shown(value)}, which is text; return a number or None")
    is_complex = isinstance(value, numbers.Complex) and not isinstance(value, numbers.Real)
    if is_complex or kind == "c" or "complex" in str(dtype):
        raise WrongResult(f"{name} returned {shown(value)}, which is a complex number; return a real number or None")
    if kind in ("m", "M"):
        raise WrongResult(f"{name} returned {shown(value)}, which is a time; return a number or None")
    try:
        return float(value)
    except Exception as error:
        raise WrongResult(f"{name} returned {shown(value)}, which is not a number; return a number or None ({type(error).__name__}: {error})") from None


def listed(name, values, count):
    """Returns the values that a function returned for a batch. An endless iterator is not read to its end."""
    expected = "return a list with one number or None per completion"
    if values is None or isinstance(values, (str, bytes, dict, set, frozenset)) or not hasattr(values, "__iter__") and not hasattr(values, "__getitem__"):
        raise WrongResult(f"{name} returned {shown(values)} for {count} completions; {expected}")
    if hasattr(values, "__len__"):
        try:
            found = len(values)
        except TypeError:
            # An array without dimensions.
            raise WrongResult(f"{name} returned {shown(values)} for {count} completions; {expected}") from None
        if found != count:
            raise WrongResult(f"{name} returned {found} rewards for {count} completions")
    found = list(itertools.islice(values, count + 1))
    if len(found) > count:
        raise WrongResult(f"{name} returned more than {count} rewards for {count} completions")
    if len(found) < count:
        raise WrongResult(f"{name} returned {len(found)} rewards for {count} completions")
    return found


def is_async(function):
    """Returns whether a function, or an object that can be called, is declared with `async`."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))


def conversation(item):
    """Returns the messages of a chat prompt, or None."""
    prompt = item["row"].get("prompt")
    is_chat = isinstance(prompt, list) and prompt and isinstance(prompt[0], dict)
    return prompt if is_chat else None


class Scored:
    """The result for one item: a reward or an error, and the columns of log_extra."""

    def __init__(self, reward=None, seconds=0.0, error=None):
        self.reward, self.seconds, self.error, self.info = reward, seconds, error, {}


class Function:
    """A reward function with either signature."""

    def __init__(self, name, function):
        self.name, self.function = name, function
        parameters = inspect.signature(function).parameters.values()
        kinds = inspect.Parameter
        self.names = {p.name for p in parameters if p.kind in (kinds.POSITIONAL_OR_KEYWORD, kinds.KEYWORD_ONLY)}
        self.takes_all = any(p.kind == kinds.VAR_KEYWORD for p in parameters)
        self.is_batched = "completions" in self.names or self.takes_all
        # Otherwise the time of a request is all that is known.
        self.is_async = is_async(function)
        self.is_timed = not self.is_batched and not self.is_async
        required = [p.name for p in parameters if p.default is kinds.empty and p.kind in (kinds.POSITIONAL_ONLY, kinds.POSITIONAL_OR_KEYWORD)]
        named = [p.name for p in parameters if p.kind == kinds.KEYWORD_ONLY and p.default is kinds.empty]
        if not self.is_batched and (len(required) != 1 or named):
            raise LookupError(
                f"{name}({', '.join(p.name for p in parameters)}) has an unknown signature; expected "
                f"{name}(completion) or {name}(prompts, completions, completion_ids, **columns)"
            )

    def scored(self, items, step):
        """Returns the Scored of each item; raises WrongResult if the result does not fit the items."""
        try:
            return self.of(items, step)
        except WrongResult:
            raise
        except (Exception, SystemExit) as error:
            if len(items) == 1:
                return [Scored(error=f"{self.name} raised an exception:\n{described(error)}")]
        # One at a time, to find out which item it was.
        return [one for item in items for one in self.scored([item], step)]

    def of(self, items, step):
        if not items:
            return []
        started = time.perf_counter()
        extra = {}
        if self.is_batched:
            values = listed(self.name, finished(self.function(**self.arguments(items, step, extra))), len(items))
        elif self.is_async:
            values = asyncio.run(gathered(self.function, items))
        else:
            return [self.alone(item) for item in items]
        seconds = (time.perf_counter() - started) / len(items)
        scored = [self.valued(value, seconds) for value in values]
        for name, column in extra.items():
            for one, value in zip(scored, column):
                one.info[name] = value
        return scored

    def valued(self, value, seconds):
        """Returns the Scored of a value that the function returned."""
        try:
            return Scored(number(self.name, value), seconds)
        except WrongResult as fault:
            return Scored(error=str(fault), seconds=seconds)

    def alone(self, item):
        started = time.perf_counter()
        try:
            value = finished(self.function(item["completion"]))
        except (Exception, SystemExit) as error:
            return Scored(error=f"{self.name} raised an exception:\n{described(error)}")
        return self.valued(value, time.perf_counter() - started)

    def arguments(self, items, step, extra):
        """Returns those keyword arguments passed by TRL that the function accepts."""

        def log_extra(column, values):
            found = len(values) if hasattr(values, "__len__") else None
            values = list(itertools.islice(values, len(items) + 1))
            if len(values) != len(items):
                found = found or (f"more than {len(items)}" if len(values) > len(items) else len(values))
                raise WrongResult(f"log_extra('{column}') has {found} values for {len(items)} completions")
            extra[str(column)] = values

        def log_metric(name, value):
            print(f"{name} = {value}", file=sys.stderr)

        columns = {}
        for item in items:
            columns.update(dict.fromkeys(item["row"]))
        for name in ("prompt", "completion", "completion_ids"):
            columns.pop(name, None)
        arguments = {name: [item["row"].get(name) for item in items] for name in columns}
        chats = [conversation(item) for item in items]
        arguments["prompts"] = [chat or item["prompt"] for item, chat in zip(items, chats)]
        arguments["completions"] = [
            [{"role": "assistant", "content": item["completion"]}] if chat else item["completion"]
            for item, chat in zip(items, chats)
        ]
        arguments["completion_ids"] = [item["completion_ids"] for item in items]
        arguments["trainer_state"] = types.SimpleNamespace(global_step=step)
        arguments["log_extra"] = log_extra
        arguments["log_metric"] = log_metric
        if self.takes_all:
            return arguments
        return {name: value for name, value in arguments.items() if name in self.names}


def finished(value):
    """Returns the result of a function that may be async."""
    if not inspect.isawaitable(value):
        return value

    async def wait():
        return await value

    return asyncio.run(wait())


async def gathered(function, items):
    return await asyncio.gather(*(function(item["completion"]) for item in items))


def shown_as_text(value):
    try:
        return str(value)
    except Exception:
        return f"a {type(value).__name__}"


def reply(request, functions):
    items, step = request["items"], request.get("step")
    try:
        named = {function.name: function.scored(items, step) for function in functions}
    except WrongResult as fault:
        return {"id": request["id"], "error": str(fault)}
    of_items = list(zip(*named.values()))
    answer = {"id": request["id"]}
    if any(one.error for scored in named.values() for one in scored):
        answer["errors"] = [next((one.error for one in of_item if one.error), None) for of_item in of_items]
    if any(one.info for scored in named.values() for one in scored):
        answer["info"] = [{k: v for one in of_item for k, v in one.info.items()} or None for of_item in of_items]
    if any(function.is_timed for function in functions):
        answer["seconds"] = [sum(one.seconds for one in of_item) for of_item in of_items]
    if len(functions) > 1:
        answer["components"] = {name: [one.reward for one in scored] for name, scored in named.items()}
    else:
        answer["rewards"] = [one.reward for one in named[functions[0].name]]
    return answer


def main():
    file, names = sys.argv[1], sys.argv[2:]
    sys.argv = [file]
    requests = os.fdopen(os.dup(0), "rb")
    replies = os.fdopen(os.dup(1), "wb")
    # Output of the file and of programs that it starts must not mix with replies, and requests are not its input.
    sys.stdout.flush()
    os.dup2(2, 1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    sys.stdout = sys.stderr

    def encoded(answer):
        # Half of a surrogate pair is not text in JSON, so `?` replaces it.
        return json.dumps(answer, default=shown_as_text, ensure_ascii=False).encode("utf-8", "replace")

    def write(answer):
        try:
            line = encoded(answer)
        except (TypeError, ValueError, RecursionError) as error:
            # Only the values of log_extra can be anything.
            print(f"log_extra is left out: {error}", file=sys.stderr)
            line = encoded({key: value for key, value in answer.items() if key != "info"})
        replies.write(line + b"\n")
        replies.flush()

    functions = None
    for line in requests:
        request = json.loads(line)
        if functions is None:
            try:
                functions = load(file, names)
            except LookupError as error:
                write({"id": request["id"], "error": str(error)})
                return
        write(reply(request, functions))


main()
