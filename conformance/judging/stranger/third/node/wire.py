"""Faults on the wire: fields of a message at other numbers, or of other types."""

import struct

import core


def varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value, at


def packed(value):
    out = bytearray()
    value &= 2**64 - 1
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def fields(data):
    at, out = 0, []
    while at < len(data):
        key, at = varint(data, at)
        kind = key & 7
        if kind == 0:
            value, at = varint(data, at)
        elif kind == 1:
            value, at = data[at : at + 8], at + 8
        elif kind == 5:
            value, at = data[at : at + 4], at + 4
        else:
            size, at = varint(data, at)
            value, at = data[at : at + size], at + size
        out.append((key >> 3, kind, value))
    return out


def joined(items):
    out = bytearray()
    for number, kind, value in items:
        out += packed(number << 3 | kind)
        if kind == 0:
            out += packed(value)
        elif kind == 2:
            out += packed(len(value)) + value
        else:
            out += value
    return bytes(out)


def move(numbers):
    return lambda item: (numbers.get(item[0], item[0]), item[1], item[2])


def retype(number, how):
    return lambda item: how(item) if item[0] == number else item


def as_text(item):
    return item[0], 2, str(item[2]).encode()


def as_float(item):
    return item[0], 5, struct.pack("<f", struct.unpack("<d", item[2])[0])


def as_fixed(item):
    return item[0], 1, struct.pack("<q", item[2])


def as_hex(item):
    return item[0], 2, item[2].hex().encode()


def zigzag(item):
    return item[0], 0, item[2] << 1


# id: message, whether it is a request, change of a field; a nested message has a second name
TABLE = {
    "num-forward-is-final-eight": ("PipelineForwardResponse", False, move({7: 8, 8: 7})),
    "num-forward-loss-float": ("PipelineForwardResponse", False, retype(10, as_float)),
    "num-forward-shape-swapped": ("PipelineForwardResponse", False, move({9: 5, 5: 9})),
    "num-forward-request-target-nine": ("PipelineForwardRequest", True, move({9: 10, 10: 9})),
    "num-gossip-round-two": ("GossipGradientResponse", False, move({3: 2, 2: 3})),
    "num-gossip-round-text": ("GossipGradientResponse", False, retype(3, as_text)),
    "num-weights-request-two": ("WeightRequest", True, move({2: 1, 1: 2})),
    "num-checkpoint-data-seven": ("GetCheckpointResponse", False, move({6: 7, 7: 6})),
    "num-checkpoint-size-fixed": ("GetCheckpointResponse", False, retype(7, as_fixed)),
    "num-checkpoint-version-zigzag": ("GetCheckpointResponse", False, retype(3, zigzag)),
    "num-checkpoint-request-swapped": ("GetCheckpointRequest", True, move({1: 2, 2: 1})),
    "num-info-loss-float": ("GetCheckpointInfoResponse", False, retype(5, as_float)),
    "num-info-params-five": ("GetCheckpointInfoResponse", False, move({4: 5, 5: 4})),
    "num-find-nodes-three": ("DHTFindNodeResponse", False, move({2: 3})),
    "num-find-target-three": ("DHTFindNodeRequest", True, move({2: 3, 3: 2})),
    "num-value-found-five": ("DHTFindValueResponse", False, move({4: 5})),
    "num-value-nodes-two": ("DHTFindValueResponse", False, move({2: 3, 3: 2})),
    "num-store-value-four": ("DHTStoreRequest", True, move({3: 4, 4: 3})),
}
INNER = {
    "num-node-info-port-four": move({3: 4}),
    "num-node-info-hex-id": retype(1, as_hex),
}
HOLDERS = {
    "DHTPingResponse": (1,),
    "DHTFindNodeResponse": (1, 2),
    "DHTFindValueResponse": (1, 3),
    "DHTStoreResponse": (1,),
}


def bend(name, data, request):
    """The bytes of a message as this run reads or writes them."""
    import wire_more

    fault = core.FLAGS["fault"]
    for table in (TABLE, wire_more.TABLE):
        if fault in table:
            message, asked, change = table[fault]
            if message == name and asked == request:
                return joined(change(item) for item in fields(data))
    inner = INNER.get(fault) or wire_more.INNER.get(fault)
    if inner and not request and name in HOLDERS:
        return joined(
            (
                (number, kind, joined(inner(part) for part in fields(value)))
                if number in HOLDERS[name] and kind == 2
                else (number, kind, value)
            )
            for number, kind, value in fields(data)
        )
    return data
