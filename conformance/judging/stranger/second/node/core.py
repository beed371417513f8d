"""Switches, hooks, and a small protobuf codec driven by a table (so that a fault can change the table)."""

import struct, copy

FAULT = None
PEC = None
HOOKS = {}  # hook point -> list of functions of the switched fault (or peculiarity)
GUARD = {}  # route -> mode
ROUTEMOD = {}  # route -> new value


def fault(i):
    return FAULT == i


def pec(i):
    return PEC == i


def hook(point, b, c=None):
    for fn in HOOKS.get(point, ()):
        r = fn(b, c)
        if isinstance(r, dict):
            b = r
    return b


class Bad(Exception):
    pass


def S(text):
    out = []
    for line in text.strip().split(","):
        num, typ, name = line.split()
        rep = typ.startswith("*")
        out.append([int(num), name, typ.lstrip("*"), rep])
    return out


SCHEMA = {
    "PipelineForwardRequest": S(
        "1 string session_id,2 string request_id,3 bytes hidden_states,4 *int64 hidden_shape,"
        "5 bytes attention_mask,6 bytes position_ids,7 *bytes past_key_values,8 bool use_cache,"
        "9 int32 source_shard,10 int32 target_shard,11 bytes training_labels,12 string sender_url"
    ),
    "PipelineForwardResponse": S(
        "1 string request_id,2 bool success,3 string error_message,4 bytes hidden_states,"
        "5 *int64 hidden_shape,6 *bytes past_key_values,7 bool is_final,8 bytes logits,"
        "9 *int64 logits_shape,10 double loss"
    ),
    "PipelineBackwardRequest": S(
        "1 string session_id,2 string request_id,3 bytes grad_output,4 *int64 grad_shape,5 int32 target_shard"
    ),
    "PipelineBackwardResponse": S("1 bool success,2 string error_message"),
    "GossipGradientRequest": S(
        "1 string node_id,2 int32 round_id,3 string model_hash,4 double timestamp,5 int32 batch_size,"
        "6 double loss,7 map layer_gradients,8 string signature,9 int32 ttl"
    ),
    "GossipGradientResponse": S("1 bool accepted,2 string reason,3 int32 current_round"),
    "WeightRequest": S("1 string shard_range"),
    "WeightResponse": S("1 bytes weights_data"),
    "GetCheckpointRequest": S("1 string model_hash,2 int32 min_version"),
    "GetCheckpointResponse": S(
        "1 bool success,2 string error_message,3 int32 version,4 string model_hash,5 string phase,"
        "6 bytes checkpoint_data,7 int64 total_size"
    ),
    "GetCheckpointInfoRequest": [],
    "GetCheckpointInfoResponse": S(
        "1 int32 version,2 string model_hash,3 string phase,4 int64 params,5 double loss"
    ),
    "DHTNodeInfo": S("1 bytes node_id,2 string ip,3 int32 port"),
    "DHTPingRequest": S("1 DHTNodeInfo sender"),
    "DHTPingResponse": S("1 DHTNodeInfo responder"),
    "DHTFindNodeRequest": S("1 DHTNodeInfo sender,2 bytes target_id"),
    "DHTFindNodeResponse": S("1 DHTNodeInfo responder,2 *DHTNodeInfo nodes"),
    "DHTFindValueRequest": S("1 DHTNodeInfo sender,2 bytes key"),
    "DHTFindValueResponse": S(
        "1 DHTNodeInfo responder,2 string value,3 *DHTNodeInfo nodes,4 bool found"
    ),
    "DHTStoreRequest": S("1 DHTNodeInfo sender,2 bytes key,3 string value"),
    "DHTStoreResponse": S("1 DHTNodeInfo responder,2 bool success"),
    # own inventions, where the document is silent
    "InferenceRequest": S("1 string prompt,2 int32 max_tokens"),
    "InferenceResponse": S("1 string piece,2 bool last,3 int32 tokens"),
    "Ack": S("1 bool ok,2 string note"),
    "ShardInfo": S("1 *int32 held,2 int32 total,3 string role"),
}
ORIGINAL = copy.deepcopy(SCHEMA)
SCHEMA_IN = {}  # messages that are read otherwise than they are written
WIRE = {
    "string": 2,
    "bytes": 2,
    "bool": 0,
    "int32": 0,
    "int64": 0,
    "double": 1,
    "float": 5,
    "sint32": 0,
    "sint64": 0,
    "fixed32": 5,
    "fixed64": 1,
    "map": 2,
    "textbytes": 2,
}


def varint(n):
    n &= (1 << 64) - 1
    o = bytearray()
    while True:
        b = n & 127
        n >>= 7
        if n:
            o.append(b | 128)
        else:
            o.append(b)
            return bytes(o)


def scalar(t, v):
    if t == "textbytes":  # a byte field written as hexadecimal text
        v = (v if isinstance(v, bytes) else str(v).encode()).hex().encode()
        return varint(len(v)) + v
    if t in ("string", "bytes"):
        if not isinstance(v, (bytes, bytearray)):
            v = (str(v) if not isinstance(v, bool) else ("true" if v else "false")).encode()
        return varint(len(v)) + bytes(v)
    if isinstance(v, (str, bytes)):
        v = len(v)
    if t == "bool":
        return b"\1" if v else b"\0"
    if t in ("int32", "int64"):
        return varint(int(v))
    if t in ("sint32", "sint64"):
        v = int(v)
        return varint((v << 1) ^ (v >> 63))
    if t == "double":
        return struct.pack("<d", v)
    if t == "float":
        return struct.pack("<f", v)
    if t == "fixed32":
        return struct.pack("<I", int(v) & 0xFFFFFFFF)
    if t == "fixed64":
        return struct.pack("<Q", int(v) & (2**64 - 1))
    raise ValueError(t)


def encode(name, d, force=()):
    out = []
    for num, fname, t, rep in sorted(SCHEMA[name], key=lambda x: x[0]):
        v = d.get(fname)
        if v is None:
            continue
        if t == "map":
            for k, x in v.items():
                e = b"\x0a" + scalar("string", k) + b"\x12" + scalar("bytes", x)
                out.append(varint(num << 3 | 2) + varint(len(e)) + e)
            continue
        if t in SCHEMA:
            for x in v if rep else v[-1:] if isinstance(v, list) else [v]:
                e = encode(t, x)
                out.append(varint(num << 3 | 2) + varint(len(e)) + e)
            continue
        if rep:
            if not isinstance(v, (list, tuple)):
                v = [v]
            if WIRE[t] == 2:
                for x in v:
                    out.append(varint(num << 3 | 2) + scalar(t, x))
            elif v:
                if pec("g-unpacked"):
                    for x in v:
                        out.append(varint(num << 3 | WIRE[t]) + scalar(t, x))
                else:
                    e = b"".join(scalar(t, x) for x in v)
                    out.append(varint(num << 3 | 2) + varint(len(e)) + e)
            continue
        if isinstance(v, (list, tuple)):
            v = v[-1] if v else 0
        if not v and not pec("g-explicit-defaults"):
            continue
        out.append(varint(num << 3 | WIRE[t]) + scalar(t, v))
    if pec("g-unknown-fields") and name.endswith("Response"):
        out.append(varint(900 << 3 | 2) + b"\x05extra")
    return b"".join(out)


def read_varint(b, i):
    r = s = 0
    while True:
        if i >= len(b) or s > 63:
            raise Bad("truncated varint")
        x = b[i]
        i += 1
        r |= (x & 127) << s
        if x < 128:
            return r & (2**64 - 1), i
        s += 7


def signed(n, bits):
    n &= (1 << bits) - 1
    return n - (1 << bits) if n >> (bits - 1) else n


def conv(t, w, v):
    if t == "bool":
        return v != 0
    if t == "int32":
        return signed(v, 32)
    if t == "int64":
        return signed(v, 64)
    if t in ("sint32", "sint64"):
        return (v >> 1) ^ -(v & 1)
    if t == "double":
        return struct.unpack("<d", v)[0]
    if t == "float":
        return struct.unpack("<f", v)[0]
    if t == "fixed32":
        return struct.unpack("<I", v)[0]
    if t == "fixed64":
        return struct.unpack("<Q", v)[0]
    if t == "string":
        try:
            return bytes(v).decode("utf-8")
        except UnicodeDecodeError:
            raise Bad("a string is not UTF-8")
    return bytes(v)


def decode(name, b):
    table = SCHEMA_IN.get(name) or SCHEMA[name]
    fields = {f[0]: f for f in table}
    d = {}
    for num, fname, t, rep in table:
        d[fname] = (
            []
            if rep
            else {}
            if t == "map"
            else None
            if t in SCHEMA
            else ""
            if t == "string"
            else b""
            if t in ("bytes", "textbytes")
            else False
            if t == "bool"
            else 0
        )
    i, n = 0, len(b)
    mv = memoryview(b)
    while i < n:
        key, i = read_varint(b, i)
        num, w = key >> 3, key & 7
        if num == 0:
            raise Bad("field number 0")
        if w == 0:
            v, i = read_varint(b, i)
        elif w == 1:
            v = b[i : i + 8]
            i += 8
        elif w == 5:
            v = b[i : i + 4]
            i += 4
        elif w == 2:
            ln, i = read_varint(b, i)
            if i + ln > n:
                raise Bad("truncated field")
            v = mv[i : i + ln]
            i += ln
        else:
            raise Bad("wire type %d" % w)
        if i > n:
            raise Bad("truncated field")
        f = fields.get(num)
        if not f:
            continue
        _, fname, t, rep = f
        if t == "map":
            if w == 2:
                k, x = "", b""
                j, e = 0, bytes(v)
                while j < len(e):
                    kk, j = read_varint(e, j)
                    ww = kk & 7
                    if ww == 2:
                        ln, j = read_varint(e, j)
                        if j + ln > len(e):
                            raise Bad("truncated map")
                        if kk >> 3 == 1:
                            k = conv("string", 2, e[j : j + ln])
                        elif kk >> 3 == 2:
                            x = e[j : j + ln]
                        j += ln
                    elif ww == 0:
                        _, j = read_varint(e, j)
                    else:
                        j += 8 if ww == 1 else 4
                d[fname][k] = x
            continue
        if t in SCHEMA:
            if w == 2:
                x = decode(t, bytes(v))
                if rep:
                    d[fname].append(x)
                else:
                    d[fname] = x
            continue
        if rep and WIRE[t] != 2 and w == 2:
            e, j = bytes(v), 0
            while j < len(e):
                if WIRE[t] == 0:
                    x, j = read_varint(e, j)
                else:
                    k = 8 if WIRE[t] == 1 else 4
                    x = e[j : j + k]
                    j += k
                d[fname].append(conv(t, w, x))
            continue
        if w != WIRE[t]:
            continue
        x = conv(t, w, v)
        if rep:
            d[fname].append(x)
        else:
            d[fname] = x
    return d
