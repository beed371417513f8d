"""A badge: how many MUSTs of which edition are proved, and which profiles were left out."""

from typing import Any

COLOURS = {0: "#2e7d32", 1: "#b3261e"}
OTHERWISE = "#8a6d00"
LABEL = "conformance"
# The approximate width of a digit or a lower-case letter at this size.
LETTER = 6.6

_SVG = """\
<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="20" role="img" \
aria-label="{label}: {text}">
<rect width="{left}" height="20" fill="#444"/>
<rect x="{left}" width="{right}" height="20" fill="{colour}"/>
<g fill="#fff" font-family="Verdana,sans-serif" font-size="11" text-anchor="middle">
<text x="{middle_left}" y="14">{label}</text>
<text x="{middle_right}" y="14">{text}</text>
</g>
</svg>
"""


def render(document: dict[str, Any]) -> str:
    """Make the SVG of a report."""
    asked = document["asked"]
    draft = " (draft)" if document["target"].get("draft") else ""
    text = (
        f"edition {document['target']['edition']}{draft}: {asked['proved']} of {asked['must']} MUST"
    )
    scored = {
        item["profile"]
        for item in document["requirements"]
        if item["scored"] and item["level"] == "MUST"
    }
    # A profile that the edition does not have cannot be missing from what it asks for.
    if missing := sorted(set(asked["left_out"]) & scored):
        text += f", without {', '.join(missing)}"
    left, right = (round(len(words) * LETTER + 12) for words in (LABEL, text))
    return _SVG.format(
        label=LABEL,
        text=text,
        colour=COLOURS.get(document["conclusion"]["exit"], OTHERWISE),
        width=left + right,
        left=left,
        right=right,
        middle_left=left / 2,
        middle_right=left + right / 2,
    )
