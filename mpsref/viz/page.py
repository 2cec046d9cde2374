"""HTML pages that need no other file: elements, style, and a table with filters and sorting."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from importlib import resources
from xml.etree import ElementTree
from xml.etree.ElementTree import Element, SubElement


class Page:
    """A page with a title; :attr:`body` is the element to fill."""

    def __init__(self, title: str) -> None:
        """Begin the page."""
        self._root = Element("html", lang="en")
        head = SubElement(self._root, "head")
        add(head, "meta", charset="utf-8")
        add(head, "meta", name="viewport", content="width=device-width")
        add(head, "title", title)
        add(head, "style", _file("page.css"))
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
        script = add(self.body, "script", _file("page.js"))
        text = ElementTree.tostring(self._root, encoding="unicode", method="html")
        self.body.remove(script)
        return f"<!doctype html>\n{text}\n"


def add(parent: Element, tag: str, text: str = "", **attributes: str) -> Element:
    """Append an element; ``class_`` is the attribute class, ``data_value`` is data-value."""
    names = {name.rstrip("_").replace("_", "-"): value for name, value in attributes.items()}
    element = SubElement(parent, tag, names)
    element.text = text
    return element


def _file(name: str) -> str:
    return resources.files("mpsref.viz").joinpath(name).read_text("utf-8")
