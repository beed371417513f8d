"""Starts the node: HTTP on a port, gRPC on that port plus 1000."""

import argparse
import asyncio
import os
import signal
import sys
import threading

sys.dont_write_bytecode = True
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")


def options():
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--fault")
    parser.add_argument("--peculiar")
    return parser.parse_args()


def main():
    given = options()
    import faults
    import peculiar

    for name, rows in ((given.fault, faults.FAULTS), (given.peculiar, peculiar.PECULIAR)):
        if name and name not in {row["id"] for row in rows}:
            raise SystemExit("no such id: %s" % name)
    import core

    core.FLAGS.update(fault=given.fault, peculiar=given.peculiar, port=given.port)
    import chain
    import dht
    import money

    money.seed()
    chain.seed()
    dht.seed()
    asyncio.run(serve(given.port))
    os._exit(0)


async def serve(port):
    import uvicorn

    import app
    import rpc_server

    calls = rpc_server.serve(port)
    config = uvicorn.Config(
        app.build(),
        host="127.0.0.1",
        port=port,
        log_level="critical",
        date_header=False,
        access_log=False,
        lifespan="off",
        timeout_keep_alive=75,
        timeout_graceful_shutdown=1,
        ws="none",
    )
    server = uvicorn.Server(config)
    server.install_signal_handlers = lambda: None
    loop = asyncio.get_running_loop()

    def stop():
        server.should_exit = True

    for sign in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(sign, stop)
    task = asyncio.ensure_future(server._serve())
    while not server.started and not task.done():
        await asyncio.sleep(0.005)
    if server.started:
        print("ready", flush=True)
        threading.Thread(target=warm, daemon=True).start()
    await task
    calls.stop(0.2)


def warm():
    import sync_ops

    sync_ops.packed()


if __name__ == "__main__":
    main()
