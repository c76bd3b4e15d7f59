"""The engine: `simulate` takes the code of one run and simulates thousands of seeds and settings at once, for any problem."""

from typing import Literal, TypeAlias, get_args

# Implementation of the rounds: a scan with the runs on the last axis, a kernel in C, or the textbook's `vmap` of a scan; "auto" chooses.
Backend: TypeAlias = Literal["auto", "scan", "kernel", "reference"]
# Level of optimisation of the compiler.
Compile: TypeAlias = Literal["full", "quick"]
# Rounding of functions, sums and products: the same bits everywhere, or as fast as a GPU can.
Arithmetic: TypeAlias = Literal["auto", "exact", "fast"]

BACKENDS, COMPILE, ARITHMETICS = get_args(Backend), get_args(Compile), get_args(Arithmetic)
