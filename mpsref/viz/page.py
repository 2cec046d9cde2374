"""HTML pages that need no other file: elements, style, and a table with filters and sorting."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from importlib import resources
from urllib.parse import urlencode
from xml.etree import ElementTree
from xml.etree.ElementTree import Element, SubElement

from mpsref.arguments.text import legible

HOST, PORT = "127.0.0.1", 8642
"""Where ``mpsref explore`` serves its page by default."""


def explorer_address(case: str) -> str:
    """Return the address of a case string in the explorer, without its host.

    >>> explorer_address("PoolingMax.forward:n1h4w4c1,k2x2,float32,seed=0")
    '/?case=PoolingMax.forward%3An1h4w4c1%2Ck2x2%2Cfloat32%2Cseed%3D0'
    """
    return "/?" + urlencode({"case": case})


class Page:
    """A page with a title; :attr:`body` is the element to fill."""

    def __init__(self, title: str, style: str = "", script: str | None = None) -> None:
        """Begin the page; ``style`` is added to that of all pages, ``script`` replaces that of the table."""
        self._script = script
        self._root = Element("html", lang="en")
        head = SubElement(self._root, "head")
        add(head, "meta", charset="utf-8")
        add(head, "meta", name="viewport", content="width=device-width")
        add(head, "link", rel="icon", href="data:,")  # none, so that browsers do not request one
        add(head, "title", title)
        add(head, "style", _file("page.css") + style)
        self.body = SubElement(self._root, "body")
        add(self.body, "h1", title)

    def table(self, columns: Iterable[str], statuses: Collection[str] = ()) -> Element:
        """Append the table of the page, which can be sorted and filtered; return its body.

        The class of a row is its status.
        """
        form = add(self.body, "form", onsubmit="return false")
        add(add(form, "label", "Find "), "input", id="text", type="search")
        if statuses:
            select = add(add(form, "label", "Status "), "select", id="status")
            for status in ("", *statuses):
                add(select, "option", status or "all", value=status)
        add(form, "output", id="shown")
        table = add(add(self.body, "div", class_="wide"), "table", id="rows")
        head = add(add(table, "thead"), "tr")
        for column in columns:
            add(add(head, "th", scope="col"), "button", column, type="button")
        return add(table, "tbody")

    def text(self) -> str:
        """Return the page as HTML."""
        script = add(self.body, "script", _file("page.js") if self._script is None else self._script)
        text = ElementTree.tostring(self._root, encoding="unicode", method="html")
        self.body.remove(script)
        return f"<!doctype html>\n{text}\n"


def add(parent: Element, tag: str, text: str = "", **attributes: str) -> Element:
    """Append an element; ``class_`` is the attribute class, ``data_value`` is data-value.

    Characters that a document cannot have, such as those of an exception's text, are escaped.
    """
    names = {name.rstrip("_").replace("_", "-"): legible(value) for name, value in attributes.items()}
    element = SubElement(parent, tag, names)
    element.text = legible(text)
    return element


def _file(name: str) -> str:
    return resources.files("mpsref.viz").joinpath(name).read_text("utf-8")
