"""The explorer in a real browser: every control, links, keyboard, copies, and no error in the console."""

import re
import shutil

import numpy as np
import pytest

from mpsref.conformance.case import Case
from mpsref.explore.controls import KERNELS, methods
from mpsref.explore.scene import Scene
from mpsref.viz.explain import explain
from mpsref.viz.page import explorer_address

from .test_explore import CASES

playwright = pytest.importorskip("playwright.sync_api", reason="needs Playwright: pip install playwright")
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="needs chromium: apt-get install chromium"),
    pytest.mark.xdist_group("browser"),
    pytest.mark.slow,
]


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as driver:
        found = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield found
        found.close()


@pytest.fixture
def page(browser, server):
    """A page whose console stays empty."""
    context = browser.new_context(base_url=server, permissions=["clipboard-read", "clipboard-write"])
    found = context.new_page()
    errors = []
    found.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    found.on("pageerror", lambda error: errors.append(str(error)))
    found.goto("/")
    yield found
    assert errors == []
    context.close()


def shown(page):
    """The case on the page."""
    return Case.parse(page.get_attribute("[data-copy]", "data-copy"))


def set_to(page, name, value):
    """Move a slider or fill in a field, and wait until the page has the data of the answer."""
    page.locator(f"[name={name}]").evaluate(
        """(field, value) => {
          document.getElementById("data").dataset.old = "";
          field.value = value;
          field.dispatchEvent(new Event("input", { bubbles: true }));
        }""",
        str(value),
    )
    page.wait_for_function("document.querySelector('#data:not([data-old])') !== null")


@pytest.mark.parametrize("text", CASES[:10])
def test_links(page, text):
    page.goto(explorer_address(text))
    assert str(shown(page)) == text
    scene = Scene(Case.parse(text))
    assert page.locator(".grid.result td").count() == scene.result[0].size
    assert page.locator("#sum").inner_text() == scene.text((0, 0))
    assert page.locator("section pre").first.inner_text() == explain(scene.problem)


@pytest.mark.parametrize("kernel", KERNELS)
def test_every_kernel_and_method_can_be_chosen(page, kernel):
    page.select_option("[name=kernel]", kernel)
    wait_for_case(page, f"{kernel}.")
    for method in methods(KERNELS[kernel]):
        page.select_option("[name=method]", method)
        wait_for_case(page, f"{kernel}.{method}:")


def wait_for_case(page, beginning):
    page.wait_for_function(f"document.querySelector('[data-copy]')?.dataset.copy.startsWith('{beginning}')")


def test_every_control_changes_the_case(page):
    sliders = {"kernel_size": 2, "strides": 3, "offset": 1, "zero_pad_size": 1, "primary_offset": 1, "source_shape": 7}
    for name, value in sliders.items():
        for k, axis in enumerate("yx"):
            set_to(page, f"{name}_{axis}", value)
            problem = shown(page).problem
            found = getattr(problem if hasattr(problem, name) else problem.spec, name)
            assert (found[1 + k] if name == "source_shape" else found[k]) == value
            assert page.locator(f"label:has([name={name}_{axis}]) output").inner_text() == str(value)
    set_to(page, "edge_mode", "zero")
    assert shown(page).problem.spec.edge_mode == "zero"
    set_to(page, "clip", "1, 0, 3, 4")
    assert shown(page).problem.clip == ((1, 0), (3, 4))
    for name in ("kernel_offset", "gradient_size"):
        page.locator(f"[name={name}_y]").evaluate("(field) => { field.value = 2; }")
        set_to(page, f"{name}_x", 2)
        assert getattr(shown(page).problem, name) == (2, 2)
    assert str(shown(page)) in page.locator("#scene").inner_text()


def test_the_address_has_the_state(page):
    set_to(page, "kernel_size_y", 2)
    page.hover(".grid.result [data-pixel='2,3']")
    text, total = str(shown(page)), page.locator("#sum").inner_text()
    page.reload()
    assert (str(shown(page)), page.locator("#sum").inner_text()) == (text, total)
    assert page.locator(".chosen").get_attribute("data-pixel") == "2,3"


def test_hovering_shows_the_window_and_its_sum(page):
    text = "PoolingAverage.forward:n1h5w4c1,k3x2,s2x1,o1x0,clamp,zp1x1,float32,exact,seed=0"
    page.goto(explorer_address(text))
    scene = Scene(Case.parse(text))
    for pixel in ((0, 0), (1, 2)):
        page.hover(f".grid.result [data-pixel='{pixel[0]},{pixel[1]}']")
        taps = page.locator(".grid.source .tap").evaluate_all("cells => cells.map(cell => cell.dataset.pixel)")
        assert sorted(taps) == sorted("{},{}".format(*t.pixel) for t in scene.terms(pixel))
        assert page.locator("#sum").inner_text() == scene.text(pixel)
        (center,) = page.locator(".grid.source .center").evaluate_all("cells => cells.map(cell => cell.dataset.pixel)")
        assert center == next("{},{}".format(*t.pixel) for t in scene.terms(pixel) if t.kind == "center")


def test_hovering_over_the_source_shows_where_it_contributes(page):
    page.goto(explorer_address(CASES[0]))
    page.hover(".grid.source [data-pixel='1,2']")
    reached = page.locator(".grid.result .weighted").evaluate_all("cells => cells.map(cell => cell.dataset.pixel)")
    weights = Scene(Case.parse(CASES[0])).weights[:, :, 1, 2]
    assert sorted(reached) == sorted(f"{y},{x}" for y in range(6) for x in range(6) if weights[y, x])
    assert page.locator("#sum").inner_text().startswith("g[1, 2] contributes to dx[")


def test_the_keyboard_moves_over_the_pixels(page):
    page.locator(".grid.result .chosen").focus()
    for key in ("ArrowRight", "ArrowDown", "ArrowDown", "ArrowLeft", "ArrowLeft"):
        page.keyboard.press(key)
    assert page.locator(".chosen").get_attribute("data-pixel") == "2,0"
    assert page.evaluate("document.activeElement.dataset.pixel") == "2,0"
    assert page.locator("[data-pixel='2,0']").last.get_attribute("aria-label").startswith("dx[2, 0] is ")


def test_the_keyboard_moves_over_the_source(page):
    page.locator(".grid.source [tabindex='0']").focus()
    page.keyboard.press("ArrowDown")
    assert page.locator(".grid.source .chosen").get_attribute("data-pixel") == "1,0"
    assert page.locator("#sum").inner_text().startswith("g[1, 0] contributes to dx[")


def test_the_live_region_stays_when_a_slider_moves(page):
    before = page.locator("#sum").element_handle()
    set_to(page, "kernel_size_y", 2)
    assert before.evaluate("element => element.isConnected && element.ariaLive") == "polite"


def test_the_sentence_on_bad_input_has_contrast(browser, server):
    """At least 4.5 : 1, as WCAG 2 requires of text, in both themes."""
    for scheme in ("light", "dark"):
        page = browser.new_page(color_scheme=scheme)
        page.goto(server)
        colors = page.evaluate(
            """() => {
              const context = document.createElement("canvas").getContext("2d");
              const background = matchMedia("(prefers-color-scheme: dark)").matches ? "#121212" : "white";
              return [getComputedStyle(document.getElementById("problem")).color, background].map((color) => {
                context.fillStyle = color;
                context.fillRect(0, 0, 1, 1);
                return [...context.getImageData(0, 0, 1, 1).data].slice(0, 3);
              });
            }"""
        )
        dark, light = sorted(np.where(c <= 0.04045, c / 12.92, ((c + 0.055) / 1.055) ** 2.4) @ [0.2126, 0.7152, 0.0722]
                             for c in np.array(colors) / 255)  # fmt: skip
        assert (light + 0.05) / (dark + 0.05) >= 4.5, scheme
        page.close()


def test_the_order_of_pixels(page):
    page.locator("#order").evaluate("(s) => { s.value = 7; s.dispatchEvent(new Event('input', { bubbles: true })); }")
    assert page.locator(".chosen").get_attribute("data-pixel") == "1,1"
    page.click("#play")
    page.wait_for_function("document.querySelector('.chosen').dataset.pixel === '1,3'")
    page.click("#play")
    assert page.locator("#play").inner_text() == "Play"


def test_copies(page):
    for k, beginning in enumerate(["PoolingAverage.gradient:", "import mpsref", "from mpsref import mps"]):
        page.locator("[data-copy]").nth(k).click()
        page.wait_for_function(f"document.querySelectorAll('[data-copy]')[{k}].textContent === 'Copied'")
        assert page.evaluate("navigator.clipboard.readText()").startswith(beginning)
    button = page.locator("[data-copy]").first
    title = button.get_attribute("data-title")
    button.dblclick()
    for text in ("Copied", title):
        page.wait_for_function("([button, text]) => button.textContent === text", arg=[button.element_handle(), text])


def test_the_padding_of_a_framework(page):
    page.fill("[name=padding]", "1")
    page.check("[name=ceil_mode]")
    page.click("text=Place >> nth=-1")
    page.wait_for_function("document.querySelector('[data-copy]')?.dataset.copy.includes(',g4x4,')")
    assert shown(page).problem.gradient_size == (4, 4)


def test_bad_input_leaves_the_page_with_a_sentence(page):
    before = str(shown(page))
    page.locator("[name=clip]").fill("1, 2")
    page.wait_for_function("document.getElementById('problem').textContent.includes('four integers')")
    assert str(shown(page)) == before
    page.locator("[name=clip]").fill("")
    page.wait_for_function("document.getElementById('problem').textContent === ''")


@pytest.mark.parametrize("size", [(360, 740), (1280, 900)])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_widths_and_themes(browser, server, size, scheme):
    page = browser.new_page(viewport={"width": size[0], "height": size[1]}, color_scheme=scheme)
    page.goto(server)
    assert page.evaluate("document.documentElement.scrollWidth") <= size[0], "the page does not scroll sideways"
    ink = re.findall(r"\d+", page.evaluate("getComputedStyle(document.body).color"))
    assert (sum(map(int, ink[:3])) < 200) == (scheme == "light")
    page.close()


def test_every_control_has_a_name(page):
    unnamed = page.evaluate(
        "[...document.querySelectorAll('input:not([type=hidden]), select, button')]"
        ".filter(field => !field.labels?.length && !field.textContent.trim()).length"
    )
    assert unnamed == 0
