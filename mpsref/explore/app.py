"""The web application of the explorer. The page is made on the server; its script only fetches changes."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Mapping
from importlib import resources
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

import numpy as np

from mpsref.conformance.case import Case
from mpsref.errors import needs
from mpsref.explore import words
from mpsref.explore.controls import KERNELS, START, Control, case_of, controls, methods, simplified
from mpsref.explore.scene import Grid, Scene
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


def page(query: Mapping[str, str], problem: str = "") -> str:
    """Return the whole page of an address; where it has no case, the first page with a sentence why."""
    try:
        case = _case(query)
    except (ValueError, TypeError) as error:
        case, problem = Case.parse(START), problem or str(error)
    found = Page("mpsref explore", style=_file("explore.css"), script=_file("explore.js"))
    add(found.body, "p", problem, id="problem", role="alert")
    main = add(found.body, "main")
    _form(main, case)
    pictures = add(main, "div")
    add(pictures, "p", id="sum", aria_live="polite")  # outside the scene: a live region must not be replaced
    pictures.append(_scene(case))
    return found.text()


def part(query: Mapping[str, str]) -> dict[str, Any]:
    """Return the scene of an address as HTML and its canonical address, or the sentence why there is none."""
    try:
        case = _case(query)
    except (ValueError, TypeError) as error:
        return {"problem": str(error)}
    html = ElementTree.tostring(_scene(case), encoding="unicode", method="html")
    return {"problem": "", "address": explorer_address(str(case)), "html": html}


def _file(name: str) -> str:
    return resources.files("mpsref.explore").joinpath(name).read_text("utf-8")


def _form(main: Element, case: Case) -> None:
    """Append the controls; without scripts, the button shows the case of their values."""
    operation = case.problem.operation
    form = add(main, "form", id="controls", action="/", method="get", aria_label="parameters")
    kind = operation.spec_type
    _list(form, Control("kernel", "kernel", kind.__name__, tuple(KERNELS)))
    _list(form, Control("method", "method", operation.method, tuple(methods(kind))))
    for control in controls(case):
        if control.words:
            _list(form, control)
            continue
        label = add(form, "label", control.label, for_=control.name)
        given = {"name": control.name, "id": control.name, "value": control.value}
        if control.ends:
            low, high = control.ends
            add(label, "output", control.value)
            add(label, "input", type="range", min=str(low), max=str(high), step="1", **given)
        else:
            hint = {"placeholder": "default"} if control.optional else {}
            add(label, "input", type="text", size="9", autocomplete="off", **given, **hint)
    add(form, "button", "Show", type="submit")


def _list(form: Element, control: Control) -> None:
    select = add(add(form, "label", control.label), "select", name=control.name)
    for word in control.words:
        chosen = {"selected": "selected"} if word == control.value else {}
        add(select, "option", word, value=word, **chosen)


def _scene(case: Case) -> Element:
    """Return the section with the pictures of a case."""
    scene, section = Scene(case), Element("section", {"id": "scene", "aria-label": "windows and sums"})
    count = int(np.prod(scene.result.shape[1:3]))
    play = add(section, "div", class_="play")
    label = add(play, "label", f"pixel of {scene.result_name}, in order ")
    add(label, "input", type="range", id="order", min="0", max=str(count - 1), value="0")
    add(play, "button", "Play", type="button", id="play")
    pictures = add(section, "div", class_="pictures")
    for grid in scene.grids:
        _grid(pictures, grid, scene)
    add(section, "script", json.dumps(scene.data()).replace("<", "\\u003c"), type="application/json", id="data")
    add(section, "h2", "Windows")
    add(section, "pre", explain(case.problem), tabindex="0")
    _words(section, case)
    return section


def _grid(parent: Element, grid: Grid, scene: Scene) -> None:
    """Append an image as a table of its pixels, with the pixels outside that windows read."""
    values = grid.values if grid.values.ndim == 2 else grid.values.reshape(1, -1)
    (top, left), (bottom, right) = grid.first, grid.last
    if (bottom, right) == (0, 0):
        bottom, right = values.shape
    role = {scene.source_name: "source", scene.result_name: "result"}.get(grid.name, "other")
    wide = add(parent, "div", class_="wide")
    table = add(wide, "table", class_=f"grid {role}", data_name=grid.name, role="grid")
    add(table, "caption", grid.title)
    head = add(table, "tr")
    add(head, "th")
    for x in range(left, right):
        add(head, "th", str(x), scope="col")
    for y in range(top, bottom):
        line = add(table, "tr")
        add(line, "th", str(y), scope="row")
        for x in range(left, right):
            inside = 0 <= y < values.shape[0] and 0 <= x < values.shape[1]
            text = f"{values[y, x]:.4g}" if inside else ""
            label = f"{grid.name}[{y}, {x}] is {text}" if inside else f"{y}, {x}: outside the image"
            key = {"data_pixel": f"{y},{x}", "tabindex": "-1", "role": "gridcell", "aria_label": label}
            add(line, "td", text, **key, **({} if inside else {"class_": "outside"}))


def _words(section: Element, case: Case) -> None:
    """Append the layer in the words of frameworks, and the calls to copy."""
    frameworks = words.of_frameworks(case.problem)
    if frameworks:
        add(section, "h2", "In other frameworks")
        table = add(add(section, "div", class_="wide"), "table", class_="words")
        for one in frameworks:
            line = add(table, "tr")
            add(line, "th", one.framework, scope="row")
            add(line, "td", one.text, **({} if one.exists else {"class_": "none"}))
    if hasattr(case.problem.spec, "framework_padding"):
        _place(section, case)
    for title, text in (
        ("Case string", str(case)),
        ("Python", words.python_call(case)),
        ("Classes of MPS", words.mps_call(case)),
    ):
        add(section, "h2", title)
        add(section, "pre", text, tabindex="0")
        add(section, "button", f"Copy {title.lower()}", type="button", data_copy=text)


def _place(section: Element, case: Case) -> None:
    """Append the form for the padding of a framework."""
    form = add(section, "form", action="/place", method="get", class_="place", aria_label="padding of a framework")
    add(form, "input", type="hidden", name="case", value=str(case))
    _list(form, Control("framework", "Place the windows as", "PyTorch", words.CONVENTIONS))
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
