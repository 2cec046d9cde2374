"""A newcomer follows the page on the explorer, word for word, to a picture that explains kernelOffset."""

import html
import re
import shlex
import socket
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from pathlib import Path

import pytest

from mpsref.explore.app import page, part
from mpsref.explore.controls import PRESETS

PAGE = (Path(__file__).parents[2] / "docs" / "explorer.md").read_text("utf-8")


def printed(command, *more):
    """The address that a command of the page prints, and the page at that address."""
    words = shlex.split(command, comments=True)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    running = subprocess.Popen(
        [sys.executable, "-m", words[0], *words[1:], *more, "--port", str(port)], stdout=subprocess.PIPE, text=True
    )
    try:
        address = re.search(r"http://\S+", running.stdout.readline())[0]
        for _ in range(100):
            try:
                return address, urllib.request.urlopen(address).read().decode()
            except OSError:
                time.sleep(0.1)
        raise AssertionError(f"nobody answers at {address}")
    finally:
        running.terminate()
        running.communicate()


@pytest.mark.parametrize("command", re.findall(r"^mpsref explore.*$", PAGE, re.MULTILINE))
def test_the_commands_of_the_page(command):
    pytest.importorskip("uvicorn")
    _, served = printed(command, "--no-browser")
    assert ">kernel offset</a>" in served


def test_every_text_that_the_page_quotes_is_in_the_browser():
    before, case, _ = PRESETS["kernel offset"]
    shown = html.unescape(re.sub(r"<[^>]+>", "", page({}) + page({"case": case, "before": before})))
    text = re.sub("```.*?```|{py:mod}`.*?`", "", PAGE, flags=re.DOTALL)
    quoted = [bold or code for bold, code in re.findall(r"\*\*([^*]+)\*\*|`([^`]+)`", text)]
    assert len(quoted) > 15
    others = {"kernelOffsetX", "kernelOffsetY", "mpsref check --html"}
    assert {one for one in quoted if one not in shown} == others


def test_what_the_page_says_of_kernel_offset_is_in_the_picture():
    href = re.search(r'<a href="/\?([^"]*)"[^>]*>kernel offset</a>', page({}))[1]
    address = dict(urllib.parse.parse_qsl(html.unescape(href)))
    answer = part(address)
    for words in ("Before: kernel offset (0, 0)", "After: kernel offset (1, 1)", "Both axes", "Result dx"):
        assert words in answer["scene"]
    for claim in ("effective offset = stride × primary offset + kernel offset", "one pixel to the top left"):
        assert claim in PAGE
    assert "effective offset 0 = stride 2 × primary offset 0 + kernel offset 0" in answer["scene"]
    assert "effective offset 1 = stride 2 × primary offset 0 + kernel offset 1" in answer["scene"]
    cells = r'data-name="dx" data-pixel="(\d),(\d)".*?<text[^>]*>([^<]*)'
    before, after = (
        {(int(y), int(x)): number for y, x, number in re.findall(cells, side)}
        for side in answer["scene"].split("After: ")
    )
    assert len(before) == len(after) == 36
    assert all(after[y, x] == before[y + 1, x + 1] for y in range(5) for x in range(5))
    claims = [re.sub("<[^>]*>", "", part(query)["sum"]) for query in ({"case": address["before"]}, address)]
    assert re.findall(r"`(dx\[1, 1\] = [^`]*)`", PAGE) == claims
