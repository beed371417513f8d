"""Interface 4.1: the newest entries of the history, at whichever end of it they are.

The document does not say in which order the entries come, nor how many a page has.
"""

from conformance.checks.node_reads import TRANSACTIONS
from conformance.checks.reading import served
from conformance.context import Context
from conformance.httprequest import Credential
from conformance.httpwire import Answer
from conformance.strictjson import Json, is_int


def rows_of(document: dict[str, Json] | None) -> list[dict[str, Json]]:
    """Return the entries of a page that are objects."""
    entries = document.get("transactions") if document else None
    return [row for row in entries if isinstance(row, dict)] if isinstance(entries, list) else []


def newest(
    context: Context, credential: Credential | None = None
) -> tuple[Answer, dict[str, Json] | None, list[dict[str, Json]]]:
    """GET the first page and, if it is not all, the last one; return the entries of both.

    The answer and the document are those of the first page. The history is that of the declared
    token, or of another one.
    """
    account = credential or context.target.valid
    answer = served(lambda: context.api("GET", TRANSACTIONS.path, credential=account))
    document = answer.json_object() if answer.ok else None
    rows = rows_of(document)
    total = document.get("total") if document else None
    if not rows or not is_int(total) or total <= len(rows):
        return answer, document, rows
    query: dict[str, object] = {"limit": len(rows), "offset": int(total) - len(rows)}
    last = context.api("GET", TRANSACTIONS.path, credential=account, query=query)
    known = {str(row.get("id")) for row in rows}
    behind = rows_of(last.json_object() if last.ok else None)
    return answer, document, rows + [row for row in behind if str(row.get("id")) not in known]
