"""JUnit XML: one test case for each requirement, for a CI that shows such files.

A failed MUST is a failure, an inconclusive one an error, and a requirement that is not judged is
skipped. Anything below MUST passes, with its message in `system-out`, and so does a known failure
of the baseline.
"""

import re
from typing import Any
from xml.etree import ElementTree as ET

# Characters that XML 1.0 does not allow, but that a target's answer may contain.
_FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def render(document: dict[str, Any]) -> str:
    """Make the XML of a report."""
    exchanges = {item["number"]: item for item in document["exchanges"]}
    suite = ET.Element("testsuite", name=f"conformance of {document['target']['url']}")
    suite.set("time", str(document["took_s"]))
    suite.set("timestamp", document["finished"])
    counts = {"failure": 0, "error": 0, "skipped": 0}
    for item in document["requirements"]:
        case = ET.SubElement(
            suite, "testcase", classname=f"{item['profile']}.{item['section']}", name=item["id"]
        )
        kind = _kind(item)
        text = _text(item, exchanges)
        if kind is None:
            if item["outcome"] != "pass":
                ET.SubElement(case, "system-out").text = text
            continue
        counts[kind] += 1
        ET.SubElement(case, kind, message=_clean(item["reason"])).text = text
    suite.set("tests", str(len(document["requirements"])))
    suite.set("failures", str(counts["failure"]))
    suite.set("errors", str(counts["error"]))
    suite.set("skipped", str(counts["skipped"]))
    ET.indent(suite)
    return ET.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"


def _kind(item: dict[str, Any]) -> str | None:
    if item["outcome"] == "fail" and not item["known"]:
        return "failure"
    if item["outcome"] == "open" and item["level"] == "MUST":
        return "error"
    return "skipped" if item["outcome"] == "skip" else None


def _text(item: dict[str, Any], exchanges: dict[int, Any]) -> str:
    lines = [f"{item['level']} {item['text']}", item["reason"]]
    for finding in item["findings"]:
        lines += [
            exchanges[number]["reproduce"] for number in finding["exchanges"] if number in exchanges
        ]
    return _clean("\n".join(lines))


def _clean(text: str) -> str:
    return _FORBIDDEN.sub("\N{REPLACEMENT CHARACTER}", text)
