import std/[json, strutils, tables, algorithm, base64]
import util, core
type
  Tx* = ref object
    hash*, raw*: string
    dec*, res*: JsonNode
  Block* = ref object
    height*: int
    hash*, prev*: string
    time*: float
    txs*: seq[Tx]
  CAcct* = ref object
    spend*, locked*: int64
    nonce*: int
  IReq* = ref object
    id*, tx*, pub*, provider*, prompt*, state*: string
    maxTok*, expires*, submitted*, done*: int
    response*, refund*: JsonNode
    born*: float
const chainId* = "nimbus-native-1"
const price* = 5000'i64
const fee* = 200'i64
const keyNames = ["alice", "bob", "worker", "silent", "val1", "val2", "val3"]
var privs*, pubs*: Table[string, string]
for n in keyNames:
  privs[n] = sha256("nimbus test key of " & n)
  pubs[n] = hexOf(pubOf(privs[n]))
let dataset* = $(%*{"format": "tokens-v1", "chain": chainId, "sequences": [[3, 14, 7, 9, 1], [5, 2, 11, 8, 0], [6, 6, 12, 4, 15]]})
let adapter* = lz4Frame(ckRaw)
let adapterSha* = sha256h(adapter)
let datasetSha* = sha256h(dataset)
let servingRoot* = sha256h("serving root " & modelHash)
let trainRoots* = block:
  var r: seq[string] = @[sha256h("root 0")]
  for i in 1 .. roundNo: r.add sha256h("root " & $i & modelHash)
  r
let genesis* = $(%*{"chain_id": chainId, "version": "0.4.0", "genesis_time": "2026-01-05T00:00:00Z", "dataset_sha256": datasetSha,
  "model_root": trainRoots[0], "serving_root": servingRoot, "initial_supply_atoms": "9000000000000",
  "validators": [{"public_key": pubs["val1"], "power": "40"}, {"public_key": pubs["val2"], "power": "35"}, {"public_key": pubs["val3"], "power": "25"}]})
let genesisHash* = sha256h(genesis)
var
  blocks*: seq[Block]           # blocks[i].height == i+1
  caccts*: Table[string, CAcct]
  ireqs*: OrderedTable[string, IReq]
  finished*: seq[string]
  txSeen*: Table[string, int]
  beat*: float
  firstReq*: string
proc height*(): int = blocks.len
proc cacct*(pub: string): CAcct =
  if pub notin caccts: caccts[pub] = CAcct(spend: 0, nonce: 0)
  caccts[pub]
for n in ["alice", "bob", "worker"]: caccts[pubs[n]] = CAcct(spend: 2_000_000_000'i64)
proc addFinished(r: IReq) =
  r.done = height()
  finished.add r.id
  let keep = if F"keep-16": 16 elif F"keep-127": 127 elif Q"keep-200": 200 else: 128
  while finished.len > keep:
    ireqs.del finished[0]
    finished.delete 0
proc makeBlock*(txs: seq[Tx], at = 0.0) =
  let b = Block(height: blocks.len + 1, time: (if at > 0: at else: nowF()), txs: txs)
  if blocks.len > 0:
    b.prev = blocks[^1].hash
    if at == 0 and b.time <= blocks[^1].time: b.time = blocks[^1].time + 1e-6
  else: b.prev = repeat('0', 64)
  if F"block-time-back" and b.height mod 3 == 0 and blocks.len > 0: b.time = blocks[^1].time - 9
  if F"block-prev-wrong" and b.height mod 4 == 0 and blocks.len > 2: b.prev = blocks[^2].hash
  var t = ""
  for x in txs: t.add x.hash
  b.hash = sha256h(chainId & $b.height & b.prev & t & $int64(b.time * 1e6))
  blocks.add b
  var ex: seq[IReq]
  for r in ireqs.values:
    let lim = if F"expire-early": r.expires - 3 elif F"expire-late": r.expires + 6 else: r.expires
    if r.state == "pending" and b.height >= lim: ex.add r
  for r in ex:
    if F"never-expires": continue
    r.state = (if F"expired-as-completed": "completed" else: "expired")
    if F"expired-word": r.state = "timeout"
    let a = cacct(r.pub)
    if not F"refund-not-unlocked": a.locked -= price
    if F"refund-none": discard
    elif F"refund-twice": a.spend += 2 * price
    elif F"refund-with-fee": a.spend += price + fee + 50
    elif F"refund-to-provider": cacct(r.provider).spend += price
    else: a.spend += price
    let shown = (if F"refund-record-large": price * 3 elif F"refund-record-zero": 0'i64 else: price)
    r.refund = %*{"amount_atoms": $shown, "height": b.height}
    if F"refund-no-record": r.refund = newJNull()
    addFinished r
  if F"completed-expires":
    for r in ireqs.values:
      if r.state == "completed" and b.height >= r.expires: r.state = "expired"
proc txJson*(t: Tx): JsonNode = t.dec
proc newTx*(raw: string, dec: JsonNode): Tx =
  result = Tx(raw: raw, hash: sha256h(raw), dec: dec)
proc payloadBytes*(p: JsonNode): string = canon(p)
proc requestIdOf*(p: JsonNode, pub: string): string = sha256h("request\0" & pub & "\0" & canon(p))
proc signTx*(name: string, payload: JsonNode, forge: bool): JsonNode =
  var signed = payload.copy
  if forge: signed["prompt"] = %"another prompt"
  %*{"payload": payload, "public_key": pubs[name], "signature": hexOf(ecSign(privs[name], payloadBytes(signed)))}
proc complete*(r: IReq, output: string, tokens: int) =
  if F"complete-two-blocks": makeBlock(@[])
  r.state = "completed"
  r.response = %*{"text": output, "tokens": tokens, "provider": r.provider}
  let a = cacct(r.pub)
  if not F"complete-stays-locked": a.locked -= price
  if F"complete-charged-again": a.spend -= price
  if not F"provider-unpaid": cacct(r.provider).spend += price
  if F"complete-nonce": inc a.nonce
  let dec = %*{"type": "inference_result", "request_id": r.id, "public_key": r.provider, "output": output, "tokens": tokens}
  let t = newTx(canon(dec), dec)
  dec["hash"] = %t.hash
  t.res = %*{"code": 0, "type": "inference_result", "transaction_hash": t.hash, "request_id": r.id}
  makeBlock(@[t])
  addFinished r
proc submit*(raw: string): (int, string, string, string) =
  ## code, log, hash, request id
  let hash = sha256h(raw)
  var j: JsonNode
  try: j = parseStrict(raw)
  except ValueError: return (1, "the transaction is no JSON", hash, "")
  if j.kind != JObject or j{"payload"} == nil or j["payload"].kind != JObject or j{"public_key"} == nil or j["public_key"].kind != JString or
     j{"signature"} == nil or j["signature"].kind != JString: return (1, "the transaction has another form", hash, "")
  let p = j["payload"]
  let pub = j["public_key"].getStr.toLowerAscii
  for (k, t) in [("kind", JString), ("chain_id", JString), ("nonce", JInt), ("provider", JString), ("checkpoint", JString), ("prompt", JString),
      ("max_tokens", JInt), ("price", JInt), ("fee", JInt), ("expires_height", JInt)]:
    if p{k} == nil or p[k].kind != t: return (1, "the member " & k & " is missing or of another type", hash, "")
  if not F"sig-unchecked" and not (F"sig-second-unchecked" and cacct(pub).nonce > 0) and not (F"sig-nonascii-unchecked" and p["prompt"].getStr.len != runeLenOf(p["prompt"].getStr)):
    if not ecVerify(unhex(pub), payloadBytes(p), unhex(j["signature"].getStr)): return (4, "the signature does not belong to the content", hash, "")
  if p["kind"].getStr != "inference_request": return (1, "unknown kind", hash, "")
  if not F"chain-unchecked" and p["chain_id"].getStr != chainId: return (5, "the request is for another chain", hash, "")
  let id = requestIdOf(p, pub)
  let a = cacct(pub)
  let replayed = hash in txSeen
  if F"replay-accepted" and replayed:
    a.spend -= price + fee
    a.locked += price
    return (0, "", hash, id)
  if F"replay-fee" and replayed: a.spend -= fee
  if F"replay-nonce" and replayed: inc a.nonce
  if replayed: return (19, "the transaction is in the chain already", hash, id)
  let n = p["nonce"].getInt
  if n != a.nonce and not F"nonce-unchecked" and not (F"nonce-gap" and n > a.nonce): return (6, "the next nonce is " & $a.nonce, hash, id)
  if p["checkpoint"].getStr != servingRoot and not F"checkpoint-unchecked": return (7, "the checkpoint is not served", hash, id)
  if p["prompt"].getStr.len == 0 or p["prompt"].getStr.len > 8192: return (8, "the prompt is empty or too long", hash, id)
  let mt = p["max_tokens"].getInt
  if mt < 1 or mt > 64: return (8, "max_tokens is out of range", hash, id)
  if p["price"].getBiggestInt != price or p["fee"].getBiggestInt != fee: return (9, "the price is fixed", hash, id)
  if not pubOk(unhex(p["provider"].getStr)): return (10, "the provider is no key", hash, id)
  let ex = p["expires_height"].getInt
  if not F"expiry-unchecked":
    if ex <= height() + 1: return (11, "the request has expired", hash, id)
  if ex > height() + 10000: return (11, "the block of expiry is too far away", hash, id)
  if a.spend < price + fee: return (12, "the balance is too low", hash, id)
  var payer = a
  if F"payer-other": payer = cacct(pubs["worker"])
  if not F"charge-none": payer.spend -= price + fee
  if F"charge-twice": payer.spend -= price + fee
  if F"charge-fee-twice": payer.spend -= fee
  if F"lock-with-fee": a.locked += fee
  if not F"lock-none": payer.locked += price
  if F"nonce-kept": discard
  elif F"nonce-by-two" : a.nonce += 2
  elif F"nonce-third-kept" and a.nonce mod 3 == 2: discard
  else: inc a.nonce
  txSeen[hash] = height() + 1
  var prompt = p["prompt"].getStr
  if F"record-prompt-cut" and prompt.len > 64: prompt = prompt[0 ..< 64]
  let r = IReq(id: id, tx: hash, pub: pub, provider: p["provider"].getStr.toLowerAscii, prompt: prompt, state: "pending", maxTok: mt, expires: ex,
    submitted: height() + 1, response: newJNull(), refund: newJNull(), born: nowF())
  if F"record-expiry-off": r.expires = ex + 1
  ireqs[id] = r
  let dec = %*{"type": "inference_request", "hash": hash, "request_id": id, "public_key": pub, "signature": j["signature"], "chain_id": chainId,
    "nonce": n, "provider": r.provider, "checkpoint": p["checkpoint"], "prompt": p["prompt"], "max_tokens": mt, "price_atoms": $price, "fee_atoms": $fee,
    "expires_height": ex}
  if F"block-prompt-none": dec.delete "prompt"
  if F"block-prompt-ascii" and prompt.len != runeLenOf(prompt): dec["prompt"] = %"?"
  let t = newTx(raw, dec)
  t.res = %*{"code": 0, "type": "inference_request", "transaction_hash": hash, "request_id": id}
  if F"block-result-swapped": t.res = %*{"code": 0, "type": "inference_request", "transaction_hash": id, "request_id": hash}
  makeBlock(@[t])
  (0, "", hash, id)
proc record*(r: IReq): JsonNode =
  result = %*{"request_id": r.id, "transaction_hash": r.tx, "state": r.state, "public_key": r.pub, "provider": r.provider, "prompt": r.prompt,
    "max_tokens": r.maxTok, "price_atoms": $price, "fee_atoms": $fee, "expires_height": r.expires, "submitted_height": r.submitted,
    "response": r.response, "refund": r.refund}
  if Q"record-state-upper-extra": result["state_code"] = %1
  if F"record-hash-is-id": result["transaction_hash"] = %r.id
  if F"record-key-provider": result["public_key"] = %r.provider
  if F"response-null" and r.state == "completed": result["response"] = newJNull()
  if F"response-changes" and r.state == "completed": result["response"]["text"] = %(r.response["text"].getStr & " " & $height())
  if F"response-lost-later" and r.state == "completed" and height() > r.done + 1: result["response"] = newJNull()
  if F"record-state-caps": result["state"] = %r.state.capitalizeAscii
proc workerTick*() =
  beat = nowF()
  if F"worker-dead": return
  var todo: seq[IReq]
  for r in ireqs.values:
    if r.state == "pending" and nowF() - r.born > 0.3 and r.expires > height() + 1:
      if r.provider == pubs["worker"] or F"silent-answered": todo.add r
  for r in todo:
    let g = generate(r.prompt, r.maxTok, 0, 1, 50, @[])
    r.complete(g.text, g.completion)
proc initChain*() =
  for i in 0 .. 11: makeBlock(@[], started - 2.0 * float(14 - i))
  let p = %*{"kind": "inference_request", "chain_id": chainId, "nonce": 0, "provider": pubs["worker"], "checkpoint": servingRoot, "prompt": "What does a node do?",
    "max_tokens": 8, "price": price, "fee": fee, "expires_height": 200}
  let keep = fault
  fault = ""
  let (c, l, h, id) = submit(canon(signTx("bob", p, false)))
  doAssert c == 0, l
  firstReq = id
  let r = ireqs[id]
  let g = generate(r.prompt, r.maxTok, 0, 1, 50, @[])
  blocks[^1].time = started - 3
  r.complete(g.text, g.completion)
  blocks[^1].time = started - 2
  makeBlock(@[], started - 1)
  beat = nowF()
  fault = keep
proc blockJson*(b: Block, whole: bool): JsonNode =
  result = %*{"height": b.height, "hash": b.hash, "previous_hash": b.prev, "time": isoOf(b.time), "transaction_count": b.txs.len}
  var rs = newJArray()
  for t in b.txs: rs.add t.res
  result["results"] = rs
  if whole:
    var ts = newJArray()
    for t in b.txs: ts.add t.dec
    result["transactions"] = ts
  if F"list-results-null" and not whole: result["results"] = newJNull()
  if F"block-count-off" and b.txs.len > 0: result["transaction_count"] = %(b.txs.len + 1)
  if F"block-hash-upper" and whole: result["hash"] = %b.hash.toUpperAscii
  if F"block-single-prev" and whole: result["hash"] = %b.prev
  if F"block-time-now" and whole: result["time"] = %iso()
  if F"results-empty" and whole: result["results"] = newJArray()
