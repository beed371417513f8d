"""Helpers of the modules g_*: a fault there changes functions after all modules are loaded, so that without it nothing changes."""


def table():
    lines, made = [], {}

    def F(i, q, w, **kw):
        assert i not in made, i

        def deco(fn):
            lines.append([i, q, w])
            made[i] = dict(kw, late=fn)
            return fn

        return deco

    def H(i, q, w, *hooks):
        assert i not in made, i
        lines.append([i, q, w])
        made[i] = {"hooks": list(hooks)}

    return lines, made, F, H


class N:
    """The loaded modules."""

    def __init__(self):
        import core, grpc_api, http_api, model, native, state

        self.core, self.grpc, self.http, self.model, self.native, self.state = (
            core,
            grpc_api,
            http_api,
            model,
            native,
            state,
        )


def route(name, w):
    """Wraps a route of the node API: w(old, c)."""
    import http_api

    old = http_api.HANDLERS[name]

    async def fn(c):
        return await w(old, c)

    http_api.HANDLERS[name] = fn


def after(name, w):
    """Changes the answer of a route: w(r, c)."""

    async def fn(old, c):
        r = await old(c)
        if isinstance(r, dict):
            x = w(r, c)
            if isinstance(x, dict):
                return x
        return r

    route(name, fn)


def before(name, w):
    """Sees a request before the route does: w(c)."""

    async def fn(old, c):
        w(c)
        return await old(c)

    route(name, fn)


def op(name, w):
    """Wraps an operation: w(old, d)."""
    import grpc_api

    old, rq, rs = grpc_api.OPS[name]

    async def fn(d):
        return await w(old, d)

    grpc_api.OPS[name] = (fn, rq, rs)


def nroute(name, w):
    """Wraps a native route: w(old, r)."""
    import native

    old = getattr(native, name)

    async def fn(r):
        return await w(old, r)

    setattr(native, name, fn)


def swap(mod, name, w):
    """Replaces a function by w(old, *args)."""
    old = getattr(mod, name)

    def fn(*a, **k):
        return w(old, *a, **k)

    setattr(mod, name, fn)
