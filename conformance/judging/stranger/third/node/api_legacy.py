"""The worker protocol, the earlier chain, and what is left of old paths."""

import json

from fastapi import APIRouter, Request
from starlette.responses import HTMLResponse, RedirectResponse

import chain
import core
from api_native import answer, refuse
from core import fault, nth, peculiar

router = APIRouter()


@router.get("/work/status")
async def work_status():
    return answer(
        {
            "sponsor": None if not peculiar("work-sponsor") else {"owner": chain.KEYS[1]},
            "stages": [{"name": "forward", "available": True}, {"name": "backward", "available": False}],
            "attempts_remaining": 12,
        },
        kind="work",
    )


async def worker(request, name):
    raw = await request.body()
    try:
        body = json.loads(raw)
    except (ValueError, RecursionError):
        if fault("ref-work-crash-" + name):
            return refuse(500, "failed")
        return refuse(400, "the message is not JSON")
    if not isinstance(body, dict) or not all(isinstance(body.get(k), str) for k in ("public_key", "signature")):
        if fault("ref-work-object-crash"):
            return refuse(500, "failed")
        if fault("gua2-work-poll-unsigned") and isinstance(body, dict) and name == "poll":
            return answer({"work": None})
        return refuse(403 if peculiar("work-403") else 400, "the message is not signed")
    if fault("gua2-work-result-any-signature") and name == "result":
        return answer({"accepted": True})
    return refuse(403, "the signature does not fit")


@router.post("/work/poll")
async def work_poll(request: Request):
    return await worker(request, "poll")


if not fault("rou-work-result-gone"):

    @router.post("/work/result")
    async def work_result(request: Request):
        return await worker(request, "result")


OLD_VIEWS = {
    "status": {"version": "0.3", "height": 1204, "frozen": True},
    "blocks": {"blocks": [{"height": n, "hash": core.sha("v03", n)} for n in range(1204, 1194, -1)]},
    "model": {"revision": "v03-final", "root": core.sha("v03root")},
}
DELETED = set()
VERBS = ["GET"]
if fault("gua-reference-post") or fault("gua-reference-delete"):
    VERBS = ["GET", "POST", "PUT", "PATCH", "DELETE"]


@router.api_route("/reference/v03/api/{rest:path}", methods=VERBS)
async def reference(rest: str, request: Request):
    view = OLD_VIEWS.get(rest)
    if fault("rou-reference-blocks-gone") and rest != "model":
        view = None
    if fault("rel2-reference-current") and rest == "blocks":
        view = {"blocks": [chain.short(block) for block in chain.BLOCKS[:-11:-1]]}
    if view is None or rest in DELETED:
        return refuse(404, "no such view")
    if request.method != "GET":
        if fault("gua-reference-delete"):
            if request.method == "DELETE":
                DELETED.add(rest)
            else:
                return refuse(405, "wrong method")
        return answer({"ok": True})
    return answer(view)


GONE = ["/api/register", "/api/auth/register", "/api/accounts/register"]


async def gone(request: Request):
    status = 410
    if fault("rou2-legacy-404") and request.url.path != "/api/register":
        status = 404
    if fault("rou2-legacy-post-405") and request.method == "POST":
        status = 405
    if fault("rou-legacy-get-200") and request.method == "GET":
        status = 200
    if fault("rou-legacy-post-creates") and request.method == "POST":
        return answer({"account": nth("made"), "api_key": "k-%s" % core.sha("k")[:12]}, 201)
    return refuse(status, "registration has ended")


async def join_redirect(request: Request):
    target, status = "/join", 307
    if fault("rou2-login-home") and request.url.path == "/login":
        target = "/"
    if peculiar("redirect-301"):
        status = 301
    if peculiar("redirect-absolute"):
        target = str(request.base_url) + "join"
    if fault("rou-signup-404") and request.url.path == "/signup":
        return refuse(404, "no such path")
    return RedirectResponse(target, status)


for path in GONE:
    router.add_api_route(path, gone, methods=["GET", "POST"])
for path in ("/login", "/signup"):
    router.add_api_route(path, join_redirect, methods=["GET"])


@router.get("/join")
async def join():
    return HTMLResponse("<!doctype html><title>Join</title><p>Create a key with the command-line tool.</p>")
