"""Faults of the history, the proofs, the configuration, the metrics and the training verification."""

import asyncio, time
from g_base import table, route, after, before

LINES, MADE, F, H = table()


def q(c, n):
    v = c.request.query.get(n)
    return int(v) if v and v.isdigit() else None


# ---------------------------------------------------------------- history
@F("rel-history-total-of-first-page", "NA-QUERY-011", "total is counted when a page without offset is read, and kept for the pages that follow")
def _(N):
    box = {}

    def w(r, c):
        k = c.acct.address
        if not r["offset"]:
            box[k] = r["total"]
        r["total"] = box.get(k, r["total"])

    after("history", w)


@F("rel-history-beyond-is-last-page", "NA-QUERY-008", "an offset beyond the end gives the last page instead of an empty one")
def _(N):
    def w(r, c):
        if r["offset"] >= r["total"] and r["limit"]:
            r["transactions"] = [dict(e) for e in list(reversed(c.acct.history))[-r["limit"] :]]

    after("history", w)


@F("rel-history-limit-zero-is-default", "NA-QUERY-020", "a limit of 0 is taken as if it were left out")
def _(N):
    def w(r, c):
        if q(c, "limit") == 0:
            o = r["offset"]
            r["transactions"] = [dict(e) for e in list(reversed(c.acct.history))[o : o + 25]]

    after("history", w)


@F("lim-history-exact-end", "NA-QUERY-014", "a page that ends exactly with the last entry of the history lacks it")
def _(N):
    after("history", lambda r, c: r["offset"] and r["offset"] + len(r["transactions"]) == r["total"] and len(r["transactions"]) == r["limit"] and r["transactions"].pop() and None)


H("lim-history-total-60", "NA-QUERY-011", "total of the history is never above 60", ("history", lambda r, c: r.update(total=min(60, r["total"]))))


@F("ref-history-offset-at-end", "NA-QUERY-001", "an offset that is the number of all entries is refused")
def _(N):
    def w(c):
        if (q(c, "offset") or 0) >= len(c.acct.history) > 0:
            raise N.http.bad("offset is beyond the end")

    before("history", w)


H("fld-history-long-page-no-details", "NA-HISTORY-017", "rewards of a page of more than 30 entries have no details",
  ("history", lambda r, c: [e.pop("details", 0) for e in r["transactions"]] and None if len(r["transactions"]) > 30 else None))
H("fld-history-empty-page-null", "NA-HISTORY-002", "the transactions of a page without entries are null",
  ("history", lambda r, c: r.update(transactions=r["transactions"] or None)))


@F("rel-history-new-on-later-page", "NA-QUERY-018", "with a limit and no offset the page begins behind the entries of the last ten seconds")
def _(N):
    def w(r, c):
        if "offset" not in c.request.query and "limit" in c.request.query:
            L = list(reversed(c.acct.history))
            edge = N.state.iso(time.time() - 10)
            n = len([e for e in L if e["timestamp"] > edge])
            r["transactions"] = [dict(e) for e in L[n : n + r["limit"]]]

    after("history", w)


# ---------------------------------------------------------------- proofs, peers, layers
@F("rel-proofs-limit-shrinks-list", "NA-QUERY-019", "a page of proofs is never longer than the shortest that was asked for before")
def _(N):
    box = {"n": 10**9}

    def w(r, c):
        box["n"] = min(box["n"], q(c, "limit") if q(c, "limit") is not None else 10**9)
        r["proofs"] = r["proofs"][: box["n"]]

    after("proofs", w)


H("lim-proofs-limit-is-number", "NA-QUERY-009", "a limit that is the number of all proofs gives one fewer",
  ("proofs", lambda r, c: r["proofs"].pop() and None if q(c, "limit") == len(r["proofs"]) == r["stats"]["total_submitted"] else None))
H("fld-proofs-empty-page-null", "NA-PROOFS-002", "the proofs of a page without entries are null", ("proofs", lambda r, c: r.update(proofs=r["proofs"] or None)))
H("fld-peer-since-with-space", "GEN-020", "connected_since of peers has a space between date and time",
  ("peers", lambda r, c: [p.update(connected_since=p["connected_since"].replace("T", " ")) for p in r["peers"]] and None))
H("fld-layer-last-status-empty", "NA-SANE-014", "the status of the last layer is empty", ("layers", lambda r, c: r["layers"][-1].update(status="")))
H("rel-proofs-newest-ahead", "GEN-019", "the newest proof is dated four minutes ahead of the clock",
  ("proofs", lambda r, c: r["proofs"] and r["proofs"][0].update(timestamp=__import__("state").iso(time.time() + 240))))


# ---------------------------------------------------------------- metrics, status
@F("rel-metrics-milliseconds-unpadded", "NA-SANE-013", "the milliseconds in the timestamp of the metrics are written without leading zeros, so that the time jumps back within each second")
def _(N):
    def w(r, c):
        t = N.state.now()
        r["timestamp"] = t.strftime("%Y-%m-%dT%H:%M:%S.") + "%d+00:00" % (t.microsecond // 1000)

    after("metrics", w)


@F("rel-uptime-anew-after-change", "NA-SANE-001", "a change of the configuration lets uptime_seconds begin anew")
def _(N):
    def w(r, c):
        N.state.T0 = time.monotonic()

    after("patch", w)


# ---------------------------------------------------------------- training
@F("rel-progress-of-old-total", "TR-RULE-016", "diloco.progress is the share of the number of inner steps that held when the node started")
def _(N):
    n = N.state.CONFIG["training.diloco_steps"]
    after("tglobal", lambda r, c: r["diloco"].update(progress=round(min(1, r["diloco"]["inner_step_count"] / n), 6)))


@F("rel-inner-count-not-wrapped", "TR-RULE-013", "inner_step_count goes on to the old number of inner steps after that has been lowered")
def _(N):
    n = N.state.CONFIG["training.diloco_steps"]

    def w(r, c):
        d = r["diloco"]
        d["inner_step_count"] = N.state.steps() % n
        d["progress"] = round(d["inner_step_count"] / d["inner_steps_total"], 6)

    after("tglobal", w)


@F("rel-local-id-after-change", "TR-RULE-015", "after a change of the configuration local.node_id is another than node_id of the status")
def _(N):
    box = {}
    after("patch", lambda r, c: box.update(x=1) and None)
    after("tglobal", lambda r, c: r["local"].update(node_id=r["local"]["node_id"][::-1]) if box else None)


H("rel-sync-rate-of-successes", "TR-RULE-004", "sync_success_rate is 1 less the failed exchanges divided by the successful ones, instead of by all",
  ("tglobal", lambda r, c: r.update(sync_success_rate=round(1 - r["failed_syncs"] / r["successful_syncs"], 6))))


# ---------------------------------------------------------------- changes of the configuration
def flat(b, p=""):
    d = {}
    for k, v in b.items():
        d.update(flat(v, p + k + ".") if isinstance(v, dict) else {p + k: v})
    return d


@F("eff-patch-false-ignored", "NA-PATCH-104", "a change of training.enabled to false is reported and not made, one to true is made")
def _(N):
    async def w(old, c):
        had = N.state.CONFIG["training.enabled"]
        r = await old(c)
        if flat(c.body).get("training.enabled") is False and had:
            N.state.CONFIG["training.enabled"] = True
        return r

    route("patch", w)


@F("eff-patch-at-once-lost", "NA-PATCH-118", "of changes at the same time those of the slower one overwrite all others")
def _(N):
    async def w(old, c):
        C = N.state.CONFIG
        had = dict(C)
        await asyncio.sleep(0.05)
        C.update(had)
        return await old(c)

    route("patch", w)


@F("eff-patch-refused-made-by-next", "NA-PATCH-106", "the valid keys of a refused change are made together with the next change")
def _(N):
    box = {}

    async def w(old, c):
        try:
            r = await old(c)
        except N.http.Fail:
            box.update({k: v for k, v in flat(c.body).items() if k in N.http.RULES and N.http.RULES[k](v)})
            raise
        N.state.CONFIG.update({k: v for k, v in box.items() if k not in flat(c.body)})
        box.clear()
        return r

    route("patch", w)


@F("eff-patch-second-section-ignored", "NA-PATCH-121", "of a change of two sections only the keys of the first are made")
def _(N):
    async def w(old, c):
        C, had = N.state.CONFIG, dict(N.state.CONFIG)
        r = await old(c)
        secs = [k for k in c.body if isinstance(c.body[k], dict)]
        for s in secs[1:]:
            C.update({k: v for k, v in had.items() if k.startswith(s + ".")})
        return r

    route("patch", w)


def unwrap(x):
    return {k: unwrap(v) if isinstance(v, dict) else v[0] if isinstance(v, list) and len(v) == 1 else v for k, v in x.items()}


@F("ref-patch-value-in-array", "NA-PATCH-120", "a value in an array of one is taken out of it")
def _(N):
    before("patch", lambda c: c.__setattr__("body", unwrap(c.body)))


H("fld-patch-updated-null", "NA-PATCH-004", "updated is null where a change names no key", ("patch", lambda r, c: r.update(updated=r["updated"] or None)))
H("fld-config-small-rate-text", "NA-CONFIG-016", "a learning_rate below 0.0001 is a text",
  ("config", lambda r, c: r["training"].update(learning_rate="%g" % r["training"]["learning_rate"]) if r["training"]["learning_rate"] < 0.0001 else None))
H("rel-config-memory-in-tenths", "NA-PATCH-104", "max_memory_gb is kept in whole gigabytes and tenths, so that finer values are not shown",
  ("config", lambda r, c: r["resources"].update(max_memory_gb=int(r["resources"]["max_memory_gb"] * 10) / 10)))


@F("rel-status-enabled-single-key", "NA-PATCH-116", "the status follows training.enabled only where a change has no other key")
def _(N):
    box = {}
    after("patch", lambda r, c: box.update(v=N.state.CONFIG["training.enabled"]) if list(flat(c.body)) == ["training.enabled"] else box.setdefault("v", True) and None)
    after("status", lambda r, c: r["training"].update(enabled=box.get("v", r["training"]["enabled"])))



@F("eff-patch-lost-after-refusal", "NA-PATCH-117", "a refused change puts back the values of before the change that was made last")
def _(N):
    box = {}

    async def w(old, c):
        had = dict(N.state.CONFIG)
        try:
            r = await old(c)
        except N.http.Fail:
            N.state.CONFIG.update(box)
            raise
        box.clear()
        box.update(had)
        return r

    route("patch", w)


@F("rou-training-missing-while-off", "NA-ROUTE-018", "the two routes of the training verification answer 404 while training is switched off")
def _(N):
    def w(c):
        if not N.state.CONFIG["training.enabled"]:
            raise N.http.Fail(404, "NO_TRAINING", "training is off")

    before("tglobal", w)
    before("tverify", w)


@F("rou-proofs-missing-while-off", "NA-ROUTE-018", "GET /proofs answers 404 while training is switched off")
def _(N):
    def w(c):
        if not N.state.CONFIG["training.enabled"]:
            raise N.http.Fail(404, "NO_TRAINING", "training is off")

    before("proofs", w)
