"""Runs the reward functions of a Python file for grpo: reads one JSON request and writes one JSON reply per line.

Requires only Python 3.8 or later and its standard library. `python3 -c HELPER FILE FUNCTION...`
"""
import asyncio
import importlib.util
import inspect
import json
import os
import sys
import time
import traceback
import types


def load(file, names):
    """Returns the functions of a file; raises LookupError with a sentence."""
    file = os.path.abspath(file)
    sys.path[0] = os.path.dirname(file)
    stem = os.path.splitext(os.path.basename(file))[0]
    spec = importlib.util.spec_from_file_location(stem, file)
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


def described(error):
    """Returns the traceback without the frames of this helper."""
    frames = error.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename in ("<string>", "<frozen importlib._bootstrap>", "<frozen importlib._bootstrap_external>"):
        frames = frames.tb_next
    return "".join(traceback.format_exception(type(error), error, frames)).rstrip()


def number(value):
    """Returns a float or None, from numbers of any library."""
    if isinstance(value, (str, bytes)):
        raise TypeError(f"the reward is {repr(value)[:80]}, which is text; return a number or None")
    return None if value is None else float(value)


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
        self.is_timed = not self.is_batched and not inspect.iscoroutinefunction(function)
        required = [p.name for p in parameters if p.default is kinds.empty and p.kind in (kinds.POSITIONAL_ONLY, kinds.POSITIONAL_OR_KEYWORD)]
        named = [p.name for p in parameters if p.kind == kinds.KEYWORD_ONLY and p.default is kinds.empty]
        if not self.is_batched and (len(required) != 1 or named):
            raise LookupError(
                f"{name}({', '.join(p.name for p in parameters)}) has an unknown signature; expected "
                f"{name}(completion) or {name}(prompts, completions, completion_ids, **columns)"
            )

    def scored(self, items, step):
        """Returns the Scored of each item."""
        try:
            return self.of(items, step)
        except (Exception, SystemExit) as error:
            if len(items) == 1:
                return [Scored(error=f"{self.name} raised an exception:\n{described(error)}")]
        # One at a time, to find out which item it was.
        return [one for item in items for one in self.scored([item], step)]

    def of(self, items, step):
        started = time.perf_counter()
        extra = {}
        if self.is_batched:
            values = list(finished(self.function(**self.arguments(items, step, extra))))
            if len(values) != len(items):
                raise ValueError(f"{self.name} returned {len(values)} rewards for {len(items)} completions")
        elif inspect.iscoroutinefunction(self.function):
            values = asyncio.run(gathered(self.function, items))
        else:
            timed = [self.alone(item) for item in items]
            return [Scored(number(value), seconds) for value, seconds in timed]
        seconds = (time.perf_counter() - started) / max(len(items), 1)
        scored = [Scored(number(value), seconds) for value in values]
        for name, column in extra.items():
            for one, value in zip(scored, column):
                one.info[name] = value
        return scored

    def alone(self, item):
        started = time.perf_counter()
        value = self.function(item["completion"])
        return value, time.perf_counter() - started

    def arguments(self, items, step, extra):
        """Returns those keyword arguments passed by TRL that the function accepts."""

        def log_extra(column, values):
            values = list(values)
            if len(values) != len(items):
                raise ValueError(f"log_extra('{column}') has {len(values)} values for {len(items)} completions")
            extra[column] = values

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


def reply(request, functions):
    items, step = request["items"], request.get("step")
    named = {function.name: function.scored(items, step) for function in functions}
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

    def write(answer):
        replies.write(json.dumps(answer, default=str).encode() + b"\n")
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
