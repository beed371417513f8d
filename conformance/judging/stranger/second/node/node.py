import argparse, asyncio, signal, sys, logging

ap = argparse.ArgumentParser()
ap.add_argument("--port", type=int, default=8000)
ap.add_argument("--fault")
ap.add_argument("--peculiar")
args = ap.parse_args()
import core

core.FAULT, core.PEC = args.fault, args.peculiar
import faults, peculiar

if args.fault and args.fault not in {f["id"] for f in faults.FAULTS}:
    sys.exit("no such fault")
if args.peculiar and args.peculiar not in {f["id"] for f in peculiar.PECULIAR}:
    sys.exit("no such peculiarity")
if args.fault:
    faults.activate(args.fault)
import state, http_api

http_api.PORT = args.port if not core.fault("rou-port-option-ignored") else args.port
state.seed()
import native, grpc_api

if args.fault:
    faults.late(args.fault)
from aiohttp import web

logging.basicConfig(level=logging.CRITICAL)


@web.middleware
async def outer(request, handler):
    try:
        return await handler(request)
    except web.HTTPException as e:
        f = http_api.Fail(
            e.status,
            "NO_SUCH_PATH"
            if e.status == 404
            else "NOT_ALLOWED"
            if e.status == 405
            else "HTTP_%d" % e.status,
            e.reason,
        )
        o = http_api.Out("none", e.status, http_api.error_body(f))
        if "Allow" in e.headers:
            o.headers["Allow"] = e.headers["Allow"]
        if core.fault("rou-unknown-path-200"):
            o.status = 200
            o.data = {}
        if core.fault("rou-unknown-path-status"):
            o.status, o.data = 200, await http_api.status(None)
        return await http_api.render(request, o)
    except ConnectionError:
        raise
    except Exception as e:
        if "cancel" in type(e).__name__.lower():
            raise
        import traceback

        traceback.print_exc()
        f = http_api.Fail(500, "INTERNAL", "something broke")
        return await http_api.render(request, http_api.Out("none", 500, http_api.error_body(f)))


async def main():
    app = web.Application(middlewares=[outer], client_max_size=256 * 1024 * 1024)
    for n, (m, p) in http_api.NODE_ROUTES.items():
        r = core.ROUTEMOD.get(n, (m, p))
        h = http_api.endpoint(n, http_api.HANDLERS[n])
        for mm, pp in [r] if isinstance(r, tuple) else r or []:
            app.router.add_route(mm, pp, h)
    native.routes(app)
    native.CHAIN = native.Chain()
    runner = web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=0.2)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", args.port)
    await site.start()
    srv = grpc_api.server()
    gp = args.port + core.ROUTEMOD.get("grpc-offset", 1000)
    if gp != args.port:
        await srv.start("127.0.0.1", gp)
    chain = asyncio.create_task(native.CHAIN.run())
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for s in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(s, stop.set)
    print("ready", flush=True)
    await stop.wait()
    chain.cancel()
    if gp != args.port:
        srv.close()
    await asyncio.wait_for(runner.cleanup(), 2)


try:
    asyncio.run(main())
except (asyncio.TimeoutError, asyncio.CancelledError):
    pass
import os

os._exit(0)
