"""The list of single faults, and how one is switched on."""

import core
from f_sections import OF
import f_effects1, f_effects2, f_relations, f_refusals, f_limits, f_fields, f_guards, f_routes, f_numbers, f_more
import g_money, g_text, g_lists, g_access, g_chain, g_peer, g_wire, g_extra

f_numbers.install(core.ORIGINAL)
KIND = {
    "fld": "fields",
    "gua": "guards",
    "rou": "routes",
    "num": "numbers",
    "ref": "refusals",
    "rel": "relations",
    "eff": "effects",
    "lim": "limits",
}
LINES = [l.split("|") for m in (f_effects1, f_effects2) for l in m.TEXT.strip().splitlines()]
MADE = {}
for _m in (f_relations, f_refusals, f_limits, f_fields, f_guards, f_routes, f_numbers, f_more) + (
    g_money, g_text, g_lists, g_access, g_chain, g_peer, g_wire, g_extra,
):
    LINES += _m.LINES
    MADE.update(getattr(_m, "MADE", {}))
FAULTS = [
    {"id": i, "kind": KIND[i[:3]], "section": OF.get(s, "?"), "sentence": s, "what": w}
    for i, s, w in LINES
]
assert len({f["id"] for f in FAULTS}) == len(FAULTS), "an id occurs twice"


def activate(i):
    m = MADE.get(i, {})
    for point, fn in m.get("hooks", ()):
        core.HOOKS.setdefault(point, []).append(fn)
    if "guard" in m:
        core.GUARD[m["guard"][0]] = m["guard"][1]
    core.ROUTEMOD.update(m.get("route", {}))
    if "prefix" in m:
        import http_api

        for n, (me, p) in http_api.NODE_ROUTES.items():
            if p.startswith("/api/v1"):
                core.ROUTEMOD[n] = (me, m["prefix"] + p[len("/api/v1") :])
    if "schema" in m:
        core.SCHEMA_IN["DHTNodeInfo"] = core.ORIGINAL["DHTNodeInfo"]
        m["schema"](core.SCHEMA)


def late(i):
    """What a fault of the modules g_* changes after all modules are loaded."""
    fn = MADE.get(i, {}).get("late")
    if fn:
        from g_base import N

        fn(N())
