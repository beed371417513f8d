"""The interface document as one HTML page, for readers who have a report but not the repository.

It supports only the Markdown that `document` makes: headings, paragraphs, lists, tables,
anchors, links, bold and code. Links to files of the repository become plain text.
"""

import re
from functools import cache
from html import escape, unescape

from conformance.interface import document

FILE = "interface.html"
STYLE = """
:root{color-scheme:light dark;--line:#8884;--soft:#8881}
body{font:15px/1.5 system-ui,sans-serif;max-width:62rem;margin:0 auto;padding:1rem}
h1{font-size:1.5rem}h2{font-size:1.25rem;margin-top:2.5rem}h3{font-size:1.1rem;margin-top:2rem}
table{border-collapse:collapse;width:100%;font-size:.87rem;margin:.7rem 0}
th,td{border-bottom:1px solid var(--line);padding:.25rem .5rem;text-align:left;vertical-align:top}
th{font-weight:600}code{font-size:.85em;background:var(--soft);border-radius:.2rem;padding:0 .2em}
tr:has(:target){background:#fc46}
"""
_INLINE = re.compile(
    r'<a id="(?P<anchor>[^"]+)"></a>|`(?P<code>[^`]+)`|\*\*(?P<bold>.+?)\*\*'
    r"|\[(?P<text>[^\]]+)\]\((?P<target>[^)]+)\)"
)
_ITEM = re.compile(r"( *)(-|\d+\.) (.+)")


def link(ident: str) -> str:
    """Return the link from a report to a requirement on the page beside it."""
    return f"{FILE}#{ident}"


@cache
def render() -> str:
    """Return the page."""
    markdown = document.render(lambda _, shown: shown)
    return (
        "<!doctype html><html lang=en><meta charset=utf-8>"
        '<meta name=viewport content="width=device-width,initial-scale=1">'
        f"<title>The interface of a node</title><style>{STYLE}</style>\n"
        f"{_blocks(markdown)}</html>\n"
    )


def _blocks(markdown: str) -> str:
    blocks = re.split(r"\n\n+", markdown.strip())
    return "\n".join(_block(block.splitlines()) for block in blocks) + "\n"


def _block(lines: list[str]) -> str:
    first = lines[0]
    if first.startswith("#"):
        marks, text = first.split(" ", 1)
        return f"<h{len(marks)}>{_inline(text)}</h{len(marks)}>"
    if first.startswith("|"):
        return _table(lines)
    item = _ITEM.fullmatch(first)
    if item:
        return _list(lines, "ul" if item[2] == "-" else "ol")
    if re.fullmatch(r'<a id="[^"]+"></a>', first):
        return _inline(first)
    return f"<p>{_inline(' '.join(lines))}</p>"


def _table(lines: list[str]) -> str:
    rows = [re.split(r"(?<!\\)\|", line.strip().strip("|")) for line in lines]
    cells = [[_inline(cell.strip().replace("\\|", "|")) for cell in row] for row in rows]
    head = "".join(f"<th>{cell}" for cell in cells[0])
    body = "".join("<tr>" + "".join(f"<td>{cell}" for cell in row) for row in cells[2:])
    return f"<table><thead><tr>{head}</thead><tbody>{body}</tbody></table>"


def _list(lines: list[str], kind: str) -> str:
    items: list[str] = []
    for line in lines:
        item = _ITEM.fullmatch(line)
        if item:
            # Only indentation shows the deeper level of the list of sections.
            indent = f" style='margin-left:{len(item[1])}em'" if item[1] else ""
            items.append(f"<li{indent}>{_inline(item[3])}")
        else:
            items[-1] += f" {_inline(line.strip())}"
    return f"<{kind}>{''.join(items)}</{kind}>"


def _inline(text: str) -> str:
    made, end = [], 0
    for match in _INLINE.finditer(text):
        made.append(_text(text[end : match.start()]))
        end = match.end()
        if match["anchor"]:
            made.append(f'<a id="{match["anchor"]}"></a>')
        elif match["code"]:
            made.append(f"<code>{escape(match['code'], quote=False)}</code>")
        elif match["bold"]:
            made.append(f"<b>{_inline(match['bold'])}</b>")
        elif match["target"].startswith("#"):
            made.append(f'<a href="{escape(match["target"])}">{_inline(match["text"])}</a>')
        else:
            made.append(_inline(match["text"]))
    return "".join(made) + _text(text[end:])


def _text(text: str) -> str:
    # The Markdown has entities for signs that would begin a tag.
    return escape(unescape(text), quote=False)
