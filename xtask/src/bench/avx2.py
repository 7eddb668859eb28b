"""Runs a program as on a processor without AVX-512, with gdb:

    gdb -q -batch -x xtask/src/bench/avx2.py --args target/release/grpo selftest

The standard library asks the processor once for its features, and our kernels, `gemm` and Burn choose their
instructions by that answer. This stops the program at its `cpuid` instructions and clears the bits of
AVX-512 and AMX. The C library keeps its own choice for copying memory.
"""

import contextlib
import os
import re
import sys

import gdb

# Rust's `__cpuid_count`: mov REG, rbx; cpuid; xchg REG, rbx.
CPUID = re.compile(rb"[\x48\x49]\x89[\xd8-\xdf]\x0f\xa2[\x48-\x4d]\x87")
# Bits of the registers after cpuid with eax = 7, by ecx (AMD64 Architecture Programmer's Manual, volume 3, appendix E;
# Intel SDM, volume 2A, CPUID).
AVX512 = {
    0: {"rbx": [16, 17, 21, 26, 27, 28, 30, 31], "rcx": [1, 6, 11, 12, 14], "rdx": [2, 3, 8, 22, 23, 24, 25]},
    1: {"rax": [5]},
}


def quietly(command):
    gdb.execute(command, to_string=True)


def register(name):
    return int(gdb.parse_and_eval(f"(unsigned long)${name}"))


def cpuid_addresses():
    """Returns the addresses of the program's cpuid instructions."""
    program = os.path.realpath(gdb.current_progspace().filename)
    with open(program, "rb") as file:
        code = file.read()
    found = []
    with open(f"/proc/{gdb.selected_inferior().pid}/maps") as maps:
        for line in maps:
            fields = line.split(maxsplit=5)
            if "x" not in fields[1] or fields[-1].strip() != program:
                continue
            start, end = (int(address, 16) for address in fields[0].split("-"))
            offset = int(fields[2], 16)
            within = CPUID.finditer(code, offset, offset + end - start)
            # The instruction is the second one, after three bytes.
            found += [start + match.start() + 3 - offset for match in within]
    return found


def hide(addresses):
    """Clears the bits whenever they are read, until the program ends."""
    while True:
        quietly("continue")
        if not gdb.selected_inferior().pid:
            return
        if register("pc") not in addresses:
            continue
        leaf, part = (register(name) & 0xFFFF_FFFF for name in ["rax", "rcx"])
        quietly("stepi")
        if leaf != 7 or part not in AVX512:
            continue
        for name, bits in AVX512[part].items():
            value = register(name) & ~sum(1 << bit for bit in bits)
            quietly(f"set ${name} = {value}")


# gdb reports each stop. Standard output is for the program, but gdb closes the copy in its child.
output = os.dup(1)
os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
for setting in ["pagination off", "confirm off", "language c", "auto-load libthread-db off"]:
    quietly(f"set {setting}")
arguments = gdb.execute("show args", to_string=True).split('"', 1)[1].rsplit('"', 1)[0]
quietly(f"set args {arguments} >>/proc/{os.getpid()}/fd/{output}")
quietly("starti")
quietly("set scheduler-locking step")
addresses = set(cpuid_addresses())
if not addresses:
    print("avx2.py: the program has no cpuid instructions as Rust's standard library compiles them", file=sys.stderr)
    quietly("kill")
    gdb.execute("quit 1")
for address in addresses:
    quietly(f"break *{address}")
hide(addresses)
with contextlib.suppress(OSError):
    # If the output is a file, the program has appended to it without moving our offset.
    os.lseek(output, 0, os.SEEK_END)
code = gdb.convenience_variable("_exitcode")
gdb.execute(f"quit {1 if code is None else int(code)}")
