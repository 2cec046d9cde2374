"""The web application of the explorer. The page is made on the server; its script only fetches changes."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping, Sequence
from functools import lru_cache
from importlib import resources
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

import numpy as np

from mpsref.arguments.text import shown
from mpsref.conformance.case import Case
from mpsref.errors import needs
from mpsref.explore import words
from mpsref.explore.controls import (
    BASIC,
    KERNELS,
    PRESETS,
    SENTENCES,
    START,
    Control,
    case_of,
    controls,
    methods,
    simplified,
)  # fmt: skip
from mpsref.explore.drawing import Picture, draw
from mpsref.explore.pictures import Pictures
from mpsref.explore.scene import Edit, Scene
from mpsref.viz.explain import explain
from mpsref.viz.page import HOST, PORT, Page, add, explorer_address

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response


def application() -> Starlette:
    """Return the application, which answers requests of this machine only.

    Raises
    ------
    UnsupportedError
        If Starlette is not installed.
    """
    try:
        from starlette.applications import Starlette
        from starlette.middleware import Middleware
        from starlette.middleware.trustedhost import TrustedHostMiddleware
        from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse
        from starlette.routing import Route
    except ImportError as error:
        raise needs("the pages of mpsref explore", "starlette and uvicorn", "explore", error) from error

    def index(request: Request) -> Response:
        return HTMLResponse(page(request.query_params))

    def scene(request: Request) -> Response:
        return JSONResponse(part(request.query_params))

    def place(request: Request) -> Response:
        try:
            case = words.placed(_case(request.query_params), request.query_params)
            return RedirectResponse(explorer_address(str(case)))
        except (ValueError, TypeError) as error:
            return HTMLResponse(page(request.query_params, str(error)))

    hosts = Middleware(TrustedHostMiddleware, allowed_hosts=[HOST, "localhost"])
    routes = [Route("/", index), Route("/scene", scene), Route("/place", place)]
    return Starlette(routes=routes, middleware=[hosts])


def _case(query: Mapping[str, str]) -> Case:
    """Return the case of an address: a case string, or the values of the controls."""
    if "case" in query:
        return simplified(Case.parse(query["case"]))
    return simplified(case_of(query) if "kernel" in query else Case.parse(START))


@lru_cache(maxsize=16)
def _scene(case: Case, edits: tuple[Edit, ...]) -> Scene:
    return Scene(case, edits)


class _Shown:
    """What an address shows: a case, its edited pixels, a view, and the case before a change."""

    def __init__(self, query: Mapping[str, str]) -> None:
        self.case = _case(query)
        edits = tuple(map(_edit, filter(None, query.get("values", "").split(";"))))
        self.scene = _scene(self.case, edits)
        self.before: Scene | None = None
        if query.get("before") and query["before"] != str(self.case):
            self.before = _scene(simplified(Case.parse(query["before"])), edits)
        self.view = self.scene.view(query, (self.before or self.scene).default)
        self.state = {"case": str(self.case)}
        if self.before:
            self.state["before"] = str(self.before.case)
        if self.scene.edits:
            self.state["values"] = ";".join(f"{e.name},{e.pixel[0]},{e.pixel[1]},{e.value:g}" for e in self.scene.edits)
        for name in ("step", "source", "pixel"):
            if name in query:
                self.state[name] = query[name]
                break


def _edit(text: str) -> Edit:
    """Return the edit "name,y,x,value" of an address."""
    name, *numbers = text.split(",")
    try:
        y, x = map(int, numbers[:2])
        (value,) = numbers[2:]
    except ValueError:
        raise ValueError(f"the value {shown(text)} of a pixel must be written name,y,x,number") from None
    try:
        return Edit(name, (y, x), float(value))
    except ValueError:
        raise ValueError(f"pixel {name}[{y}, {x}] cannot be {shown(value)}; it must be a number, such as 0.5") from None


def page(query: Mapping[str, str], problem: str = "") -> str:
    """Return the whole page of an address; where it has no case, the first page with a sentence why."""
    try:
        found = _Shown(query)
    except (ValueError, TypeError) as error:
        found, problem = _Shown({}), problem or str(error)
    html = Page("mpsref explore", style=_file("explore.css"), script=_file("explore.js"))
    presets = add(html.body, "nav", aria_label="examples")
    for name, (before, case, sentence) in PRESETS.items():
        address = explorer_address(case) + (f"&{urlencode({'before': before})}" if before else "")
        current = {"aria_current": "page"} if case == found.state["case"] else {}
        add(presets, "a", name, href=address, title=sentence, **current)
    main = add(html.body, "main")
    stage = add(main, "div", class_="stage")
    add(stage, "p", problem, id="problem", role="alert")
    add(stage, "p", id="sum", aria_live="polite").extend(_parts(found))  # a live region must not be replaced
    stage.append(_pictures(found))
    main.append(_form(found.case))
    main.append(_words(found))
    return html.text()


def part(query: Mapping[str, str]) -> dict[str, Any]:
    """Return what an address shows as HTML and its canonical address, or the sentence why it shows nothing."""
    try:
        found = _Shown(query)
    except (ValueError, TypeError) as error:
        return {"problem": str(error)}
    fields = {name: value for one in controls(found.case) for name, value in one.values.items()}
    return {
        "problem": "",
        "sum": "".join(map(_html, _parts(found))),
        "scene": _html(_pictures(found)),
        "words": _html(_words(found)),
        "operation": str(found.case.problem.operation),
        "form": _html(_form(found.case)),
        "fields": fields | {f"{one.name}_default": one.is_default for one in controls(found.case)},
    }


def _html(element: Element) -> str:
    return ElementTree.tostring(element, encoding="unicode", method="html")


def _file(name: str) -> str:
    return resources.files("mpsref.explore").joinpath(name).read_text("utf-8")


def _form(case: Case) -> Element:
    """Return the controls; without scripts, the button shows the case of their values."""
    operation = case.problem.operation
    form = Element("form", {"id": "controls", "action": "/", "aria-label": "parameters", "data-of": str(operation)})
    kind = operation.spec_type
    _field(form, Control("kernel", {"kernel": kind.__name__}, tuple(KERNELS)))
    _field(form, Control("method", {"method": operation.method}, tuple(methods(kind))))
    found = controls(case)
    for control in found:
        if control.name in BASIC:
            _field(form, control)
    folded = [control for control in found if control.name not in BASIC]
    if folded:
        details = add(form, "details", id="more")
        add(details, "summary", "More parameters")
        for control in folded:
            _field(details, control)
    add(add(form, "noscript"), "button", "Show", type="submit")
    return form


def _field(form: Element, control: Control) -> None:
    """Append the fields of a parameter, and what it does."""
    group = add(form, "fieldset")
    add(group, "legend", control.label)
    if control.is_default is not None:
        label, name = add(group, "label", class_="default"), f"{control.name}_default"
        checked = {"checked": "checked"} if control.is_default else {}
        described = {"aria_label": f"{control.label} default", **checked}
        add(label, "input", type="checkbox", name=name, **described).tail = " default"
    for name, value in control.values.items():
        axis = name.removeprefix(control.name).strip("_")
        label = add(group, "label", axis, aria_label=f"{control.label} {axis}".strip())
        if control.words:
            _options(label, name, control.words, value)
        elif control.ends:
            low, high = control.ends
            add(label, "input", type="range", name=name, value=value, min=str(low), max=str(high), step="1")
            add(label, "output", value)
        else:
            add(label, "input", type="text", name=name, value=value, size="9", autocomplete="off")
    add(group, "small", SENTENCES[control.name])


def _options(label: Element, name: str, words: Sequence[str], value: str) -> None:
    select = add(label, "select", name=name)
    for word in words:
        chosen = {"selected": "selected"} if word == value else {}
        add(select, "option", word, value=word, **chosen)


def _parts(found: _Shown) -> list[Element]:
    """Return the formula of a view, in the colours of its windows."""
    spans = []
    for text, color in found.scene.text(found.view):
        style = {"style": f"--of: {color}", "class": "of"} if color else {}
        spans.append(Element("span", style))
        spans[-1].text = text
    return spans


def _pictures(found: _Shown) -> Element:
    """Return the section with the pictures."""
    scene, view = found.scene, found.view
    data = {"data-state": urlencode(found.state), "data-names": f"{scene.source_name} {scene.result_name}"}
    section = Element("section", {"id": "scene", "aria-label": "pictures", **data})
    play = add(section, "div", class_="play")
    add(play, "button", "Play", type="button", id="play")
    title = "spread g back, window by window" if scene.spreads else "move the window"
    label = add(play, "label", f"{title} ")
    step = scene.steps - 1 if view.step is None else view.step
    add(label, "input", type="range", id="step", min="0", max=str(scene.steps - 1), value=str(step))
    pictures = Pictures(scene, view).all()
    compared = _comparison(section, found, found.before) if found.before else set()
    row = add(section, "div", class_="pictures")
    for picture in pictures:
        if picture.panel.title not in compared:
            _figure(row, picture)
    styles = dict.fromkeys(style for picture in pictures for style in picture.panel.styles() if style.key)
    key = add(section, "p", class_="key")
    for style in styles:
        dash = "dashed" if style.dashed else "solid"
        look = f"background: {style.face}; border: 2px {dash} {style.edge}"
        add(add(key, "span"), "i", style=look).tail = f" {style.key}"
    details = add(section, "details", id="about")
    add(details, "summary", "About the pictures")
    add(details, "p", "Click a pixel of an input, or press enter on it, to change it.")
    for picture in pictures:
        if picture.about:
            add(add(details, "p"), "strong", picture.panel.title).tail = f": {picture.about}"
    return section


def _comparison(section: Element, found: _Shown, before: Scene) -> set[str]:
    """Append the pictures before and after a change, side by side, and return the titles of those after it."""
    known = {c: s for _, c, s in PRESETS.values()}
    if (sentence := known.get(found.state["case"])) is not None:
        add(section, "p", sentence, class_="lesson")
    old, new = (
        {"kernel": type(c.problem.spec).__name__, "method": c.problem.operation.method}
        | {one.label: f"({', '.join(one.values.values())})" for one in controls(c)}
        for c in (before.case, found.case)
    )
    changes = [name for name in old if name in new and old[name] != new[name]]
    same = before.result.shape == found.scene.result.shape
    moved = np.argwhere(before.result != found.scene.result)[:, 1:3].tolist() if same else []
    sides = add(section, "div", class_="sides")
    view = before.view(found.state, before.default)
    first, second = Pictures(before, view), Pictures(found.scene, found.view)
    # so that a window has one colour
    first.anchor = second.anchor = next((one for one in first.windows if one in second.windows), second.anchor)
    compared = first.compared(), second.compared((y, x) for y, x in moved)
    titles = {picture.panel.title for picture in compared[1]}
    if first.scene.lines and second.scene.lines and np.array_equal(first.scene.source, second.scene.source):
        _figure(sides, [pictures.pop(0) for pictures in compared][1])
    for title, values, pictures in zip(("Before", "After"), (old, new), compared, strict=True):
        side = add(sides, "section", aria_label=title)
        add(side, "h2", f"{title}: {', '.join(f'{name} {values[name]}' for name in changes)}")
        row = add(side, "div", class_="pictures")
        for picture in pictures:
            _figure(row, picture)
    formula = "".join(text for text, _ in before.text(view))
    add(section, "p", f"Before: {formula}", class_="lesson")
    return titles


def _figure(parent: Element, picture: Picture) -> None:
    figure = add(parent, "figure", **({"class_": "image"} if picture.has_windows else {}))
    caption = add(figure, "figcaption")
    add(caption, "strong", picture.panel.title)
    add(caption, "small", picture.sentence)
    draw(figure, picture)


def _words(found: _Shown) -> Element:
    """Return the same in text: the windows, the layer in the words of frameworks, and the calls to copy."""
    case, section = found.case, Element("section", {"id": "words", "aria-label": "texts"})
    add(
        _folded(section, "Windows as text: mpsref explain"), "pre", f"{LEGEND}\n\n{explain(case.problem)}", tabindex="0"
    )
    frameworks = words.of_frameworks(case.problem)
    if frameworks:
        table = add(_folded(section, "In other frameworks"), "table", class_="words")
        for one in frameworks:
            line = add(table, "tr")
            add(line, "th", one.framework, scope="row")
            add(line, "td", one.text, **({} if one.exists else {"class_": "none"}))
    if hasattr(case.problem.spec, "framework_padding"):
        _place(_folded(section, "Place the windows as a framework"), case)
    edits = "".join(f"\n{e.name}[{', '.join(map(str, e.place))}] = {e.value:g}" for e in found.scene.edits)
    for title, text in (
        ("Case string", str(case)),
        ("Python", words.python_call(case, edits)),
        ("Classes of MPS", words.mps_call(case)),
    ):
        details = _folded(section, title)
        add(details, "pre", text, tabindex="0")
        add(details, "button", f"Copy {title.lower()}", type="button", data_copy=text)
    return section


LEGEND = "x: a pixel of the window inside the image, . outside, O its centre (o where the window has no pixel)"


def _folded(section: Element, title: str) -> Element:
    details = add(section, "details", id=title)
    add(details, "summary", title)
    return add(details, "div", class_="wide")


def _place(section: Element, case: Case) -> None:
    """Append the form for the padding of a framework."""
    form = add(section, "form", action="/place", method="get", class_="place", aria_label="padding of a framework")
    add(form, "input", type="hidden", name="case", value=str(case))
    _options(add(form, "label", "as "), "framework", words.CONVENTIONS, "PyTorch")
    label = add(form, "label", "padding ")
    hint = "1; 0, 1; SAME; SAME_UPPER; SizeFull"
    add(label, "input", type="text", name="padding", size="12", placeholder=hint, autocomplete="off")
    for name in ("ceil_mode", "count_include_pad"):
        label = add(form, "label", f"{name} ")
        add(label, "input", type="checkbox", name=name)
    add(form, "button", "Place", type="submit")


def serve(case: str = "", port: int = PORT, browser: bool = True) -> None:
    """Serve the explorer on this machine until Ctrl-C.

    Parameters
    ----------
    case : str
        The case string to open; empty for the first page.
    port : int
        From 1 to 65535.
    browser : bool
        Whether to open the page in the browser.

    Raises
    ------
    ValueError
        For an illegal case or port, and a port that is in use.
    UnsupportedError
        If Starlette or uvicorn is not installed, and for a case that the explorer cannot show.
    """
    app = application()
    opened = simplified(Case.parse(case)) if case else None
    if not 1 <= port <= 65535:
        raise ValueError(f"port is {port}; it must be from 1 to 65535")
    try:
        import uvicorn
    except ImportError as error:
        raise needs("the pages of mpsref explore", "uvicorn", "explore", error) from error
    try:
        listening = socket.create_server((HOST, port))
    except OSError as error:
        reason = os.strerror(error.errno or 0)
        raise ValueError(f"port {port} of {HOST}: {reason}; choose another with --port") from None
    url = f"http://{HOST}:{port}{explorer_address(str(opened)) if opened else '/'}"
    print(f"mpsref explore: {url} (Ctrl-C ends it)", flush=True)
    if browser:
        import threading
        import webbrowser

        threading.Timer(0.5, webbrowser.open, [url]).start()
    with listening:
        uvicorn.Server(uvicorn.Config(app, log_level="warning")).run([listening])
