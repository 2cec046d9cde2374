"""The clang runtime as a device: arguments, buffers, the cache on disk, threads, fork, and the state of the process."""

from __future__ import annotations

import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from array import array

import numpy as np
import pytest

import shared
from anymetal import CompileError, LaunchError, clang, disk_cache
from anymetal.frontend import cache, toolchain
from shared import COPY, ROOT, SUMS, size

pytestmark = pytest.mark.skipif(clang.unavailable() is not None, reason=str(clang.unavailable()))


@pytest.fixture(scope="module")
def device() -> clang.Device:
    return clang.Device()


@pytest.fixture
def copy(device):
    return device.kernel(COPY).function("copy")


def run(code, **environment):
    """Run code in a fresh interpreter, to its end."""
    done = shared.python(code, **environment)
    assert done.returncode == 0, done.stderr
    return done


def python(code, **environment):
    """Run code as above; return what it printed."""
    return run(code, **environment).stdout.strip()


# ------------------------------------------------------------------------------------------------ arguments


@pytest.mark.parametrize(
    "x",
    [
        np.arange(6, dtype=np.float32),
        np.arange(6, dtype=np.float32).reshape(2, 3),
        array("f", range(6)),
        np.arange(6, dtype=np.float32).tobytes(),
        bytearray(np.arange(6, dtype=np.float32).tobytes()),
        memoryview(np.arange(6, dtype=np.float32)),
    ],
    ids=["array", "matrix", "array.array", "bytes", "bytearray", "memoryview"],
)
def test_any_buffer_is_an_input(device, copy, x):
    out = device.buffer(24)
    handle = copy(6, x, out, size(6))
    del handle
    np.testing.assert_array_equal(np.frombuffer(out, "f"), np.arange(6))


def test_read_only_arrays_are_inputs(device, copy):
    x = np.arange(6, dtype=np.float32)
    x.flags.writeable = False
    out = device.buffer(24)
    copy(6, x, out, size(6))
    np.testing.assert_array_equal(np.frombuffer(out, "f"), x)


def test_the_callers_arrays_are_never_changed(device, copy):
    x, plain = np.arange(6, dtype=np.float32), np.zeros(6, np.float32)
    copy(6, x, plain, size(6))
    np.testing.assert_array_equal(plain, 0)
    np.testing.assert_array_equal(x, np.arange(6))


def test_an_integer_argument_is_a_buffer_of_that_length(device, copy):
    out = device.buffer(24)
    copy(6, 24, out, size(6))
    np.testing.assert_array_equal(np.frombuffer(out, "f"), 0)
    with pytest.raises(LaunchError, match=r"out of bounds: at byte offset (16|20) of buffer\(0\)"):
        copy(6, 16, out, size(6))


def test_wrong_number_of_arguments(device, copy):
    out = device.buffer(24)
    message = r"kernel `copy` takes 3 buffers, not {}: buffer\(0\) is `device const float \*x`, buffer\(1\) is"
    with pytest.raises(LaunchError, match=message.format(2)):
        copy(6, np.zeros(6, "f"), out)
    with pytest.raises(LaunchError, match=message.format(4)):
        copy(6, np.zeros(6, "f"), out, size(6), out)
    with pytest.raises(LaunchError, match=message.format(0)):
        copy(6)


@pytest.mark.parametrize(
    ("x", "error", "message"),
    [
        (np.zeros((6, 2), "f")[:, 0], ValueError, r"buffer\(0\) of kernel `copy`: the array is not C-contiguous"),
        (np.zeros((3, 2), "f").T, ValueError, "not C-contiguous"),
        (np.zeros(0, "f"), ValueError, "a buffer of 0 bytes"),
        (0, ValueError, "a buffer of 0 bytes"),
        (-4, ValueError, "a buffer of -4 bytes"),
        (2**45, ValueError, "no memory for a buffer of 35184372088832 bytes"),
        (2**70, ValueError, "a buffer of 1180591620717411303424 bytes: legal sizes are"),
        (1.5, TypeError, r"buffer protocol.* not 1\.5"),
        ("24", TypeError, "buffer protocol"),
        (None, TypeError, "buffer protocol"),
        ([1.0, 2.0], TypeError, "buffer protocol"),
        (True, TypeError, "buffer protocol.* not True of type bool"),
        (np.array([1, None]), TypeError, "the array holds Python objects"),
        (np.zeros(2, [("a", "f4"), ("b", object)]), TypeError, "the array holds Python objects|buffer protocol"),
        (np.zeros(2, "M8[s]"), TypeError, "buffer protocol"),
        ("a" * 10**6, TypeError, r"not 'aaa.*aaa' of type str$"),
    ],
)
def test_arguments_that_are_no_buffers(device, copy, x, error, message):
    with pytest.raises(error, match=message):
        copy(6, x, device.buffer(24), size(6))


@pytest.mark.parametrize(
    ("count", "error"),
    [
        *[(count, ValueError) for count in (0, -1, 2**33, 2**64, 10**400)],
        *[(count, TypeError) for count in (1.0, "6", True, np.True_, None, np.array([6]))],
    ],
)
def test_counts(device, copy, count, error):
    with pytest.raises(error, match="count="):
        copy(count, np.zeros(6, "f"), device.buffer(24), size(6))


@pytest.mark.parametrize("in_buffer", [False, True])
def test_a_parameter_struct_must_be_complete(device, copy, in_buffer):
    given = device.buffer(4) if in_buffer else np.uint32(6)
    with pytest.raises(
        LaunchError, match=r"buffer\(2\) of kernel `copy`, `constant Size &size`, needs 8 bytes and has 4"
    ):
        copy(6, np.zeros(6, "f"), device.buffer(24), given)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"index": True}, TypeError, "index=True of type bool: the index of a device is an integer"),
        ({"index": 0.0}, TypeError, "index=0.0 of type float"),
        ({"index": "0"}, TypeError, "index='0' of type str"),
        ({"index": -2}, LaunchError, "index=-2: there is one device"),
        ({"seed": True}, TypeError, "seed=True of type bool: a seed is an integer"),
        ({"seed": 1.5}, TypeError, "seed=1.5 of type float"),
        ({"seed": None}, TypeError, "seed=None of type NoneType"),
        ({"seed": np.zeros(2, object)}, TypeError, "seed=.* of type ndarray"),
        ({"check_order": "no"}, TypeError, "check_order is of type str; it is True or False"),
        ({"check_order": 0}, TypeError, "check_order is of type int"),
    ],
)
def test_arguments_of_a_device(arguments, error, message):
    arguments = dict(arguments)
    index = [arguments.pop("index")] if "index" in arguments else []
    with pytest.raises(error, match=message):
        clang.Device(*index, **arguments)


def test_unknown_names(device):
    kernel = device.kernel(COPY)
    with pytest.raises(LaunchError, match=r"no kernel 'paste' in this source; it has copy"):
        kernel.function("paste")
    with pytest.raises(TypeError, match="the source is a string, not bytes"):
        device.kernel(COPY.encode())
    with pytest.raises(LaunchError, match="index=3: there is one device"):
        clang.Device(3)
    for name in (None, 3, ["copy"], b"copy"):
        with pytest.raises(TypeError, match="it is the name of a kernel function, a str"):
            kernel.function(name)
    assert str(clang.Device(0)).startswith("clang.Device(")
    assert str(kernel) == "clang.Kernel(copy)"
    assert str(kernel.function("copy")) == "clang.Function(copy)"


# ------------------------------------------------------------------------------------------------ buffers


def test_buffers_are_shared_memory(device, copy):
    x, out = device.buffer(np.arange(6, dtype=np.float32)), device.buffer(24)
    assert str(out) == "clang.Buffer(length=24)"
    np.testing.assert_array_equal(np.frombuffer(out, "f"), 0)
    view = memoryview(x).cast("f")
    view[3] = 30
    np.frombuffer(x, "f")[4] = 40
    copy(6, x, out, size(6))
    np.testing.assert_array_equal(np.frombuffer(out, "f"), [0, 1, 2, 30, 40, 5])


def test_memory_lives_as_long_as_a_view(device):
    view = np.frombuffer(device.buffer(np.arange(1000, dtype=np.float32)), np.float32)
    for _ in range(50):
        device.buffer(4000)[:] = 255
    np.testing.assert_array_equal(view, np.arange(1000))


def test_a_slice_of_a_buffer_is_a_copied_input(device, copy):
    x = device.buffer(np.arange(8, dtype=np.float32))
    out = device.buffer(24)
    copy(6, x[4:28], out, size(6))
    np.testing.assert_array_equal(np.frombuffer(out, "f"), np.arange(1, 7))


def test_one_buffer_as_two_arguments(device, copy):
    both = device.buffer(np.arange(6, dtype=np.float32))
    copy(6, both, both, size(6))
    np.testing.assert_array_equal(np.frombuffer(both, "f"), np.arange(6))


def test_memory_is_given_back(device):
    with open("/proc/self/maps") if sys.platform == "linux" else pytest.skip("needs /proc") as maps:
        before = len(maps.readlines())
    for _ in range(500):
        device.buffer(5000)
    with open("/proc/self/maps") as maps:
        assert len(maps.readlines()) < before + 50


# ------------------------------------------------------------------------------------------------ threads, fork, state


def launch_many(device, results, slot):
    sums = device.kernel(SUMS).function("sums")
    rng = np.random.default_rng(slot)
    for _ in range(20):
        x = rng.integers(-1000, 1000, 1024).astype(np.int32)
        out = device.buffer(32)
        sums(1024, x, out)
        results[slot] &= bool((np.frombuffer(out, np.int32) == x.reshape(8, 128).sum(1)).all())


def test_threads_launch_at_once(device):
    results = [True] * 8
    devices = [device, clang.Device()]
    threads = [threading.Thread(target=launch_many, args=(devices[i % 2], results, i)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [True] * 8


def test_faults_in_several_threads(device):
    source = COPY.replace("if (i < size.n) ", "")
    caught = []

    def fault():
        for _ in range(10):
            with pytest.raises(LaunchError, match="out of bounds"):
                device.kernel(source).function("copy")(6, np.zeros(6, "f"), device.buffer(24), size(6))
            caught.append(1)

    threads = [threading.Thread(target=fault) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(caught) == 40


def test_a_forked_child_launches():
    code = f"""
    import os, numpy as np, threading
    from anymetal import clang
    device = clang.Device()
    sums = device.kernel({SUMS!r}).function("sums")
    def once():
        out = device.buffer(8)
        sums(256, np.arange(256, dtype=np.int32), out)
        return np.frombuffer(out, np.int32).tolist()
    expected = once()
    stop = threading.Event()
    def busy():
        while not stop.is_set(): once()
    thread = threading.Thread(target=busy)
    thread.start()
    for _ in range(10):
        child = os.fork()
        if child == 0:
            os._exit(0 if once() == expected else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    stop.set(); thread.join()
    print("done")
    """
    assert python(code) == "done"


def test_subnormal_numbers_stay_on(device, copy):
    tiny = np.float32(1e-40)
    copy(1, np.zeros(1, "f"), device.buffer(4), size(1))
    assert tiny * np.float32(0.5) > 0
    assert np.float64(5e-324) * np.float64(1.0) > 0


def test_a_crash_elsewhere_is_still_a_crash(device):
    code = """
    import ctypes, faulthandler, numpy as np
    from anymetal import clang
    {}
    device = clang.Device()
    device.kernel('#include <metal_stdlib>\\nkernel void f(device int* x) {{ x[0] = 1; }}').function('f')(1, 4)
    ctypes.string_at(8)
    """
    for line, word in (("pass", ""), ("faulthandler.enable()", "Segmentation fault")):
        done = shared.python(code.format(line))
        assert done.returncode == -signal.SIGSEGV
        assert word in done.stderr


# ------------------------------------------------------------------------------------------------ the cache on disk


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A fresh cache, for this process and its children; what zig itself keeps is not part of the question."""
    monkeypatch.setenv("ZIG_GLOBAL_CACHE_DIR", str(cache.kept_by_compiler(cache.directory())))
    monkeypatch.setenv("ANYMETAL_CACHE_DIR", str(tmp_path))
    return tmp_path / "msl"


RUN = f"""
import numpy as np
from anymetal import clang
device = clang.Device()
out = device.buffer(24)
device.kernel({COPY!r}).function("copy")(6, np.arange(6, dtype=np.float32), out, np.array([6, 0], np.uint32))
print(np.frombuffer(out, np.float32).sum())
"""


@pytest.mark.slow
def test_the_cache_is_used_and_mended(folder):
    assert python(RUN) == "15.0"
    files = sorted(folder.glob("*.so"))
    assert len(files) == 2  # the launcher and the kernel
    times = [file.stat().st_mtime_ns for file in files]
    assert python(RUN) == "15.0"
    assert [file.stat().st_mtime_ns for file in files] == times
    for file in files:
        os.truncate(file, 4096)
    done = run(RUN)
    assert done.stdout == "15.0\n"
    assert done.stderr.count("Warning:") == 1
    assert f"RuntimeWarning: a compiled kernel in '{folder}' is damaged" in done.stderr
    assert run(RUN).stderr == ""
    assert not list(folder.glob(".build-*"))


@pytest.mark.slow
def test_headers_are_parsed_once_for_all_sources(folder):
    def parsed():
        return {file: file.stat().st_mtime_ns for file in folder.glob("*.pch")}

    assert python(RUN) == "15.0"
    before = parsed()
    assert len(before) == 2  # of the strict pass and of the running one
    assert python(RUN.replace("copy", "other")) == "15.0"
    assert parsed() == before
    for number, file in enumerate(before):
        file.write_bytes(b"not a header")
        assert python(RUN.replace("copy", f"another_{number}")) == "15.0"
        assert file.stat().st_size > 12


@pytest.mark.slow
def test_headers_of_another_time(tmp_path, folder):
    """Clang refuses, unless it is told not to, what was parsed of a file that has another time since."""
    shutil.copytree(ROOT / "anymetal", tmp_path / "anymetal", ignore=shutil.ignore_patterns("__pycache__"))
    for number in range(2):
        assert python(RUN.replace("copy", f"copy_{number}"), PYTHONPATH=str(tmp_path)) == "15.0"
        for header in (tmp_path / "anymetal/frontend/shim").rglob("*"):
            os.utime(header, (0, 0))
    assert len(list(folder.glob("*.pch"))) == 2


LOSSES = {
    "truncated files": lambda kept: [os.truncate(file, 20) for file in kept.glob("o/*/*")],
    "no objects": lambda kept: shutil.rmtree(kept / "o", ignore_errors=True),
    "no folder": shutil.rmtree,
}


@pytest.mark.slow
def test_what_the_compiler_keeps_may_be_lost(folder):
    """Nothing that is compiled again comes from it, neither the launcher nor the headers nor a kernel."""
    assert python(RUN, ZIG_GLOBAL_CACHE_DIR="") == "15.0"
    for name, loss in LOSSES.items():
        for path in folder.glob("*.json"):
            path.unlink()
        for kept in folder.glob("*zig"):
            loss(kept)
        done = run(RUN, ZIG_GLOBAL_CACHE_DIR="")
        assert (done.stdout, done.stderr) == ("15.0\n", ""), name


def test_damaged_libraries_of_the_compiler_are_built_again(tmp_path, folder, monkeypatch):
    """On some systems zig builds a library and keeps it; this compiler fails when it is damaged, and says so as zig."""
    count = tmp_path / "count"
    script = tmp_path / "clang"
    script.write_text(f"""#!/bin/sh
echo >> {count}
mkdir -p "$ZIG_GLOBAL_CACHE_DIR"
library="$ZIG_GLOBAL_CACHE_DIR/library.a"
[ -e "$library" ] || echo good > "$library"
grep -q good "$library" || {{ echo "error: failed to parse archive: FileNotFound"; exit 1; }}
case "$*" in *wrong*) echo "<msl>:1:2: error: wrong"; exit 1;; esac
echo made > "$2"
""")
    script.chmod(0o755)
    compiler = toolchain.Toolchain("clang", (str(script),), (str(script),))
    monkeypatch.setenv("ZIG_GLOBAL_CACHE_DIR", "")

    def calls(*command):
        """Return how often the compiler was called for a command, and the error."""
        count.write_text("")
        try:
            compiler.make([str(script), *command])
        except cache.BuildError as error:
            return len(count.read_text()), str(error)
        return len(count.read_text()), None

    made = tmp_path / "made"
    assert calls("-o", str(made)) == (1, None)
    (library,) = folder.glob("*.zig/library.a")
    for damage in (lambda: library.write_text(""), lambda: shutil.rmtree(library.parent)):
        damage()
        made.unlink()
        assert calls("-o", str(made))[1] is None
        assert calls("-o", str(made)) == (1, None), "it is mended"
        assert made.read_text() == "made\n"
    number, error = calls("wrong")
    assert (number, error) == (1, "clang failed with status 1:\n<msl>:1:2: error: wrong\n"), "it is not repeated"
    script.write_text("#!/bin/sh\necho no library; exit 3")
    assert "clang failed with status 3:\nno library" in calls("-o", str(made))[1]
    assert not list(folder.glob(".build-*"))


@pytest.mark.slow
def test_processes_that_compile_at_once(folder):
    started = [
        subprocess.Popen([sys.executable, "-c", RUN], stdout=subprocess.PIPE, text=True, env=shared.environment())
        for _ in range(4)
    ]
    assert [process.communicate(timeout=120)[0].strip() for process in started] == ["15.0"] * 4


def test_a_cache_that_cannot_be_written(tmp_path, folder):
    blocked = tmp_path / "file"
    blocked.write_text("in the way")
    done = run(RUN, ANYMETAL_CACHE_DIR=str(blocked))
    assert done.stdout == "15.0\n"
    assert done.stderr.count("Warning:") == 1
    assert "compiled kernels are not kept" in done.stderr


def test_a_forked_child_leaves_the_temporary_folder(tmp_path, folder):
    blocked = tmp_path / "file"
    blocked.write_text("in the way")
    code = f"""
    import os, sys, warnings
    warnings.simplefilter("ignore")
    from anymetal import clang
    from anymetal.frontend import cache
    clang.Device().kernel({COPY!r})
    if os.fork() == 0:
        sys.exit()
    os.wait()
    print(len(list(cache.directory().glob("*.so"))))
    """
    assert python(code, ANYMETAL_CACHE_DIR=str(blocked)) == "2"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("option", "reason"), [("size=64k", "No space left on device"), ("ro", "Read-only file system")]
)
def test_a_disk_that_is_full_or_read_only(tmp_path, folder, option, reason):
    if sys.platform != "linux" or os.geteuid() != 0:
        pytest.skip("only root on Linux can mount file systems")
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", f"mode=700,{option}", "none", disk], check=False).returncode:
        pytest.skip("no permission to mount a file system")
    try:
        done = run(RUN, ANYMETAL_CACHE_DIR=str(disk))
    finally:
        subprocess.run(["umount", disk], check=True)
    assert done.stdout == "15.0\n"
    assert done.stderr.count("Warning:") == 1
    assert "compiled kernels are not kept" in done.stderr
    assert reason in done.stderr


def test_a_mistake_in_a_source_is_not_taken_for_a_full_disk(device, folder, monkeypatch, recwarn):
    """A source that only the last compilation rejects raises its error."""
    monkeypatch.setattr(toolchain.Toolchain, "check", lambda *_: "")
    with pytest.raises(CompileError, match="no_such_function"):
        clang.Device().kernel(COPY.replace("= x[i]", "= no_such_function(x[i])"))
    assert not recwarn.list


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can give files away")
def test_a_library_planted_by_another_user_is_not_loaded(tmp_path, folder):
    trace, shared = tmp_path / "trace", tmp_path / "shared" / "msl"
    assert python(RUN) == "15.0"
    (tmp_path / "trap.c").write_text(
        "extern int creat(const char *, unsigned);\n"
        f'__attribute__((constructor)) static void spring(void) {{ creat("{trace}", 0600); }}'
    )
    shared.mkdir(parents=True)

    def compile_trap(path):
        flags = "-shared", "-fPIC", "-nostdlib"
        toolchain.find().make([*toolchain.find().driver, *flags, str(tmp_path / "trap.c"), "-o", str(path)])
        return []

    for library in folder.glob("*.so"):
        (key,) = (note.stem for note in folder.glob("*.json") if library.stem in note.read_text())
        disk_cache.store(shared, key, ".so", compile_trap)
    with pytest.raises(AssertionError, match="undefined symbol"):
        run(RUN, ANYMETAL_CACHE_DIR=str(shared.parent))
    assert trace.exists(), "the trap works"
    trace.unlink()

    for path in (shared, *shared.iterdir()):
        os.chown(path, 65534, 65534)
    done = run(RUN, ANYMETAL_CACHE_DIR=str(shared.parent))
    assert done.stdout == "15.0\n"
    assert not trace.exists()
    assert done.stderr.count("Warning:") == 1
    assert f"the folder '{shared}' belongs to another user (uid 65534)" in done.stderr


def test_a_changed_source_is_another_kernel(device):
    first = device.kernel(COPY)
    assert device.kernel(COPY) is first
    assert device.kernel(COPY + " ") is not first


def test_functions_that_no_kernel_needs_are_left_out(device, folder):
    helpers = "float left_out(float v) { return v * 1234.567f; }\nfloat needed(float v) { return v * 7654.321f; }\n"
    device.kernel(COPY.replace("kernel", f"{helpers}kernel").replace("= x[i]", "= needed(x[i])"))
    library = b"".join(path.read_bytes() for path in folder.glob("*.so"))
    assert np.float32(7654.321).tobytes() in library
    assert np.float32(1234.567).tobytes() not in library


def test_the_folder_for_want_of_another(monkeypatch):
    monkeypatch.setenv("ANYMETAL_CACHE_DIR", "/proc/nowhere")
    with pytest.warns(RuntimeWarning, match="compiled kernels are not kept"):
        assert cache.directory().is_relative_to(tempfile.gettempdir())


# ------------------------------------------------------------------------------------------------ no compiler


def test_reasons_why_it_is_unavailable(monkeypatch):
    monkeypatch.setenv("ANYMETAL_CLANG", "/no/such/clang")
    assert "ANYMETAL_CLANG='/no/such/clang' is not an executable" in str(clang.unavailable())
    with pytest.raises(LaunchError, match="ANYMETAL_CLANG"):
        clang.Device()
    monkeypatch.delenv("ANYMETAL_CLANG")
    monkeypatch.setattr(toolchain, "wheel", lambda: None)
    monkeypatch.setenv("PATH", "/no/such/folder")
    assert clang.unavailable() == "no clang found: `pip install ziglang`, or put a clang on the PATH"
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    assert "not 'riscv64'" in str(clang.unavailable())
    monkeypatch.setattr(sys, "platform", "win32")
    assert "use WSL on Windows" in str(clang.unavailable())


def test_a_clang_on_the_path(tmp_path, monkeypatch):
    """What the wheel's clang can do, any clang can: this one is the wheel's, under another name."""
    zig = toolchain.find().driver[0]
    script = tmp_path / "clang"
    script.write_text(f'#!/bin/sh\ncase "$1" in -cc1) exec {zig} clang "$@";; *) exec {zig} cc "$@";; esac\n')
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(toolchain, "wheel", lambda: None)
    assert toolchain.find().driver == (str(script),)
    other = clang.Device()
    out = other.buffer(24)
    other.kernel(COPY).function("copy")(6, np.arange(6, dtype="f"), out, size(6))
    assert np.frombuffer(out, "f").sum() == 15
