"""The report as one self-contained HTML page: the verdict, filters, every requirement.

Everything that came from a target is escaped; the page loads nothing and sends nothing.
"""

from html import escape
from typing import Any

STYLE = """
:root{color-scheme:light dark;--line:#8884;--soft:#8881;--fail:#b3261e;--pass:#1b7a3d;
--warn:#8a5f00;--open:#7a3e9d;--idle:#66707a}
*{box-sizing:border-box}
body{font:15px/1.5 system-ui,sans-serif;max-width:62rem;margin:0 auto;padding:1rem}
h1{font-size:1.35rem;line-height:1.3;margin:.2rem 0;overflow-wrap:anywhere}
header{border-left:.4rem solid var(--pass);padding:.1rem 0 .1rem .9rem;margin:.5rem 0 1rem}
header.no{border-color:var(--fail)}header.maybe{border-color:var(--open)}
header p{margin:.2rem 0;color:#777}
.bar{display:flex;height:.7rem;border-radius:.35rem;overflow:hidden;background:var(--soft)}
.bar i{display:block;min-width:2px}
.fail{--k:var(--fail)}.pass{--k:var(--pass)}.warn{--k:var(--warn)}.open{--k:var(--open)}
.note,.skip{--k:var(--idle)}
.bar i,.o{background:var(--k)}
.tools{position:sticky;top:0;background:Canvas;padding:.5rem 0;border-bottom:1px solid var(--line);
z-index:1}
.sum{display:flex;flex-wrap:wrap;gap:.35rem;margin:.35rem 0}
.sum label{display:flex;gap:.35rem;align-items:center;border:1px solid var(--line);
border-radius:1rem;padding:.1rem .7rem;cursor:pointer;font-size:.87rem}
.sum label:has(:focus-visible){outline:2px solid #47a}
.sum b{font-weight:600;color:var(--k)}
@media(prefers-color-scheme:dark){.sum b{color:inherit}}
input[type=checkbox]{accent-color:#456;margin:0}
input[type=search]{width:100%;font:inherit;padding:.3rem .6rem;border:1px solid var(--line);
border-radius:.4rem;background:transparent;color:inherit}
details{border-bottom:1px solid var(--line);padding:.45rem 0}
summary{cursor:pointer;display:flex;gap:.2rem .6rem;align-items:baseline;flex-wrap:wrap;
list-style:none}
summary::-webkit-details-marker{display:none}
summary .t{flex:1 1 18rem}
code.id{color:#789;font-size:.8rem}
.o{font-weight:600;font-size:.72rem;border-radius:.3rem;padding:.1rem .4rem;color:#fff;
white-space:nowrap}
.why{margin:.3rem 0;font-weight:600;overflow-wrap:anywhere}
.fail .why{color:var(--fail)}
@media(prefers-color-scheme:dark){.fail .why{color:#ff8f86}}
h4{font-size:.75rem;font-weight:600;margin:.6rem 0 .1rem;color:#789}
pre{background:var(--soft);padding:.5rem .6rem;margin:0;overflow-x:auto;white-space:pre-wrap;
overflow-wrap:anywhere;font-size:.78rem;max-height:20rem;overflow-y:auto;border-radius:.3rem}
.none{color:#777;padding:1rem 0}
@media(max-width:40rem){.tools{position:static}}
@media print{.tools{display:none}}
"""

SCRIPT = """
const boxes=[...document.querySelectorAll('.sum input')];
const find=document.querySelector('[type=search]');
const items=[...document.querySelectorAll('details')],none=document.querySelector('.none');
items.forEach(d=>d.words=d.querySelector('summary').textContent.toLowerCase());
const show=()=>{const on=kind=>boxes.filter(b=>b.dataset.kind===kind&&b.checked).map(b=>b.value);
const o=on('outcome'),p=on('profile'),w=find.value.toLowerCase();let seen=0;
items.forEach(d=>{d.hidden=!(o.includes(d.dataset.outcome)&&p.includes(d.dataset.profile)
&&d.words.includes(w));seen+=!d.hidden});none.hidden=seen>0};
boxes.forEach(b=>b.addEventListener('change',show));find.addEventListener('input',show);show();
if(location.hash){const d=document.getElementById(location.hash.slice(1));
if(d){d.hidden=false;d.open=true;d.scrollIntoView()}}
"""

# In the order of the page: what needs attention comes first.
OUTCOMES = {
    "fail": "violated",
    "open": "inconclusive",
    "warn": "not met",
    "pass": "proved",
    "note": "only observed",
    "skip": "not judged",
}
SHOWN = {"fail", "open", "warn", "pass"}


def render(document: dict[str, Any]) -> str:
    """Make the page of a report."""
    exchanges = {item["number"]: item for item in document["exchanges"]}
    order = list(OUTCOMES)
    items = sorted(document["requirements"], key=lambda item: order.index(item["outcome"]))
    target = document["target"]
    counts = document["counts"]["outcome"]
    profiles = sorted({item["profile"] for item in items})
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8>",
        '<meta name=viewport content="width=device-width,initial-scale=1">',
        f"<title>Conformance of {escape(target['url'])}</title><style>{STYLE}</style>",
        *_head(document),
        _bar(counts),
        "<div class=tools><div class=sum>",
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
        '</div><input type=search placeholder="search: a word, an id, MUST, §6"',
        ' aria-label="search"></div>',
        *(_requirement(item, exchanges) for item in items),
        "<p class=none hidden>No requirement matches.</p>",
        f"<script>{SCRIPT}</script></html>",
    ]
    return "\n".join(parts) + "\n"


def _head(document: dict[str, Any]) -> list[str]:
    target, conclusion = document["target"], document["conclusion"]
    kind = {0: "", 6: "maybe", 5: "maybe"}.get(conclusion["exit"], "no")
    finished = document["finished"].replace("T", " ").replace("+00:00", " UTC")
    must = [item for item in document["requirements"] if item["level"] == "MUST"]
    judged = [item for item in must if item["profile"] in target["profiles"]]
    proved = sum(item["outcome"] == "pass" for item in judged)
    trouble = [f"The check {fault['check']} broke down." for fault in document["faults"]]
    trouble += [f"Left behind: {item}." for item in document["residue"]]
    trouble += [f"Stale baseline entry {ident}: {why}." for ident, why in
                document["stale_baseline"].items()]  # fmt: skip
    return [
        f"<header class={kind or 'yes'}><h1>{escape(target['url'])}: "
        f"{escape(conclusion['reason'])}</h1>",
        f"<p>{proved} of {len(judged)} MUST proved. {document['exchanges_made']} exchanges in "
        f"{document['took_s']:.1f} s, finished {escape(finished)}. Profiles: "
        f"{escape(', '.join(target['profiles']) or 'none')}. Allowed: "
        f"{escape(', '.join(target['allow']) or 'reading only')}.</p>",
        *(f"<p class=why>{escape(text)}</p>" for text in trouble),
        "</header>",
    ]


def _bar(counts: dict[str, int]) -> str:
    judged = {name: counts.get(name, 0) for name in OUTCOMES if name in SHOWN}
    total = sum(judged.values()) or 1
    pieces = "".join(
        f'<i class={name} style="width:{100 * count / total:.2f}%"'
        f' title="{count} {OUTCOMES[name]}"></i>'
        for name, count in judged.items()
        if count
    )
    return f"<div class=bar>{pieces}</div>"


def _box(kind: str, name: str, count: int, on: bool) -> str:
    checked = " checked" if on else ""
    shown = OUTCOMES.get(name, name)
    return (
        f'<label class="{escape(name)}"><input type=checkbox data-kind={kind}'
        f' value="{escape(name)}"{checked}>{escape(shown)} <b>{count}</b></label>'
    )


def _requirement(item: dict[str, Any], exchanges: dict[int, Any]) -> str:
    outcome = item["outcome"]
    opened = " open" if outcome == "fail" else ""
    lines = [
        f'<details class="{outcome}" data-outcome="{outcome}" data-profile="{item["profile"]}"'
        f' id="{escape(item["id"])}"{opened}>',
        f"<summary><span class=o>{escape(_badge(item))}</span>"
        f"<span class=t>{escape(item['text'])}</span><code class=id>"
        f"{item['level']} {escape(item['id'])} {_section(item)}</code></summary>",
    ]
    known = " (known: in the baseline)" if item["known"] else ""
    if item["reason"]:
        lines.append(f"<p class=why>{escape(item['reason'])}{known}</p>")
    # The most serious finding comes first; each exchange is shown once, with its first finding.
    shown: dict[int, str] = {}
    for finding in item["findings"]:
        for number in finding["exchanges"]:
            shown.setdefault(number, _note(item, finding))
    lines += [
        _exchange(exchanges[number], note) for number, note in shown.items() if number in exchanges
    ]
    return "".join([*lines, "</details>"])


def _section(item: dict[str, Any]) -> str:
    number = f"§{escape(item['section'])}"
    # A report of an older suite has no links.
    return f'<a href="{escape(item["link"])}">{number}</a>' if "link" in item else number


def _note(item: dict[str, Any], finding: dict[str, Any]) -> str:
    if finding["ruling"] == "holds" and item["standing"] != "proved":
        return "here it held"
    return "" if finding["message"] == item["reason"] else str(finding["message"])


def _badge(item: dict[str, Any]) -> str:
    # Only a MUST is "violated".
    return OUTCOMES["warn"] if item["outcome"] == "warn" else str(item["standing"])


def _exchange(exchange: dict[str, Any], note: str) -> str:
    response = exchange["response"]
    if response is None:
        answer = exchange["fault"] or "no answer"
    elif exchange["kind"] in ("grpc", "call"):
        answer = f"{response['code']} {response['details']}\n{response['hex']}"
    else:
        answer = f"{response['status']}\n{response['body']['text']}"
    return (
        f"<h4>#{exchange['number']} request{f' ({escape(note)})' if note else ''}</h4>"
        f"<pre>{escape(exchange['reproduce'])}</pre>"
        f"<h4>response, after {exchange['took_ms']:.0f} ms</h4><pre>{escape(answer)}</pre>"
    )
