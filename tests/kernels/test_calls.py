"""Functions of Python as XLA's custom calls."""

import ctypes
import subprocess
from pathlib import Path

import jax
import jax.numpy as jnp
import jaxlib
import numpy as np
import pytest

from jaxroute.kernels import calls, host

# Structures of ctypes: the name in XLA's header, and names of the fields there; a dash for one that nothing reads, and that has several names.
STRUCTURES = {
    "_Extension": ("Metadata_Extension", "extension_base.struct_size extension_base.type extension_base.next"),
    "_Version": ("Api_Version", "struct_size extension_start major_version minor_version"),
    "_Metadata": ("Metadata", "struct_size api_version traits"),
    "_MetadataExtension": ("Metadata_Extension", "extension_base metadata"),
    "_Buffer": ("Buffer", "struct_size extension_start dtype data rank dims"),
    "_Buffers": ("Args", "struct_size extension_start size types args"),
    "_Api": (
        "Api",
        "struct_size extension_start api_version internal_api XLA_FFI_Error_Create - XLA_FFI_Error_Destroy "
        "XLA_FFI_Handler_Register XLA_FFI_Stream_Get",
    ),
    "_Frame": ("CallFrame", "struct_size extension_start api ctx stage args rets"),
    "_ErrorArguments": ("Error_Create_Args", "struct_size extension_start message errc"),
    "_StreamArguments": ("Stream_Get_Args", "struct_size extension_start ctx stream"),
}
# Numbers of the header, and ours. Structures that lie within others, or are handed to XLA, have the same size.
NUMBERS = {
    "XLA_FFI_API_MAJOR": 0,
    "XLA_FFI_Extension_Metadata": calls._METADATA,
    "XLA_FFI_ExecutionStage_EXECUTE": calls._EXECUTE,
    "XLA_FFI_Error_Code_INTERNAL": calls._INTERNAL,
    "sizeof(XLA_FFI_Error_Create_Args)": ctypes.sizeof(calls._ErrorArguments),
    "sizeof(XLA_FFI_Stream_Get_Args)": ctypes.sizeof(calls._StreamArguments),
    "sizeof(XLA_FFI_Api_Version)": ctypes.sizeof(calls._Version),
    "sizeof(XLA_FFI_Args)": ctypes.sizeof(calls._Buffers),
    "offsetof(XLA_FFI_Rets, rets)": calls._Buffers.items.offset,
}


@pytest.mark.skipif(host.compiler() is None, reason="there is no C compiler")
def test_structures_lie_as_in_the_header_of_this_jaxlib(tmp_path):
    ours = dict(NUMBERS)
    for name, (header, fields) in STRUCTURES.items():
        structure = getattr(calls, name)
        for (field, *_), known_as in zip(structure._fields_, fields.split(), strict=True):
            if known_as != "-":
                ours[f"offsetof(XLA_FFI_{header}, {known_as})"] = getattr(structure, field).offset
    prints = "\n".join(f'printf("%ld\\n", (long)({what}));' for what in ours)
    text = f'#include <stddef.h>\n#include <stdio.h>\n#include "xla/ffi/api/c_api.h"\nint main(void) {{\n{prints}\nreturn 0;\n}}\n'
    (tmp_path / "offsets.c").write_text(text)
    include = Path(jaxlib.__file__).parent / "include"
    command = [host.compiler(), f"-I{include}", str(tmp_path / "offsets.c"), "-o", str(tmp_path / "offsets")]
    subprocess.run(command, check=True)
    shown = subprocess.run([str(tmp_path / "offsets")], capture_output=True, text=True, check=True).stdout
    assert dict(zip(ours, map(int, shown.split()), strict=True)) == ours


def test_all_structures_are_compared():
    own = {name for name, one in vars(calls).items() if isinstance(one, type) and issubclass(one, ctypes.Structure)}
    assert own == set(STRUCTURES)


def answer_to(major, minor):
    """What XLA hears that asks a function for its version and says its own: the version, or the text of an error."""
    said = []

    @ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.POINTER(calls._ErrorArguments))
    def create(arguments):
        said.append(arguments.contents.message.decode())
        return 1

    api = calls._Api(version=calls._Version(major=major, minor=minor), error_create=ctypes.cast(create, ctypes.c_void_p))
    metadata = calls._Metadata(version=calls._Version(major=-1, minor=-1), traits=7)
    extension = calls._MetadataExtension(calls._Extension(type=calls._METADATA), ctypes.pointer(metadata))
    start = ctypes.cast(ctypes.pointer(extension), ctypes.POINTER(calls._Extension))
    frame = calls._Frame(extension_start=start, api=ctypes.pointer(api))
    calls.register(lambda call: said.append("called"), "cpu")
    failed = calls._kept[-1](ctypes.pointer(frame))
    assert bool(failed) == bool(said)
    return said[0] if said else (metadata.version.major, metadata.version.minor, metadata.traits)


def test_the_version_is_that_of_the_frame():
    assert answer_to(0, 1) == (0, 1, 0)
    assert answer_to(0, 9) == (0, 9, 0)
    assert answer_to(1, 0).endswith("knows version 0 of XLA's foreign function interface, this jaxlib has 1.0")


def call_with(function):
    """A function of an array `[2, 3]` that XLA calls."""
    name = calls.register(function, "cpu")
    return jax.jit(lambda x: jax.ffi.ffi_call(name, jax.ShapeDtypeStruct((2, 3), jnp.float32))(x))


X = np.arange(6, dtype=np.float32).reshape(2, 3)


def test_functions_of_python_are_calls_of_xla():
    """Arguments and results as they are; an error of the function is one of the call."""

    def double(call):
        (given,), (made,) = call.arguments, call.results
        assert given.shape == made.shape == (2, 3)
        source, target = (np.ctypeslib.as_array((ctypes.c_float * 6).from_address(b.address)) for b in (given, made))
        if source[0] < 0:
            raise ValueError(f"below zero: {source[0]}")
        target[:] = 2 * source

    call = call_with(double)
    np.testing.assert_array_equal(call(X), 2 * X)
    with pytest.raises((ValueError, jax.errors.JaxRuntimeError), match=r"ValueError: below zero: -1\.0"):
        call(X - 1).block_until_ready()
    calls.raise_interrupt()  # There was none.


def test_an_interrupt_within_a_call_can_be_raised_again():
    def interrupted(call):
        raise KeyboardInterrupt

    with pytest.raises((ValueError, jax.errors.JaxRuntimeError), match="KeyboardInterrupt"):
        call_with(interrupted)(X).block_until_ready()
    with pytest.raises(KeyboardInterrupt):
        calls.raise_interrupt()
    calls.raise_interrupt()
