"""The application: middleware, the handlers of failures, and the routers."""

from email.utils import formatdate

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, RedirectResponse, Response

import auth
import counters
import errors
import moved
from core import fault, nth, peculiar
from errors import ApiError, error_reply


def native(path):
    """Whether a path belongs to the native API, whose errors have another body."""
    return not (path.startswith("/api/v1") or path in ("/api/training/global", "/api/training/verify"))


def build():
    import api_history
    import api_inference
    import api_legacy
    import api_native
    import api_node
    import api_rpc
    import api_wallet

    app = FastAPI(title="ostrava node", docs_url=None, redoc_url=None, openapi_url=None)
    app.router.redirect_slashes = False
    for module in (api_node, api_wallet, api_history, api_inference, api_native, api_legacy, api_rpc):
        app.include_router(module.router)

    @app.exception_handler(ApiError)
    async def refused(request, error):
        if error.status == 401 and fault("gua2-401-to-login") and request.method == "GET":
            return RedirectResponse("/login", 302)
        if error.status == 401 and fault("gua2-401-plain-text") and request.url.path == "/api/v1/config":
            return Response("Unauthorized\n", 401, media_type="text/plain")
        return error_reply(error)

    @app.exception_handler(HTTPException)
    async def missing(request, error):
        if native(request.url.path):
            return JSONResponse({"detail": str(error.detail)}, error.status_code, headers=error.headers)
        if fault("ref-fastapi-detail-405") and error.status_code == 405:
            return JSONResponse({"detail": "Method Not Allowed"}, 405)
        if fault("rou-unknown-path-200") and error.status_code == 404:
            return errors.reply("unknown", {"status": "running"})
        code = {404: "NOT_FOUND", 405: "METHOD_NOT_ALLOWED"}.get(error.status_code, "HTTP_ERROR")
        return error_reply(ApiError(error.status_code, code, str(error.detail), None, error.headers))

    @app.exception_handler(Exception)
    async def broken(request, error):
        message = "the node failed"
        return error_reply(ApiError(500, "INTERNAL", message))

    return Outer(app)


class Outer:
    """Counts bytes, dates every answer, and limits the rate."""

    def __init__(self, app):
        self.app = app
        self.recent = []

    def crowded(self):
        import time

        moment = time.monotonic()
        self.recent = [stamp for stamp in self.recent if moment - stamp < 1.0]
        self.recent.append(moment)
        limit = 4 if fault("lim-rate-four") else 300
        return len(self.recent) > limit

    async def __call__(self, scope, receive, send):
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        path = scope["path"]
        api = not native(path)

        async def dated(message):
            if message["type"] == "http.response.start":
                headers = [pair for pair in message["headers"] if pair[0].lower() != b"date"]
                headers.append((b"date", formatdate(usegmt=True).encode()))
                if peculiar("extra-headers"):
                    headers += [(b"x-node", b"ostrava"), (b"cache-control", b"no-store")]
                message["headers"] = headers
            elif message["type"] == "http.response.body":
                counters.sent(len(message.get("body", b"")))
            await send(message)

        async def counted():
            message = await receive()
            counters.received(len(message.get("body", b"")))
            return message

        counters.received(200)
        auth.MEMORY["busy"] = auth.MEMORY.get("busy", 0) + 1
        try:
            if api and self.crowded():
                await errors.error_reply(rate_limited())(scope, counted, dated)
                return
            if fault("rou-layers-unversioned") and path in ("/api/v1/layers", "/api/layers"):
                scope = dict(scope, path={"/api/layers": "/api/v1/layers"}.get(path, "/api/v1/-"))
            if peculiar("trailing-slash") and path.startswith("/api/v1/") and path.endswith("/"):
                scope = dict(scope, path=path.rstrip("/"))
            if fault("rou2-stake-slash") and path.startswith("/api/v1/wallet/stake"):
                if not path.endswith("/"):
                    await RedirectResponse(path + "/", 301)(scope, counted, dated)
                    return
                scope = dict(scope, path=path[:-1])
            await self.app(moved.rewritten(scope), counted, dated)
        finally:
            auth.MEMORY["busy"] -= 1


def rate_limited():
    details = {"retry_after": 1}
    status, code = 429, "RATE_LIMITED"
    if fault("ref2-429-is-503"):
        status = 503
    nth("429")
    return ApiError(status, code, "too many requests", details, {"Retry-After": "1"})
