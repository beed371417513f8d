"""Reading a JSON request body (interface 5: ``Content-Type: application/json`` on bodies).

Order of checks: media type, size and time of arrival (while it is read), JSON, object.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import trio
from werkzeug.exceptions import UnsupportedMediaType

from meshnode.domain.errors import InvalidRequest
from meshnode.turns import counted
from meshnode.wire import json

if TYPE_CHECKING:
    from quart import Request

THREAD_BYTES = 64 * 1024
"""Bodies above this are parsed in a thread: a megabyte would stall every stream for long."""


async def read_json_object(request: Request, *, exact: bool = False) -> dict[str, Any]:
    """The body of ``request``, which must be a JSON object.

    ``exact`` has the meaning that it has for :func:`meshnode.wire.json.loads`.

    Raises :class:`InvalidRequest` or werkzeug's exceptions for 408, 413 and 415.
    """
    _check_media_type(request)
    data = await request.get_data(cache=False, as_text=False, parse_form_data=False)
    if len(data) > THREAD_BYTES:
        parse = counted(partial(json.loads, data, exact=exact))
        value = await trio.to_thread.run_sync(parse)
    else:
        value = json.loads(data, exact=exact)
    if not isinstance(value, dict):
        raise InvalidRequest(json.FIELD, "must be a JSON object")
    return value


def _check_media_type(request: Request) -> None:
    charset = request.mimetype_params.get("charset", "utf-8").lower()
    coding = request.headers.get("Content-Encoding", "identity").lower()
    if (
        request.mimetype != "application/json"
        or charset not in ("utf-8", "utf8")
        or coding != "identity"
    ):
        raise UnsupportedMediaType
