import std/[json, strutils, tables, math, sets, algorithm, sequtils, uri]
from std/unicode import Rune, runes, runeLen, validateUtf8, toUTF8, `$`
import util, h2

type
  Req* = ref object
    meth*, target*, path*, rawPath*, qs*, body*, ip*: string
    query*: seq[(string, string)]
    headers*: seq[(string, string)]
    nth*: int            # the number of the request on its connection
    start*: float
    acct*: string
    prevTok*: string     # token seen before on this connection
    prevBad*: bool
    conc*: int
  Res* = ref object
    status*: int
    headers*: seq[(string, string)]
    body*, ct*: string
    j*: JsonNode
    pieces*: seq[string]
    stream*: bool
  Stake* = object
    amount*: int64
    days*: int
    start*: float
  Unst* = object
    amount*: int64
    at*: float
  Acct* = ref object
    name*, address*: string
    available*, feeSum*: int64
    stakes*: seq[Stake]
    pend*: seq[Unst]
    hist*: seq[JsonNode]     # newest first
    proofs*: seq[JsonNode]
    limits*: int
    idem*: Table[string, int]

const U* = 1_000_000'i64
proc h*(r: Req, n: string): string =
  for (a, b) in r.headers:
    if cmpIgnoreCase(a, n) == 0: return b
proc hAll*(r: Req, n: string): seq[string] =
  for (a, b) in r.headers:
    if cmpIgnoreCase(a, n) == 0: result.add b
proc q*(r: Req, n: string): string =
  for (a, b) in r.query:
    if a == n: return b
proc hasQ*(r: Req, n: string): bool =
  for (a, b) in r.query:
    if a == n: return true
proc J*(j: JsonNode, status = 200): Res =
  Res(status: status, j: j, ct: "application/json")
proc err*(status: int, code, msg: string, details: JsonNode = nil): Res =
  let e = %*{"code": code, "message": msg}
  if details != nil: e["details"] = details
  J(%*{"error": e}, status)
proc bad*(msg: string): Res = err(400, "INVALID_REQUEST", msg)
proc amt*(v: int64): JsonNode =
  if Q"int-amounts" and v mod U == 0: newJInt(v div U) else: newJFloat(float(v) / 1e6)

var
  port*: int
  started* = nowF()
  startedM* = mono()
  nodeKey*: string
  nodeId*: string
  dhtId*: string
  accts*: OrderedTable[string, Acct]
  tokens*: Table[string, string]
  cfg*: JsonNode
  reqTotal*, tokTotal*, rpcCalls*, idSeq*: int
  lat*: seq[float]
  recent*: seq[float]
  inflight* = 0
  moneyInflight* = 0
  refusals* = 0
  served*: CountTable[string]
  peerList*: seq[JsonNode]
  lastAcct* = ""
  lastText* = ""
  oaGen* = false
const tokMain* = "tok_main_5e1b7c90aa42"
const tokSecond* = "tok_second_c03d1f6e8b77"
const tokSmall* = "tok_small_91ab44d0e2f5"
const tokOld* = "tok_expired_70f3b6a1c9d8"
const layerCount* = 6
const mine* = [0, 1, 2, 5]
const hid* = 8
const vocab* = 16
const currency* = "NIMB"
const epochNo* = 3
const roundNo* = 12
const stepNo* = 1240
const lossNow* = 2.3518273645546875

proc newId*(p: string): string =
  inc idSeq
  p & "_" & sha256h(nodeKey & $idSeq & $started)[0 ..< 20]

proc setup*(p: int) =
  port = p
  nodeKey = sha256("node key " & $p)
  let pub = pubOf(nodeKey)
  dhtId = sha1(pub)
  nodeId = "node-" & hexOf(dhtId)[0 ..< 16]
  cfg = %*{"node_id": nodeId, "port": p, "grpc_port": p + 1000, "tracker_url": "http://127.0.0.1:7000",
    "training": {"enabled": true, "batch_size": 8, "learning_rate": 0.0003, "diloco_steps": 500},
    "resources": {"max_memory_gb": 8.0, "cpu_threads": 4}}
  tokens = {tokMain: "main", tokSecond: "second", tokSmall: "small"}.toTable
  for (n, a, b) in [("main", "nimb1q7main4f0c2d91ab", 1_000_000), ("second", "nimb1q7second83be10c7", 500_000), ("small", "nimb1q7small5d42a96f", 5)]:
    let ac = Acct(name: n, address: a, available: int64(b) * U)
    let np = (case n
      of "main": 24
      of "second": 7
      else: 0)
    for i in 0 ..< np:
      let t = started - 3600.0 * float(i + 1) - 0.25
      let pid = "proof_" & sha256h(n & $i)[0 ..< 12]
      let ver = i mod 5 != 3
      let rw = 0.25 + float(i mod 3) * 0.125
      ac.proofs.add %*{"id": pid, "type": "forward", "layer": mine[i mod 4], "timestamp": isoOf(t), "verified": ver, "reward": rw}
      if ver:
        ac.hist.add %*{"id": "tx_" & sha256h("reward" & n & $i)[0 ..< 16], "type": "reward", "amount": rw,
          "timestamp": isoOf(t + 1), "details": {"proof_id": pid, "role": "driver"}}
    accts[n] = ac
  if not Q"no-peers":
    for (i, r, ls, l) in [(1, "worker", @[3, 4], 12.5), (2, "validator", @[4, 5], 31.25)]:
      peerList.add %*{"id": "node-" & sha256h("peer" & $i)[0 ..< 16], "address": "10.77.0." & $i & ":8000", "role": r,
        "layers": ls, "latency_ms": l, "connected_since": isoOf(started)}

proc staked*(a: Acct): int64 =
  for s in a.stakes: result += s.amount
proc pending*(a: Acct): int64 =
  for s in a.pend: result += s.amount
proc mult*(days: int): float = 1.0 + min(float(days), 730.0) / 365.0
proc settle*(a: Acct) =
  var keep: seq[Unst]
  for u in a.pend:
    if nowF() >= u.at: a.available += u.amount
    else: keep.add u
  a.pend = keep
proc history*(a: Acct, typ: string, amount: int64, extra: JsonNode, id = ""): JsonNode =
  result = %*{"id": (if id.len > 0: id else: newId("tx")), "type": typ, "amount": amt(amount), "timestamp": iso()}
  for k, v in extra: result[k] = v
  a.hist.insert(result, 0)

# ---------- text model ----------
const words* = ["the", " node", " layer", " river", " stone", " light", " and", " of", " a", " small", " wave", ",", " grew", " slowly", " under", " green",
  " sky", " while", " two", " birds", " sang", ".", " Then", " it", " was", " quiet", " again", " until", " morning", "\n", " caf\xC3\xA9", " \xE6\x97\xA5\xE6\x9C\xAC",
  " over", " old", " bridge", " lamp", " glass", " door", " cold", " salt", " paper", " bell", " field", " moss", " rope", " tin", " owl", " fern",
  " iron", " cloud", " brook", " plum", " ash", " clay", " wind", " reed", " dune", " pine", " fox", " hill", " mist", " snow", " song", " star"]
type Gen* = object
  text*: string
  toks*: seq[string]      # pieces of the text
  completion*, prompt*: int
  finish*: string
proc promptTokens*(p: string): int = runeLen(p)
proc generate*(prompt: string, maxTok: int, temp, topP: float, topK: int, stops: seq[string], salt = ""): Gen =
  result.prompt = promptTokens(prompt)
  var pr = prompt
  if F"text-prefix-only": pr = prompt[0 ..< min(prompt.len, 24)]
  if F"text-ends-only" and prompt.len > 40: pr = prompt[0 ..< 16] & prompt[^16 .. ^1]
  let seed = sha256(pr & "\0" & (if temp == 0: "greedy" else: $temp & "/" & $topP & "/" & $topK) & salt)
  var txt = ""
  var toks: seq[string]
  result.finish = "length"
  var lim = maxTok
  if F"max-less-prompt": lim = max(1, maxTok - result.prompt div 4)
  if F"max-plus-one" and maxTok > 60: lim = maxTok + 1
  if F"temp0-suffix" and temp == 0: lim = maxTok
  var n = 0
  while n < lim:
    let hsh = sha256(seed & $(if F"temp0-suffix": n * 31 + maxTok else: n))
    var w = words[ord(hsh[0]) mod 64]
    if n == 0: w = w.strip
    if w.len == 0: w = "the"
    txt.add w
    toks.add w
    inc n
    # the earliest stop sequence that is complete now
    var at = -1
    var atLen = 0
    for k, s in stops:
      if F"stop-first-only" and k > 0: break
      if F"stop-last-only" and k < stops.len - 1: continue
      if F"stop-three" and k > 2: break
      var p = -1
      if F"stop-token-only":
        if w.strip == s.strip: p = txt.len - w.len
      elif F"stop-ignore-case": p = txt.toLowerAscii.find(s.toLowerAscii)
      elif F"stop-ascii-only" and s.anyIt(it > '~'): p = -1
      elif F"stop-trimmed": p = txt.find(s.strip)
      elif F"stop-not-last" and n == lim: p = -1
      elif F"stop-first-word" and n < 3: p = -1
      else: p = txt.find(s)
      if p >= 0 and (at < 0 or p < at):
        at = p
        atLen = s.len
    if at >= 0:
      if F"stop-continues": discard
      else:
        result.finish = (if F"stop-finish-length": "length" else: "stop")
        if not F"stop-included" and not (F"stop-included-stream" and salt == "s"): txt.setLen(if Q"stop-kept" and not oaGen: at + atLen else: at)
        break
  if Q"finish-word" and not oaGen and result.finish == "length": result.finish = "max_tokens"
  result.completion = n
  if F"tokens-asked" and result.finish == "stop": result.completion = maxTok
  if F"text-trim" : txt = txt.strip(leading = true) & " "
  if F"text-nonascii-q": txt = txt.replace("\xC3\xA9", "?")
  if F"text-newline-lost": txt = txt.replace("\n", " ")
  # pieces
  var left = txt
  for t in toks:
    if left.len == 0: break
    let m = min(t.len, left.len)
    result.toks.add left[0 ..< m]
    left = left[m .. ^1]
  if left.len > 0: result.toks.add left
  result.text = txt

# ---------- tensor model ----------
type Mat* = seq[float32]
var W*: array[layerCount, Mat]
var B*: array[layerCount, Mat]
var head*: Mat
proc rnd(s: string): float32 =
  let x = sha256(s)
  float32(int(le32(x, 0) and 0xffff) - 32768) / 65536'f32
for l in 0 ..< layerCount:
  for i in 0 ..< hid * hid: W[l].add rnd("w" & $l & "." & $i)
  for i in 0 ..< hid: B[l].add rnd("b" & $l & "." & $i)
for i in 0 ..< hid * vocab: head.add rnd("h" & $i) * 2
proc toF*(s: string): Mat =
  result = newSeq[float32](s.len div 4)
  if result.len > 0: copyMem(addr result[0], unsafeAddr s[0], result.len * 4)
proc ofF*(m: Mat): string =
  result = newString(m.len * 4)
  if m.len > 0: copyMem(addr result[0], unsafeAddr m[0], m.len * 4)
proc layerFwd*(l: int, x: Mat, b, s: int, pastV: Mat, pl: int): (Mat, Mat) =
  ## y and the values of the cache
  var y = newSeq[float32](x.len)
  var v = newSeq[float32](x.len)
  var pre: array[hid, float32]
  for bi in 0 ..< b:
    var sum: array[hid, float32]
    for t in 0 ..< pl:
      for k in 0 ..< hid: sum[k] += pastV[(bi * pl + t) * hid + k]
    for t in 0 ..< s:
      let o = (bi * s + t) * hid
      for k in 0 ..< hid:
        var a = B[l][k]
        for m in 0 ..< hid: a += W[l][k * hid + m] * x[o + m]
        pre[k] = a
        v[o + k] = 0.5'f32 * a
        sum[k] += v[o + k]
      for k in 0 ..< hid:
        y[o + k] = x[o + k] + 0.5'f32 * tanh(pre[k] + sum[k] / float32(pl + t + 1))
  (y, v)
proc stateOf*(l: int): JsonNode =
  result = newJObject()
  result["layers." & $l & ".weight"] = %(W[l].mapIt(float(it)))
  result["layers." & $l & ".bias"] = %(B[l].mapIt(float(it)))
let ckRaw* = block:
  let o = newJObject()
  for l in 0 ..< layerCount:
    for k, v in stateOf(l): o[k] = v
  o["head"] = %(head.mapIt(float(it)))
  $o
let modelHash* = sha256h(ckRaw)
let params* = layerCount * (hid * hid + hid) + hid * vocab
