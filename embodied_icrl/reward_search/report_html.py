"""HTML from untrusted texts: whatever is not made here is escaped."""

from __future__ import annotations

import html

MAX_TEXT = 200_000  # characters of one text


class Markup(str):
    """A text that is HTML already. Only this module and constants of ours make it."""

    __slots__ = ()


Child = str | Markup | None
Attribute = str | int | float | bool | None


def element(name: str, /, *children: Child, **attributes: Attribute) -> Markup:
    """One element; texts among its children, and all attributes, are escaped.

    Attributes whose names are Python words end in an underscore (`class_`); inner underscores
    become hyphens. True stands for an attribute without value; None and False leave it out.
    """
    given = "".join(
        f" {_attribute(key)}" if value is True else f' {_attribute(key)}="{_value(value)}"'
        for key, value in attributes.items()
        if value is not None and value is not False
    )
    if name in ("meta", "br", "source"):
        return Markup(f"<{name}{given}>")
    return Markup(f"<{name}{given}>{join(*children)}</{name}>")


def join(*children: Child) -> Markup:
    """Several texts and elements one after the other."""
    return Markup(
        "".join(
            child if isinstance(child, Markup) else html.escape(visible(child))
            for child in children
            if child is not None
        )
    )


def visible(text: str) -> str:
    """A text whose control characters, lone surrogates and direction marks show as `\\u202e`.

    Without this, code could look other than it is, and the page could not be encoded.
    """
    if len(text) > MAX_TEXT:
        text = f"{text[:MAX_TEXT]}\n[{len(text) - MAX_TEXT} more characters]"
    text = text.replace("\r\n", "\n")
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in "\n\t" else _escape(c) for c in text)


def number(value: float | None) -> str:
    """A number of about three digits, for people; a dash for None."""
    if value is None:
        return "–"
    size = abs(value)
    if size != 0 and (size < 5e-4 or size >= 1e9):
        text = f"{value:.1e}"
    elif size < 10:
        text = f"{value:.3f}"
    else:
        text = f"{value:.1f}" if size < 1000 else f"{value:,.0f}"
    return text.replace("-", "\N{MINUS SIGN}", 1) if value < 0 else text


def interval(mean: float | None, low: float | None, high: float | None) -> str:
    """A mean with its interval in brackets, if it has one."""
    if mean is None or low is None or high is None:
        return number(mean)
    return f"{number(mean)} [{number(low)}, {number(high)}]"


def count(value: int) -> str:
    """A whole number with separators."""
    return f"{value:,}"


def duration(seconds: float) -> str:
    """Seconds, minutes or hours."""
    if seconds < 100:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


def _escape(character: str) -> str:
    code = ord(character)
    if code in (0xA0, 0x2028, 0x2029) or 0x2000 <= code <= 0x200A:
        return " "
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"


def _attribute(key: str) -> str:
    return key.rstrip("_").replace("_", "-")


def _value(value: str | int | float) -> str:
    text = f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)
    return html.escape(visible(text))
