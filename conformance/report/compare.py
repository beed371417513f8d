"""The differences between two reports, requirement by requirement."""

from typing import Any


def render(old: dict[str, Any], new: dict[str, Any]) -> str:
    """List requirements whose standing has changed, worst news first, then what is new or gone."""
    before = {item["id"]: item for item in old["requirements"]}
    after = {item["id"]: item for item in new["requirements"]}
    moved = [
        (ident, before[ident]["standing"], item["standing"], item)
        for ident, item in after.items()
        if ident in before and before[ident]["standing"] != item["standing"]
    ]
    moved.sort(key=lambda row: (row[2] != "violated", row[2] != "inconclusive", row[0]))
    lines = [
        f"{ident:32} {item['level']:8} {was} -> {now}\n    {item['text']}"
        for ident, was, now, item in moved
    ]
    lines += [f"{ident:32} is new" for ident in after if ident not in before]
    lines += [f"{ident:32} is gone" for ident in before if ident not in after]
    return "\n".join(lines or ["nothing has changed"]) + "\n"
