"""Writes faults.tsv and peculiarities.tsv from the comments beside the switches and from the tables of switches."""

import collections, glob, re

src = {p: open(p).read() for p in sorted(glob.glob("src/*.erl"))}
text = "\n".join(src.values())
used_f = (
    set(re.findall(r"\?F\((\w+)\)", text))
    | set(re.findall(r"on\((\w+)\)", text))
    | set(re.findall(r"=:= (u_nonce_any)", text))
)
used_f |= set(re.findall(r"(rt_rpc_no_\w+)\|", text))
used_p = set(re.findall(r"\?P\((\w+)\)", text))
rows, pecs, drop = {}, {}, []
for m in re.finditer(r"%! (\w+)\|(\w+)\|([^|\n]+)\|([^|\n]+)\|([^\n]+)", text):
    i = m.group(1)
    if i not in used_f:
        drop.append(i)
        continue
    assert i not in rows, i
    rows[i] = m.groups()
for m in re.finditer(
    r'\{(f_\w+), \w+, \[[^\]]*\], .*?, "([^"]*)", "([^"]*)"\}', src["src/nd_fields.erl"]
):
    rows[m.group(1)] = (m.group(1), "fields", "2.1", m.group(2), m.group(3))
for m in re.finditer(
    r'\{(p_num_\w+|p_rd_\w+), \'\w+\', (\w+), (\d+), "([^"]*)"\}', src["src/nd_pb.erl"]
):
    what = "is written at number " if m.group(1).startswith("p_num") else "is read from number "
    rows[m.group(1)] = (
        m.group(1),
        "grpc",
        "2.3",
        "GR-NUM-001: " + m.group(4),
        m.group(2) + " " + what + m.group(3),
    )
for l in open("src/tables.txt"):
    r = l.rstrip("\n").split("|")
    assert len(r) == 5, r
    rows[r[0]] = tuple(r)
for m in re.finditer(r"%\? (\w+)\|([^\n]+)", text):
    if m.group(1) in used_p:
        pecs[m.group(1)] = m.group(2)
    else:
        drop.append(m.group(1))
assert not set(rows) & set(pecs), set(rows) & set(pecs)
open("faults.tsv", "w").write("".join("\t".join(r) + "\n" for r in rows.values()))
open("peculiarities.tsv", "w").write("".join(f"{i}\t{d}\n" for i, d in pecs.items()))
print(len(rows), dict(collections.Counter(r[1] for r in rows.values())), "peculiarities", len(pecs))
if drop:
    print("without a switch, left out:", drop)
miss = used_f - set(rows) - {"X"}
if miss:
    print("switches without a row:", sorted(miss))
