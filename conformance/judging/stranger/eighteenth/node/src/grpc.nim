import std/[json, strutils, tables, math, sets, algorithm, sequtils]
from std/unicode import Rune, runes, runeLen, validateUtf8, toUTF8, `$`
import util, core, h2
type
  GErr* = object of CatchableError
    code*: int
  Known = object
    id, ip: string
    port: int
    seen: int
  Pass = ref object
    sess, rid, sender: string
    shard, source: int
    shape, lshape: seq[int64]
    x: Mat
    used: bool
  Peer* = ref object
    host*: string
    port*: int    # grpc
    dht*: string
    up*: bool
var known: seq[Known]
var store: OrderedTable[string, string]
var passes: seq[Pass]
var peers*: seq[Peer]
var seenGrad: HashSet[string]
var seq0 = 0
var lastOut = ""
var lastLoss = 0.0
var lastSender = ""
var gradRound = roundNo
var gossips = 0
var lastGrad = ""
var busyPass* = 0
var refusedBack = false
var lastRefused = false
proc fail(code: int, m: string) =
  let e = newException(GErr, m)
  e.code = code
  raise e
proc selfInfo(): string =
  result = ""
  let keep = pbMethod
  pbMethod = "self"
  result.wS(1, if F"dht-id-21": dhtId & "\0" elif F"dht-id-hex": hexOf(dhtId) elif F"dht-id-rand": sha1(dhtId & $nowF()) else: dhtId)
  result.wS(2, if F"dht-self-ip-none": "" elif F"dht-self-ip-any": "0.0.0.0" else: "127.0.0.1")
  result.wI(3, if F"dht-self-port-http": port elif F"dht-self-port-0": 0 elif F"dht-self-port-moves": port + 1000 + rpcCalls mod 2 elif Q"dht-http-port": port else: port + 1000)
  pbMethod = keep
proc info(k: Known): string =
  let keep = pbMethod
  pbMethod = "info"
  result.wS(1, k.id)
  result.wS(2, k.ip)
  result.wI(3, k.port)
  pbMethod = keep
proc dist(a, b: string): string =
  for i in 0 ..< 20: result.add chr(ord(a[i]) xor ord(b[i]))
proc learn(p: Pb, ip: string) =
  let id = gS(p, 1)
  if id.len == 0 and p.len == 0: return
  if id.len != 20:
    if F"dht-short-id" and id.len > 0:
      known.add Known(id: (id & repeat('\0', 20))[0 ..< 20], ip: ip, port: 1)
      return
    if id.len > 0: fail(3, "a node ID has 20 bytes")
    return
  let po = gI32(p, 3)
  var host = gStr(p, 2)
  if host.len == 0 and not F"dht-no-address": host = ip
  if F"dht-ip-caller": host = ip
  if (po < 1 or po > 65535) and not F"dht-bad-port": return
  if id == dhtId: return
  inc seq0
  for k in known.mitems:
    if k.id == id:
      if F"dht-address-old": return
      if F"dht-address-twice" and k.port != po: break
      if F"dht-moved-ip-only":
        k.ip = host
        return
      k.ip = host
      k.port = (if F"dht-port-plus": po + 1000 else: po)
      k.seen = seq0
      return
  if F"dht-table-full" and known.len >= 24: return
  if F"dht-bucket-full":
    var n = 0
    for k in known:
      if k.id[0] == id[0]: inc n
    if n >= 4: return
  if F"dht-find-not-learn" and pbMethod != "DHTPing": return
  if known.len >= 4000: known.delete 0
  known.add Known(id: id, ip: host, port: (if F"dht-port-plus": po + 1000 else: po), seen: seq0)
proc closest(t: string, k: int, sender: string): seq[Known] =
  var ks = known
  if F"dht-not-sender": ks = ks.filterIt(it.id != sender)
  if F"dht-recent": ks.sort(proc(a, b: Known): int = cmp(b.seen, a.seen))
  elif F"dht-order-first-byte": ks.sort(proc(a, b: Known): int = cmp(ord(a.id[0]) xor ord(t[0]), ord(b.id[0]) xor ord(t[0])))
  elif F"dht-distance-minus": ks.sort(proc(a, b: Known): int =
    let x = abs(ord(a.id[0]) - ord(t[0]))
    let y = abs(ord(b.id[0]) - ord(t[0]))
    if x != y: cmp(x, y) else: cmp(dist(a.id, t), dist(b.id, t)))
  elif F"dht-farthest": ks.sort(proc(a, b: Known): int = cmp(dist(b.id, t), dist(a.id, t)))
  elif F"dht-value-unsorted" and pbMethod == "DHTFindValue": discard
  elif F"dht-prefix-64": ks.sort(proc(a, b: Known): int = cmp(dist(a.id, t)[0 ..< 8], dist(b.id, t)[0 ..< 8]))
  else: ks.sort(proc(a, b: Known): int = cmp(dist(a.id, t), dist(b.id, t)))
  if F"dht-no-sender-empty" and sender.len == 0: return @[]
  if F"dht-exact-missing": ks = ks.filterIt(it.id != t)
  if ks.len > k: ks.setLen k
  if F"dht-dup" and ks.len > 2: ks[1] = ks[0]
  if F"dht-self-farther" and ks.len == k: ks[^1] = known[0]
  ks
proc K(): int = (if Q"k-20": 20 elif Q"k-4": 4 elif F"dht-k-more" and pbMethod == "DHTFindValue": 12 else: 8)

# ---------- gradients back ----------
proc target(url: string): (string, int) =
  var u = url
  var add = 0
  if u.startsWith("http://"): (u = u[7 .. ^1]; add = 1000)
  elif u.startsWith("https://"): (u = u[8 .. ^1]; add = 1000)
  elif u.startsWith("grpc://"): u = u[7 .. ^1]
  if F"back-http-port": add = 0
  if F"back-plus-always": add = 1000
  u = u.split('/')[0]
  let i = u.rfind(':')
  if i <= 0: return ("", 0)
  try: (u[0 ..< i], parseInt(u[i+1 .. ^1]) + add)
  except ValueError: ("", 0)
proc sendBack(p: Pass, g: Mat) {.async.} =
  var s = p.sender
  if F"back-last-sender": s = lastSender
  let (h, po) = target(s)
  if h.len == 0 or po > 65535: return
  var o = ""
  let keep = pbMethod
  pbMethod = "back"
  o.wS(1, p.sess)
  o.wS(2, if F"back-request-lower": p.rid.toLowerAscii else: p.rid)
  var gg = g
  if F"back-same": gg = toF(ofF(g))
  if F"back-last" and lastGrad.len == g.len * 4: gg = toF(lastGrad)
  lastGrad = ofF(g)
  if F"back-halved": gg.setLen(gg.len div 2)
  o.wS(3, ofF(gg))
  if F"back-flat-shape": o.wInts(4, [int64(g.len)])
  else: o.wInts(4, p.shape)
  o.wI(5, p.source)
  pbMethod = keep
  discard await grpcCall(h, po, "PipelineBackward", o)
  if F"back-twice": discard await grpcCall(h, po, "PipelineBackward", o)

proc forward(p: Pb): string =
  let sess = gStr(p, 1)
  let rid = gStr(p, 2)
  var raw = gS(p, 3)
  var shape = gInts(p, 4)
  let past = gRep(p, 7)
  let cache = gI(p, 8) != 0
  let source = gI32(p, 9)
  let shard = gI32(p, 10)
  let labels = gS(p, 11)
  let sender = gStr(p, 12)
  proc soft(m: string): string =
    result.wS(1, rid)
    result.wI(2, 0)
    result.wS(3, m)
  if F"fwd-packed-only":
    for f in p:
      if f.num == 4 and f.wt == 0: fail(3, "hidden_shape")
  if F"fwd-order":
    var last = 0
    for f in p:
      if f.num < last: fail(3, "fields out of order")
      last = f.num
  if F"fwd-unknown-fields":
    for f in p:
      if f.num > 12: fail(3, "unknown field")
  if raw.len > 0 and F"fwd-max-1m" and raw.len > 1024 * 1024: fail(8, "the tensor is too large")
  if F"fwd-id-40" and rid.len > 40: fail(3, "the request_id is too long")
  if F"fwd-id-ascii" and rid.anyIt(it > '~'): fail(3, "the request_id is not ASCII")
  if F"fwd-id-slash" and (sess.contains('/') or sess.contains(' ')): fail(3, "the session_id has wrong characters")
  var l = shard
  if F"fwd-negative-last" and l < 0: l = layerCount + l
  if F"fwd-modulo" and l >= layerCount: l = l mod layerCount
  if F"fwd-absent-nearest" and l in [3, 4]: l = 2
  if F"fwd-shard-offset" and l == 2: fail(5, "layer 2 is not here")
  if l < 0 or l >= layerCount:
    if F"fwd-beyond-unavailable": fail(14, "no peer for this layer")
    if F"fwd-negative-internal" and l < 0: fail(13, "index out of bounds")
    fail(if l < 0: 3 else: 5, "there is no such layer")
  if l notin mine:
    if F"fwd-absent-soft": return soft("the layer is not here")
    if F"fwd-absent-unavailable": fail(14, "the layer is not here")
    if F"fwd-absent-internal": fail(13, "the layer is not here")
    if F"fwd-absent-training" and labels.len > 0: l = 5
    elif F"fwd-absent-exhausted": fail(8, "the layer is not here")
    else: fail(5, "the layer is not here")
  if F"fwd-fail-no-message" and (shape.len != 3): return soft("")
  if shape.len != 3:
    if F"fwd-flat" and shape.len == 2: shape = @[1'i64] & shape
    elif F"fwd-bad-internal": fail(13, "shape mismatch")
    else: fail(3, "hidden_shape has three dimensions")
  if shape[2] != hid: 
    if F"fwd-width-any" and shape[2] > 0: 
      raw = raw & repeat('\0', int(shape[0] * shape[1]) * hid * 4)
      raw.setLen(int(shape[0] * shape[1]) * hid * 4)
      shape[2] = hid
    else: fail(if F"fwd-bad-internal": 13 else: 3, "the hidden size is 8")
  if shape[0] < 1 or shape[1] < 1 or shape[0] > 100000 or shape[1] > 10_000_000 or shape[0] * shape[1] > 30_000_000: fail(3, "hidden_shape is out of range")
  let b = int(shape[0])
  let s = int(shape[1])
  if F"fwd-one-sequence" and b > 1: fail(3, "the batch is 1")
  if F"fwd-seq-64" and s > 64: fail(3, "the sequence is too long")
  if F"fwd-seq-1" and s == 1: fail(3, "the sequence is too short")
  let want = b * s * hid * 4
  if raw.len != want and raw.len > 7 and raw.startsWith("\x04\x22\x4d\x18"):
    try: raw = lz4Unframe(raw)
    except ValueError: fail(3, "hidden_states is a broken frame")
  if raw.len != want:
    if F"fwd-pad" and raw.len < want and raw.len > 0: raw.add repeat('\0', want - raw.len)
    elif F"fwd-excess" and raw.len > want: raw.setLen want
    else: fail(if F"fwd-bad-internal": 13 else: 3, "hidden_states does not fill hidden_shape")
  let x = toF(raw)
  if not F"fwd-nan-ok":
    for v in x:
      if v != v or v > 3e38 or v < -3e38: fail(3, "hidden_states has values that are not finite")
  var pl = 0
  var pv: Mat
  if past.len > 0 and not F"past-ignored":
    if past.len != 2:
      if F"past-count-internal": fail(13, "index error")
      fail(3, "past_key_values has two entries")
    if past[0].len != past[1].len or past[0].len mod (b * hid * 4) != 0: fail(3, "past_key_values does not fit the pass")
    pl = past[0].len div (b * hid * 4)
    if F"past-half" and pl > 1: pl = pl div 2
    pv = toF(past[1])
  var (y, v) = layerFwd(l, x, b, s, pv, pl)
  if F"fwd-sender-scale" and sender.len > 0: (for e in y.mitems: e *= 1.1)
  if F"fwd-cache-scale" and cache: (for e in y.mitems: e = e * 0.9'f32)
  if F"fwd-source-dep" and source != 0: (for e in y.mitems: e += 0.05'f32 * float32(source))
  if F"fwd-id-dep" and rid.len > 20: (for e in y.mitems: e += 0.1)
  if F"fwd-batch-mix" and b > 1:
    for i in 0 ..< s * hid: y[i] = (y[i] + y[s * hid + i]) / 2
  if F"fwd-identity" and l == 1: y = x
  if F"fwd-bigendian":
    for e in y.mitems:
      var u = cast[uint32](e)
      u = (u shr 24) or ((u shr 8) and 0xff00'u32) or ((u shl 8) and 0xff0000'u32) or (u shl 24)
      e = cast[float32](u)
  if F"fwd-drift": (for e in y.mitems: e += 0.01'f32 * float32(passes.len mod 7))
  if F"fwd-noise": (for e in y.mitems: e *= 1.0'f32 + 0.05'f32 * float32(rpcCalls mod 3))
  # graph
  if not F"back-graph-none":
    if x.len < 2_000_000:
      var old = passes.filterIt(it.sess == sess and it.rid == rid and it.shard == l)
      if F"back-by-request": passes = passes.filterIt(it.rid != rid)
      elif F"back-one-per-session": passes = passes.filterIt(it.sess != sess)
      elif F"back-only-last": passes = @[]
      elif old.len > 0: passes = passes.filterIt(not (it.sess == sess and it.rid == rid and it.shard == l))
      passes.add Pass(sess: sess, rid: rid, sender: sender, shard: l, source: source, shape: shape, lshape: @[shape[0], shape[1], int64(vocab)], x: x)
      if passes.len > 512: passes.delete 0
  lastSender = if sender.len > 0: sender else: lastSender
  let final = l == layerCount - 1 and not (F"fwd-final-batch" and b > 1) and not F"fwd-final-never"
  var o = ""
  o.wS(1, if F"fwd-rid-session": sess else: rid)
  o.wI(2, 1)
  if F"fwd-ok-message": o.wS(3, "ok")
  if not final:
    var d = ofF(y)
    if F"fwd-stale" and lastOut.len == d.len: (let t = lastOut; lastOut = d; d = t)
    elif F"fwd-conc-stale" and busyPass > 1 and lastOut.len == d.len: (let t = lastOut; lastOut = d; d = t)
    else: lastOut = d
    var sh = shape
    if F"fwd-first-sequence" and b > 1: (d.setLen(d.len div b); sh[0] = 1)
    if F"fwd-last-position" and s > 1: (d = d[d.len - hid * 4 .. ^1]; sh = @[1'i64, 1, hid])
    if F"fwd-shape-mismatch": sh[1] += 1
    o.wS(4, d)
    o.wInts(5, sh)
  if cache and not F"cache-none":
    var ck: Mat
    var cv: Mat
    for bi in 0 ..< b:
      if pl > 0 and not F"cache-old-lost":
        let full = past[0].len div (b * hid * 4)
        let pk = toF(past[0])
        for i in 0 ..< pl * hid:
          ck.add pk[bi * full * hid + i]
          cv.add pv[bi * full * hid + i]
      if not (F"cache-echo" and pl > 0):
        for i in 0 ..< s * hid:
          ck.add x[bi * s * hid + i]
          cv.add v[bi * s * hid + i]
    o.wM(6, ofF(ck))
    if not F"cache-one": o.wM(6, ofF(cv))
  if final or F"logits-always":
    o.wI(7, if final: 1 else: 0)
    var lg: Mat
    for t in 0 ..< b * s:
      for w in 0 ..< vocab:
        var a = 0'f32
        for k in 0 ..< hid: a += y[t * hid + k] * head[k * vocab + w]
        lg.add a
    var ld = ofF(lg)
    if F"logits-last" and s > 1: ld = ld[ld.len - vocab * 4 .. ^1]
    o.wS(8, ld)
    o.wInts(9, [int64(b), int64(s), int64(vocab)])
    if labels.len > 0 and final:
      if labels.len != b * s * 8: fail(3, "training_labels does not fit the pass")
      var loss = 0.0
      var n = 0
      for t in 0 ..< b * s:
        let lab = cast[int64](uint64(le32(labels, t * 8)) or (uint64(le32(labels, t * 8 + 4)) shl 32))
        if lab == -100: continue
        if lab < 0 or lab >= vocab: fail(3, "a label is out of range")
        var mx = -1e30
        for w in 0 ..< vocab: mx = max(mx, float(lg[t * vocab + w]))
        var z = 0.0
        for w in 0 ..< vocab: z += exp(float(lg[t * vocab + w]) - mx)
        loss += mx + ln(z) - float(lg[t * vocab + int(lab)])
        inc n
      loss = loss / float(max(1, n))
      if F"loss-constant": loss = 2.5
      if F"loss-neg": loss = -loss
      if F"loss-nan-batch" and b > 1: loss = NaN
      if F"loss-previous": (let t = lastLoss; lastLoss = loss; loss = (if t > 0: t else: loss))
      if F"loss-none": loss = 0
      if F"loss-none-batch" and b > 1: loss = 0
      o.wD(10, loss)
  o

proc backward(p: Pb): string =
  let sess = gStr(p, 1)
  let rid = gStr(p, 2)
  let raw = gS(p, 3)
  let shape = gInts(p, 4)
  let shard = gI32(p, 5)
  proc soft(m: string): string =
    result.wI(1, 0)
    result.wS(2, if F"back-no-reason": "" else: m)
    lastRefused = true
  if shard < 0: fail(3, "there is no such layer")
  if shard notin mine:
    if F"back-absent-ok":
      result.wI(1, 1)
      return
    if F"back-absent-unavailable": fail(14, "the layer is not here")
    fail(5, "the layer is not here")
  var ps: Pass
  for x in passes:
    if x.shard == shard and x.rid == rid and x.sess == sess: ps = x
    if F"back-sess-ascii" and ps != nil and rid.anyIt(it > '~'): ps = nil
  if F"back-unknown-ok" and ps == nil:
    result.wI(1, 1)
    return
  if F"back-last-shard" and shard == 5: return soft("the last layer takes no gradients")
  if ps == nil: return soft("there is no such pass")
  if F"back-after-refusal" and lastRefused:
    lastRefused = false
    return soft("the session was aborted")
  if ps.used: return soft("the gradients of this pass have come already")
  var n = 4'i64
  for d in shape: n *= max(0'i64, min(d, 100_000_000))
  if shape.len != 3 or (shape != ps.shape and not (shard == layerCount - 1 and shape == ps.lshape)) or n != raw.len:
    if F"back-wrong-drops": passes = passes.filterIt(it != ps)
    if F"back-any-shape": discard
    elif F"back-wrong-internal": fail(13, "the sizes of tensors do not match")
    else: fail(3, "the gradient does not fit the pass")
  if raw.len mod 4 != 0: fail(3, "grad_output has no whole values")
  var g = toF(raw)
  for v in g:
    if v != v or abs(v) > 3e38: fail(3, "grad_output has values that are not finite")
  if shape.len == 3 and shape == ps.lshape and shape[2] == vocab:
    var gg: Mat
    for t in 0 ..< int(shape[0] * shape[1]):
      for k in 0 ..< hid:
        var a = 0'f32
        for w in 0 ..< vocab: a += g[t * vocab + w] * head[k * vocab + w]
        gg.add a
    g = gg
  ps.used = true
  if F"back-busy" and busyPass > 1: fail(8, "busy")
  if F"back-reusable": ps.used = false
  if ps.sender.len > 0 and not F"back-not-sent":
    var gi = newSeq[float32](ps.x.len)
    let l = ps.shard
    let m = min(g.len, ps.x.len) div hid
    for t in 0 ..< m:
      var d: array[hid, float32]
      for k in 0 ..< hid:
        var a = B[l][k]
        for q in 0 ..< hid: a += W[l][k * hid + q] * ps.x[t * hid + q]
        let th = tanh(a)
        d[k] = g[t * hid + k] * (1 - th * th) * 0.5'f32
      for q in 0 ..< hid:
        var a = g[t * hid + q]
        for k in 0 ..< hid: a += W[l][k * hid + q] * d[k]
        gi[t * hid + q] = a
    if F"back-unchanged": gi = g
    if F"back-constant": (for e in gi.mitems: e = 0.5)
    if not (F"back-second-not-sent" and refusedBack):
      asyncCheck sendBack(ps, gi)
    refusedBack = true
  result.wI(1, 1)

proc spread(body: string, p: Pb, nodeIdTxt: string, ttl: int) {.async.} =
  var o = ""
  for f in p:
    if f.num == 9: continue
    if F"gossip-loss-lost" and f.num == 6: continue
    if F"gossip-signature-lost" and f.num == 8: continue
    if F"gossip-node-own" and f.num == 1:
      o.wVar(10)
      o.wVar(uint64(nodeId.len))
      o.add nodeId
      continue
    o.wVar(uint64(f.num shl 3 or f.wt))
    case f.wt
    of 0: o.wVar f.v
    of 1:
      o.addLe32 uint32(f.v and 0xffffffff'u64)
      o.addLe32 uint32(f.v shr 32)
    of 5: o.addLe32 uint32(f.v)
    else:
      o.wVar uint64(f.s.len)
      o.add f.s
  var t = ttl - 1
  if F"gossip-ttl-same": t = ttl
  if F"gossip-ttl-neg": t = -1
  if F"gossip-ttl-two": t = max(0, ttl - 2)
  if F"gossip-ttl-zero": t = 0
  if t != 0:
    o.wVar(72)
    o.wVar(cast[uint64](int64(t)))
  for pe in peers:
    if not F"gossip-to-sender":
      if nodeIdTxt == hexOf(pe.dht) and pe.dht.len > 0: continue
      if nodeIdTxt == pe.host & ":" & $pe.port or nodeIdTxt == pe.host & ":" & $(pe.port - 1000): continue
    discard await grpcCall(pe.host, pe.port, "GossipGradient", o)
    if F"gossip-each-twice": discard await grpcCall(pe.host, pe.port, "GossipGradient", o)

proc canonGrad(p: Pb): string =
  for f in p:
    if f.num != 9: result.add $f.num & "/" & $f.v & "/" & f.s & ";"
proc gossip(body: string, p: Pb): string =
  let node = gStr(p, 1)
  let round = gI32(p, 2)
  let mh = gStr(p, 3)
  discard gD(p, 4)
  let loss = gD(p, 6)
  discard gStr(p, 8)
  let ttl = gI32(p, 9)
  inc gossips
  var why = ""
  if node.len == 0: why = "the node_id is missing"
  elif mh != modelHash and not F"gossip-any-model" and not (F"gossip-prefix-model" and mh.len >= 8 and modelHash.startsWith(mh)): why = "the model_hash is that of another model"
  elif round != roundNo and not F"gossip-any-round": why = "the round is " & $roundNo
  elif loss != loss or loss < 0 or loss > 1e30: why = "the loss is not finite"
  elif gI32(p, 5) < 0: why = "the batch_size is below 0"
  elif F"gossip-batch-8" and gI32(p, 5) != 8: why = "the batch_size is not 8"
  elif F"gossip-once-per-node" and node in seenGrad: why = "this node has sent its gradient"
  elif F"gossip-loss-high" and loss > lossNow: why = "the loss is too high"
  elif F"gossip-refuses-after" and lastRefused: why = "wait"
  elif F"gossip-timestamp" and abs(gD(p, 4) - nowF()) > 5: why = "the time is too far away"
  if why.len == 0:
    for e in gRep(p, 7):
      let m = parsePb(e)
      let nm = gStr(m, 1)
      let d = gS(m, 2)
      if F"gossip-text-gradients" and validateUtf8(d) >= 0: fail(3, "a gradient is no text")
      if F"gossip-stored-only" and d.len > 15 and (ord(d[4]) and 8) != 0: fail(3, "the frame has a content size")
      var x = ""
      try: x = lz4Unframe(d)
      except ValueError:
        if F"gossip-broken-ok": continue
        if F"gossip-broken-internal": fail(13, "LZ4F_decompress failed")
        fail(3, "the gradient of " & nm & " is no LZ4 frame")
      if x.len mod 4 != 0: fail(3, "the gradient of " & nm & " has no whole values")
      for v in toF(x):
        if v != v or abs(v) > 3e38: fail(3, "the gradient of " & nm & " is not finite")
  let okk = why.len == 0
  var cur = roundNo
  if F"gossip-round-theirs": cur = round
  if F"gossip-round-0-accepted" and okk: cur = 0
  if F"gossip-round-refusal-last" and not okk: cur = roundNo - 1
  if F"gossip-round-counts" and okk: (inc gradRound; cur = gradRound)
  if F"gossip-round-refusals" and not okk: cur = roundNo + gossips
  result.wI(1, if okk: 1 else: 0)
  if okk and Q"gossip-reason-ok": result.wS(2, "thanks")
  if not okk: result.wS(2, if F"gossip-no-reason": "" else: why)
  if F"gossip-reason-always" and okk: result.wS(2, "ok")
  result.wI(3, cur)
  lastRefused = not okk
  let dg = sha256(canonGrad(p))
  let fresh = dg notin seenGrad
  seenGrad.incl dg
  if F"gossip-once-per-node": seenGrad.incl node
  if seenGrad.len > 20000: seenGrad.clear()
  if (okk or F"gossip-refused-on") and (fresh or F"gossip-again") and (ttl > 0 or F"gossip-ttl-neg") and not F"gossip-not-on" and not (F"gossip-ttl-1-kept" and ttl == 1):
    asyncCheck spread(body, p, node, ttl)

proc rangeOf(s0: string): seq[int] =
  let s = s0.replace(" ", "")
  if s.len == 0: fail(3, "shard_range is empty")
  for part in s.split(','):
    let ab = part.split('-')
    if ab.len notin 1 .. 2: fail(3, "shard_range has another form")
    for x in ab:
      if x.len notin 1 .. 6 or not x.allCharsInSet(Digits): fail(3, "shard_range has another form")
    let a = parseInt(ab[0])
    let b = parseInt(ab[^1])
    if b < a or b - a > 1000: fail(3, "shard_range has another form")
    for l in a .. b: result.add l
var lastW = ""
proc weights(p: Pb): string =
  let sr = gStr(p, 1)
  if F"weights-empty-all" and sr.len == 0:
    result.wS(1, $stateOf(0))
    return
  if F"weights-bad-first":
    try: discard rangeOf(sr)
    except GErr:
      result.wS(1, $stateOf(0))
      return
  var ls = rangeOf(sr)
  for l in ls:
    if l notin mine:
      if F"weights-absent-any" and l < layerCount: continue
      if F"weights-absent-invalid": fail(3, "the layer is not here")
      if F"weights-absent-empty": return ""
      if F"weights-absent-internal": fail(13, "the layer is not here")
      if F"weights-partial" and ls.len > 1: continue
      fail(5, "layer " & $l & " is not here")
  if F"weights-first": ls.setLen 1
  let o = newJObject()
  for l in ls:
    for k, v in stateOf(if l < layerCount: l else: 0): o[k] = v
  if F"weights-layer-0" and ls.len == 1 and ls[0] == 2:
    let q = newJObject()
    for k, v in stateOf(0): q[k] = v
    result.wS(1, $q)
    return
  if F"weights-noise": o["step"] = %rpcCalls
  var d = $o
  if F"weights-stale" and lastW.len > 0: (let t = lastW; lastW = d; d = t)
  else: lastW = d
  result.wS(1, d)
proc checkpoint(p: Pb): string =
  let mh = gStr(p, 1)
  let mv = gI32(p, 2)
  var why = ""
  if mh.len > 0 and mh != modelHash and not F"ckpt-any-hash" and not (F"ckpt-hash-and-version" and mv > 0): why = "there is no checkpoint of this model"
  if mv > roundNo and not F"ckpt-any-version" and not (F"ckpt-version-and-hash" and mh.len > 0): why = "the checkpoint is older"
  if F"ckpt-exact" and mv == roundNo: why = "the checkpoint is older"
  if F"ckpt-own-hash" and mh == modelHash: why = "there is no checkpoint of this model"
  if why.len > 0:
    if F"ckpt-not-internal": fail(13, why)
    result.wI(1, 0)
    result.wS(2, if F"ckpt-no-reason": "" else: why)
    if F"ckpt-fail-data": result.wS(6, lz4Frame(ckRaw))
    return
  result.wI(1, 1)
  if F"ckpt-ok-message": result.wS(2, "success")
  result.wI(3, if F"ckpt-version-asked" and mv > 0: mv else: roundNo)
  result.wS(4, if F"ckpt-hash-other": sha256h(modelHash) else: modelHash)
  result.wS(5, if F"ckpt-phase-hash" and mh.len > 0: "bootstrap" elif Q"phase-other": "steady" else: "early")
  if not F"ckpt-no-data":
    var d = lz4Frame(ckRaw)
    if F"ckpt-raw": d = ckRaw
    if F"ckpt-broken": d = d[0 ..< d.len - 20]
    if F"ckpt-minimum-other" and mv > 0: d = lz4Frame(ckRaw & " ")
    result.wS(6, d)
  result.wI(7, if F"ckpt-size-0": 0 elif F"ckpt-size-asked" and mv > 0: ckRaw.len + 7 else: ckRaw.len)

const ops = ["StreamInference", "UnaryInference", "GetWeights", "GossipGradient", "GetCheckpoint", "GetCheckpointInfo", "GossipProof", "GossipTransaction",
  "GossipStake", "RequestProofValidation", "GossipValidationVote", "PipelineForward", "PipelineBackward", "GetShardInfo", "DHTPing", "DHTStore", "DHTFindNode",
  "DHTFindValue", "SwarmForward", "GetSwarmStatus", "UpdatePeerCapacity"]
proc unary(op, body, ip: string): string =
  let p = parsePb(body)
  pbMethod = op
  if gen.len >= 3 and gen[0] == "O" and gen[1] == op:
    if gen.len == 3 or (gen[3] == "late" and rpcCalls > 25) or (gen[3] == "second" and rpcCalls mod 2 == 0) or (gen[3] == "empty" and body.len == 0) or
       (gen[3] == "big" and body.len > 100_000) or (gen[3] == "busy" and busyPass > 1): fail(parseInt(gen[2]), "not now")
  case op
  of "PipelineForward": forward(p)
  of "PipelineBackward": backward(p)
  of "GetWeights": weights(p)
  of "GossipGradient": gossip(body, p)
  of "GetCheckpoint": checkpoint(p)
  of "GetCheckpointInfo":
    var o = ""
    o.wI(1, if F"info-version-next": roundNo + 1 else: roundNo)
    o.wS(2, if F"info-hash-upper": modelHash.toUpperAscii else: modelHash)
    o.wS(3, if Q"phase-other": "steady" else: "early")
    o.wI(4, if F"info-params-vary": params + rpcCalls mod 3 else: params)
    o.wD(5, lossNow)
    if F"info-data": o.wS(6, lz4Frame(ckRaw))
    o
  of "DHTPing", "DHTFindNode", "DHTFindValue", "DHTStore":
    let s = gMsg(p, 1)
    let sid = gS(s, 1)
    var o = ""
    let key = gS(p, 2)
    if op != "DHTPing" and key.len != 20 and not (F"dht-key-any" and op == "DHTStore"):
      fail(if F"dht-length-unknown": 2 else: 3, "an ID or a key has 20 bytes")
    if not F"dht-ping-not-learn": learn(s, ip)
    o.wM(1, selfInfo())
    case op
    of "DHTFindNode":
      for k in closest(key, K(), sid): o.wM(2, info(k))
    of "DHTFindValue":
      var kk = key
      if F"dht-key-cut": kk = key[0 ..< 16]
      if F"dht-key-zero" and '\0' in kk: kk = kk[0 ..< kk.find('\0')]
      if F"dht-forget-searched" and kk in store and rpcCalls mod 3 == 0: store.del kk
      if kk in store:
        let v = store[kk]
        o.wS(2, v)
        if F"dht-found-nodes":
          for k in closest(key, K(), sid): o.wM(3, info(k))
        if not F"dht-found-missing": o.wI(4, 1)
        if F"dht-once": store.del kk
      else:
        if F"dht-empty-value": o.wS(2, "none")
        if not F"dht-no-nodes":
          for k in closest(key, K(), sid): o.wM(3, info(k))
    of "DHTStore":
      let v = gStr(p, 3)
      var ok = v.len <= 65536
      if F"dht-value-256" and v.len > 256: ok = false
      if F"dht-value-address" and ':' notin v: ok = false
      if F"dht-refused-stored" and v.len > 65536: store[key] = v
      var kk = key
      if F"dht-key-cut": kk = key[0 ..< 16]
      if F"dht-key-zero" and '\0' in kk: kk = kk[0 ..< kk.find('\0')]
      var vv = v
      if F"dht-value-trim": vv = v.strip
      if F"dht-value-ascii": vv = v.mapIt(if it > '~': '?' else: it).join
      if F"dht-value-cut" and vv.len > 512: vv = vv[0 ..< 512]
      if F"dht-value-lower": vv = vv.toLowerAscii
      if ok and not F"dht-store-lost":
        if F"dht-store-8" and store.len >= 8:
          var first = ""
          for q in store.keys: (first = q; break)
          store.del first
        if F"dht-conc-lost" and busyPass > 1: discard
        else: store[kk] = vv
        if store.len > 20000:
          var first = ""
          for q in store.keys: (first = q; break)
          store.del first
      o.wI(2, if ok: 1 else: 0)
    else: discard
    o
  of "UnaryInference", "StreamInference":
    let pr = gStr(p, 1)
    var o = ""
    if pr.len > 0:
      let g = generate(pr, clamp(gI32(p, 2), 1, 256), 0, 1, 50, @[])
      o.wS(1, g.text)
      o.wI(2, g.completion)
    o
  of "GetShardInfo":
    var o = ""
    o.wInts(1, mine.mapIt(int64(it)))
    o.wI(2, layerCount)
    o
  else: ""

proc pctMsg(s: string): string =
  for c in s:
    if c >= ' ' and c <= '~' and c != '%': result.add c
    else: result.add "%" & toHex(ord(c), 2)
proc be(n: int): string =
  for k in [24, 16, 8, 0]: result.add chr((n shr k) and 255)
proc onStream*(c: Conn, s: Stream): Future[void] {.async.} =
  if s.headers.len == 0: return
  let path = hget(s.headers, ":path")
  let isStream = path == "/node.NodeService/StreamInference"
  if s.started and not isStream: return
  if not s.ended and not isStream: return
  let first = not s.started
  s.started = true
  proc finish(code: int, m: string, headersSent: bool) {.async.} =
    var hs: seq[(string, string)]
    if not headersSent: hs = @[(":status", "200"), ("content-type", "application/grpc")]
    hs.add ("grpc-status", $code)
    if m.len > 0: hs.add ("grpc-message", pctMsg(m))
    await c.sendHeaders(s, hs, true)
    if s.ended: c.streams.del s.id
  try:
    if first:
      inc rpcCalls
      if hget(s.headers, ":method") != "POST" or not hget(s.headers, "content-type").startsWith("application/grpc"):
        await c.sendHeaders(s, @[(":status", "415")], true)
        return
    if F"conn-bad-closes" and lastRefused and path.endsWith("/DHTPing"):
      discard
    if not path.startsWith("/node.NodeService/") or path[18 .. ^1] notin ops:
      if F"unknown-op-ok":
        await c.sendHeaders(s, @[(":status", "200"), ("content-type", "application/grpc")], false)
        await c.sendData(s, "\0\0\0\0\0")
        await finish(0, "", true)
      else: await finish(12, "the operation is not known", false)
      return
    let op = path[18 .. ^1]
    if F"op-missing-swarm" and op == "GetSwarmStatus": (await finish(12, "not implemented", false); return)
    if F"op-missing-vote" and op == "GossipValidationVote": (await finish(12, "not implemented", false); return)
    if F"op-missing-capacity" and op == "UpdatePeerCapacity": (await finish(12, "not implemented", false); return)
    if F"op-missing-shard" and op == "GetShardInfo": (await finish(12, "not implemented", false); return)
    if isStream:
      if F"op-missing-stream": (await finish(12, "not implemented", false); return)
      if first: await c.sendHeaders(s, @[(":status", "200"), ("content-type", "application/grpc")], false)
      var n = 0
      while s.body.len >= 5:
        let len = (ord(s.body[1]) shl 24) or (ord(s.body[2]) shl 16) or (ord(s.body[3]) shl 8) or ord(s.body[4])
        if s.body.len < 5 + len: break
        let m = s.body[5 ..< 5 + len]
        s.body = s.body[5 + len .. ^1]
        if F"stream-second-fails" and s.lastMsg > 0: (await finish(13, "one message only", true); s.reset = true; return)
        s.lastMsg = 1
        let o = unary(op, m, c.peerIp)
        await c.sendData(s, "\0" & be(o.len) & o)
        inc n
      if s.ended: await finish(0, "", true)
      return
    if s.body.len < 5:
      await finish(3, "the message is missing", false)
      return
    if s.body[0] != '\0':
      await finish(12, "compression is not supported", false)
      return
    let len = (ord(s.body[1]) shl 24) or (ord(s.body[2]) shl 16) or (ord(s.body[3]) shl 8) or ord(s.body[4])
    let lim = if F"grpc-4m": 4 * 1024 * 1024 elif F"grpc-64m": 64 * 1024 * 1024 else: 100 * 1024 * 1024
    if len > lim:
      await finish(8, "the message is too large", false)
      return
    if len + 5 != s.body.len:
      await finish(3, "the message is broken", false)
      return
    inc busyPass
    var o = ""
    var code = 0
    var msg = ""
    if op in ["PipelineForward", "PipelineBackward", "GetWeights", "DHTStore", "GossipGradient"]: await sleepAsync(2)
    try: o = unary(op, s.body[5 .. ^1], c.peerIp)
    except GErr as e:
      code = e.code
      msg = e.msg
    except PbErr as e:
      code = (if F"broken-internal": 13 elif F"broken-unknown": 2 else: 3)
      msg = "the message is broken: " & e.msg
    except CatchableError as e:
      code = 13
      msg = e.msg
    except Defect as e:
      code = 13
      msg = "defect"
      stderr.writeLine "grpc defect: " & e.msg & "\n" & e.getStackTrace
    dec busyPass
    s.body = ""
    if F"code-5-as-3" and code == 5: code = 3
    if F"code-3-as-2" and code == 3: code = 2
    if F"code-3-as-9" and code == 3: code = 9
    if F"code-3-as-13-weights" and code == 3 and op == "GetWeights": code = 13
    if F"code-ok-bad" and code == 3: code = 0
    if code != 0:
      await finish(code, msg, false)
      if F"bad-closes" and code == 3:
        await sleepAsync(5)
        c.closeConn()
      return
    await c.sendHeaders(s, @[(":status", "200"), ("content-type", "application/grpc")], false)
    await c.sendData(s, "\0" & be(o.len) & o)
    if F"unary-two": await c.sendData(s, "\0" & be(o.len) & o)
    await finish(0, "", true)
  except CatchableError:
    try: await finish(13, "the node has failed", false) except CatchableError: discard

# ---------- the node as a client ----------
proc senderMsg(): string =
  let keep = pbMethod
  pbMethod = "client"
  result.wS(1, if F"cl-id-19": dhtId[0 ..< 19] elif F"cl-id-moves": sha1(dhtId & $seq0) else: dhtId)
  result.wS(2, "127.0.0.1")
  result.wI(3, if F"cl-port-0": 0 elif F"cl-port-big": 70000 elif F"cl-port-other": port + 2000 else: port + 1000)
  pbMethod = keep
proc watch*(pe: Peer) {.async.} =
  var n = 0
  while true:
    inc seq0
    var o = ""
    pbMethod = "client"
    o.wM(if F"cl-ping-field": 2 else: 1, senderMsg())
    let gp = if F"cl-http-port": pe.port - 1000 elif F"cl-port-plus-1": pe.port - 999 else: pe.port
    let t = mono()
    let r = await grpcCall(pe.host, gp, "DHTPing", o)
    pe.up = r.code == 0
    if r.code == 0:
      try:
        let i = gMsg(parsePb(r.body), 1)
        if gS(i, 1).len == 20: pe.dht = gS(i, 1)
        learn(i, pe.host)
      except CatchableError: discard
      let addr0 = pe.host & ":" & $(pe.port - 1000)
      if not peerList.anyIt(it["address"].getStr == addr0):
        peerList.add %*{"id": "node-" & hexOf(pe.dht & addr0)[0 ..< 16], "address": addr0, "role": "worker", "layers": newJArray(), "latency_ms": round((mono() - t) * 1000, 3), "connected_since": iso()}
      if n mod 3 == 0:
        var q = ""
        pbMethod = "client"
        q.wM(1, senderMsg())
        q.wS(2, if F"cl-target-short": dhtId[0 ..< 8] elif F"cl-target-hex": hexOf(dhtId) else: dhtId)
        let fr = await grpcCall(pe.host, gp, "DHTFindNode", q)
        if F"cl-names-called" and fr.code == 0:
          try:
            for nd in gRep(parsePb(fr.body), 2):
              let i = parsePb(nd)
              discard await grpcCall(gStr(i, 2), gI32(i, 3), "GetCheckpointInfo", "")
          except CatchableError: discard
        var st = ""
        pbMethod = "client"
        st.wM(1, senderMsg())
        st.wS(2, if F"cl-store-key": hexOf(sha1(nodeId)) else: sha1(nodeId))
        st.wS(if F"cl-store-field": 4 else: 3, "127.0.0.1:" & $(port + 1000))
        discard await grpcCall(pe.host, gp, "DHTStore", st)
      if n mod 3 == 1:
        var q = ""
        pbMethod = "client"
        q.wM(1, senderMsg())
        q.wS(if F"cl-value-field": 3 else: 2, sha1(nodeId))
        discard await grpcCall(pe.host, gp, "DHTFindValue", q)
      if n mod 3 == 2:
        # the checkpoint of a peer is only looked at
        var q = ""
        pbMethod = "client"
        if F"cl-ckpt-field":
          q.wS(3, modelHash)
        else: q.wS(1, modelHash)
        discard await grpcCall(pe.host, gp, "GetCheckpoint", q)
    inc n
    await sleepAsync(if pe.up: 4000 else: 6000)
