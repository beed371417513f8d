"""A node: HTTP on 127.0.0.1:PORT, gRPC on PORT+1000, everything in memory."""
import argparse
import asyncio
import signal
import sys
import time
from email.utils import formatdate

import switches

p = argparse.ArgumentParser()
p.add_argument("--port", type=int, default=8000)
p.add_argument("--fault")
p.add_argument("--peculiar")
p.add_argument("--list", action="store_true", help="print the faults and peculiarities, and end")
args = p.parse_args()
switches.FAULT = args.fault
switches.PEC = args.peculiar

import faults
import more
import more2
import peculiar

if args.list:
    for f in faults.FAULTS + faults.SPARE + more.MORE + more.MORE_SPARE + more2.MORE2 + more2.MORE2_SPARE:
        print("%s\t%s\t%s\t%s" % (f["id"], f["kind"], f["section"], f["text"]))
    for f in peculiar.PECULIAR:
        print("%s\t%s" % (f["id"], f["text"]))
    sys.exit()

if args.fault and args.fault not in {f["id"] for f in faults.FAULTS + faults.SPARE + more.MORE + more.MORE_SPARE + more2.MORE2 + more2.MORE2_SPARE}:
    sys.exit("no such fault: " + args.fault)
if args.peculiar and args.peculiar not in {f["id"] for f in peculiar.PECULIAR}:
    sys.exit("no such peculiarity: " + args.peculiar)

import state

state.PORT = args.port
state.STARTED = state.STARTED

import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.responses import Response

import httpapi
import native
import rpc
from state import METRICS, Refused


async def http_error(request, exc):
    code = {404: "NOT_FOUND", 405: "METHOD_NOT_ALLOWED"}.get(exc.status_code, "HTTP_ERROR")
    res = httpapi.failure(Refused(exc.status_code, code, "%s %s is not served" % (request.method, request.url.path)))
    if switches.on("fld-404-text") and exc.status_code in (404, 405):
        res = Response(b"Not Found", exc.status_code, media_type="text/plain")
    if switches.on("ref-unknown-path-200") and exc.status_code == 404:
        res = Response(b"{}", 200, media_type="application/json")
    for k, v in (exc.headers or {}).items():
        res.headers[k] = v
    return res


async def crash(request, exc):
    return httpapi.failure(Refused(500, "INTERNAL", "the node failed"))


inner = Starlette(routes=httpapi.routes() + native.routes(), exception_handlers={HTTPException: http_error, Exception: crash})
inner.router.redirect_slashes = False


class Limiter:
    """Allows so many requests a second for each caller."""
    rate = 1000

    def __init__(self):
        self.window = {}

    def full(self, who):
        now = int(time.time())
        t, n = self.window.get(who, (now, 0))
        if t != now:
            n = 0
        self.window[who] = (now, n + 1)
        if len(self.window) > 1000:
            self.window.clear()
        return n >= self.rate


LIMITER = Limiter()


async def app(scope, receive, send):
    if scope["type"] != "http":
        return await inner(scope, receive, send)
    size = [0]

    async def counted_receive():
        m = await receive()
        METRICS.received += len(m.get("body", b""))
        return m

    async def dated_send(m):
        if m["type"] == "http.response.start":
            m["headers"] = list(m["headers"]) + [(b"date", formatdate(time.time(), usegmt=True).encode())]
        METRICS.sent += len(m.get("body", b"")) + (200 if m["type"] == "http.response.start" else 0)
        await send(m)

    METRICS.received += 300
    who = dict(scope["headers"]).get(b"authorization", b"")
    if LIMITER.full(who):
        res = httpapi.failure(Refused(429, "RATE_LIMITED", "too many requests", {"retry_after": 1}))
        return await res(scope, counted_receive, dated_send)
    try:
        await inner(scope, counted_receive, dated_send)
    except Exception as e:
        if type(e).__name__ == "ClientDisconnect":
            return
        sys.stderr.write("failed: %r\n" % (e,))


class Server(uvicorn.Server):
    def install_signal_handlers(self):
        pass

    async def startup(self, sockets=None):
        await super().startup(sockets)
        print("ready", flush=True)


async def main():
    loop = asyncio.get_running_loop()
    grpc_server = await rpc.serve(args.port + 1000)
    config = uvicorn.Config(app, host="127.0.0.1", port=args.port, log_level="warning", access_log=False, date_header=False, server_header=False,
                            lifespan="off", timeout_graceful_shutdown=1)
    server = Server(config)
    for s in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(s, lambda: setattr(server, "should_exit", True))
    await server._serve() if hasattr(server, "_serve") else await server.serve()
    await grpc_server.stop(0.2)


asyncio.run(main())
