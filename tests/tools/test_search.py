"""The search of the documentation in a real browser, over a few of its pages: no error of JavaScript, what is first."""

import functools
import http.server
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

playwright = pytest.importorskip("playwright.sync_api", reason="needs Playwright: pip install playwright")
pytest.importorskip("sphinx_copybutton", reason="needs the extra `docs`")
DOCS = Path(__file__).parents[2] / "docs"
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
PAGES = "windows.md", "explorer.md", "pooling_average.md", "reference/mps.md", "reference/pooling.md"
pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="needs chromium: apt-get install chromium"),
    pytest.mark.xdist_group("browser"),
    pytest.mark.slow,
]


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    """The address of the built pages."""
    source, built = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("built")
    for page in PAGES:
        (source / page).parent.mkdir(exist_ok=True)
        shutil.copy(DOCS / page, source / page)
    entries = "\n".join(page.removesuffix(".md") for page in PAGES)
    (source / "index.md").write_text(f"# Pages\n\n```{{toctree}}\n{entries}\n```\n", "utf-8")
    command = [sys.executable, "-m", "sphinx", "-q", "-c", DOCS, "-D", "nb_execution_mode=off", source, built]
    subprocess.run(command, check=True, capture_output=True, timeout=300)
    served = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(built))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), served) as server:
        threading.Thread(target=server.serve_forever).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.mark.parametrize(
    ("words", "page"),
    [
        ("kernel offset", "windows.html"),
        ("kernelOffset", "windows.html"),
        ("MPSCNNPoolingMax", "reference/pooling.html"),
        ("MPSCNNKernel", "reference/mps.html"),
    ],
)
def test_the_first_three_results(address, words, page):
    errors = []
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        shown = browser.new_page()
        shown.on("pageerror", lambda error: errors.append(str(error)))
        shown.goto(f"{address}/search.html?q={words.replace(' ', '+')}")
        shown.wait_for_selector("ul.search li")
        shown.wait_for_load_state("networkidle")
        links = shown.eval_on_selector_all("ul.search li > a", "all => all.map(one => one.getAttribute('href'))")
        browser.close()
    assert errors == []
    assert page in [link.partition("#")[0] for link in links[:3]]
