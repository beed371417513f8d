import std/[json, strutils, tables, os, sets, sequtils, net, uri, base64]
import util, h2, core, chain, api, grpc

proc decodePct(s: string, plus: bool): string =
  var i = 0
  while i < s.len:
    if s[i] == '%' and i + 2 < s.len and s[i+1] in HexDigits and s[i+2] in HexDigits:
      result.add chr(fromHex[int](s[i+1 .. i+2]))
      i += 3
    elif plus and s[i] == '+':
      result.add ' '
      inc i
    else:
      result.add s[i]
      inc i
const reasons = {200: "OK", 201: "Created", 204: "No Content", 301: "Moved Permanently", 302: "Found", 400: "Bad Request", 401: "Unauthorized", 402: "Payment Required",
  403: "Forbidden", 404: "Not Found", 405: "Method Not Allowed", 409: "Conflict", 410: "Gone", 413: "Content Too Large", 429: "Too Many Requests", 500: "Internal Server Error", 503: "Service Unavailable"}.toTable
proc serve(sock: AsyncSocket, ip: string) {.async.} =
  inc conns
  var buf = ""
  var nth = 0
  var prevTok = ""
  var prevBad = false
  try:
    template more() =
      let x = await sock.recv(65536)
      if x.len == 0: break
      bytesIn += x.len
      buf.add x
    block conn:
      while true:
        # head
        var e = -1
        while true:
          while buf.startsWith("\r\n"): buf = buf[2 .. ^1]
          e = buf.find("\r\n\r\n")
          if e >= 0 or buf.len > 65536: break
          let x = await sock.recv(65536)
          if x.len == 0: break conn
          bytesIn += x.len
          buf.add x
        if e < 0: break conn
        let lines = buf[0 ..< e].split("\r\n")
        buf = buf[e + 4 .. ^1]
        let rl = lines[0].split(' ')
        if rl.len != 3:
          await sock.send("HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
          break conn
        let r = Req(meth: rl[0], target: rl[1], ip: ip)
        inc nth
        r.nth = nth
        r.prevTok = prevTok
        r.prevBad = prevBad
        for l in lines[1 .. ^1]:
          let c = l.find(':')
          if c > 0: r.headers.add (l[0 ..< c].strip, l[c+1 .. ^1].strip)
        var close = rl[2] == "HTTP/1.0" and r.h("Connection").toLowerAscii != "keep-alive"
        if r.h("Connection").toLowerAscii.contains("close"): close = true
        if r.h("Expect").toLowerAscii == "100-continue": await sock.send("HTTP/1.1 100 Continue\r\n\r\n")
        var tooLong = false
        if r.h("Transfer-Encoding").toLowerAscii.contains("chunked"):
          while true:
            var p = buf.find("\r\n")
            while p < 0:
              let x = await sock.recv(65536)
              if x.len == 0: break conn
              bytesIn += x.len
              buf.add x
              p = buf.find("\r\n")
            var n = 0
            try: n = fromHex[int](buf[0 ..< p].split(';')[0].strip)
            except ValueError: break conn
            buf = buf[p + 2 .. ^1]
            if n > 20_000_000: break conn
            if n == 0:
              # trailers
              while true:
                let q = buf.find("\r\n")
                if q < 0:
                  let x = await sock.recv(65536)
                  if x.len == 0: break conn
                  buf.add x
                  continue
                let line = buf[0 ..< q]
                buf = buf[q + 2 .. ^1]
                if line.len == 0: break
              break
            while buf.len < n + 2:
              let x = await sock.recv(65536)
              if x.len == 0: break conn
              bytesIn += x.len
              buf.add x
            if r.body.len + n > 16 * 1024 * 1024: tooLong = true
            else: r.body.add buf[0 ..< n]
            buf = buf[n + 2 .. ^1]
            if F"chunk-first-only" and r.body.len > 0:
              discard
        else:
          let cl = r.h("Content-Length")
          if cl.len > 0:
            if cl.len > 15 or not cl.allCharsInSet(Digits):
              await sock.send("HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
              break conn
            let n = parseInt(cl)
            if n > 16 * 1024 * 1024:
              await sock.send("HTTP/1.1 413 Content Too Large\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
              break conn
            while buf.len < n:
              let x = await sock.recv(65536)
              if x.len == 0: break conn
              bytesIn += x.len
              buf.add x
            r.body = buf[0 ..< n]
            buf = buf[n .. ^1]
        r.start = mono()
        var t = r.target
        if t.startsWith("http://"):
          let k = t.find('/', 7)
          t = if k > 0: t[k .. ^1] else: "/"
        let h = t.find('#')
        if h >= 0: t = t[0 ..< h]
        let qm = t.find('?')
        r.rawPath = if qm >= 0: t[0 ..< qm] else: t
        r.qs = if qm >= 0: t[qm+1 .. ^1] else: ""
        r.path = decodePct(r.rawPath, false)
        if F"path-fold": r.path = r.path.toLowerAscii
        if F"slash-fold" and r.path.len > 1 and r.path.endsWith("/") and r.path.startsWith("/api/v1"): (r.path = r.path.strip(leading = false, chars = {'/'}); if r.meth == "GET" : r.headers = r.headers.filterIt(it[0].toLowerAscii != "authorization") & @[("Authorization", "Bearer " & tokMain)])
        for kv in r.qs.split('&'):
          if kv.len == 0: continue
          let q = kv.find('=')
          if F"query-encoded": r.query.add (if q >= 0: (kv[0 ..< q], kv[q+1 .. ^1]) else: (kv, ""))
          else: r.query.add (if q >= 0: (decodePct(kv[0 ..< q], true), decodePct(kv[q+1 .. ^1], true)) else: (decodePct(kv, true), ""))
        let slow = r.path in ["/api/v1/inference", "/api/v1/wallet/send", "/v1/chat/completions", "/v1/completions", "/api/v1/config", "/api/v1/wallet/balance"] and r.meth != "HEAD"
        inc inflight
        r.conc = inflight
        if slow: await sleepAsync(if r.path.endsWith("inference"): (if gen.len > 2 and gen[2] == "busy": 150 else: 6) elif F"account-cached": 15 else: 2)
        r.conc = max(r.conc, inflight)
        var res: Res
        if tooLong: res = err(413, "TOO_LARGE", "the body is too long")
        else: res = dispatch(r)
        dec inflight
        if F"conn-swap" and nth mod 5 == 4 and r.meth == "GET" and r.path.startsWith("/api/") and not r.path.startsWith("/api/v1"):
          let r2 = Req(meth: "GET", path: "/api/network", target: "/api/network")
          res = dispatch(r2)
        if r.acct.len > 0 and res.status != 401:
          let a = r.h("Authorization").strip.split(' ')
          prevTok = if a.len > 1: a[^1] else: prevTok
        if F"prev-forgotten": prevTok = ""
        prevBad = res.status == 401
        var date = nowF()
        var o = "HTTP/1.1 " & $res.status & " " & reasons.getOrDefault(res.status, "Status") & "\r\nDate: " & httpDate(date) & "\r\n"
        if res.ct.len > 0: o.add "Content-Type: " & res.ct & "\r\n"
        for (a, b) in res.headers: o.add a & ": " & b & "\r\n"
        if Q"server-header": o.add "Server: nimbus\r\n"
        if Q"close-always": close = true
        if res.stream and not Q"stream-length":
          o.add "Cache-Control: no-store\r\n"
          let ch = rl[2] == "HTTP/1.1"
          if ch: o.add "Transfer-Encoding: chunked\r\n"
          else: close = true
          if close: o.add "Connection: close\r\n"
          o.add "\r\n"
          if r.meth != "HEAD":
            for i, p in res.pieces:
              o.add(if ch: toHex(p.len).strip(trailing = false, chars = {'0'}) & "\r\n" & p & "\r\n" else: p)
              if i mod 16 == 15:
                bytesOut += o.len
                await sock.send(o)
                o = ""
            if F"sse-open":
              await sock.send(o)
              await sleepAsync(8000)
              o = ""
            if ch: o.add "0\r\n\r\n"
          bytesOut += o.len
          await sock.send(o)
        else:
          var b = res.body
          if Q"headers-lower": o = o[0 ..< o.find("\r\n")] & o[o.find("\r\n") .. ^1].replace("Content-Type:", "content-type:").replace("Date:", "date:")
          if res.stream: b = res.pieces.join
          if res.j != nil: b = $res.j
          if F"pretty-nonascii": discard
          if res.status != 204: o.add "Content-Length: " & $b.len & "\r\n"
          if close: o.add "Connection: close\r\n"
          o.add "\r\n"
          if r.meth != "HEAD": o.add b
          bytesOut += o.len
          await sock.send(o)
        if close: break conn
        if F"close-unsaid" and res.status >= 400: break conn
  except CatchableError: discard
  except Defect as e: stderr.writeLine "http defect: " & e.msg & "\n" & e.getStackTrace
  dec conns
  try: sock.close() except: discard

proc httpLoop(p: int) {.async.} =
  let s = newAsyncSocket(buffered = false)
  s.setSockOpt(OptReuseAddr, true)
  try: s.bindAddr(Port(p), "127.0.0.1")
  except OSError: quit("the port " & $p & " is in use")
  s.listen(512)
  while true:
    try:
      let (a, c) = await s.acceptAddr()
      c.setSockOpt(OptNoDelay, true, level = 6)
      asyncCheck serve(c, a)
    except CatchableError: await sleepAsync(20)
proc grpcConn(c: AsyncSocket, ip: string) {.async.} =
  let k = newConn(c, true)
  k.peerIp = ip
  inc conns
  try:
    await k.hello()
    await k.readLoop(onStream)
  except CatchableError: discard
  dec conns
proc grpcLoop(p: int) {.async.} =
  let s = newAsyncSocket(buffered = false)
  s.setSockOpt(OptReuseAddr, true)
  try: s.bindAddr(Port(p), "127.0.0.1")
  except OSError: quit("the port " & $p & " is in use")
  s.listen(256)
  while true:
    try:
      let (a, c) = await s.acceptAddr()
      c.setSockOpt(OptNoDelay, true, level = 6)
      asyncCheck grpcConn(c, a)
    except CatchableError: await sleepAsync(20)
proc blockLoop() {.async.} =
  while true:
    await sleepAsync(2000)
    if nowF() - blocks[^1].time >= 1.9 and not F"chain-stalls": makeBlock(@[])
proc workerLoop() {.async.} =
  while true:
    await sleepAsync(400)
    workerTick()

proc signCmd(s: string) =
  let j = parseStrict(s)
  let forge = j{"forge"}.getBool(false)
  case j{"kind"}.getStr
  of "request":
    let name = j["account"].getStr
    let p = %*{"kind": "inference_request", "chain_id": j{"chain_id"}.getStr(chainId), "nonce": j["nonce"].getInt, "provider": (if j{"silent"}.getBool(false): pubs["silent"] else: pubs["worker"]),
      "checkpoint": j["checkpoint"].getStr, "prompt": j["prompt"].getStr, "max_tokens": j{"max_tokens"}.getInt(8), "price": price, "fee": fee, "expires_height": j["expires_height"].getInt}
    let t = signTx(name, p, forge)
    let raw = canon(t)
    echo $(%*{"message": {"jsonrpc": "2.0", "id": 1, "method": "broadcast_tx_sync", "params": {"tx": encode(raw)}}, "transaction_hash": sha256h(raw), "request_id": requestIdOf(p, pubs[name]), "public_key": pubs[name]})
  of "poll", "result":
    let name = j["account"].getStr
    let poll = j["kind"].getStr == "poll"
    let m = if poll: %*{"kind": "poll", "time": iso()} else: %*{"kind": "result", "request_id": j["request_id"], "output": j["output"], "tokens": j["tokens"]}
    let signed = m.copy
    if forge: signed["forged"] = %true
    echo $(%*{"path": (if poll: "/work/poll" else: "/work/result"), "message": {"message": m, "public_key": pubs[name], "signature": hexOf(ecSign(privs[name], canon(signed)))}})
  else: quit("unknown kind")

var p = 8000
let args = commandLineParams()
if args.len > 1 and args[0] == "sign":
  signCmd(args[1])
  quit 0
if args.len > 0 and args[0] == "faults":
  for d in loadDefs(): echo d.id & "\t" & d.kind & "\t" & (if d.req.len > 0: d.req else: "-") & "\t" & d.text
  quit 0
if args.len > 0 and args[0] == "keys":
  echo pubs
  initChain()
  echo firstReq, " ", adapterSha, " ", datasetSha, " ", genesisHash
  quit 0
var i = 0
while i < args.len:
  case args[i]
  of "--port":
    inc i
    p = parseInt(args[i])
  of "--fault":
    inc i
    fault = args[i]
    var found = false
    for d in loadDefs():
      if d.id == fault:
        found = true
        gen = d.gen
    if not found: quit("no such fault: " & fault)
  of "--peculiar":
    inc i
    for x in args[i].split(','): pecs.incl x
  of "--peer":
    inc i
    let k = args[i].rfind(':')
    peers.add Peer(host: args[i][0 ..< k], port: parseInt(args[i][k+1 .. ^1]) + 1000)
  else: quit("unknown option " & args[i])
  inc i
setup(p)
initChain()
asyncCheck httpLoop(p)
asyncCheck grpcLoop(p + 1000)
asyncCheck blockLoop()
asyncCheck workerLoop()
for pe in peers: asyncCheck watch(pe)
echo "serving on 127.0.0.1:", p, " and gRPC on ", p + 1000
flushFile(stdout)
while true:
  try: poll(500)
  except CatchableError as e: stderr.writeLine "loop: " & e.msg
  except Defect as e: stderr.writeLine "loop defect: " & e.msg
