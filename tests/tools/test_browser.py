"""The explorer in a real browser: every control, links, keyboard, copies, and no error in the console."""

import re
import shutil
from urllib.parse import parse_qs, urlencode

import numpy as np
import pytest

from mpsref.conformance.case import Case
from mpsref.explore.controls import KERNELS, PRESETS, methods
from mpsref.explore.drawing import CELL, GAP
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
    return Case.parse(state(page)["case"][0])


def state(page):
    return parse_qs(page.get_attribute("#scene", "data-state"))


def settled(page, action):
    """Do something, and wait until the page has the pictures of the answer."""
    page.evaluate("document.getElementById('scene').dataset.old = ''")
    action()
    page.wait_for_function("document.querySelector('#scene:not([data-old])') !== null")


def set_to(page, name, value):
    """Move a slider or fill in a field."""
    script = """(field, value) => {
      if (field.type === "checkbox") field.checked = value; else field.value = value;
      field.dispatchEvent(new Event("input", { bubbles: true }));
    }"""
    settled(page, lambda: page.locator(f"[name={name}]").evaluate(script, value))


def cell(name, y, x):
    """The selector of a pixel in the last picture of an image."""
    return f"figure:last-of-type [data-name='{name}'][data-pixel='{y},{x}'], [data-name='{name}'][data-pixel='{y},{x}']"


def formula(case, **query):
    scene = Scene(Case.parse(str(case)))
    return "".join(part.text for part in scene.text(scene.view(query, scene.default)))


@pytest.mark.parametrize("text", CASES[:10])
def test_links(page, text):
    page.goto(explorer_address(text))
    assert str(shown(page)) == text
    scene = Scene(Case.parse(text))
    assert page.locator(f"[data-name={scene.result_name}]").count() == scene.result[0].size
    assert page.locator("#sum").inner_text() == formula(text)
    assert explain(scene.problem) in page.locator("#words pre").first.text_content()


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
            assert page.locator(f"label:has([name={name}_{axis}]) output").inner_text() in (str(value), "")  # folded
    set_to(page, "edge_mode", "zero")
    assert shown(page).problem.spec.edge_mode == "zero"
    set_to(page, "clip", "1, 0, 3, 4")
    assert shown(page).problem.clip == ((1, 0), (3, 4))


@pytest.mark.parametrize(("name", "default"), [("kernel_offset", (0, 0)), ("gradient_size", (3, 3))])
def test_both_values_of_a_pair_default_together(page, name, default):
    page.locator("#more summary").click()
    assert page.locator(f"[name={name}_default]").is_checked()
    set_to(page, f"{name}_x", 2)
    assert getattr(shown(page).problem, name) == (default[0], 2)
    assert not page.locator(f"[name={name}_default]").is_checked()
    set_to(page, f"{name}_default", True)
    assert shown(page).problem == Case.parse(CASES[0]).problem
    assert [page.input_value(f"[name={name}_{axis}]") for axis in "yx"] == [str(n) for n in default]


def test_a_default_follows_what_it_depends_on(page):
    set_to(page, "offset_y", 1)
    assert page.input_value("[name=kernel_offset_y]") == "-1"
    assert page.input_value("[name=gradient_size_y]") == "3"


def test_the_address_has_the_state(page):
    set_to(page, "kernel_size_y", 2)
    settled(page, lambda: page.hover(cell("dx", 2, 3)))
    text, total = str(shown(page)), page.locator("#sum").inner_text()
    page.reload()
    assert (str(shown(page)), page.locator("#sum").inner_text()) == (text, total)
    assert state(page)["pixel"] == ["2,3"]


def test_hovering_shows_the_window_and_its_sum(page):
    text = "PoolingAverage.forward:n1h5w4c1,k3x2,s2x1,o1x0,clamp,zp1x1,float32,exact,seed=0"
    page.goto(explorer_address(text))
    for y, x in ((1, 2), (0, 1)):
        settled(page, lambda at=(y, x): page.hover(cell("y", *at)))
        assert page.locator("#sum").inner_text() == formula(text, pixel=f"{y},{x}")


def test_hovering_over_the_source_shows_where_it_contributes(page):
    settled(page, lambda: page.hover(cell("g", 1, 2)))
    assert page.locator("#sum").inner_text() == "g[1, 2] = 6 adds 6/9 to each of 9 pixels of dx."
    frames = page.locator("figure.image .frame")
    assert frames.count() == 1
    box, first, last = (one.bounding_box() for one in (frames.first, *map(page.locator, (
        "[data-name=dx][data-pixel='1,3']", "[data-name=dx][data-pixel='3,5']"))))  # fmt: skip
    assert abs(box["x"] - first["x"]) < 5
    assert abs(box["y"] + box["height"] - last["y"] - last["height"]) < 5


def test_a_change_stays_beside_what_was_before(page):
    assert page.locator(".sides").count() == 0
    set_to(page, "kernel_offset_x", 1)
    set_to(page, "kernel_offset_x", 2)
    titles = ["Before: kernel offset (0, 0)", "After: kernel offset (0, 2)"]
    assert page.locator(".sides h2").all_inner_texts() == titles
    left, right = (side.bounding_box() for side in page.locator(".sides > section").all())
    assert left["y"] == right["y"]
    assert left["x"] + left["width"] <= right["x"]
    set_to(page, "strides_x", 1)
    assert page.locator(".sides h2").first.inner_text().startswith("Before: gradient size (3, 3), strides (2, 2)") or (
        page.locator(".sides h2").first.inner_text().startswith("Before: strides (2, 2)")
    )


@pytest.mark.parametrize("name", PRESETS)
def test_presets(page, name):
    page.get_by_role("link", name=name, exact=True).click()
    page.wait_for_function(f"document.querySelector('[aria-current]')?.textContent === {name!r}")
    before, case, sentence = PRESETS[name]
    assert str(shown(page)) == case
    if before:
        assert sentence in page.locator(".lesson").first.inner_text()


def test_pixels_are_edited_by_clicking(page):
    page.click(cell("g", 0, 1))
    page.keyboard.type("20")
    page.keyboard.press("Enter")
    page.wait_for_function("document.querySelector('#scene').dataset.state.includes('values=')")
    assert page.locator(cell("g", 0, 1)).first.get_attribute("data-value") == "20"
    settled(page, lambda: page.hover(cell("dx", 0, 1)))
    assert page.locator("#sum").inner_text() == "dx[0, 1] = 1/4 + 20/6 = 3.583, from g[0, 0] and g[0, 1]"
    page.click(cell("g", 0, 1))
    page.keyboard.type("30")
    page.keyboard.press("Escape")
    assert page.locator("#editor").count() == 0
    assert state(page)["values"] == ["g,0,1,20"]
    page.click(cell("g", 0, 1))
    page.keyboard.type("2")
    page.keyboard.press("Enter")
    page.wait_for_function("decodeURIComponent(document.querySelector('#scene').dataset.state).includes('g,0,1,2&')")
    page.click(cell("g", 1, 1))
    page.keyboard.type("x")
    page.keyboard.press("Enter")
    page.wait_for_function("document.getElementById('problem').textContent.includes('g[1, 1] cannot be')")


def test_the_keyboard_moves_over_the_pixels(page):
    settled(page, lambda: page.locator(cell("dx", 0, 0)).first.focus())
    for key, pixel in {"ArrowRight": "0,1", "ArrowDown": "1,1", "ArrowLeft": "1,0"}.items():
        settled(page, lambda k=key: page.keyboard.press(k))
        assert page.evaluate("document.activeElement.dataset.pixel") == pixel
        assert state(page)["pixel"] == [pixel]
    assert page.evaluate("document.activeElement.ariaLabel").startswith("dx[1, 0] is ")


def test_the_keyboard_edits_the_source(page):
    settled(page, lambda: page.locator("[data-name=g][tabindex='0']").first.focus())
    settled(page, lambda: page.keyboard.press("ArrowDown"))
    assert page.locator("#sum").inner_text().startswith("g[1, 0] = 4 adds ")
    page.keyboard.press("Enter")
    settled(page, lambda: (page.keyboard.type("7"), page.keyboard.press("Enter")))
    assert state(page)["values"] == ["g,1,0,7"]


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


def test_the_gradient_spreads_back(page):
    """A window at a time, until the result is complete."""
    whole = page.locator("[data-name=dx]").all_text_contents()
    set_to_step = "(s) => { s.value = 1; s.dispatchEvent(new Event('input', { bubbles: true })); }"
    settled(page, lambda: page.locator("#step").evaluate(set_to_step))
    assert page.locator("#sum").inner_text().startswith("Window 2 of 9. g[0, 1] = 2 adds")
    assert page.locator("[data-name=dx][data-pixel='5,5']").text_content() == "0"
    page.click("#play")
    page.wait_for_function("document.getElementById('sum').textContent.startsWith('Window 9 of 9')", timeout=20_000)
    page.wait_for_function("document.getElementById('play').textContent === 'Play'")
    played = page.locator("[data-name=dx]").all_text_contents()
    assert [text.split("×")[0].strip() for text in played] == [text.split("×")[0].strip() for text in whole]


def test_playing_can_be_stopped(page):
    page.click("#play")
    page.wait_for_function("document.getElementById('sum').textContent.startsWith('Window 3')")
    page.click("#play")
    step = state(page)["step"]
    page.wait_for_timeout(900)
    assert state(page)["step"] == step


def test_copies(page):
    for k, beginning in enumerate(["PoolingAverage.gradient:", "import mpsref", "from mpsref import mps"]):
        page.locator("#words details:has([data-copy]) summary").nth(k).click()
        page.locator("[data-copy]").nth(k).click()
        page.wait_for_function(f"document.querySelectorAll('[data-copy]')[{k}].textContent === 'Copied'")
        assert page.evaluate("navigator.clipboard.readText()").startswith(beginning)
    button = page.locator("[data-copy]").first
    title = button.get_attribute("data-title")
    button.dblclick()
    for text in ("Copied", title):
        page.wait_for_function("([button, text]) => button.textContent === text", arg=[button.element_handle(), text])


def test_the_padding_of_a_framework(page):
    page.click("text=Place the windows")
    page.fill("[name=padding]", "1")
    page.check("[name=ceil_mode]")
    page.click("text=Place >> nth=-1")
    page.wait_for_function("document.querySelector('[data-copy]')?.dataset.copy.includes(',g4x4,')")
    assert shown(page).problem.gradient_size == (4, 4)


def test_bad_input_dims_the_stale_pictures(page):
    page.locator("#more summary").click()
    before, opacity = str(shown(page)), "getComputedStyle(document.getElementById('scene')).opacity"
    page.locator("[name=clip]").fill("1, 2")
    page.wait_for_function("document.getElementById('problem').textContent.includes('four integers')")
    assert str(shown(page)) == before
    assert float(page.evaluate(opacity)) < 0.5
    settled(page, lambda: page.locator("[name=clip]").fill(""))
    assert page.locator("#problem").inner_text() == ""
    assert page.evaluate(opacity) == "1"


def test_on_a_phone_the_picture_stays_above_the_controls(browser, server):
    page = browser.new_page(viewport={"width": 390, "height": 844}, has_touch=True)
    page.goto(server)
    for name in ("strides_x", "kernel_offset_x"):
        field, picture = page.locator(f"[name={name}]"), page.locator("figure.image svg").first
        field.evaluate("field => field.scrollIntoView({ block: 'end' })")
        box = picture.bounding_box()
        assert 0 <= box["y"] < box["y"] + box["height"] < field.bounding_box()["y"] < 844
    page.close()


def test_the_layout_of_before_and_after(browser, server):
    """One page: what stands beside what, numbers beside frames, and both results on a phone."""
    before, case, _ = PRESETS["kernel offset"]
    page = browser.new_page(viewport={"width": 1280, "height": 900}, has_touch=True)
    page.goto(f"{server}/")
    source, result = (page.locator("figure", has_text=text).first for text in ("Source gradient g", "Result dx"))
    left, right = source.bounding_box(), result.bounding_box()
    assert left["y"] == right["y"]
    assert 0 <= right["x"] - left["x"] - left["width"] < 30
    assert page.evaluate(CROSSED) == []
    page.goto(f"{server}{explorer_address(case)}&{urlencode({'before': before})}")
    boxes = [page.locator("figure", has_text="Source gradient g").bounding_box()]
    boxes += [one.bounding_box() for one in page.locator(".sides figure.image").all()]
    assert [box["x"] for box in boxes] == sorted(box["x"] for box in boxes)
    assert max(box["y"] for box in boxes) < min(box["y"] + box["height"] for box in boxes)
    assert page.evaluate(CROSSED) == []
    page.set_viewport_size({"width": 390, "height": 844})
    for picture in page.locator(".sides figure.image svg").all():
        box = picture.bounding_box()
        assert 0 <= box["x"] < box["x"] + box["width"] <= 390
        assert 0 <= box["y"] < box["y"] + box["height"] <= 844
        assert page.evaluate("([x, y]) => document.elementFromPoint(x, y).closest('.sides') !== null",
                             [box["x"] + box["width"] / 2, box["y"] + box["height"] - 5])  # fmt: skip
    page.set_viewport_size({"width": 640, "height": 450})  # a zoom of 200 %: the controls must have room
    assert page.evaluate("getComputedStyle(document.querySelector('.stage')).position") == "static"
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto(f"{server}{explorer_address(case.replace('h6w6', 'h16w16'))}")
    for selector in ("[data-name=dx]", "[data-name=g]"):
        assert page.locator(f"{selector} rect").first.bounding_box()["width"] >= 24 - 2 * 24 / CELL * GAP
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.close()


CROSSED = """() => [...document.querySelectorAll(".image svg")].flatMap((svg) => {
  const frames = [...svg.querySelectorAll(".frame")].map((one) => one.getBBox());
  return [...svg.querySelectorAll("[data-pixel] text")].filter((text) => {
    const box = text.getBBox();
    const [top, bottom] = [box.y + 0.2 * box.height, box.y + 0.8 * box.height];
    const right = box.x + box.width;
    return frames.some(({ x, y, width, height }) =>
      (top < y + height && bottom > y && [x, x + width].some((edge) => box.x - 0.9 < edge && edge < right + 0.9)) ||
      (box.x < x + width && right > x && [y, y + height].some((edge) => top - 0.9 < edge && edge < bottom + 0.9)));
  }).map((text) => text.textContent);
})"""
"""The numbers that a frame crosses."""


def test_focus_stays_on_a_choice(page):
    for name, value in (("kernel", "PoolingMax"), ("method", "forward"), ("kernel", "UpsamplingNearest")):
        page.focus(f"[name={name}]")
        settled(page, lambda at=f"[name={name}]", to=value: page.select_option(at, to))
        assert page.evaluate("document.activeElement.name") == name
    assert str(shown(page)).startswith("UpsamplingNearest.forward:")
    assert page.locator("[name=scale_y]").count() == 1
    assert page.locator("[name=kernel_size_y]").count() == 0
    page.click("[data-name=x][data-pixel='0,1']")
    page.keyboard.type("7")
    settled(page, lambda: page.keyboard.press("Enter"))
    assert page.evaluate("document.activeElement.dataset.pixel") == "0,1"


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
        "[...document.querySelectorAll('input:not([type=hidden]), select, button, svg, [data-pixel]')]"
        ".filter(field => !field.labels?.length && !field.ariaLabel && !field.textContent.trim()).length"
    )
    assert unnamed == 0
    assert page.get_by_role("checkbox", name="kernel offset default").count() == 1
