"""Protobuf's wire form, as far as the faults of field numbers need it."""
import struct


def varint(data, at):
    shift = value = 0
    while True:
        b = data[at]
        at += 1
        value |= (b & 127) << shift
        if b < 128:
            return value, at
        shift += 7


def put_varint(value):
    out = bytearray()
    value &= (1 << 64) - 1
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def parse(data):
    out, at = [], 0
    while at < len(data):
        tag, at = varint(data, at)
        kind = tag & 7
        if kind == 0:
            v, at = varint(data, at)
        elif kind == 1:
            v, at = data[at:at + 8], at + 8
        elif kind == 5:
            v, at = data[at:at + 4], at + 4
        elif kind == 2:
            n, at = varint(data, at)
            v, at = data[at:at + n], at + n
        else:
            raise ValueError(kind)
        out.append((tag >> 3, kind, v))
    return out


def build(fields):
    out = []
    for number, kind, v in fields:
        out.append(put_varint(number << 3 | kind))
        if kind == 0:
            out.append(put_varint(v))
        elif kind == 2:
            out += [put_varint(len(v)), v]
        else:
            out.append(v)
    return b"".join(out)


def renumber(data, table):
    """Fields under other numbers; None drops a field."""
    return build([(table.get(n, n), k, v) for n, k, v in parse(data) if table.get(n, n) is not None])


def inner(data, number, fn):
    return build([(n, k, fn(v) if n == number and k == 2 else v) for n, k, v in parse(data)])


def retype(data, number, fn):
    """fn(kind, value) -> (kind, value) of the field with this number."""
    return build([(n,) + tuple(fn(k, v)) if n == number else (n, k, v) for n, k, v in parse(data)])


def to_text(kind, v):
    return 2, str(v).encode()


def to_float(kind, v):
    return 5, struct.pack("<f", struct.unpack("<d", v)[0])


def double_to_int(kind, v):
    return 0, int(struct.unpack("<d", v)[0])


def zigzag(kind, v):
    return 0, v << 1
