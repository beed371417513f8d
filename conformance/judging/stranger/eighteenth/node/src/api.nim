import std/[json, strutils, tables, math, sets, algorithm, sequtils, base64]
from std/unicode import Rune, runes, runeLen, validateUtf8, toUTF8, `$`
import util, core, chain, h2

proc condOk*(r: Req, key: string, c: string): bool =
  case c
  of "": true
  of "2nd": served.getOrDefault(key) mod 2 == 0
  of "3rd": served.getOrDefault(key) mod 3 == 0
  of "late": served.getOrDefault(key) > 6
  of "first": served.getOrDefault(key) == 1
  of "acct2": r.acct == "second"
  of "q": r.qs.len > 0
  of "conc": r.conc > 1
  of "aftererr": refusals > 0
  of "conn2": r.nth > 1
  of "nonascii": r.body.anyIt(it > '~') or r.target.contains("%")
  of "big": r.body.len > 1500
  of "chunked": r.h("Transfer-Encoding").len > 0
  of "stream": r.body.contains("\"stream\"")
  of "escaped": r.body.contains("\\u")
  of "charset": r.h("Content-Type").contains("charset")
  of "gzip": r.h("Accept-Encoding").contains("gzip")
  else: false

proc mutate(n: JsonNode, path: seq[string], op: string) =
  if n == nil: return
  var k = path[0]
  if k.endsWith("[]"):
    let a = n{k[0 .. ^3]}
    if a == nil or a.kind != JArray: return
    if path.len == 1: return
    var i = 0
    for x in a:
      mutate(x, path[1 .. ^1], (if op.startsWith("last:"): (if i == a.len - 1: op[5 .. ^1] else: "-") else: op))
      inc i
    return
  if n.kind != JObject or not n.hasKey(k): return
  if path.len > 1:
    mutate(n[k], path[1 .. ^1], op)
    return
  let v = n[k]
  if op.startsWith("last:"):
    discard
  case op
  of "-": discard
  of "drop": n.delete k
  of "null": n[k] = newJNull()
  of "str": n[k] = %(if v.kind == JString: v.getStr else: $v)
  of "num": n[k] = (try: newJFloat(parseFloat(v.getStr)) except ValueError: newJInt(1))
  of "int": n[k] = newJInt(int64(v.getFloat))
  of "float": n[k] = newJFloat(v.getFloat + 0.5)
  of "neg": n[k] = (if v.kind == JInt: newJInt(-v.getBiggestInt - 1) else: newJFloat(-v.getFloat - 0.5))
  of "sign": n[k] = (if v.kind == JInt: newJInt(-v.getBiggestInt) else: newJFloat(-v.getFloat))
  of "inc": n[k] = (if v.kind == JInt: newJInt(v.getBiggestInt + 1) else: newJFloat(v.getFloat + 1))
  of "dec": n[k] = (if v.kind == JInt: newJInt(v.getBiggestInt - 1) else: newJFloat(v.getFloat - 1))
  of "half": n[k] = (if v.kind == JInt: newJInt(v.getBiggestInt div 2) else: newJFloat(v.getFloat / 2))
  of "double": n[k] = (if v.kind == JInt: newJInt(v.getBiggestInt * 2) else: newJFloat(v.getFloat * 2))
  of "milli": n[k] = newJFloat(v.getFloat / 1000)
  of "kilo": n[k] = (if v.kind == JInt: newJInt(v.getBiggestInt * 1000) else: newJFloat(v.getFloat * 1000))
  of "micro": n[k] = newJInt(int64(v.getFloat * 1e6))
  of "zero": n[k] = newJInt(0)
  of "empty": n[k] = (if v.kind == JArray: newJArray() elif v.kind == JObject: newJObject() else: newJString(""))
  of "upper": n[k] = %v.getStr.toUpperAscii
  of "cap": n[k] = %v.getStr.capitalizeAscii
  of "arr": n[k] = %[v]
  of "obj": n[k] = %*{"value": v}
  of "not": n[k] = newJBool(not v.getBool)
  of "yes": n[k] = newJString(if v.getBool: "true" else: "false")
  of "bit": n[k] = newJInt(if v.getBool: 1 else: 0)
  of "epoch": n[k] = newJInt(int64(nowF()))
  of "space": n[k] = %v.getStr.replace("T", " ")
  of "nozone": n[k] = %v.getStr.replace("Z", "")
  of "local": n[k] = %isoOf(nowF() + 7200)
  of "date": n[k] = %v.getStr[0 ..< min(10, v.getStr.len)]
  of "dmy": n[k] = (let p = v.getStr.split('-'); if p.len == 3: %(p[2] & "." & p[1] & "." & p[0]) else: v)
  of "dtime": n[k] = %(v.getStr & "T00:00:00Z")
  of "nextday": n[k] = %dateOf(nowF() + 86400 * 400)
  of "now": n[k] = %iso()
  of "old": n[k] = %isoOf(nowF() - 86400)
  of "future": n[k] = %isoOf(nowF() + 86400)
  of "rand": n[k] = %("x" & sha256h($nowF())[0 ..< 10])
  of "const": n[k] = %"tx_0000000000000000"
  of "swap01": (if v.kind == JArray and v.len > 1: n[k] = %(toSeq(v.items).reversed))
  of "dup": (if v.kind == JArray and v.len > 0: v.add v[0].copy)
  of "short": (if v.kind == JArray and v.len > 0: v.elems.setLen(v.len - 1))
  of "cut": n[k] = %v.getStr[0 ..< max(1, v.getStr.len div 2)]
  of "rename": (n.delete k; n[k & "_"] = v)
  of "camel": (n.delete k; n["x" & k.capitalizeAscii] = v)
  of "ascii": n[k] = %v.getStr.mapIt(if it > '~': '?' else: it).join
  of "hex": n[k] = (try: %("0x" & toHex(v.getBiggestInt)) except: v)
  of "zeros": n[k] = %("00" & (if v.kind == JString: v.getStr else: $v))
  of "up": n[k] = newJInt(int64(nowF()))
  of "other": n[k] = %"nimb1q7other00000000"
  else: discard

proc routeKey*(r: Req): string =
  result = r.meth & " " & r.path
  for p in ["/api/block/", "/artifacts/sha256/", "/v1/models/"]:
    if r.path.startsWith(p): return r.meth & " " & p
  if r.path.startsWith("/reference/v03/api/"): return r.meth & " /reference/v03/api/"

# ---------- authentication ----------
proc authed(r: Req): Res =
  ## nil when the request has a valid token; sets r.acct
  let hs = r.hAll("Authorization")
  proc no(m: string): Res =
    result = err(401, "UNAUTHORIZED", m)
    if F"401-details": result.j["error"]["details"] = %*{"token": "unknown"}
    if F"401-code-lower": result.j["error"]["code"] = %"unauthorized"
    if F"401-code-forbidden": result.j["error"]["code"] = %"FORBIDDEN"
    result.headers.add ("WWW-Authenticate", "Bearer")
  var tok = ""
  var scheme = ""
  if hs.len == 1:
    let p = hs[0].strip.split(' ', 1)
    scheme = p[0]
    if p.len == 2: tok = p[1].strip
  if gen.len >= 3 and gen[0] == "A":
    let rk = routeKey(r)
    let here = gen[1] == "*" or gen[1] == rk or (gen[1] == "write" and r.meth in ["POST", "PATCH"]) or (gen[1] == "wallet" and r.path.contains("/wallet/"))
    if here:
      var okf = false
      case gen[2]
      of "notoken": okf = hs.len == 0
      of "anytoken": okf = tok.len > 0
      of "expired": okf = tok == tokOld
      of "prefix": okf = tok.len >= 12 and tokMain.startsWith(tok) or (tok.startsWith(tokMain))
      of "longer": okf = tok.startsWith(tokMain)
      of "case": okf = tok.len > 0 and tok.toLowerAscii == tokMain
      of "query": okf = r.q("token") in tokens or r.q("access_token") in tokens
      of "cookie": okf = r.h("Cookie").contains(tokMain)
      of "xheader": okf = r.h("X-Api-Key") in tokens or r.h("X-Access-Token") in tokens or r.h("X-Auth-Token") in tokens
      of "basic": okf = tok in tokens
      of "bare": okf = hs.len == 1 and hs[0].strip in tokens
      of "conn": okf = r.prevTok.len > 0 and hs.len == 0
      of "connbad": okf = r.prevTok.len > 0 and tok notin tokens
      of "empty": okf = hs.len == 1 and tok.len == 0
      of "head": okf = r.meth == "HEAD" or r.h("X-Head").len > 0
      of "null": okf = tok in ["null", "undefined", "None"]
      of "body": okf = r.body.contains(tokMain)
      of "encoded": okf = r.rawPath.contains('%') and hs.len == 0
      of "busy": okf = inflight > 1
      of "loopback": okf = r.h("X-Forwarded-For").len > 0
      of "big": okf = hs.len == 0 and r.body.len > 4096
      of "badjson": okf = tok notin tokens and r.body.len > 0 and (try: (discard parseStrict(r.body); false) except ValueError: true)
      of "withq": okf = tok notin tokens and r.qs.len > 0
      of "refused2": okf = tok in tokens and false
      of "twoheaders": okf = hs.len > 1
      else: discard
      if okf:
        r.acct = (if tok in tokens: tokens[tok] elif lastAcct.len > 0 and gen[2] == "busy": lastAcct else: "main")
        return nil
  if F"valid-refused-after-bad" and r.prevBad: return no("the token is unknown")
  if F"valid-refused-conn" and r.nth > 3 and r.nth mod 4 == 0: return no("the token is unknown")
  if F"auth-flaky" and served.getOrDefault(routeKey(r)) mod 9 == 0 : return no("the token is unknown")
  if F"second-refused-patch" and tok == tokSecond and r.meth == "PATCH": return err(403, "FORBIDDEN", "this account may not change the configuration")
  if F"second-forbidden" and tok == tokSecond and r.path.endsWith("/wallet/stake"): return err(403, "FORBIDDEN", "this account may not stake")
  if F"auth-bearer-cap" and scheme != "Bearer": return no("a bearer token is needed")
  if F"auth-header-case":
    for (a, b) in r.headers:
      if a.toLowerAscii == "authorization" and a != "Authorization": return no("the header is missing")
  if hs.len == 0: return no("the Authorization header is missing")
  if hs.len > 1: return no("there are several Authorization headers")
  if scheme.toLowerAscii != "bearer" or tok notin tokens:
    if F"auth-crash-form" and scheme.toLowerAscii != "bearer": return err(500, "INTERNAL", "index out of range")
    if F"auth-nonascii-crash" and tok.anyIt(it > '~'): return err(500, "INTERNAL", "the header cannot be decoded")
    return no(if tok == tokOld: "the token has expired" else: "the token is unknown")
  r.acct = tokens[tok]
  if F"conn-account" and r.prevTok.len > 0 and r.prevTok in tokens: r.acct = tokens[r.prevTok]
  if F"account-cached" and lastAcct.len > 0 and r.path.endsWith("/balance") and r.conc > 1: r.acct = lastAcct
  if F"account-last" and r.path.endsWith("/transactions") and lastAcct.len > 0 and served.getOrDefault(routeKey(r)) mod 3 == 0: r.acct = lastAcct
  if F"account-from-query" and r.q("account") in accts: r.acct = r.q("account")
  if F"account-from-query":
    for n, a in accts:
      if r.q("address") == a.address: r.acct = n
  if F"account-from-body" and r.body.contains("\"from\""):
    for n, a in accts:
      if r.body.contains(a.address) and r.body.contains("\"from\"") and n != r.acct and (try: parseStrict(r.body){"from"}.getStr == a.address except ValueError: false): r.acct = n
  if F"second-proofs-main" and r.path.endsWith("/proofs"): r.acct = "main"
  if F"second-balance-address" and r.path.endsWith("/balance") and r.acct == "second": r.acct = "main"
  lastAcct = r.acct
  nil

# ---------- node API ----------
type Bad = object of ValueError
proc no(m: string) = raise newException(Bad, m)
proc bodyObj(r: Req): JsonNode =
  try: result = parseStrict(r.body)
  except ValueError: no("the body is no JSON")
  if result.kind != JObject: no("the body is no object")
  if F"escapes-unread" and r.body.contains("\\u"): no("the body is no JSON")
  if F"charset-refused" and r.h("Content-Type").contains("charset"): no("the media type is not application/json")
  if F"ct-case-refused" and r.h("Content-Type").len > 0 and r.h("Content-Type") != r.h("Content-Type").toLowerAscii: no("the media type is not application/json")
  if F"whitespace-refused" and r.body.len > 16000: no("the body is too long")
  if F"chunked-refused" and r.h("Transfer-Encoding").len > 0: no("the body is missing")
proc amountOf(j: JsonNode, k: string): (int64, float) =
  ## micro units; -1 with the float if it is too large for an account
  var v = j{k}
  if v == nil: no(k & " is missing")
  if F"amount-string" and v.kind == JString:
    try: v = newJFloat(parseFloat(v.getStr))
    except ValueError: no(k & " is no number")
  if F"amount-array" and v.kind == JArray and v.len == 1: v = v[0]
  if F"amount-bool" and v.kind == JBool: v = newJInt(1)
  if F"amount-null-zero" and v.kind == JNull: v = newJInt(1)
  if not v.isNum:
    if F"amount-type-500": raise newException(IOError, "unexpected type")
    no(k & " is no number")
  if F"amount-int-only" and v.kind == JFloat and v.getFloat != floor(v.getFloat): no(k & " is no whole number")
  if F"amount-point-refused" and v.kind == JFloat and v.getFloat == floor(v.getFloat): no(k & " is no integer")
  let f = v.getFloat
  if f.classify in {fcNan, fcInf, fcNegInf}:
    if F"huge-500": raise newException(IOError, "overflow")
    no(k & " is out of range")
  if f <= 0 and not (F"negative-amount" and f < 0) and not (F"zero-ok" and f == 0): no(k & " must be above 0")
  if f > 9e11:
    if F"huge-wraps": return (1'i64, f)
    if F"huge-500": raise newException(IOError, "overflow")
    return (-1'i64, f)
  let m = int64(round(f * 1e6))
  if m == 0 and f > 0: no(k & " has more than six decimals")
  if abs(float(m) - f * 1e6) > 1e-3: no(k & " has more than six decimals")
  if F"amount-floor": return (m div U * U + (if m < U: m else: 0), f)
  (m, f)
proc tooLow(a: Acct, required: float, avail: int64): Res =
  result = err((if F"402-as-400": 400 else: 402), "INSUFFICIENT_BALANCE", "the balance is too low", %*{"required": required, "available": float(avail) / 1e6})
  if F"402-no-details": result.j["error"].delete "details"
  if F"402-available-total": result.j["error"]["details"]["available"] = %(float(avail + a.staked + a.pending) / 1e6)
  if F"402-required-diff": result.j["error"]["details"]["required"] = %(required - float(avail) / 1e6)
  if F"402-required-string": result.j["error"]["details"]["required"] = %($required)
  if F"402-swapped": result.j["error"]["details"] = %*{"required": float(avail) / 1e6, "available": required}
  if F"402-code": result.j["error"]["code"] = %"PAYMENT_REQUIRED"
  if F"402-atoms": result.j["error"]["details"] = %*{"required": required * 1e6, "available": float(avail)}
  if F"402-takes": a.available = max(0, avail - 10_000)
const sendFee* = 10_000'i64

proc send(r: Req): Res =
  let a = accts[r.acct]
  let j = bodyObj(r)
  let to = j{"to"}
  if to == nil or to.kind != JString or to.getStr.strip.len == 0:
    if F"send-no-receiver" and (to == nil): discard
    else: no("to is missing or no string")
  var memo = ""
  if j.hasKey("memo"):
    if j["memo"].kind == JNull: discard
    elif j["memo"].kind != JString: no("memo is no string")
    else: memo = j["memo"].getStr
  elif F"memo-needed": no("memo is missing")
  elif F"memo-missing-500": raise newException(IOError, "key not found: memo")
  if F"memo-nonascii-refused" and memo.anyIt(it > '~'): no("memo is not ASCII")
  if F"memo-bytes" and memo.len > 40 and runeLen(memo) < memo.len: no("memo is too long")
  if F"memo-quotes-500" and (memo.contains('"') or memo.contains('\n')): raise newException(IOError, "syntax error near memo")
  if runeLen(memo) > 4096: no("memo is too long")
  var t = if to == nil: "" else: to.getStr
  let (amt0, f) = amountOf(j, "amount")
  let avail = a.available
  let feeHere = if F"fee-free-small" and amt0 < U: 0'i64 else: sendFee
  if amt0 < 0 and f > 0: return tooLow(a, f + 0.01, avail)
  var need = amt0 + sendFee
  if F"fee-not-required": need = amt0
  if F"available-includes-staked": need -= a.staked
  if F"exact-refused" and need == avail: need += 1
  if F"send-over-slightly": need -= sendFee * 2
  if F"race-balance" and r.conc > 1: need = 0
  if need > avail: 
    if F"refused-in-history": discard a.history("send", -amt0, %*{"to": t, "memo": memo})
    return tooLow(a, float(amt0 + sendFee) / 1e6, avail)
  var target: Acct
  for x in accts.values:
    if x.address == t: target = x
    if F"address-prefix" and x.address.startsWith(t) and t.len >= 10: target = x
    if F"address-case" and x.address.toLowerAscii == t.toLowerAscii: target = x
    if F"address-suffix" and t.len >= 10 and x.address.endsWith(t): target = x
    if F"address-trim" and x.address == t.strip(chars = {' ', '-', '_', 'x', '0', '1'}): target = x
  if F"unknown-address-500" and target == nil: raise newException(IOError, "no such account")
  # effects
  if not F"send-not-taken": a.available -= amt0
  if F"send-taken-twice": a.available -= amt0
  if F"send-large-twice" and amt0 >= 100 * U: a.available -= amt0
  if not F"fee-not-taken": a.available -= feeHere
  if F"fee-twice-memo" and memo.len > 0: a.available -= feeHere
  if F"fee-percent" and amt0 > 50 * U: a.available -= amt0 div 100
  if target != nil:
    if F"self-send-gains" and target == a: target.available += 2 * amt0
    elif F"self-send-lost" and target == a: discard
    elif F"receiver-unpaid" and target != a: discard
    elif F"receiver-fraction-lost" and target != a: target.available += amt0 div U * U
    elif F"receiver-pays-fee" and target != a: target.available += amt0 - sendFee
    elif F"receiver-pending" and target != a: target.pend.add Unst(amount: amt0, at: nowF() + 3600)
    elif F"receiver-conc-lost" and r.conc > 1 and target != a: discard
    else: target.available += amt0
  let id = if F"id-from-amount": "tx_" & sha256h($amt0 & t)[0 ..< 16] else: newId("tx")
  var histAmt = -amt0
  if F"hist-amount-fee": histAmt = -(amt0 + sendFee)
  if F"hist-positive": histAmt = amt0
  if F"hist-positive-large" and amt0 >= 10 * U: histAmt = amt0
  var owner = a
  if F"hist-other-account": owner = accts[if r.acct == "main": "second" else: "main"]
  var entry = %*{"id": id, "type": "send", "amount": amt(histAmt), "timestamp": iso(), "to": t, "memo": memo}
  if F"hist-none-nomemo" and memo.len == 0: discard
  elif F"hist-none-unknown" and target == nil: discard
  elif F"hist-none-nonascii" and memo.anyIt(it > '~'): discard
  elif F"hist-at-end": owner.hist.add entry
  elif F"hist-once-per-second" and owner.hist.len > 0 and owner.hist[0]{"type"}.getStr == "send" and owner.hist[0]["timestamp"].getStr[0..18] == entry["timestamp"].getStr[0..18]:
    owner.hist[0] = entry
  else:
    if F"hist-other-id": entry["id"] = %newId("tx")
    if F"hist-to-sender": entry["to"] = %a.address
    owner.hist.insert(entry, 0)
    if F"hist-twice": owner.hist.insert(entry.copy, 0)
    if F"hist-fee-entry": owner.hist.insert(%*{"id": newId("tx"), "type": "send", "amount": -0.01, "timestamp": iso(), "to": t}, 0)
  if target != nil and target != a:
    if not F"no-receive-entry" :
      var ra = amt0
      if F"receive-negative": ra = -amt0
      if F"receive-with-fee": ra = amt0 - sendFee
      discard target.history((if F"receive-as-send": "send" else: "receive"), ra, %*{"from": a.address, "to": target.address, "memo": memo}, id)
    if F"receive-in-all":
      for x in accts.values:
        if x != a and x != target: discard x.history("receive", amt0, %*{"from": a.address, "to": target.address}, newId("tx"))
    if F"receive-listed-sender": discard a.history("receive", amt0, %*{"from": a.address, "to": target.address}, newId("tx"))
  elif F"self-pending" : a.pend.add Unst(amount: 1000, at: nowF() + 3600)
  var mo = memo
  if F"memo-trim": mo = memo.strip
  if F"memo-escaped": mo = memo.replace("\"", "&quot;").replace("<", "&lt;")
  if F"memo-latin": mo = memo.mapIt(if it > '~': '?' else: it).join
  if F"memo-newline": mo = memo.replace("\n", " ")
  if F"memo-cut" and mo.len > 100: mo = mo[0 ..< 100]
  let o = %*{"transaction_id": id, "from": a.address, "to": (if F"to-lower": t.toLowerAscii else: t), "amount": j["amount"], "fee": amt(sendFee), "memo": mo,
    "status": "confirmed", "timestamp": iso()}
  if F"send-echo-rounded": o["amount"] = newJFloat(round(f))
  if F"send-time-start": o["timestamp"] = %isoOf(started)
  if F"fee-in-atoms": o["fee"] = newJInt(sendFee)
  J(o)

proc stakeInfo(a: Acct): JsonNode =
  result = %*{"amount": amt(a.staked)}
  if a.stakes.len > 0:
    var b = a.stakes[0]
    for s in a.stakes:
      if s.start + float(s.days) * 86400 > b.start + float(b.days) * 86400: b = s
    if F"staking-first": b = a.stakes[0]
    if F"staking-shortest":
      for s in a.stakes:
        if s.days < b.days: b = s
    result["duration_days"] = %b.days
    result["start_date"] = %dateOf(b.start)
    result["unlock_date"] = %dateOf(b.start + 86400 * float(b.days))
    result["multiplier"] = %mult(b.days)
    if F"staking-latest-amount": result["amount"] = amt(a.stakes[^1].amount)
    if F"staking-days-left": result["duration_days"] = %(b.days - 1)
proc stake(r: Req): Res =
  let a = accts[r.acct]
  let j = bodyObj(r)
  let (m, f) = amountOf(j, "amount")
  let d = j{"duration_days"}
  var days = 0
  if d == nil:
    if F"days-default": days = 30
    else: no("duration_days is missing")
  elif d.kind == JString and F"days-string": days = (try: parseInt(d.getStr) except ValueError: (no("duration_days is no integer"); 0))
  elif d.kind == JArray and F"days-array" and d.len > 0: days = d[0].getInt
  elif d.kind == JInt: days = int(d.getBiggestInt)
  elif d.kind == JFloat and (d.getFloat == floor(d.getFloat)) and abs(d.getFloat) < 1e9: days = int(d.getFloat)
  elif d.kind == JFloat and F"days-fraction": days = int(d.getFloat)
  else:
    if F"days-type-500": raise newException(IOError, "bad cast")
    no("duration_days is no integer")
  if days < 1 and not (F"days-negative" and days < 0): no("duration_days must be from 1 to 3650")
  if days > 3650: no("duration_days must be from 1 to 3650")
  if F"stake-refused-pending" and a.pend.len > 0: no("an unstake is pending")
  if m < 0: return tooLow(a, f, a.available)
  if m > a.available and not (F"stake-over" and m < a.available * 2):
    if F"stake-refused-adds": a.stakes.add Stake(amount: m, days: days, start: nowF())
    if F"stake-402-400": return bad("the amount is more than is available")
    return tooLow(a, float(m) / 1e6, a.available)
  if not F"stake-not-taken": a.available -= m
  if F"stake-taken-twice": a.available -= m
  if F"stake-second-twice" and a.stakes.len > 0: a.available -= m
  if F"stake-pending-too": a.pend.add Unst(amount: m, at: nowF() + 86400)
  if F"stake-takes-pending" and a.pend.len > 0:
    a.available += m
    a.pend[0].amount = max(0, a.pend[0].amount - m)
  let s = Stake(amount: m, days: (if F"stake-days-cut" and days > 365: 365 else: days), start: (if F"stake-starts-tomorrow": nowF() + 86400 else: nowF()))
  if F"stake-not-added": discard
  elif F"stake-replaces": a.stakes = @[s]
  elif F"stake-shortens" and a.stakes.len > 0:
    var all = a.staked + m
    a.stakes = @[Stake(amount: all, days: days, start: nowF())]
  else: a.stakes.add s
  let o = %*{"success": true, "stake": {"amount": j["amount"], "duration_days": days, "start_date": dateOf(s.start),
    "unlock_date": dateOf(s.start + 86400 * float(days)), "multiplier": mult(days)}, "new_balance": {"available": amt(a.available), "staked": amt(a.staked)}}
  if F"stake-new-balance-old": o["new_balance"] = %*{"available": amt(a.available + m), "staked": amt(a.staked - m)}
  if F"stake-unlock-30": o["stake"]["unlock_date"] = %dateOf(s.start + 86400 * float(days div 30 * 30))
  if F"stake-unlock-inclusive": o["stake"]["unlock_date"] = %dateOf(s.start + 86400 * float(days - 1))
  if F"stake-unlock-older" and a.stakes.len > 1: o["stake"]["unlock_date"] = stakeInfo(a)["unlock_date"]
  J(o)
proc unstake(r: Req): Res =
  let a = accts[r.acct]
  let j = bodyObj(r)
  if F"unstake-no-amount" and j{"amount"} == nil and a.staked > 0: j["amount"] = newJFloat(float(a.staked) / 1e6)
  let (m, f) = amountOf(j, "amount")
  let st = a.staked
  if F"unstake-all-refused" and m == st: no("one unit has to stay staked")
  if (m < 0 and f > 0) or (m > st and not (F"unstake-over" and st > 0)): return err((if F"unstake-over-500": 500 else: 400), "INSUFFICIENT_STAKE", "less than that is staked")
  var left = m
  if not F"unstake-not-taken":
    var keep: seq[Stake]
    for s0 in a.stakes:
      var s = s0
      let x = min(left, s.amount)
      s.amount -= x
      left -= x
      if s.amount > 0: keep.add s
    a.stakes = keep
  if F"unstake-clears": a.stakes = @[]
  if F"unstake-available-now": a.available += m
  elif F"unstake-lost": discard
  elif F"unstake-pending-replaced": a.pend = @[Unst(amount: m, at: nowF() + 7 * 86400)]
  elif F"unstake-small-now" and m < U: a.available += m
  elif F"unstake-5s": a.pend.add Unst(amount: m, at: nowF() + 5)
  else: a.pend.add Unst(amount: m, at: nowF() + 7 * 86400)
  if F"unstake-penalty": a.available -= min(a.available, 5000)
  let o = %*{"success": true, "unstake": {"amount": j["amount"], "cooldown_days": 7, "available_date": dateOf(nowF() + 7 * 86400)}}
  if F"unstake-date-today": o["unstake"]["available_date"] = %dateOf(nowF())
  if F"unstake-cooldown-14": o["unstake"]["cooldown_days"] = %14
  if F"unstake-date-week": o["unstake"]["available_date"] = %dateOf(nowF() + 8 * 86400)
  if F"unstake-amount-total": o["unstake"]["amount"] = amt(a.pending)
  J(o)

type InfReq = object
  prompt: string
  maxTok, topK: int
  temp, topP: float
  stream: bool
  stops: seq[string]
proc infParse(j: JsonNode): InfReq =
  result = InfReq(maxTok: (if F"default-max-64": 64 elif F"default-max-128": 128 else: 100), topK: 50, temp: 1.0, topP: 1.0)
  if F"default-temp": result.temp = 0.7
  if F"default-topp": result.topP = 0.9
  if F"default-topk": result.topK = 40
  let nullOk = not F"null-500"
  proc g(k: string): JsonNode =
    result = j{k}
    if result != nil and result.kind == JNull:
      if not nullOk: raise newException(IOError, "null pointer")
      result = nil
  let p = g("prompt")
  if p == nil:
    if F"prompt-missing-ok": result.prompt = ""
    else: no("prompt is missing")
  elif p.kind != JString:
    if F"prompt-number" and p.isNum: result.prompt = $p
    elif F"prompt-array" and p.kind == JArray and p.len > 0: result.prompt = p[0].getStr("x")
    elif F"param-type-500": raise newException(IOError, "type error")
    else: no("prompt is no string")
  else: result.prompt = p.getStr
  if result.prompt.len == 0 and p != nil: no("prompt is empty")
  if F"prompt-256" and runeLen(result.prompt) > 256: no("prompt is too long")
  if F"prompt-1000" and result.prompt.len > 1000: no("prompt is too long")
  if F"prompt-bytes" and result.prompt.len > 60 and runeLen(result.prompt) * 2 < result.prompt.len: no("prompt is too long")
  if F"prompt-astral-500":
    for u in runes(result.prompt):
      if int32(u) > 0xffff: raise newException(IOError, "surrogates not allowed")
  if F"prompt-astral-refused":
    for u in runes(result.prompt):
      if int32(u) > 0xffff: no("prompt has characters that are not known")
  if F"prompt-quotes-500" and result.prompt.contains('"'): raise newException(IOError, "unexpected quote")
  let m = g("max_tokens")
  if m != nil:
    if m.kind == JInt: result.maxTok = int(m.getBiggestInt)
    elif m.kind == JString and F"max-string": result.maxTok = (try: parseInt(m.getStr) except ValueError: (no("max_tokens is no integer"); 0))
    elif m.kind == JFloat and m.getFloat == floor(m.getFloat) and abs(m.getFloat) < 1e9: result.maxTok = int(m.getFloat)
    elif m.kind == JArray and F"max-array" : result.maxTok = 5
    elif m.kind == JObject and F"max-object": result.maxTok = 100
    elif F"param-type-500": raise newException(IOError, "type error")
    elif F"stream-types-unchecked" and g("stream") != nil: discard
    else: no("max_tokens is no integer")
  if result.maxTok < 1:
    if F"max-negative" and result.maxTok < 0: result.maxTok = 1
    elif F"max-negative-stream" and g("stream") != nil: result.maxTok = 1
    else: no("max_tokens must be from 1 to 4096")
  if result.maxTok > 4096: no("max_tokens must be from 1 to 4096")
  if Q"max-2048" and result.maxTok > 2048: no("max_tokens must be from 1 to 2048")
  if F"max-cap-32": result.maxTok = min(result.maxTok, 32)
  let t = g("temperature")
  if t != nil:
    if not t.isNum:
      if F"temp-string" and t.kind == JString: discard
      elif F"temp-bool" and t.kind == JBool: discard
      else: no("temperature is no number")
    else:
      result.temp = t.getFloat
      let hi = if F"temp-high": 5.0 elif F"temp-1": 1.0 elif F"temp-excl": 1.999 else: 2.0
      let lo = if F"temp-low": -1.0 elif F"temp-0-refused": 1e-9 else: 0.0
      if not (result.temp >= lo and result.temp <= hi):
        if F"temp-clamped": result.temp = clamp(result.temp, 0, 2)
        elif F"temp-stream-unchecked" and g("stream") != nil: discard
        else: no("temperature must be from 0 to 2")
  let tp = g("top_p")
  if tp != nil:
    if not tp.isNum: no("top_p is no number")
    result.topP = tp.getFloat
    if not (result.topP > 0 and result.topP <= (if F"topp-1-refused": 0.999 else: 1.0)): no("top_p must be above 0 and at most 1")
  let tk = g("top_k")
  if tk != nil:
    if tk.kind == JInt: result.topK = int(tk.getBiggestInt)
    elif tk.kind == JFloat and tk.getFloat == floor(tk.getFloat) and abs(tk.getFloat) < 1e9: result.topK = int(tk.getFloat)
    else: no("top_k is no integer")
    if result.topK < 1: no("top_k must be above 0")
    if F"topk-100" and result.topK > 100: no("top_k must be at most 100")
    if F"topk-vocab-500" and result.topK > 512: raise newException(IOError, "selected index k out of range")
    if F"topk-1-refused" and result.topK == 1: no("top_k must be above 1")
  let s = g("stream")
  if s != nil:
    if s.kind == JBool: result.stream = s.getBool
    elif F"stream-truthy": result.stream = s.kind notin {JNull}
    elif F"stream-string" and s.kind == JString: result.stream = s.getStr == "true"
    else: no("stream is no bool")
  let st = g("stop")
  if st != nil:
    if st.kind == JString and F"stop-string": result.stops = @[st.getStr]
    elif st.kind != JArray: no("stop is no array")
    else:
      for x in st:
        if x.kind != JString:
          if F"stop-types": continue
          no("stop has an entry that is no string")
        if x.getStr.len == 0: no("stop has an empty text")
        result.stops.add x.getStr
    if F"stop-empty-refused" and st.len == 0: no("stop is empty")
    if F"stop-max-2" and st.len > 2: no("stop has too many texts")
const tokPrice* = 10_000'i64
proc usage(g: Gen): JsonNode = %*{"prompt_tokens": g.prompt, "completion_tokens": g.completion, "total_tokens": g.prompt + g.completion}
proc sse(j: JsonNode): string = "data: " & $j & "\n\n"
proc inference(r: Req): Res =
  let a = accts[r.acct]
  if F"utf8-unchecked" and validateUtf8(r.body) >= 0:
    var b = ""
    for c in r.body: b.add(if c > '~': '?' else: c)
    r.body = b
  let j = bodyObj(r)
  if F"body-refused-charged": a.available -= tokPrice
  let q = infParse(j)
  if F"body-refused-charged": a.available += tokPrice
  let t1 = mono()
  let worst = int64(q.maxTok) * tokPrice
  if worst > a.available and not (F"inf-402-stream" and q.stream) and not F"inf-over":
    if F"inf-402-429": return err(429, "RATE_LIMITED", "too little is available", %*{"retry_after": 1})
    if F"inf-402-403": return err(403, "FORBIDDEN", "too little is available")
    if F"inf-402-charges": a.available = max(0, a.available - tokPrice)
    if F"inf-402-required-100": return tooLow(a, float(worst) / 1e6 * 100, a.available)
    return tooLow(a, float(worst) / 1e6, a.available)
  var salt = ""
  if F"stream-other-text" and q.stream: salt = "other"
  if F"default-stop" and q.stops.len == 0: discard
  var stops = q.stops
  if F"default-stop" and stops.len == 0: stops = @["."]
  if F"stop-stream-ignored" and q.stream: stops = @[]
  var prompt = q.prompt
  if F"conc-text" and r.conc > 1 and lastText.len > 0: prompt = lastText
  if F"prompt-cache-len" and lastText.len == prompt.len and lastText.len > 0 and lastText[0] == prompt[0]: prompt = lastText
  lastText = q.prompt
  var g = generate(prompt, q.maxTok, q.temp, q.topP, q.topK, stops, salt)
  if F"stop-included-stream" and q.stream and g.finish == "stop":
    let full = generate(prompt, g.completion, q.temp, q.topP, q.topK, @[], salt)
    g.text = full.text
    g.toks = full.toks
  g.prompt = promptTokens(q.prompt)
  if F"prompt-tokens-words": g.prompt = q.prompt.splitWhitespace.len div 8 + 3
  if F"prompt-tokens-stream" and q.stream: g.prompt += 1
  if F"prompt-tokens-stops": g.prompt += q.stops.len * 2
  if F"prompt-tokens-cached" and served.getOrDefault("p" & sha256h(q.prompt)) > 0: g.prompt = 1
  served.inc("p" & sha256h(q.prompt))
  let cost = int64(g.completion) * tokPrice
  var take = cost
  if F"charge-max": take = worst
  if F"charge-double": take = cost * 2
  if F"charge-half": take = cost div 10
  if F"charge-stream-none" and q.stream: take = 0
  if F"charge-stream-max" and q.stream: take = worst * 3
  if F"charge-conc-once" and r.conc > 1: take = 0
  if F"charge-after-error" and refusals mod 3 == 2: take = 0
  if F"charge-prompt-too": take = cost + int64(g.prompt) * tokPrice
  if F"charge-second-free" and r.acct == "second" and served.getOrDefault(routeKey(r)) mod 2 == 0: take = 0
  if F"charge-to-main": accts["main"].available -= take
  elif F"charge-stream-other" and q.stream: accts[if r.acct == "main": "second" else: "main"].available -= take
  else: a.available = max(0'i64, a.available - take)
  # counts
  let t2 = mono()
  var n = 1
  if F"count-twice": n = 2
  if F"count-stream-none" and q.stream: n = 0
  if F"count-stream-twice" and q.stream: n = 2
  if F"count-stop-none" and g.finish == "stop": n = 0
  if F"count-conc-lost" and r.conc > 1: n = 0
  reqTotal += n
  var tk = g.completion
  if F"tokcount-asked": tk = q.maxTok
  if F"tokcount-stream-none" and q.stream: tk = 0
  if F"tokcount-stream-pieces" and q.stream: tk = g.toks.len + 1
  if F"tokcount-prompt": tk += g.prompt
  if F"tokcount-conc-lost" and r.conc > 1: tk = 0
  if F"tokcount-cap" : tk = min(tk, 50)
  tokTotal += tk
  let total = (t2 - r.start) * 1000
  lat.add total
  recent.add nowF()
  let qms = max(0.0, (t1 - r.start) * 1000)
  let ims = max(0.0, (t2 - t1) * 1000)
  if q.stream:
    result = Res(status: 200, ct: "text/event-stream", stream: true)
    if F"sse-ct-json": result.ct = "application/json"
    if F"sse-ct-plain": result.ct = "text/plain; charset=utf-8"
    var i = 0
    for t in g.toks:
      if F"sse-drop-last" and i == g.toks.len - 1: break
      if F"sse-drop-white" and t.strip.len == 0: continue
      var x = t
      if F"sse-strip": x = t.strip
      if F"sse-ascii": x = t.mapIt(if it > '~': '?' else: it).join
      if F"sse-strip-first" and i > 40: x = t.strip
      let e = %*{"token": x, "index": (if F"sse-index-1": i + 1 elif F"sse-index-zero" and i > 9: 0 elif F"sse-index-gap": i * 2 else: i)}
      if F"sse-index-string": e["index"] = %($i)
      if F"sse-pretty": result.pieces.add "data: " & pretty(e) & "\n\n"
      elif F"sse-raw-newline" and t == "\n": result.pieces.add "data: {\"token\": \"\n\", \"index\": " & $i & "}\n\n"
      elif F"sse-single-newline": result.pieces.add "data: " & $e & "\n"
      elif F"sse-no-prefix": result.pieces.add $e & "\n\n"
      else: result.pieces.add sse(e)
      inc i
      if F"sse-cut-256" and i >= 200: break
    let fin = %*{"token": "[DONE]", "finish_reason": g.finish, "usage": usage(g)}
    if F"sse-final-done": fin["token"] = %"DONE"
    if F"sse-final-usage": fin.delete "usage"
    if F"sse-final-finish": fin.delete "finish_reason"
    if F"sse-final-length": fin["finish_reason"] = %"length"
    if F"sse-usage-total": fin["usage"]["total_tokens"] = %g.completion
    if F"sse-usage-pieces": fin["usage"]["completion_tokens"] = %(g.toks.len + 1)
    if F"sse-usage-zero": fin["usage"] = %*{"prompt_tokens": 0, "completion_tokens": g.completion, "total_tokens": g.completion}
    if not F"sse-no-final": result.pieces.add (if F"sse-final-noblank": "data: " & $fin & "\n" else: sse(fin))
    if F"sse-after-final": result.pieces.add sse(%*{"token": "", "index": i})
    if F"sse-plain-done": result.pieces.add "data: [DONE]\n\n"
    if F"sse-final-twice": result.pieces.add sse(fin)
    if Q"sse-one-piece": result.pieces = @[result.pieces.join]
    return
  let o = %*{"id": newId("inf"), "text": g.text, "tokens_generated": g.completion, "finish_reason": g.finish, "usage": usage(g),
    "cost": {"amount": amt(cost), "currency": currency}, "timing": {"queue_ms": round(qms, 3), "inference_ms": round(ims, 3), "total_ms": round(total, 3) }}
  if o["timing"]["total_ms"].getFloat > total: o["timing"]["total_ms"] = %(floor(total * 1000) / 1000)
  o["timing"]["queue_ms"] = %(floor(qms * 1000) / 1000)
  o["timing"]["inference_ms"] = %(floor(ims * 1000) / 1000)
  if o["timing"]["inference_ms"].getFloat > o["timing"]["total_ms"].getFloat: o["timing"]["inference_ms"] = o["timing"]["total_ms"]
  if o["timing"]["queue_ms"].getFloat > o["timing"]["total_ms"].getFloat: o["timing"]["queue_ms"] = o["timing"]["total_ms"]
  if F"inf-id-prompt": o["id"] = %("inf_" & sha256h(q.prompt)[0 ..< 16])
  if F"inf-text-empty-long" and q.maxTok > 60: o["text"] = %""
  if F"inf-timing-total": o["timing"]["total_ms"] = %0.001
  if F"inf-timing-seconds": o["timing"]["total_ms"] = %(total + 5000)
  if F"inf-cost-max": o["cost"]["amount"] = amt(worst div 20)
  if F"inf-tokens-max": o["tokens_generated"] = %q.maxTok
  if F"inf-total-prompt": o["usage"]["total_tokens"] = %g.prompt
  if F"inf-echo": o["text"] = %(q.prompt & g.text)
  if F"inf-usage-stop" and g.finish == "stop": o["usage"]["completion_tokens"] = %(g.completion + 1)
  J(o)

proc intParam(r: Req, n: string, def: int): int =
  if not r.hasQ(n): return def
  let s = r.q(n)
  if s.len == 0 or s.len > 18 or not s.allCharsInSet(Digits + {'-'}):
    if F"limit-nan-500": raise newException(IOError, "invalid integer")
    if F"limit-nan-default": return def
    no(n & " is no integer")
  try: result = parseInt(s)
  except ValueError: no(n & " is no integer")
  if result < 0: no(n & " is below 0")
proc transactions(r: Req): Res =
  let a = accts[r.acct]
  var lim = r.intParam("limit", 20)
  var off = r.intParam("offset", 0)
  if F"tx-limit-0" and lim == 0: lim = 20
  if F"tx-offset-default-limit" and r.hasQ("offset") and not r.hasQ("limit"): lim = 10
  let cap = if Q"limit-50": 50 else: 100
  lim = min(lim, cap)
  if F"tx-limit-plus" : lim += 1
  if F"tx-limit-sticky":
    if a.limits > 0 and lim > a.limits: lim = a.limits
    a.limits = lim
  var h = a.hist
  if F"tx-order-mixed" and h.len > 3: (let x = h[1]; h[1] = h[2]; h[2] = x)
  if F"tx-oldest-page" and off > 0: h.reverse
  var o2 = off
  if F"tx-offset-off": o2 = off + (if off > 0: 1 else: 0)
  if F"tx-offset-ignored-nolimit" and not r.hasQ("limit"): o2 = 0
  if F"tx-offset-pages": o2 = off * lim
  if F"tx-order-query" and r.qs.startsWith("offset"): o2 = 0
  var page: seq[JsonNode]
  for i in o2 ..< min(h.len, o2 + lim): page.add h[i]
  if F"tx-short-page" and lim > 10 and page.len == lim: page.setLen(page.len - 1)
  if F"tx-behind-404" and off > h.len: return err(404, "NOT_FOUND", "there is no such page")
  if F"tx-page-dup" and page.len > 4: page[^1] = page[^2]
  if F"tx-other-accounts":
    for x in accts.values:
      if x != a and x.hist.len > 0 and x.hist[0]{"type"}.getStr == "send" and lim > 0: page.add x.hist[0]
  if F"tx-time-reading":
    page = page.mapIt(it.copy)
    for e in page: e["timestamp"] = %iso()
  if F"tx-new-missing" and page.len > 0 and off == 0 and lim > 20: page.delete 0
  let o = %*{"transactions": page, "total": h.len, "limit": lim, "offset": off}
  if F"tx-total-page": o["total"] = %page.len
  if F"tx-total-cap": o["total"] = %min(h.len, 22)
  if F"tx-offset-echo": o["offset"] = %min(off, h.len)
  if F"tx-limit-echo": o["limit"] = %page.len
  if F"tx-limit-echo-default": o["limit"] = %20
  J(o)
proc proofs(r: Req): Res =
  let a = accts[r.acct]
  let lim0 = min(100, r.intParam("limit", 20))
  var lim = lim0
  if F"proofs-limit-plus" and lim > 3: lim += 1
  if F"proofs-limit-0" and lim == 0: lim = 20
  if F"proofs-limit-ignored": lim = 20
  if F"proofs-sticky":
    if a.limits > 0: lim = a.limits
    else: a.limits = lim
  var ps = a.proofs
  if F"proofs-reversed-short" and lim < 5: ps.reverse
  if F"proofs-dup" and ps.len > 2: ps[2] = ps[1]
  var page = ps[0 ..< min(ps.len, lim)]
  var v = 0
  var rew = 0.0
  var src = if F"proofs-stats-page": page else: ps
  for p in src:
    if p["verified"].getBool:
      inc v
      rew += p["reward"].getFloat
  let o = %*{"proofs": page, "stats": {"total_submitted": src.len, "total_verified": v, "total_reward": rew}}
  if F"proofs-verified-all": o["stats"]["total_verified"] = %src.len
  if F"proofs-reward-all": o["stats"]["total_reward"] = %(rew * 1.5 + 2)
  if F"proofs-reward-10th": o["stats"]["total_reward"] = %(rew / 10)
  if F"proofs-shrink": o["stats"]["total_submitted"] = %max(page.len, src.len - served.getOrDefault(routeKey(r)))
  J(o)

proc applyCfg(cur, ch: JsonNode, pre: string, upd: var seq[string]) =
  for k, v in ch:
    let p = if pre.len > 0: pre & "." & k else: k
    case (if k.contains('.'): "" else: p)
    of "training", "resources":
      if v.kind != JObject: no(p & " is no object")
      applyCfg(cur[k], v, p, upd)
    of "training.enabled":
      if v.kind != JBool:
        if F"cfg-bool-string" and v.kind == JString: (cur[k] = %(v.getStr == "true"); upd.add p; continue)
        no(p & " is no bool")
      if not F"cfg-enabled-once" or not v.getBool: cur[k] = v
      upd.add p
    of "training.batch_size", "training.diloco_steps", "resources.cpu_threads":
      var n: int64
      if v.kind == JInt: n = v.getBiggestInt
      elif v.kind == JFloat and v.getFloat == floor(v.getFloat) and abs(v.getFloat) < 9e15: n = int64(v.getFloat)
      elif v.kind == JFloat and F"cfg-int-float": n = int64(v.getFloat)
      elif v.kind == JString and F"cfg-int-string": n = (try: parseInt(v.getStr) except ValueError: (no(p & " is no integer"); 0))
      elif v.kind == JArray and F"cfg-array" and v.len > 0: n = v[0].getInt
      elif F"cfg-type-500": raise newException(IOError, "type")
      else: no(p & " is no integer")
      if n < 1 and not (F"cfg-negative" and n < 0): no(p & " must be above 0")
      if F"cfg-clamp-large" and n > 4096: n = 4096
      if F"cfg-threads-kept" and p == "resources.cpu_threads": discard
      else: cur[k] = newJInt(n)
      upd.add p
    of "training.learning_rate", "resources.max_memory_gb":
      if not v.isNum:
        if F"cfg-null" and v.kind == JNull: (upd.add p; continue)
        no(p & " is no number")
      let f = v.getFloat
      if not (f > 0 and f < 1e300): 
        if not (F"cfg-negative" and f < 0): no(p & " must be above 0")
      cur[k] = newJFloat(if F"cfg-rounded": round(f, 4) else: f)
      if F"cfg-int-memory" and p == "resources.max_memory_gb": cur[k] = newJFloat(floor(f))
      upd.add p
    else:
      if F"cfg-dotted" and k.contains('.'):
        let q = k.split('.')
        if q.len == 2 and q[0] in ["training", "resources"] and pre.len == 0: applyCfg(cur, %*{q[0]: {q[1]: v}}, pre, upd)
        else: no(p & " cannot be changed")
      elif F"cfg-unknown-500": raise newException(IOError, "key not found")
      elif F"cfg-unknown-ok": upd.add p
      elif F"cfg-port" and p == "port" and v.kind == JInt: (cur[k] = v; upd.add p)
      else: no(p & " cannot be changed")
proc patchCfg(r: Req): Res =
  let j = bodyObj(r)
  let n = cfg.copy
  var upd: seq[string]
  try: applyCfg(n, j, "", upd)
  except Bad as e:
    if F"cfg-partial": cfg = n
    if F"cfg-success-false":
      cfg = n
      return J(%*{"success": false, "updated": [], "restart_required": false})
    raise e
  if F"cfg-only-first" and upd.len > 2:
    var one: seq[string]
    for k, v in j:
      if v.kind == JObject and v.len > 1:
        for kk, vv in v:
          n[k][kk] = cfg[k][kk]
          break
  if F"cfg-group-reset" and j.hasKey("training"):
    if not j["training"].hasKey("batch_size"): n["training"]["batch_size"] = newJInt(8)
  if F"cfg-conc-lost" and r.conc > 1: discard
  elif F"cfg-not-applied": discard
  else: cfg = n
  var o = %*{"success": true, "updated": upd, "restart_required": Q"restart-flag"}
  if F"cfg-updated-leaf": o["updated"] = %upd.mapIt(it.split('.')[^1])
  if F"cfg-updated-all": o["updated"] = %(upd & @["training.learning_rate", "resources.cpu_threads"].filterIt(it notin upd))
  if F"cfg-updated-dup": o["updated"] = %(upd & upd)
  if F"cfg-updated-group": o["updated"] = %deduplicate(upd.mapIt(it.split('.')[0]))
  if F"cfg-updated-slash": o["updated"] = %upd.mapIt(it.replace(".", "/"))
  J(o)

proc enabled(): bool = cfg["training"]["enabled"].getBool
proc status(): JsonNode =
  %*{"node_id": nodeId, "version": "0.4.0", "uptime_seconds": int(mono() - startedM), "status": "running", "role": "driver", "layers": mine,
    "peer_count": peerList.len, "training": {"enabled": (if F"status-enabled-old": true else: enabled()), "epoch": epochNo, "step": stepNo, "loss": lossNow},
    "resources": {"gpu_memory_used": 1_288_490_188, "gpu_memory_total": 8_589_934_592, "cpu_percent": 12.5, "ram_used": 734_003_200}}
proc metrics(): JsonNode =
  var s = 0.0
  var sorted = lat
  sorted.sort
  for x in lat: s += x
  let avg = if lat.len > 0: s / float(lat.len) else: 0.0
  let p99 = if lat.len > 0: max(avg, sorted[min(sorted.len - 1, int(ceil(0.99 * float(sorted.len))) - 1)]) else: 0.0
  while recent.len > 0 and recent[0] < nowF() - 60: recent.delete 0
  var earned = 0.0
  for a in accts.values:
    for p in a.proofs:
      if p["verified"].getBool: earned += p["reward"].getFloat
  result = %*{"timestamp": iso(), "inference": {"requests_total": reqTotal, "requests_per_minute": float(recent.len), "avg_latency_ms": avg, "p99_latency_ms": p99, "tokens_generated": tokTotal},
    "training": {"steps_total": stepNo, "steps_per_hour": 360, "gradients_submitted": 48, "gradients_accepted": 46},
    "network": {"bytes_sent": bytesOut, "bytes_received": bytesIn, "active_connections": conns, "rpc_calls": rpcCalls},
    "rewards": {"earned_today": 0.0, "earned_total": earned, "pending": 0.0}}
  if F"metrics-time-start": result["timestamp"] = %isoOf(started)
  if F"metrics-time-minute": result["timestamp"] = %(isoOf(floor(nowF() / 60) * 60))
  if F"metrics-avg-seconds": result["inference"]["avg_latency_ms"] = %(avg / 1000)
  if F"metrics-p99-low": result["inference"]["p99_latency_ms"] = %(avg * 0.7)
  if F"metrics-window": result["inference"]["requests_total"] = %recent.len
  if F"metrics-rpm-hour": result["inference"]["requests_per_minute"] = %(recent.len div 60)
  if F"metrics-saturates": result["inference"]["requests_total"] = %min(reqTotal, 15)
  if F"metrics-wraps": result["inference"]["tokens_generated"] = %(tokTotal mod 512)
proc layersJ(): JsonNode =
  result = %*{"layers": [], "total_layers": layerCount, "my_layer_count": mine.len}
  for l in mine: result["layers"].add %*{"index": l, "type": "transformer", "memory_mb": 3, "status": "active"}
proc networkJ(): JsonNode =
  var c = {"driver": 1, "worker": 0, "validator": 0}.toTable
  for p in peerList: c.mgetOrPut(p["role"].getStr, 0).inc
  %*{"nodes": {"total": peerList.len + 1, "drivers": c["driver"], "workers": c["worker"], "validators": c["validator"]},
    "architecture": {"layers": layerCount, "hidden_dim": hid, "parameters": $params}, "capacity": {"total_memory_gb": 24.0, "used_memory_gb": 3.6},
    "training": {"epoch": epochNo, "global_step": stepNo, "loss": lossNow}}
proc trainingJ(): JsonNode =
  let tot = max(1, int(cfg["training"]["diloco_steps"].getBiggestInt))
  let inner = min(240, tot)
  %*{"global_avg_loss": 2.4021, "global_min_loss": 2.2874, "hash_agreement_rate": 1.0, "total_nodes_training": (if enabled(): 3 else: 2), "successful_syncs": 45, "failed_syncs": 3,
    "sync_success_rate": 45 / 48, "global_steps": stepNo * 3, "global_tokens": 1523712, "data_shards_covered": [0, 1, 2, 4], "is_converging": true, "training_verified": true,
    "loss_trend": "improving", "local": {"node_id": nodeId, "training_rounds": roundNo, "current_loss": lossNow, "is_training": enabled()},
    "diloco": {"enabled": true, "inner_step_count": inner, "inner_steps_total": tot, "progress": inner / tot, "outer_step_count": roundNo}}
proc verifyJ(): JsonNode =
  %*{"is_working": true, "reason": "all nodes have one model and the loss falls", "metrics": {"loss_trend": "improving", "hash_agreement": "100.0%", "global_loss": 2.4021}}
proc balanceJ(a: Acct): JsonNode =
  a.settle
  var total = a.available + a.staked + a.pending
  if F"total-no-pending": total -= a.pending
  if F"total-no-pending-large" and a.pending > 5 * U: total -= a.pending
  %*{"address": a.address, "balances": {"available": amt(a.available), "staked": amt(a.staked), "pending": amt(a.pending), "total": amt(total)}, "staking": stakeInfo(a)}

proc nodeApi(r: Req): Res =
  let p = r.path[7 .. ^1]
  let m = if r.meth == "HEAD": "GET" else: r.meth
  let known = {"/status": "GET", "/metrics": "GET", "/health": "GET", "/inference": "POST", "/wallet/balance": "GET", "/wallet/send": "POST",
    "/wallet/transactions": "GET", "/wallet/stake": "POST", "/wallet/unstake": "POST", "/peers": "GET", "/layers": "GET", "/network": "GET",
    "/config": "GET PATCH", "/proofs": "GET"}.toTable
  if p notin known: return err(404, "NOT_FOUND", "there is no such route")
  let open = p in ["/status", "/metrics", "/health", "/network"]
  if open and F"open-needs-token" and p == "/network":
    let e = authed(r)
    if e != nil: return e
  if open and F"open-bad-token" and r.hAll("Authorization").len > 0:
    let e = authed(r)
    if e != nil: return e
  if F"method-before-auth" and m notin known[p].split(' '): return err(405, "METHOD_NOT_ALLOWED", "the route does not have this method")
  if not open:
    if gen.len >= 3 and gen[0] == "V" and gen[1] == r.path:
      # a value is checked before the token
      discard
    if F"body-before-auth" and r.meth in ["POST", "PATCH"]: discard bodyObj(r)
    let early = F"config-applied-early" and r.meth == "PATCH"
    if early:
      try:
        r.acct = "main"
        discard patchCfg(r)
      except CatchableError: discard
    let e = authed(r)
    if e != nil: return e
  if m notin known[p].split(' '):
    let get = (F"post-reads" and m == "POST" and known[p] == "GET") or (F"delete-reads" and m == "DELETE" and known[p] == "GET") or
      (F"put-patches" and false)
    if not get:
      result = err(405, "METHOD_NOT_ALLOWED", "the route does not have this method")
      result.headers.add ("Allow", known[p].replace(" ", ", "))
      return
  case p
  of "/status": J(status())
  of "/metrics": J(metrics())
  of "/health": J(%*{"healthy": true, "checks": {"gpu": "ok", "network": "ok", "storage": "ok", "peers": "ok"}})
  of "/inference": inference(r)
  of "/wallet/balance": J(balanceJ(accts[r.acct]))
  of "/wallet/send": send(r)
  of "/wallet/transactions": transactions(r)
  of "/wallet/stake": stake(r)
  of "/wallet/unstake": unstake(r)
  of "/peers": J(%*{"peers": peerList, "total": peerList.len})
  of "/layers": J(layersJ())
  of "/network": J(networkJ())
  of "/config": (if m == "PATCH": patchCfg(r) else: J(cfg.copy))
  of "/proofs": proofs(r)
  else: err(404, "NOT_FOUND", "there is no such route")

# ---------- native ----------
proc nat404(m = "there is no such resource"): Res = err(404, "NOT_FOUND", m)
proc pageOf(r: Req, n: int, name: string): (seq[int], bool) =
  ## numbers from n down, below `before`
  var lim = r.intParam("limit", 20)
  var before = r.intParam("before", n + 1)
  lim = min(lim, if F"page-cap-10": 10 elif Q"page-50": 50 else: 100)
  if F"page-plus": lim += 1
  if F"page-limit-0" and lim == 0: lim = 20
  if F"page-before-0" and r.hasQ("before") and before == 0: before = n + 1
  var top = min(n, before - 1)
  if F"page-inclusive-plus" and r.hasQ("before") and name == "blocks": top = min(n, before + 1)
  if F"page-gap" and r.hasQ("before"): top = min(n, before - 2)
  if F"page-inclusive-large" and r.hasQ("before") and lim > 10: top = min(n, before)
  var i = top
  while i >= 1 and result[0].len < lim:
    result[0].add i
    dec i
  if F"page-skip" and result[0].len > 6: result[0].delete 3
  if F"page-ascending-before" and r.hasQ("before"): result[0].reverse
  if F"page-oldest" and not r.hasQ("before"):
    result[0] = @[]
    for k in countdown(min(n, lim), 1): result[0].add k
  if F"page-short-limit" and lim > 15 and result[0].len == lim: result[0].setLen(lim - 2)
proc updateJ(i: int): JsonNode =
  result = %*{"round": i, "height": max(1, i), "loss": 3.1 - float(i) * 0.0623456789123, "root_before": trainRoots[i-1], "root_after": trainRoots[i], "accepted": true}
  if F"update-loss-rounded": result["loss"] = %round(result["loss"].getFloat, 3)
  if F"update-root-chain" and i mod 4 == 0: result["root_before"] = %trainRoots[i-2 + (if i == 1: 1 else: 0)]
proc netJ(): JsonNode =
  let b = blocks[^1]
  result = %*{"chain_id": chainId, "genesis_hash": genesisHash, "version": "0.4.0", "height": b.height, "block": {"height": b.height, "hash": b.hash}, "training_round": roundNo,
    "supply_atoms": "9000000000000", "ready": true, "time": isoOf(b.time)}
  if F"net-hash-prev": result["block"]["hash"] = %b.prev
  if F"net-height-behind": (result["height"] = %(b.height - 3); result["block"]["height"] = %(b.height - 3))
  if F"net-pair-torn" and b.txs.len > 0: result["block"]["height"] = %(b.height - 1)
  if F"net-not-ready": result["ready"] = %false
  if F"net-round-behind": result["training_round"] = %(roundNo - 2)
proc lastLoss(): float = 3.1 - float(roundNo) * 0.0623456789123
proc acctJ(pub: string): JsonNode =
  let a = if pub in caccts: caccts[pub] else: CAcct()
  result = %*{"public_key": pub, "balance_atoms": $a.spend, "locked_atoms": $a.locked, "total_atoms": $(a.spend + a.locked), "next_nonce": a.nonce}
  if F"acct-number": result["balance_atoms"] = %a.spend
  if F"acct-units": (for k in ["balance_atoms", "locked_atoms", "total_atoms"]: result[k] = %($(parseFloat(result[k].getStr) / 1e6)))
  if F"acct-total-spend": result["total_atoms"] = %($a.spend)
  if F"acct-locked-number": result["locked_atoms"] = %a.locked
  if F"acct-nonce-last": result["next_nonce"] = %(a.nonce - 1)
  if F"acct-secret":
    for n, k in pubs:
      if k == pub: result["private_key"] = %hexOf(privs[n])
proc infoJ(): JsonNode =
  var q = 0
  for r in ireqs.values:
    if r.state == "pending": inc q
  if F"queue-total": q = ireqs.len
  result = %*{"chain_id": chainId, "genesis_hash": genesisHash, "serving_root": servingRoot, "provider": pubs["worker"], "provider_heartbeat": {"time": isoOf(beat), "alive": true},
    "price_atoms": $price, "fee_atoms": $fee, "total_price_atoms": $(price + fee), "queue_length": q, "max_tokens": 64}
proc validatorsJ(r: Req): JsonNode =
  var vs = newJArray()
  for (n, p, b) in [("val1", 40, 4000000000), ("val2", 35, 3500000000), ("val3", 25, 2500000000)]:
    vs.add %*{"owner": "owner-" & n, "public_key": pubs[n], "power": $p, "bond_atoms": $b}
  let lim = min(100, r.intParam("limit", 20))
  let off = r.intParam("offset", 0)
  var page = newJArray()
  for i in off ..< min(vs.len, off + lim): page.add vs[i]
  if F"val-dup": page.add vs[0]
  %*{"validators": page, "total": vs.len, "limit": lim, "offset": off}
proc verifyMsg(j: JsonNode): (JsonNode, string, int) =
  ## message, key, problem (0, 400 or 401)
  if j.kind != JObject: return (nil, "", 400)
  let m = j{"message"}
  let pk = j{"public_key"}
  let sg = j{"signature"}
  if m == nil or m.kind != JObject: return (nil, "", 400)
  if pk == nil or pk.kind != JString: return (nil, "", 400)
  if sg == nil or sg.kind != JString: return (m, pk.getStr, (if F"work-unsigned": 0 else: 401))
  let k = pk.getStr.toLowerAscii
  if F"work-sig-length" and sg.getStr.len > 100: return (m, k, 0)
  if not ecVerify(unhex(k), canon(m), unhex(sg.getStr)): return (m, k, (if F"work-forged": 0 else: 401))
  (m, k, 0)
proc work(r: Req): Res =
  var j: JsonNode
  try: j = parseStrict(r.body)
  except ValueError:
    if F"work-bad-500": raise newException(IOError, "bad json")
    return bad("the body is no JSON")
  if F"work-array-500" and j.kind == JArray: raise newException(IOError, "type")
  let poll = r.path == "/work/poll"
  var (m, k, e) = verifyMsg(j)
  if F"result-forged" and not poll and e == 401: e = 0
  if F"poll-forged" and poll and e == 401: e = 0
  if e == 400: 
    if F"work-types-500" and j.kind == JObject and j.len > 0: raise newException(IOError, "type")
    return bad("the message has another form")
  if e == 401: return err((if F"work-401-200": 200 else: 401), "BAD_SIGNATURE", "the signature does not belong to the message")
  if m{"kind"} == nil or m["kind"].kind != JString or m["kind"].getStr != (if poll: "poll" else: "result"): return bad("the message is of another kind")
  if poll:
    var job = newJNull()
    for x in ireqs.values:
      if x.state == "pending" and (x.provider == k or F"poll-all"):
        job = %*{"request_id": x.id, "prompt": x.prompt, "max_tokens": x.maxTok, "checkpoint": servingRoot, "expires_height": x.expires, "public_key": x.pub}
        break
    return J(%*{"job": job, "height": height()})
  let id = m{"request_id"}
  let outp = m{"output"}
  let tk = m{"tokens"}
  if id == nil or id.kind != JString or outp == nil or outp.kind != JString or tk == nil or tk.kind != JInt: return bad("the result has another form")
  if id.getStr notin ireqs: return nat404("there is no such request")
  let x = ireqs[id.getStr]
  if x.provider != k and not F"result-foreign": return err(403, "FORBIDDEN", "the request is for another provider")
  if x.state != "pending":
    if F"result-overwrites": x.response = %*{"text": outp, "tokens": tk, "provider": k}
    elif F"result-revives" and x.state == "expired":
      x.state = "completed"
      x.response = %*{"text": outp, "tokens": tk, "provider": k}
    else: return err(409, "CONFLICT", "the request is " & x.state)
  else: x.complete(outp.getStr, int(tk.getBiggestInt))
  J(%*{"accepted": true, "request_id": x.id})
proc rpcBlock(b: Block): JsonNode =
  var txs = newJArray()
  for t in b.txs: txs.add %encode(t.raw)
  result = %*{"block_id": {"hash": b.hash}, "block": {"header": {"chain_id": chainId, "height": $b.height, "time": isoOf(b.time), "last_block_id": {"hash": b.prev}}, "data": {"txs": txs}}}
  if F"rpc-block-prev": result["block_id"]["hash"] = %b.prev
  if F"rpc-block-chain": result["block"]["header"]["chain_id"] = %"nimbus-main"
proc rpc(r: Req): Res =
  var j: JsonNode
  proc er(id: JsonNode, code: int, m: string, st = 200): Res = J(%*{"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": m}}, st)
  if r.body.len > 256 * 1024: return er(newJNull(), -32600, "the envelope is too long", 413)
  try: j = parseStrict(r.body)
  except ValueError:
    if F"rpc-bad-500": raise newException(IOError, "bad json")
    return er(newJNull(), -32700, "no JSON", 400)
  if j.kind != JObject:
    if F"rpc-array-500": raise newException(IOError, "batch")
    return er(newJNull(), -32600, "no call", 400)
  var id = if j.hasKey("id"): j["id"] else: newJNull()
  if F"rpc-id-number" and id.kind == JString: id = newJInt(1)
  if F"rpc-id-none": id = newJNull()
  if F"rpc-id-string" and id.kind == JInt: id = %($id)
  if id.kind notin {JInt, JString, JNull, JFloat}: return er(newJNull(), -32600, "the id is of another type", 400)
  let me = j{"method"}
  if me == nil or me.kind != JString: return er(id, -32600, "the method is missing", 400)
  var pm = j{"params"}
  if pm == nil or pm.kind == JNull: pm = newJObject()
  if pm.kind notin {JObject, JArray}: return er(id, -32602, "params are of another type", 400)
  proc p(k: string, i: int): JsonNode =
    if pm.kind == JObject: pm{k} elif i < pm.len: pm[i] else: nil
  proc ok(x: JsonNode): Res = J(%*{"jsonrpc": "2.0", "id": id, "result": x})
  proc hgt(): int =
    ## -1: none given; -2 bad
    let v = p("height", 0)
    if v == nil or v.kind == JNull: return -1
    if v.kind == JInt: return (if v.getBiggestInt > 0: int(v.getBiggestInt) else: -2)
    if v.kind == JString and not F"rpc-height-text":
      let s = v.getStr
      if s.len in 1..15 and s.allCharsInSet(Digits) and s[0] != '0': return parseInt(s)
    -2
  var name = me.getStr
  if F"rpc-method-case": name = name.toLowerAscii
  case name
  of "status":
    let b = blocks[^1]
    var o = %*{"node_info": {"network": chainId, "version": "0.4.0"}, "sync_info": {"latest_block_hash": b.hash, "latest_block_height": $b.height, "latest_block_time": isoOf(b.time), "catching_up": false}}
    if F"rpc-status-prev": o["sync_info"]["latest_block_hash"] = %b.prev
    if F"rpc-status-height": o["sync_info"]["latest_block_height"] = %($(b.height - 5))
    if F"rpc-status-chain": o["node_info"]["network"] = %"tendermint-test"
    ok(o)
  of "block":
    var x = hgt()
    if F"rpc-block-nolatest" and x == -1: return er(id, -32602, "height is missing")
    if x == -1: x = height()
    if F"rpc-block-off": x = max(1, x - 1)
    if F"rpc-block-latest": x = height()
    if F"rpc-block-beyond" and x > height(): x = height()
    if x < 1 or x > height(): return er(id, -32602, "there is no block of this height")
    ok(rpcBlock(blocks[x-1]))
  of "validators":
    let x = hgt()
    if x == -2 or x > height(): return er(id, -32602, "there is no block of this height")
    if F"rpc-val-needs-height" and x == -1: return er(id, -32602, "height is missing")
    var vs = newJArray()
    for (n, pw) in [("val1", "40"), ("val2", "35"), ("val3", "25")]: vs.add %*{"pub_key": {"type": "secp256k1", "value": pubs[n]}, "voting_power": (if F"rpc-val-power": "33" else: pw)}
    ok(%*{"block_height": $(if x > 0: x else: height()), "validators": vs, "count": "3", "total": "3"})
  of "abci_query":
    let pa = p("path", 0)
    if pa == nil or pa.kind != JString: return er(id, -32602, "path is missing")
    let dt = p("data", 1)
    var d = ""
    if dt != nil and dt.kind == JString: d = dt.getStr
    if F"rpc-abci-job" and pa.getStr == "/job": return er(id, -32602, "the path is not allowed")
    var v = newJNull()
    case pa.getStr
    of "/job":
      let k = if d in ireqs: d elif unhex(d) in ireqs: unhex(d) else: ""
      if k.len > 0: v = record(ireqs[k])
    of "/jobs":
      v = newJArray()
      for x in ireqs.values: v.add record(x)
    of "/account": v = acctJ(d.toLowerAscii)
    else:
      if F"rpc-abci-any": v = %*{"store": "ok"}
      else: return ok(%*{"response": {"code": 1, "log": "the path is not allowed", "height": $height()}})
    if v.kind == JNull: return ok(%*{"response": {"code": 2, "log": "not found", "height": $height()}})
    ok(%*{"response": {"code": 0, "value": encode($v), "height": $height()}})
  of "broadcast_tx_sync":
    let t = p("tx", 0)
    if t == nil or t.kind != JString: return er(id, -32602, "tx is missing or no text")
    var raw = ""
    try: raw = decode(t.getStr)
    except CatchableError: return er(id, -32602, "tx is no base64")
    if raw.len > (if F"tx-64k": 1024 * 1024 else: 65536): return er(id, -32602, "the transaction is too long")
    let (c, l, hx, rid) = submit(raw)
    var o = %*{"code": c, "log": l, "hash": hx}
    if c == 0: o["request_id"] = %rid
    if F"broadcast-hash-id" and c == 0: o["hash"] = %rid
    if F"broadcast-id-hash" and c == 0: o["request_id"] = %hx
    if F"broadcast-always-0": o["code"] = %0
    ok(o)
  of "net_info", "dump_consensus_state", "genesis", "consensus_state", "unconfirmed_txs":
    if F"rpc-engine": return ok(%*{"listening": true, "n_peers": "2", "peers": [], "round_state": {"height": $height()}})
    er(id, -32601, "the method is not allowed")
  of "dial_peers", "unsafe_flush_mempool":
    if F"rpc-admin": return ok(%*{"log": "done"})
    er(id, -32601, "the method is not allowed")
  else:
    if F"rpc-unknown-null": return ok(newJNull())
    if F"rpc-engine-case" and name.toLowerAscii in ["net_info", "genesis", "consensus_state"]: return ok(%*{"listening": true, "n_peers": "2"})
    if F"rpc-engine-slash" and name.strip(chars = {'/', ' '}).toLowerAscii in ["net_info", "genesis", "health", "consensus_params"]: return ok(%*{"listening": true})
    if F"rpc-health" and name in ["health", "abci_info", "commit", "tx_search", "tx", "blockchain", "consensus_params"]: return ok(newJObject())
    er(id, -32601, "there is no such method")

const legacyGone = ["/register", "/api/register", "/api/accounts/register", "/api/v1/register", "/auth/register"]
const legacyMove = ["/login", "/signup", "/auth/login", "/auth/signup"]
proc native(r: Req): Res =
  let m = if r.meth == "HEAD": "GET" else: r.meth
  let p = r.path
  proc only(ms: string): Res =
    if m == ms: return nil
    result = err(405, "METHOD_NOT_ALLOWED", "the resource does not have this method")
    result.headers.add ("Allow", if ms == "GET": "GET, HEAD" else: ms)
  if p in legacyGone:
    if F"gone-404": return nat404()
    if F"gone-get-only" and m == "POST": return J(%*{"registered": true}, 201)
    if F"gone-body" and r.body.len > 2: return bad("the name is missing")
    if F"gone-one" and p == "/api/accounts/register": return J(%*{"registered": true}, 200)
    return err(410, "GONE", "accounts are not registered any more")
  if p in legacyMove:
    if F"login-404": return nat404()
    if F"login-200": return J(%*{"login": true})
    if F"signup-410" and p == "/signup": return err(410, "GONE", "gone")
    result = Res(status: (if Q"redirect-308": 308 else: 302), ct: "text/plain", body: "moved\n")
    var loc = "/join"
    if F"login-home": loc = "/"
    if F"login-query-lost" and r.qs.len > 0: loc = "/join/login"
    if F"login-slash": loc = "/join/"
    if F"login-loop": loc = p
    result.headers.add ("Location", loc)
    if F"login-no-location": result.headers = @[]
    return
  if p.startsWith("/reference/v03/api/"):
    let x = p[19 .. ^1]
    if F"reference-writes" and m in ["POST", "PUT"]: return J(%*{"stored": true})
    if F"reference-delete" and m == "DELETE": return J(%*{"removed": true})
    let e = only("GET")
    if e != nil: return e
    case x
    of "status": return J(%*{"chain_id": (if F"reference-chain": chainId else: "reference-03"), "version": "0.3.0", "height": 4812, "read_only": true})
    of "network": return J(%*{"chain_id": "reference-03", "version": "0.3.0", "height": 4812, "hash": sha256h("ref 4812")})
    of "blocks":
      if F"reference-blocks": return J(%*{"blocks": [blockJson(blocks[^1], false)]})
      return J(%*{"blocks": [{"height": 4812, "hash": sha256h("ref 4812")}, {"height": 4811, "hash": sha256h("ref 4811")}]})
    of "model": return J(%*{"revision": "v03-final", "root": sha256h("ref root")})
    else: return nat404()
  if p.startsWith("/artifacts/sha256/"):
    let e = only("GET")
    if e != nil: return e
    let d = p[18 .. ^1]
    var k = d
    if F"artifact-prefix" and d.len >= 8:
      for x in [adapterSha, datasetSha, genesisHash]:
        if x.startsWith(d): k = x
    if F"artifact-longer" and d.len > 64: k = d[0 ..< 64]
    if F"artifact-similar" and d.len == 64:
      for x in [adapterSha, datasetSha, genesisHash]:
        if x[0 ..< 56] == d[0 ..< 56]: k = x
    if F"artifact-any" and d.len == 64: k = adapterSha
    if F"artifact-empty" and d.len == 0: k = datasetSha
    result = Res(status: 200, ct: "application/octet-stream")
    if k == adapterSha and not F"artifact-missing": result.body = adapter
    elif k == datasetSha: result.body = dataset
    elif k == genesisHash: result.body = genesis
    else: return nat404("there is no such artifact")
    if F"artifact-json" and k == adapterSha: result.body = ckRaw
    if F"artifact-truncated" and result.body.len > 1024: result.body = result.body[0 ..< result.body.len - 1]
    if F"artifact-newline": result.body.add "\n"
    return
  if p.startsWith("/api/block/"):
    let e = only("GET")
    if e != nil: return e
    let s = p[11 .. ^1]
    var x = 0
    if s.len in 1..12 and s.allCharsInSet(Digits) and (s[0] != '0' or F"block-zeros"): x = parseInt(s)
    elif F"block-latest" and s == "latest": x = height()
    elif F"block-sloppy":
      var t = ""
      for c in s:
        if c in Digits: t.add c
        else: break
      if t.len in 1..9: x = parseInt(t)
    elif F"block-bad-500": raise newException(IOError, "invalid integer")
    if x == 0: return bad("the height is no number above 0")
    if F"block-beyond" and x > height() and x < height() + 100000: x = height()
    if x > height(): 
      if F"block-beyond-500": raise newException(IOError, "index out of bounds")
      return nat404("there is no such block")
    if F"block-off" and x > 1 and x mod 5 == 0: x -= 1
    return J(blockJson(blocks[x-1], true))
  let known = ["/healthz", "/api/network", "/api/model", "/api/model/checkpoint.json", "/api/training", "/api/blocks", "/api/account", "/api/validators", "/api/inference",
    "/api/inference/request", "/network/genesis.json", "/network/dataset.json", "/work/status", "/join", "/api/training/global", "/api/training/verify"]
  if p == "/work/poll" or p == "/work/result":
    let e = only("POST")
    return if e != nil: e else: work(r)
  if p == "/rpc":
    let e = only("POST")
    return if e != nil: e else: rpc(r)
  if p notin known:
    if F"unknown-200" and p.startsWith("/api/"): return J(%*{})
    if F"unknown-index" and m == "GET" and not p.startsWith("/api/v1"): return Res(status: 200, ct: "text/html", body: "<html>node</html>")
    return nat404()
  if F"native-post" and m == "POST": discard
  elif F"native-delete" and m == "DELETE": discard
  else:
    let e = only("GET")
    if e != nil: return e
  if F"native-token" and r.hAll("Authorization").len > 0:
    let e = authed(r)
    if e != nil: return e
  case p
  of "/healthz":
    let o = %*{"status": "ok", "ready": true, "height": height()}
    if F"healthz-height": o["height"] = %(height() - 4)
    if F"healthz-503": return J(o, 503)
    J(o)
  of "/api/network": J(netJ())
  of "/api/model":
    let o = %*{"chain_id": chainId, "revision": "nimble-1", "frozen_parameters": params, "trained_parameters": 72, "training_root": trainRoots[^1], "serving_root": servingRoot,
      "losses": {"initial": 3.1, "latest": lastLoss()}, "execution_profile": "f32-cpu"}
    if F"model-root-moves": o["training_root"] = %sha256h("root " & $height())
    if F"model-serving-other": o["serving_root"] = %sha256h("other root")
    if F"model-root-old": o["training_root"] = %trainRoots[^3]
    J(o)
  of "/api/model/checkpoint.json":
    let o = %*{"chain_id": chainId, "genesis_hash": genesisHash, "round": roundNo, "root": trainRoots[^1], "serving_root": servingRoot,
      "path": "/artifacts/sha256/" & adapterSha, "sha256": adapterSha, "size": adapter.len}
    if F"checkpoint-path": o["path"] = %("/artifacts/sha256/" & sha256h("gone"))
    if F"checkpoint-size": o["size"] = %ckRaw.len
    if F"checkpoint-root": o["root"] = %sha256h("elsewhere")
    if F"checkpoint-round": o["round"] = %(roundNo - 1)
    if F"checkpoint-sha": o["sha256"] = %datasetSha
    if F"checkpoint-genesis": o["genesis_hash"] = %sha256h("another genesis")
    J(o)
  of "/api/training":
    var us = newJArray()
    let (ns, _) = r.pageOf(roundNo, "training")
    for i in ns: us.add updateJ(i)
    if F"update-loss-page" and r.hasQ("before"):
      for u in us: u["loss"] = %(u["loss"].getFloat + 0.01)
    J(%*{"updates": us, "indexed_round": (if F"index-behind": roundNo - 4 else: roundNo), "index_error": nil})
  of "/api/blocks":
    var bs = newJArray()
    let (ns, _) = r.pageOf(height(), "blocks")
    for i in ns: bs.add blockJson(blocks[i-1], false)
    if F"list-hash-short":
      for b in bs: b["hash"] = %b["hash"].getStr[0 ..< 32]
    J(%*{"blocks": bs, "height": height()})
  of "/api/account":
    var k = r.q("public_key")
    if F"account-upper-new" and k != k.toLowerAscii: return J(acctJ(k))
    if F"account-upper-500" and k != k.toLowerAscii: raise newException(IOError, "case")
    let was = k
    k = k.toLowerAscii
    if not pubOk(unhex(k)):
      if F"account-any-text" : return J(acctJ(was))
      if F"account-bad-500": raise newException(IOError, "bad key")
      if F"account-long" and k.len > 66 and pubOk(unhex(k[0 ..< 66])): return J(acctJ(k[0 ..< 66]))
      return bad("public_key is no compressed key")
    if F"account-02": 
      for x in caccts.keys:
        if x[2 .. ^1] == k[2 .. ^1] and x != k: return J(acctJ(x))
    if F"account-cache" and served.getOrDefault("GET /api/account") mod 4 == 0: return J(acctJ(pubs["alice"]))
    if F"account-unknown-404" and k notin caccts: return nat404()
    if F"account-unknown-gift" and k notin caccts:
      let o = acctJ(k)
      o["balance_atoms"] = %($(int(le32(sha256(k), 0)) mod 1000))
      return J(o)
    if F"account-nonce-served": cacct(k).nonce += 0
    let o = acctJ(k)
    if F"account-key-other": o["public_key"] = %pubs["val1"]
    J(o)
  of "/api/validators": J(validatorsJ(r))
  of "/api/inference": J(infoJ())
  of "/api/inference/request":
    var k = r.q("id")
    if k.len == 0:
      if F"request-no-id" and ireqs.len > 0:
        for x in ireqs.values: return J(record(x))
      return bad("id is missing")
    if F"request-longer" and k.len > 64: k = k[0 ..< 64]
    if F"request-prefix" and k.len >= 8:
      for x in ireqs.keys:
        if x.startsWith(k): k = x
    if F"request-by-hash":
      for x in ireqs.values:
        if x.tx == k: k = x.id
    if F"request-last" and ireqs.len > 0 and k notin ireqs and k.len == 64:
      return J(%*{"request_id": k, "state": "pending", "response": nil})
    if k notin ireqs: return nat404("there is no such request")
    let x = ireqs[k]
    if F"pending-404" and x.state == "pending": return nat404("there is no such request")
    if F"expired-404" and x.state == "expired": return nat404("there is no such request")
    if F"completed-once" and x.state == "completed" and served.getOrDefault("c" & k) > 1: return nat404("there is no such request")
    if x.state == "completed": served.inc("c" & k)
    J(record(x))
  of "/network/genesis.json": Res(status: 200, ct: "application/json", body: (if F"genesis-moves": genesis[0 .. ^2] & ",\"served\":" & $height() & "}" else: genesis))
  of "/network/dataset.json": Res(status: 200, ct: "application/json", body: (if F"dataset-pretty": pretty(parseJson(dataset)) else: dataset))
  of "/work/status": J(%*{"sponsor": nil, "stages": ["poll", "result"], "attempts_remaining": 5})
  of "/join": Res(status: 200, ct: "text/html", body: "<html><body>Join with the packaged worker.</body></html>")
  of "/api/training/global":
    let o = trainingJ()
    if F"train-rate-ignores": o["sync_success_rate"] = %1.0
    if F"train-min-above": o["global_min_loss"] = %2.9
    if F"train-is-training": o["local"]["is_training"] = %true
    J(o)
  of "/api/training/verify": J(verifyJ())
  else: nat404()

include openai

proc rev(n: JsonNode): JsonNode =
  if n.kind == JObject:
    result = newJObject()
    var ks: seq[string]
    for k in n.keys: ks.add k
    for i in countdown(ks.len - 1, 0): result[ks[i]] = rev(n[ks[i]])
  elif n.kind == JArray:
    result = newJArray()
    for x in n: result.add rev(x)
  else: result = n
proc asciiJson*(s: string): string =
  for u in runes(s):
    let c = int(int32(u))
    if c < 128: result.add chr(c)
    elif c < 0x10000: result.add "\\u" & toHex(c, 4)
    else:
      let d = c - 0x10000
      result.add "\\u" & toHex(0xD800 + (d shr 10), 4) & "\\u" & toHex(0xDC00 + (d and 1023), 4)
proc peculiar(r: Req, res: Res) =
  let k = routeKey(r)
  if res.j != nil and res.j.kind == JObject and pecs.len > 0:
    var j = res.j.copy
    if res.status == 200:
      if Q"extra-status" and k == "GET /api/v1/status": j["build"] = %*{"commit": "abc", "flags": []}
      if Q"extra-metrics" and k == "GET /api/v1/metrics": j["inference"]["queue_depth"] = %0
      if Q"extra-balance" and k == "GET /api/v1/wallet/balance": j["balances"]["frozen"] = newJNull()
      if Q"extra-peer" and k == "GET /api/v1/peers": (for p in j["peers"]: p["region"] = %"eu")
      if Q"extra-config" and k == "GET /api/v1/config": j["logging"] = %*{"level": "info"}
      if Q"extra-inference" and k == "POST /api/v1/inference": j["model"] = %"nimble-toy"
      if Q"extra-block" and k == "GET /api/block/": j["proposer"] = %pubs["val1"]
      if Q"extra-account" and k == "GET /api/account": j["label"] = newJNull()
      if Q"extra-send" and k == "POST /api/v1/wallet/send": j["block"] = %12
      if Q"extra-global" and k == "GET /api/training/global": j["peers_lagging"] = newJArray()
      if Q"health-word" and k == "GET /api/v1/health": j["checks"]["gpu"] = %"not present"
      if Q"status-draining" and k == "GET /api/v1/status": j["status"] = %"draining"
      if Q"layer-standby" and k == "GET /api/v1/layers": j["layers"][0]["status"] = %"standby"
      if Q"layer-attention" and k == "GET /api/v1/layers": j["layers"][0]["type"] = %"embedding"
      if Q"send-pending-word" and k == "POST /api/v1/wallet/send": j["status"] = %"accepted"
      if Q"trend-stable" and k == "GET /api/training/global": j["loss_trend"] = %"improving"
      if Q"percent-plain" and k == "GET /api/training/verify": j["metrics"]["hash_agreement"] = %"100%"
      if Q"proof-backward" and k == "GET /api/v1/proofs" and j["proofs"].len > 0: j["proofs"][0]["type"] = %"backward"
      if Q"receive-word" and k == "GET /api/v1/wallet/transactions":
        for t in j["transactions"]:
          if t["type"].getStr == "receive": t["type"] = %"incoming"
      if Q"fields-int" and k == "GET /api/v1/metrics": j["rewards"]["earned_today"] = newJInt(0)
      if Q"model-extra" and k == "GET /v1/models/": j["permission"] = newJArray()
      if Q"chat-fingerprint" and k == "POST /v1/chat/completions": j["system_fingerprint"] = %"fp_1"
    if Q"refuse-422" and res.status == 400: res.status = 422
    if Q"refuse-404-method" and res.status == 405: res.status = 404
    if Q"error-details" and res.status == 400 and j.hasKey("error") and j["error"].kind == JObject: j["error"]["details"] = %*{"hint": "see the interface"}
    if Q"key-order": j = rev(j)
    res.j = j
    if Q"json-pretty":
      res.body = pretty(j)
      res.j = nil
    elif Q"json-escapes":
      res.body = asciiJson($j)
      res.j = nil
    elif Q"native-error-text" and res.status >= 400 and not r.path.startsWith("/api/v1") and not r.path.startsWith("/v1") and r.path != "/rpc":
      res.body = "refused\n"
      res.ct = "text/plain"
      res.j = nil
  if Q"ct-charset" and res.ct == "application/json": res.ct = "application/json; charset=utf-8"
  if Q"no-www-authenticate": res.headers = res.headers.filterIt(it[0] != "WWW-Authenticate")
  if Q"cors": res.headers.add ("Access-Control-Allow-Origin", "*")
  if Q"cache-header" and r.meth == "GET": res.headers.add ("ETag", "W/\"1\"")
proc dispatch*(r: Req): Res =
  let key = routeKey(r)
  served.inc(key)
  let path = r.path
  try:
    if path == "/api/v1" or path.startsWith("/api/v1/"):
      if path in legacyGone: result = native(r)
      else: result = nodeApi(r)
    elif path.startsWith("/v1/"):
      oaGen = true
      try: result = openai(r)
      finally: oaGen = false
    else: result = native(r)
  except Bad as e: result = (if path.startsWith("/v1/"): oaErr(400, e.msg) else: bad(e.msg))
  except JErr as e: result = bad(e.msg)
  except CatchableError as e:
    result = err(500, "INTERNAL", (if F"traceback": "Traceback (most recent call last): node.nim(214) handler " & e.msg else: "the node has failed"))
  except Defect as e:
    result = err(500, "INTERNAL", "the node has failed")
    stderr.writeLine "defect: " & e.msg & e.getStackTrace
  if result.status >= 400: inc refusals
  if F"traceback" and result.status == 400 and result.j != nil: result.j["error"]["message"] = %"Traceback (most recent call last):\n  File \"node.nim\", line 214, in handler\nValueError: bad body"
  if F"refused-block" and refusals > 5 and result.status == 200 and refusals mod 7 < 3 and path.startsWith("/api/v1"): result = err(503, "BUSY", "too many bad requests")
  peculiar(r, result)
  # generic faults
  if gen.len >= 3:
    let here = gen[1] == key or gen[1] == r.meth & " *" or (gen[1] == "api" and path.startsWith("/api/v1/")) or
      (gen[1].endsWith("*") and key.startsWith(gen[1][0 .. ^2])) or
      (r.meth == "HEAD" and gen[1] == "GET" & key[4 .. ^1])
    if here:
      let cond = if gen[0] in ["G", "E"]: (if gen.len > 4: gen[4] else: "") else: (if gen.len > 3: gen[3] else: "")
      if condOk(r, key, cond):
        case gen[0]
        of "G":
          if result.status == 200 and result.j != nil:
            result.j = result.j.copy
            mutate(result.j, gen[2].split('.'), gen[3])
        of "E":  # a member of an error body
          if result.status >= 400 and result.j != nil:
            result.j = result.j.copy
            mutate(result.j, gen[2].split('.'), gen[3])
        of "S":
          let p = gen[2].split('>')
          if $result.status == p[0]:
            result.status = parseInt(p[1])
            if p.len > 2: result.j = parseJson(p[2])
        of "R":
          let op = gen[2]
          if op == "404": result = err(404, "NOT_FOUND", "there is no such route")
          elif op == "405": result = err(405, "METHOD_NOT_ALLOWED", "the route does not have this method")
          elif op == "500": result = err(500, "INTERNAL", "the node has failed")
          elif op == "501": result = err(501, "NOT_IMPLEMENTED", "not yet")
          elif op == "503": result = err(503, "BUSY", "not now")
          elif op == "204": result = Res(status: 204, ct: "application/json")
          elif op == "201": (if result.status == 200: result.status = 201)
          elif op == "null": (if result.status == 200: result = Res(status: 200, ct: "application/json", body: "null"))
          elif op == "array": (if result.status == 200 and result.j != nil: result.j = %[result.j])
          elif op == "wrap": (if result.status == 200 and result.j != nil: result.j = %*{"data": result.j})
          elif op == "emptybody": (if result.status == 200: result = Res(status: 200, ct: "application/json", body: ""))
          elif op == "html": result = Res(status: 200, ct: "text/html", body: "<html><body>node</body></html>")
          elif op == "nan": (if result.status == 200 and result.j != nil: (var s = $result.j; s = s[0 .. ^2] & ",\"ratio\":NaN}"; result = Res(status: 200, ct: "application/json", body: s)))
          elif op == "dupkey": (if result.status == 200 and result.j != nil: (var s = $result.j; s = s[0 .. ^2] & s[0 .. s.find(',')].replace("{", ",")[0 .. ^2] & "}"; result = Res(status: 200, ct: "application/json", body: s)))
          elif op == "singlequote": (if result.status == 200 and result.j != nil: result = Res(status: 200, ct: "application/json", body: ($result.j).replace("\"", "'")))
          elif op == "trailing": (if result.status == 200 and result.j != nil: result = Res(status: 200, ct: "application/json", body: ($result.j)[0 .. ^2] & ",}"))
          elif op == "yaml": (if r.h("Accept").len > 0 and not r.h("Accept").contains("json") and not r.h("Accept").contains("*/*"): result = Res(status: 406, ct: "text/plain", body: "not acceptable"))
          elif op == "xml": (if r.h("Accept").contains("html") and result.status == 200: result = Res(status: 200, ct: "text/html", body: "<html><body>node</body></html>"))
          elif op == "gzip": (if r.h("Accept-Encoding").contains("gzip") and result.status == 200 and result.j != nil: (result.headers.add ("Content-Encoding", "gzip"); discard))
          elif op.startsWith("ct:"): (if result.status == 200: result.ct = op[3 .. ^1])
          elif op.startsWith("redirect:"): (result = Res(status: 301, ct: "text/plain", body: "moved\n"); result.headers.add ("Location", op[9 .. ^1]))
          else: discard
        else: discard
