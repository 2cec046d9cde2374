"""MSL of other authors: nothing is run or read while it is compiled, a compilation is bounded, and errors are true."""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from anymetal import CompileError, clang
from anymetal.clang import flags, launcher, objects
from anymetal.cuda import ptx
from anymetal.frontend import lexer, program, rewrites, strict, toolchain
from anymetal.frontend.kernels import kernels
from anymetal.frontend.options import DEFAULTS
from anymetal.frontend.rewrites import Source, rewritten
from anymetal.frontend.syntax import Syntax
from anymetal_fixtures import demand_ptx

pytestmark = pytest.mark.skipif(clang.unavailable() is not None, reason=str(clang.unavailable()))

HEADER = "#include <metal_stdlib>\nusing namespace metal;\n"
ONCE = "float once() { return 1; }\n"
FIRST = f"{ONCE}constant float first = once();\n"
CHANGING = "static float once() { static volatile int turns; return turns++; }\n"
HIDDEN = 'void g() { __asm__(".incbin \\"SECRET\\""); }'


def kernel(body="out[i] = 1;", before=""):
    return f"""{HEADER}{before}
kernel void f(device float* out [[buffer(0)]], uint i [[thread_position_in_grid]]) {{ {body} }}"""


@pytest.fixture(scope="module")
def device():
    return clang.Device()


@pytest.fixture
def unloaded(monkeypatch):
    """A device that fails the test when it loads the library of a source."""

    def load(*_):
        pytest.fail("the library was loaded")

    opened = clang.Device()
    monkeypatch.setattr(launcher, "Library", load)
    return opened


# ------------------------------------------------------------------------------------------------ attacks

ATTACKS = {
    "clang's pragma": (f'#pragma clang diagnostic ignored "-Wglobal-constructors"\n{FIRST}', "not known to the"),
    "GCC's pragma": (f'#pragma GCC diagnostic ignored "-Wglobal-constructors"\n{FIRST}', "not known to the"),
    "a pragma for everything": (f'#pragma clang diagnostic ignored "-Weverything"\n{FIRST}', "not known to the"),
    "the operator": (f'_Pragma("clang diagnostic ignored \\"-Wglobal-constructors\\"") {FIRST}', "not known to the"),
    "the operator by a macro": (
        f'#define P(x) _Pragma(#x)\nP(clang diagnostic ignored "-Wglobal-constructors") {FIRST}', "not known to the",
    ),
    "a system header": (f'# 3 "foo.h" 3\n{FIRST}', "not known to the"),
    "an entered system header": (f'# 3 "foo.h" 1 3\n{FIRST}', "not known to the"),
    "a system header by a pragma": (f"#pragma GCC system_header\n{FIRST}", "not known to the|not supported"),
    "another file": (f'#line 3 "foo.h"\n{FIRST}', "foo.h:4:.*not known to the"),
    "a template variable": (
        f"{ONCE}template <class T> constant T first = once();\nfloat g() {{ return first<float>; }}",
        "not known to the|when it is loaded",
    ),
    "a destructor": ("struct S { int a; ~S() {} };\nconstant S s = {1};", "global destructor|when it is loaded|error"),
    "digit separators": (f"constant int a = 1'000;\n{HIDDEN}\nconstant int b = 1'000;", "no inline assembly"),
    "one digit separator": (f"constant int a = 1'0; {HIDDEN} constant char b = '\\'';", "no inline assembly"),
    "a separator in an exponent": (f"constant float a = 1e1'0f; {HIDDEN} constant char b = '0';", "no inline assembly"),
    "a raw string": (f'constant char* a = R"(")"; {HIDDEN} constant char* b = "";', "raw strings are not supported"),
    "a raw string with a prefix": (f'constant char* a = u8R"x(")x"; {HIDDEN}', "raw strings are not supported"),
    "a raw string by a macro": (f'#define S R"(")"\nconstant char* a = S; {HIDDEN}', "raw strings are not supported"),
    "a raw string over lines": (f'constant char* a = R"(\n# 3 "foo.h" 3\n)"; {HIDDEN}', "raw strings"),
    "a suffix of a string": (f'constant char* a = ""_x; {HIDDEN}', "starts no token"),
    "a name for the linker": ('float g(float) __asm__("sinf");', "no inline assembly"),
    "a file's assembly": ('__asm__(".section .init_array");', "no inline assembly"),
    "a continued name": ('#define B \\ /**/\nvoid g() { __as B\nm__("nop"); }', r"'\\\\' starts no token"),
    "a name of code points": ('void g() { __\\u0061sm__("nop"); }', "universal character name"),
    "a space of another width": ('void g() { __asm__\u00a0("nop"); }', "starts no token"),
    "a carriage return": ('//\r void g() { __asm__("nop"); }', "no inline assembly"),
    "a comment that goes on": ('/\\\n* *\\\n/ void g() { __a\\\nsm__("nop"); }', "no inline assembly"),
    "a null character": ('void g() { __asm__\0("nop"); }', "no inline assembly|starts no token"),
    "assembly in a preprocessor name": ('#define asm_(x) __asm__(x)\nvoid g() { asm_("nop"); }', "no inline assembly"),
    "no attribute before a comma": (f"__attribute__((,constructor)) {ONCE}", "attribute `constructor`"),
    "a comparison in an attribute": (f"__attribute__((aligned(1 < 2), constructor)) {ONCE}", "attribute `constructor`"),
    "an empty attribute of C++": (f"[[, gnu::constructor]] {ONCE}", "attribute `gnu :: constructor`"),
    "a bracket as a digraph": (f"[<:gnu::constructor:>] {ONCE}", "digraphs such as `<:`"),
    "a digraph before a scope": ("int g(thread int* a) { return a<:::exp(0.0f):>; }", "digraphs such as `<:`"),
    "a module": ("@import std;", "error"),
    "a module of C++": ("import std;", "error"),
    "a module by a pragma": ("#pragma clang module import std", "not supported|error"),
    "a module's text": ("#pragma clang module build m\nmodule m {}\n#pragma clang module endbuild", "not supp|error"),
    "a crash": ("#pragma clang __debug crash", "stopped with status|not supported"),
    "a precompiled header": ('#pragma GCC pch_preprocess "SECRET"', "not supported"),
    "a trigraph": ('??=include "SECRET"', "error"),
    "a macro of the shim": ("ANYMETAL_LOCAL(0) constant int a = 1;", "`ANYMETAL_LOCAL` is reserved"),
    "what a pass has": (
        "#undef __has_feature\nconstant int a = __has_feature(cxx_rtti);", "`__has_feature` is reserved|expected",
    ),
    "what a target is": ("#undef __is_target_arch\nconstant int a = __is_target_arch(spir64);", "reserved|error"),
    "linkage of C++": ('extern "C++" { int getpid(); }', "no linkage specifications"),
    "linkage in a wide string": ('extern L"C" { int getpid(); }', "no linkage specifications"),
    "a name of another symbol": ('float g() __attribute__((alias("once")));', "`alias`"),
    "an order of constructors": (f"__attribute__((init_priority(101))) {ONCE}", "`init_priority`"),
}  # fmt: skip


@pytest.mark.parametrize("name", ATTACKS)
def test_attacks_are_errors(unloaded, tmp_path, name):
    before, message = ATTACKS[name]
    secret = tmp_path / "secret"
    secret.write_text("7654321")
    with pytest.raises(CompileError, match=message) as caught:
        unloaded.kernel(kernel(before=before.replace("SECRET", str(secret))))
    assert "7654321" not in str(caught.value)


OF_THE_WHEEL = pytest.mark.skipif(
    bool(os.environ.get("ANYMETAL_CLANG")), reason="other linkers refuse these sources themselves, or in other words"
)


@OF_THE_WHEEL
@pytest.mark.parametrize(
    ("before", "reason"),
    [
        (f"{CHANGING}const float first = once();\nfloat k() {{ return first; }}", ".init_array"),
        (
            f"{CHANGING}struct S {{ int a; ~S() {{ once(); }} }};\nS s = {{1}};\nfloat k() {{ return s.a; }}",
            ".init_array",
        ),
        (f"__attribute__((constructor)) {CHANGING}float k() {{ return once(); }}", ".init_array"),
        (f"__attribute__((destructor)) {CHANGING}float k() {{ return once(); }}", ".fini_array"),
        (
            'float k() { __attribute__((section(".preinit_array"), used)) static void* early = 0; return early == 0; }',
            ".preinit_array",
        ),
        (
            'static void* g() { return 0; }\n__attribute__((ifunc("_ZL1gv"))) float h();\nfloat k() { return h(); }',
            "ifunc",
        ),
        ('extern "C" float _init() { return 1; }\nfloat k() { return _init(); }', "DT_INIT"),
        ('extern "C" float _fini() { return 1; }\nfloat k() { return _fini(); }', "DT_FINI"),
    ],
)
def test_object_files_are_checked_whatever_the_source_says(unloaded, monkeypatch, before, reason):
    """Without the checks of the source and of the compiler, what it wrote is refused."""
    monkeypatch.setattr("anymetal.frontend.program.check", lambda _, syntax, *rest, **more: Source(syntax))
    kept = tuple(one for one in rewrites.REWRITES if one is not rewrites.linkage)
    monkeypatch.setattr(rewrites, "REWRITES", kept)
    lenient = tuple(flag for flag in flags.LANGUAGE_FLAGS if flag != "-Werror=global-constructors")
    monkeypatch.setattr(flags, "LANGUAGE_FLAGS", lenient)
    with pytest.raises(CompileError, match=rf"code that runs when it is loaded \(.*{re.escape(reason)}"):
        unloaded.kernel(kernel("out[i] = k();", before))


def test_libraries_of_macos(tmp_path):
    """An object file has the load commands and sections of a library."""
    compiler, target = toolchain.find(), ("-triple", "arm64-apple-macosx13.0.0", "-emit-obj", "-x", "c++")

    def made(text):
        (tmp_path / "a.cpp").write_text(text)
        compiler.make([*compiler.front, "-cc1", *target, str(tmp_path / "a.cpp"), "-o", str(tmp_path / "a.o")])
        return (tmp_path / "a.o").read_bytes()

    assert objects.check_loading(made("int once() { return 1; }")) == []
    with pytest.raises(CompileError, match="__mod_init_func"):
        objects.check_loading(made("int once(); int first = once();"))
    with pytest.raises(CompileError, match="unknown format"):
        objects.check_loading(b"MZ")


def test_a_source_is_preprocessed_once():
    """The macros that are left for the later passes are those of the shim, and have the same text in all passes."""
    compiler = toolchain.find()

    def macros(command):
        done = subprocess.run(
            [*command, "-E", "-dM", "-"], input="", capture_output=True, text=True, check=True
        ).stdout  # fmt: skip
        return dict(
            line.split(" ", 2)[1:] if line.count(" ") > 1 else (line.split()[1], "") for line in done.splitlines()
        )

    shim = {"kernel", "device", "constant", "threadgroup", "thread"}
    for header in toolchain.SHIM.rglob("*.h"):
        shim |= set(re.findall(r"^#define (\w+)", header.read_text(), re.MULTILINE))
    passes = [
        macros([*compiler.front, *toolchain.strict_flags(DEFAULTS)]),
        macros([*compiler.front, *flags.LANGUAGE_FLAGS, *flags.CODE_FLAGS, *flags.of_options(DEFAULTS)]),
        macros([*compiler.front, *ptx.FLAGS, *DEFAULTS.definitions]),
    ]
    left = [{name: text for name, text in found.items() if name.split("(")[0] not in shim} for found in passes]
    left = [{name: text for name, text in found.items() if not name.startswith("ANYMETAL_")} for found in left]
    assert left[0] == left[1] == left[2]
    assert left[0]["__METAL_VERSION__"] == "230"


@pytest.mark.parametrize(
    "name", ["ANYMETAL_STRICT", "ANYMETAL_CUDA", "__OPENCL_CPP_VERSION__", "__x86_64__", "kernel", "float4"]
)
def test_no_macro_tells_a_pass_from_another(device, name):
    """A text under `#ifndef` reaches each pass or none: one that is illegal MSL is an error, or is never compiled."""
    illegal = f"#ifndef {name}\nfloat g(double x) {{ return x; }}\n#endif"
    with pytest.raises(CompileError, match=r"<msl>:4:\d+: error: MSL has no type 'double'"):
        device.kernel(kernel(before=illegal))
    device.kernel(kernel(before=illegal.replace("ifndef", "ifdef")))


def test_macros_of_the_library_are_visible(device):
    before = "#if !defined(INFINITY) || FLT_MANT_DIG != 24 || INT_MAX != 2147483647 || !defined(M_PI_F)\n#error\n#endif"
    out = device.buffer(4)
    device.kernel(kernel("out[i] = M_PI_F;", before)).function("f").dispatch(1, out)
    assert np.frombuffer(out, "f")[0] == np.float32(np.pi)


# ------------------------------------------------------------------------------------------------ tokens

FRAGMENTS = r"""
' " \ R L u8 U u 1 0x1p e 1e 1e+ 1'0 0x'f ' ' .5 . .. ... < <: <:: <::: :> <% %> %: %:%: :: ::: : # ## ? ??= ??/ ??(
__asm__ asm x1 _ _x $ @ ` é \u0061 0b1'1 1_x 1._x "a"_x "a" 'b' "\"" "'" '"' '\'' LR"( R"(x)" )" u8"x" L'x' + ++ +=
- -> ->* - * / // /* */ = == <= >= << <<= >> >>= <=> & && | || ^ ^= ~ ! != % %= , ; ( ) [ ] { } 1p+2 0x1p+2 0x1.8p-3
1.e5 1.5e-3f 0xe+1 0x1e+2
""".split()  # noqa: SIM905
FRAGMENTS += ["\t", "\f", "\v", "\u00a0"]


def lexed(text):
    """The tokens of a text, or None if it is refused."""
    try:
        return [token.text for token in lexer.tokens(text)]
    except CompileError:
        return None


def test_tokens_are_those_of_clang():
    """What the lexer does not refuse, it splits as clang does."""
    rng = random.Random(f"tokens of clang {(seed := 1)}")
    lines = {"a " + "".join(rng.choice(FRAGMENTS) + rng.choice(["", "", " "]) for _ in range(rng.randint(1, 7)))
             for _ in range(6000)}  # fmt: skip
    accepted = [line.replace("\n", "") for line in sorted(lines) if lexed(line.replace("\n", "")) is not None]
    assert len(accepted) > 1000, f"seed {seed}"
    compiler = toolchain.find()
    for standard in (("-x", "c++", "-std=c++17"), ("-x", "clcpp", "-cl-std=clc++2021"), ("-x", "cuda", "-std=c++17")):
        done = subprocess.run(
            [*compiler.front, "-cc1", "-dump-raw-tokens", "-w", *standard, "-"],
            input="\n".join(accepted).encode(), capture_output=True, check=True,
        ).stderr.decode()  # fmt: skip
        found = [list[str]() for _ in accepted]
        for token in re.finditer(r"^(\w+) '(.*)'\t[^\t\n]*\tLoc=<[^\n]*?:(\d+):\d+>$", done, re.MULTILINE):
            kind, text, line = token[1], token[2], int(token[3]) - 1
            if kind == "unknown" and not text.strip(" \t\f\v"):
                continue
            is_word = text == "::" or re.search(r"identifier|constant|literal|unknown", kind) or text in ("<:", ":>")
            is_word = is_word or text in ("<%", "%>", "%:", "%:%:", "...")
            found[line] += [text] if is_word else list(text)
        for line, tokens in zip(accepted, found, strict=True):
            assert lexed(line) == tokens, (seed, line, standard)


def forbidden(text):
    return list(strict.forbidden(Syntax(text), (), False))


def translated(text):
    syntax = Syntax(text)
    return [kernel.entry() for kernel in kernels(syntax).values()], rewritten(Source(syntax))


def test_the_walk_over_tokens_is_total():
    """Any sequence of tokens is a source or a CompileError."""
    words = """kernel void f ( ) { } [ [ ] ] < > , ; : :: * & = threadgroup device constant float x struct template 0
    max_total_threads_per_threadgroup __attribute__ constructor gnu using extern "C" return buffer uint
    thread_position_in_grid""".split()  # noqa: SIM905
    for seed in range(3000):
        rng = random.Random(seed)
        text = " ".join(rng.choice(words) for _ in range(rng.randint(1, 25)))
        for walk in (forbidden, translated):
            try:
                walk(text)
            except CompileError:
                pass
            except Exception as error:
                raise AssertionError(f"seed {seed}: {text!r}") from error


def test_a_bracket_without_end_is_an_error():
    for text in ("__attribute__((", "[["):
        with pytest.raises(CompileError, match="is never closed"):
            forbidden(text)
    for text in ("__attribute__", "__attribute__ x"):
        assert forbidden(text) == []


# ------------------------------------------------------------------------------------------------ literals


def test_literals_are_float_everywhere(device):
    """Also in templates, where `-cl-single-precision-constant` of clang leaves them double."""
    source = """
    template <typename T> float size(T x) { auto y = x * 0.1; return sizeof(y) + 10 * sizeof(0.1) + 100 * sizeof(.5); }
    template <typename T> float value(T x) { auto y = x * 0.1 + 1'0.0; return y - 0x1.4p3; }
    constant float values[] = {1., .5, 1e2, 1'0.2'5e-1, 0x1p-1, 3.f, 2.0F, 1.5h, 7};
    """
    body = "out[i] = i == 0 ? size(1.0f) : i == 1 ? value(float(out[1])) : values[i - 2] + 0 * sizeof(1.5h);"
    out = device.buffer(np.full(11, 3, np.float32))
    device.kernel(kernel(body, source), fast_math=False).function("f").dispatch(11, out)
    x = np.float32(3) * np.float32(0.1) + np.float32(10) - np.float32(10)
    fused = np.float32(np.float64(3) * np.float32(0.1) + 10) - np.float32(10)
    found = np.frombuffer(out, "f")
    assert found[0] == 444
    assert found[1] in (x, fused)
    np.testing.assert_array_equal(found[2:], np.float32([1, 0.5, 100, 1.025, 0.5, 3, 2, 1.5, 7]))


@pytest.mark.parametrize("literal", ["0.1", "1.", ".5", "1e5", "1E-5", "1'0.5", "0x1p3", "0x1.8P-3", "0x.8p1"])
def test_literals_that_get_a_suffix(literal):
    assert lexer.unified(f"({literal}+1)") == f"({literal}f+1)"


@pytest.mark.parametrize(
    "text",
    ["1", "0x1e5", "0xF", "0b11", "1'000", "1u", "0.1f", "0.1F", "1.5h", "0x1bf", "1.0_x", "1_e5", "x.y", '"0.1"',
     "'.'", "a0.x", "v.x1", "f(1...)", "#pragma clang loop vectorize(0.5)", "#pragma unroll(0.5)"],
)  # fmt: skip
def test_what_gets_no_suffix(text):
    assert lexer.unified(text) == text


@pytest.mark.parametrize(("literal", "expected"), [("1.0bf", "1.0_bf"), ("2.H", "2._H"), ("1e-3BF", "1e-3_BF")])
def test_suffixes_that_cpp_reserves(literal, expected):
    assert lexer.unified(literal) == expected


UNROLLED = """#define LENGTH 8
#define TWICE(n) (n * 2)
#define FULLY _Pragma("clang loop unroll(full)")
#define COUNTED _Pragma("unroll(LENGTH)")
#define MODE off
"""
FORMS = {  # of a loop over an array of eight elements, as other authors write them, and what a compiler reads
    "#pragma clang loop unroll(full)": "clang loop unroll(full)",
    "#pragma unroll": "unroll",
    "#pragma unroll(8)": "unroll(8)",
    "#pragma GCC unroll 8": "GCC unroll 8",
    "#pragma unroll(LENGTH)": "unroll(8)",
    "#pragma unroll LENGTH": "unroll 8",
    "  #  pragma  clang  loop  unroll_count(TWICE(4))": "clang loop unroll_count((4 * 2))",
    "#pragma clang loop vectorize(disable) unroll_count(LENGTH)": "clang loop vectorize(disable) unroll_count(8)",
    "#pragma unroll(count)": "unroll(count)",  # a variable and a parameter of a template, which are no macros
    "#pragma unroll(K)": "unroll(K)",
    "FULLY": "clang loop unroll(full)",
    "COUNTED": "unroll(8)",
    '_Pragma("nounroll")': "nounroll",
    "#pragma clang loop unroll(disable)": "clang loop unroll(disable)",
    "{\n#pragma clang fp contract(MODE)\n} {\n}\n#pragma unroll": "clang fp contract(off)\nunroll",
}


def unrolled(form):
    before = f"""{UNROLLED}constexpr constant int count = 8;
    template <int K> float g(device const float* x, int n) {{
        float parts[K] = {{}};
        for (int i = 0; i < n; ++i) {{
{form}
            for (int k = 0; k < K; ++k) {{ parts[k] = fma(parts[k], x[k], x[i]); }}
        }}
        return parts[0] + parts[K - 1];
    }}"""
    return kernel("out[i] = g<8>(out, int(out[9]));", before)


@pytest.mark.parametrize("form", FORMS)
def test_pragmas_of_unrolling_are_kept_with_the_values_of_macros(form):
    compiler = toolchain.find()
    checked = program.checked(compiler, unrolled(form), DEFAULTS)
    cpp = checked.cpp(compiler, DEFAULTS, checked.kernels["f"], {})
    assert re.findall(r"^#pragma (.*\S)", cpp, re.MULTILINE) == FORMS[form].split("\n")
    if ptx.libdevice() is not None:  # an array that a loop indexes is in memory
        assert (b".local" in ptx_of(unrolled(form))) == ("nounroll" in form or "disable)" in form[-9:])


def test_a_source_is_judged_without_what_expands_macros_in_pragmas():
    """Clang does that for the extensions of Microsoft, which allow more."""
    compiler, form = toolchain.find(), "#pragma unroll(LENGTH)"
    for line, message in {
        "#define JOIN(a, b) a##b\n#define LINE JOIN(/, /)\nLINE": "pasting formed '//'",
        "#define and 3": "C\\+\\+ operator 'and'",
    }.items():
        with pytest.raises(CompileError, match=message):
            program.checked(compiler, f"{line}\n{unrolled(form)}", DEFAULTS)


def ptx_of(source):
    compiler, options = toolchain.find(), DEFAULTS
    checked = program.checked(compiler, source, options)
    return ptx.compile_kernel(compiler, ptx.libdevice(), checked, checked.kernels["f"], (9, 0), options, {}).text


def test_literals_on_nvidia():
    demand_ptx()
    before = "template <typename T> float g(T x) { auto y = x * 0.1; return y + sizeof(y); }"
    text = ptx_of(kernel("out[i] = g(out[i]);", before))
    assert b".f64" not in text
    assert b"0f3DCCCCCD" in text  # 0.1f


# ------------------------------------------------------------------------------------------------ errors


@pytest.mark.parametrize(
    ("before", "body", "name"),
    [
        ("float g(float x);", "out[i] = g(1);", "g"),
        ("namespace a { template <class T> T g(T x); }", "out[i] = a::g(1.0f);", "g"),
        ("struct S { float far() const; };", "S s; out[i] = s.far();", "S::far|far"),
        ("static float hidden();", "out[i] = hidden();", "hidden"),
        ("float metal_stdlib(float x);", "out[i] = metal_stdlib(1);", "metal_stdlib"),  # a word of a path
        # Variables of the process are none of the source: of the C library, of Python, of the launcher.
        *(
            (f"extern constant ulong {name};", f"out[i] = {name};", name)
            for name in ("environ", "Py_Version", "anymetal_run", "expf", "memcpy")
        ),
        ("extern constant float table[4];", "out[i] = table[i];", "table"),
        ("namespace a { extern constant float x; }", "out[i] = a::x;", "x"),
        ("template <class T> struct S { static constant T v; };", "out[i] = S<float>::v;", "v"),
        ('extern "C" int getpid();', "out[i] = getpid();", "getpid"),
    ],
)
def test_what_is_not_defined(device, before, body, name):
    message = rf"<msl>:3:\d+: error: the (function|variable) `(.*::)?({name})` is declared and used, and not defined"
    with pytest.raises(CompileError, match=message):
        device.kernel(kernel(body, before))
    if ptx.libdevice() is not None:
        with pytest.raises(CompileError, match=message):
            ptx_of(kernel(body, before))


@pytest.mark.parametrize(
    ("declaration", "message"),
    [
        ("imageblock<float> t;", "imageblock: image blocks are not supported"),
        ("command_buffer t;", "command_buffer: command buffers are not supported"),
    ],
)
def test_types_that_are_not_supported_are_named(device, declaration, message):
    with pytest.raises(CompileError, match=rf"<msl>:4:\d+: error: {message}\n") as caught:
        device.kernel(kernel(declaration))
    assert "did you mean" not in str(caught.value)
    device.kernel(kernel("texture1d m = {1}; out[i] = m.a;", "struct texture1d { float a; };"))


def test_the_number_of_threads_is_an_expression(device):
    attribute = "constant int n = 32;\n[[max_total_threads_per_threadgroup(n*2)]]"
    out = device.buffer(4 * 128)
    device.kernel(kernel("out[i] = i;", attribute)).function("f")(70, out)
    np.testing.assert_array_equal(np.frombuffer(out, "f"), np.arange(128))
    with pytest.raises(CompileError, match=r"<msl>:\d: error: use of undeclared identifier 'm'"):
        device.kernel(kernel("out[i] = i;", attribute.replace("n*2", "m*2")))
    with pytest.raises(CompileError, match=r"kernel `f`: .* needs a number"):
        device.kernel(kernel("out[i] = i;", "[[max_total_threads_per_threadgroup]]"))


# ------------------------------------------------------------------------------------------------ limits

TWICE = "".join(f"#define A{k + 1} A{k} A{k} A{k} A{k} A{k} A{k} A{k} A{k}\n" for k in range(10))
ARGUMENTS = """#define A(...) __VA_ARGS__ __VA_ARGS__ __VA_ARGS__ __VA_ARGS__ __VA_ARGS__ __VA_ARGS__ __VA_ARGS__
#define B(...) A(A(A(A(__VA_ARGS__))))
constant int bomb[] = {B(B(B(1,)))};"""
EXPENSIVE = {  # the source, the body, and the signal that ends clang
    "memory for macros": (ARGUMENTS, "", signal.SIGABRT),
    "text": (f"#define A0 1,\n{TWICE}constant int bomb[] = {{A10}};", "", signal.SIGXFSZ),
    "time": (f"#define A0\n{TWICE}A10", "", signal.SIGKILL),
    "constants": ("constant uchar large[4294967296ul] = {1};", "out[i] = large[i];", signal.SIGXFSZ),
    "a threadgroup": (
        "", "threadgroup uchar large[4294967296ul]; large[i] = 1; out[i] = large[i + 1];", signal.SIGXFSZ,
    ),
}  # fmt: skip


@pytest.mark.skipif(sys.platform != "linux", reason="macOS does not limit memory, and these sources would use it up")
@OF_THE_WHEEL
@pytest.mark.parametrize("name", EXPENSIVE)
def test_compilations_have_limits(unloaded, monkeypatch, name):
    seconds = 1 if name == "time" else 2
    monkeypatch.setenv("ANYMETAL_COMPILE_SECONDS", str(seconds))
    monkeypatch.setenv("ANYMETAL_COMPILE_MEMORY", "700")
    before, body, end = EXPENSIVE[name]
    preprocessor = {"ANYMETAL_COMPILE_SECONDS": 5, "ANYMETAL_COMPILE_MEMORY": 700 if name == "time" else 256}
    monkeypatch.setattr(toolchain, "PREPROCESSING", preprocessor)
    with pytest.raises(CompileError) as caught:
        unloaded.kernel(kernel(body, before))
    is_macro = before.startswith("#define")
    memory = preprocessor["ANYMETAL_COMPILE_MEMORY"] if is_macro else 700
    limits = f"may take {seconds} seconds of processor time (ANYMETAL_COMPILE_SECONDS), {memory} MiB of memory"
    assert is_macro == ("a macro expands to too much text" in str(caught.value))
    assert f"stopped with status {-end}. A compilation {limits}" in str(caught.value)


@pytest.mark.parametrize("value", ["0", "-1", "many", "1e3"])
def test_limits_are_numbers(monkeypatch, value):
    monkeypatch.setenv("ANYMETAL_COMPILE_SECONDS", value)
    with pytest.raises(CompileError, match=f"ANYMETAL_COMPILE_SECONDS='{value}' is not a number from 1 to"):
        clang.Device().kernel(kernel(before=f"// {time.time()}"))


@pytest.mark.parametrize(
    ("more", "is_compiled"),
    [("", False), ("kernel void b() {}\n", True), ("constant int n [[function_constant(0)]];\n", True)],
    ids=["it is not compiled next", "two kernels", "a function constant"],
)
def test_a_wrong_call_is_found_before_a_kernel_is_compiled(more, is_compiled):
    source = f"{HEADER}float f(int4 v) {{ return v.x; }}\nkernel void a(device float *x) {{ x[0] = f(x); }}\n"
    with pytest.raises(CompileError, match="no matching function for call to 'f'"):
        program.checked(toolchain.find(), source + more, DEFAULTS, is_compiled=is_compiled)


def test_each_of_several_instantiations_is_checked():
    source = f"""{HEADER}template <typename T> float f(device T *x) {{ return x[0]; }}
template <typename T> kernel void k(device T *x, threadgroup T *y [[threadgroup(0)]]) {{ x[0] = f(y); }}
template [[host_name("a")]] kernel void k<float>(device float *, threadgroup float *);
template [[host_name("b")]] kernel void k<int>(device int *, threadgroup int *);
"""
    known = program.checked(toolchain.find(), source, DEFAULTS)
    for one in known.kernels.values():
        with pytest.raises(CompileError, match="'f': an argument is in another address space"):
            known.cpp(toolchain.find(), DEFAULTS, one, {})


@pytest.mark.parametrize("text", ["kernel [[MAX]] void f(IN) {}", "kernel void f(IN) [[MAX]] {}"])
def test_attributes_where_a_compiler_of_metal_has_none(text):
    device = clang.Device()
    text = text.replace("MAX", "max_total_threads_per_threadgroup(64)").replace("IN", "device float *y")
    with pytest.raises(CompileError, match="write the attribute before `kernel`"):
        device.kernel(text)
    device.kernel("[[max_total_threads_per_threadgroup(64)]] kernel void f(device float *y) {}")


@pytest.mark.parametrize(
    "text", ["MAX kernel void", "kernel MAX void", "kernel void MAX", "template <int N> MAX kernel void"]
)
@pytest.mark.parametrize("behind", ["", "MAX"])
def test_attributes_as_of_gnu(device, text, behind):
    number = "(N + 2)" if "template" in text else "(2 * 32)"
    attribute = f"__attribute__((max_total_threads_per_threadgroup({number})))"
    text = text.replace("MAX", "" if behind else attribute)
    text += f" f(device float *y, uint i [[thread_position_in_grid]]) {behind and attribute} {{ y[i] = i; }}\n"
    if "template" in text:
        text += 'template [[host_name("g")]] kernel void f<62>(device float *, uint);'
    assert device.kernel(text).function("g" if "template" in text else "f").signature.threads == 64


@pytest.mark.parametrize("rest", ["", "64", "(64", "(64), constructor", "(64)) , noinline"])
def test_attributes_of_gnu_that_are_refused(device, rest):
    with pytest.raises(CompileError):
        device.kernel(f"__attribute__((max_total_threads_per_threadgroup{rest})) kernel void f(device float *y) {{}}")
