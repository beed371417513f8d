"""The report as one HTML page that needs nothing else: filters, then requirement by requirement.

Everything that came from a target is escaped; the page loads nothing and sends nothing.
"""

from html import escape
from typing import Any

STYLE = """
:root{color-scheme:light dark;--line:#8884;--soft:#8881}
body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:0 auto;padding:1rem}
h1{font-size:1.4rem;margin:.5rem 0}
.sum{display:flex;flex-wrap:wrap;gap:.5rem;margin:1rem 0}
.sum label{border:1px solid var(--line);border-radius:1rem;padding:.2rem .8rem;cursor:pointer}
input{accent-color:#456}
details{border-top:1px solid var(--line);padding:.4rem 0}
summary{cursor:pointer;display:flex;gap:.6rem;align-items:baseline;flex-wrap:wrap}
summary .t{flex:1 1 18rem}
summary code{color:#789;font-size:.85em}
.o{font-weight:600;font-size:.75rem;border-radius:.3rem;padding:.1rem .4rem;color:#fff;
background:#678}
.fail .o{background:#b3261e}.pass .o{background:#1b7a3d}.warn .o{background:#9a6a00}
.open .o{background:#7a3e9d}
pre{background:var(--soft);padding:.6rem;overflow-x:auto;white-space:pre-wrap;word-break:break-word;
font-size:.8rem}
.why{margin:.3rem 0}
"""

SCRIPT = """
const boxes=[...document.querySelectorAll('.sum input')];
const show=()=>{const on=kind=>boxes.filter(b=>b.dataset.kind===kind&&b.checked).map(b=>b.value);
const o=on('outcome'),p=on('profile');
document.querySelectorAll('details').forEach(d=>{
d.hidden=!(o.includes(d.dataset.outcome)&&p.includes(d.dataset.profile))})};
boxes.forEach(b=>b.addEventListener('change',show));show();
"""

# Shown first and switched on: what somebody has to look at.
OUTCOMES = ("fail", "open", "warn", "pass", "note", "skip")
SHOWN = {"fail", "open", "warn", "pass"}


def render(document: dict[str, Any]) -> str:
    """Make the page of a report."""
    exchanges = {item["number"]: item for item in document["exchanges"]}
    items = sorted(document["requirements"], key=lambda item: OUTCOMES.index(item["outcome"]))
    target, conclusion = document["target"], document["conclusion"]
    counts = document["counts"]["outcome"]
    profiles = sorted({item["profile"] for item in items})
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8>",
        '<meta name=viewport content="width=device-width,initial-scale=1">',
        f"<title>Conformance of {escape(target['url'])}</title><style>{STYLE}</style>",
        f"<h1>{escape(target['url'])}: {escape(conclusion['reason'])}</h1>",
        f"<p>{document['exchanges_made']} exchanges in {document['took_s']:.1f} s, finished "
        f"{escape(document['finished'])}; profiles {escape(', '.join(target['profiles']))}; "
        f"allowed: {escape(', '.join(target['allow']) or 'reading only')}.</p>",
        "<div class=sum>",
        *(_box("outcome", name, counts.get(name, 0), name in SHOWN) for name in OUTCOMES),
        "</div><div class=sum>",
        *(
            _box(
                "profile",
                name,
                sum(item["profile"] == name for item in items),
                name in target["profiles"],
            )
            for name in profiles
        ),
        "</div>",
        *(_requirement(item, exchanges) for item in items),
        f"<script>{SCRIPT}</script></html>",
    ]
    return "\n".join(parts) + "\n"


def _box(kind: str, name: str, count: int, on: bool) -> str:
    checked = " checked" if on else ""
    return (
        f'<label><input type=checkbox data-kind={kind} value="{escape(name)}"{checked}> '
        f"{escape(name)} {count}</label>"
    )


def _requirement(item: dict[str, Any], exchanges: dict[int, Any]) -> str:
    outcome = item["outcome"]
    opened = " open" if outcome == "fail" else ""
    lines = [
        f'<details class="{outcome}" data-outcome="{outcome}" data-profile="{item["profile"]}"'
        f' id="{escape(item["id"])}"{opened}>',
        f"<summary><span class=o>{escape(item['standing'])}</span>"
        f"<span class=t>{escape(item['text'])}</span>"
        f"<code>{item['level']} {escape(item['id'])} §{escape(item['section'])}</code></summary>",
    ]
    if item["reason"]:
        lines.append(f"<p class=why>{escape(item['reason'])}</p>")
    shown = [number for finding in item["findings"] for number in finding["exchanges"]]
    lines += [
        _exchange(exchanges[number]) for number in dict.fromkeys(shown) if number in exchanges
    ]
    return "".join([*lines, "</details>"])


def _exchange(exchange: dict[str, Any]) -> str:
    response = exchange["response"]
    if response is None:
        answer = exchange["fault"] or "no answer"
    elif exchange["kind"] == "grpc":
        answer = f"{response['code']} {response['details']}\n{response['hex']}"
    else:
        answer = f"{response['status']}\n\n{response['body']['text']}"
    return f"<pre>#{exchange['number']}  {escape(exchange['reproduce'])}\n\n{escape(answer)}</pre>"
