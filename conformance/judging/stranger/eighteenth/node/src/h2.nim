import std/[asyncdispatch, asyncnet, strutils, tables, net, nativesockets]
import util, hufftab
export asyncdispatch, asyncnet

# ---------- HPACK ----------
type Node = object
  kid: array[2, int]
  sym: int
var tree: seq[Node] = @[Node(sym: -1)]
for s in 0 .. 256:
  var at = 0
  for b in countdown(huffLens[s] - 1, 0):
    let bit = int((huffCodes[s] shr b) and 1)
    if tree[at].kid[bit] == 0:
      tree.add Node(sym: -1)
      tree[at].kid[bit] = tree.len - 1
    at = tree[at].kid[bit]
  tree[at].sym = s
proc unhuff(s: string): string =
  var at = 0
  for c in s:
    for b in countdown(7, 0):
      at = tree[at].kid[(ord(c) shr b) and 1]
      if at == 0: raise newException(ValueError, "huffman")
      if tree[at].sym >= 0:
        if tree[at].sym == 256: raise newException(ValueError, "huffman eos")
        result.add chr(tree[at].sym)
        at = 0
type Hpack* = object
  dyn: seq[(string, string)]
  size, maxSize: int
proc hint(s: string, i: var int, bits: int): int =
  if i >= s.len: raise newException(ValueError, "hpack")
  let m = (1 shl bits) - 1
  result = ord(s[i]) and m
  inc i
  if result < m: return
  var sh = 0
  while true:
    if i >= s.len or sh > 28: raise newException(ValueError, "hpack int")
    let b = ord(s[i])
    inc i
    result += (b and 127) shl sh
    if b < 128: return
    sh += 7
proc hstr(s: string, i: var int): string =
  if i >= s.len: raise newException(ValueError, "hpack")
  let h = (ord(s[i]) and 128) != 0
  let n = hint(s, i, 7)
  if i + n > s.len: raise newException(ValueError, "hpack str")
  result = s[i ..< i+n]
  i += n
  if h: result = unhuff(result)
proc evict(h: var Hpack) =
  while h.size > h.maxSize and h.dyn.len > 0:
    h.size -= h.dyn[^1][0].len + h.dyn[^1][1].len + 32
    h.dyn.setLen(h.dyn.len - 1)
proc look(h: Hpack, n: int): (string, string) =
  if n >= 1 and n <= 61: return staticTab[n-1]
  if n - 62 >= 0 and n - 62 < h.dyn.len: return h.dyn[n - 62]
  raise newException(ValueError, "hpack index")
proc decode*(h: var Hpack, s: string): seq[(string, string)] =
  var i = 0
  while i < s.len:
    let b = ord(s[i])
    if (b and 128) != 0: result.add h.look(hint(s, i, 7))
    elif (b and 0xe0) == 0x20:
      h.maxSize = min(4096, hint(s, i, 5))
      h.evict
    else:
      let idx = (b and 0xc0) == 0x40
      let n = hint(s, i, if idx: 6 else: 4)
      let name = if n == 0: hstr(s, i) else: h.look(n)[0]
      let val = hstr(s, i)
      result.add (name, val)
      if idx:
        h.dyn.insert((name, val), 0)
        h.size += name.len + val.len + 32
        h.evict
proc encHeaders*(hs: openArray[(string, string)]): string =
  proc n7(o: var string, n: int) =
    if n < 127: o.add chr(n)
    else:
      o.add chr(127)
      var x = n - 127
      while x >= 128:
        o.add chr((x and 127) or 128)
        x = x shr 7
      o.add chr(x)
  for (a, b) in hs:
    result.add '\0'
    result.n7(a.len)
    result.add a
    result.n7(b.len)
    result.add b

# ---------- connection ----------
type
  Stream* = ref object
    id*: int
    headers*, trailers*: seq[(string, string)]
    body*: string
    ended*, reset*, started*: bool
    win*: int
    lastMsg*: float
  Conn* = ref object
    sock*: AsyncSocket
    hp: Hpack
    streams*: Table[int, Stream]
    win*, initWin, maxFrame: int
    closed*: bool
    server*: bool
    peerIp*: string
    sendLock: seq[Future[void]]
    sending: bool
    consumed: int
    lastStream: int
var bytesIn*, bytesOut*: int
var conns* = 0
type Handler* = proc(c: Conn, s: Stream): Future[void] {.closure.}

proc rawSend(c: Conn, d: string) {.async.} =
  # one writer at a time
  while c.sending:
    let f = newFuture[void]("w")
    c.sendLock.add f
    await f
  c.sending = true
  try:
    if not c.closed:
      bytesOut += d.len
      await c.sock.send(d)
  finally:
    c.sending = false
    if c.sendLock.len > 0:
      let f = c.sendLock[0]
      c.sendLock.delete 0
      f.complete()
proc frame(t, fl, id: int, p: string): string =
  result = newStringOfCap(p.len + 9)
  result.add chr((p.len shr 16) and 255)
  result.add chr((p.len shr 8) and 255)
  result.add chr(p.len and 255)
  result.add chr(t)
  result.add chr(fl)
  for k in [24, 16, 8, 0]: result.add chr((id shr k) and 255)
  result.add p
proc be32(n: int): string =
  for k in [24, 16, 8, 0]: result.add chr((n shr k) and 255)
proc rd(s: string, i, n: int): int =
  for k in 0 ..< n: result = (result shl 8) or ord(s[i+k])
proc sendHeaders*(c: Conn, s: Stream, hs: seq[(string, string)], fin: bool) {.async.} =
  if c.closed or s.reset: return
  await c.rawSend(frame(1, (if fin: 5 else: 4), s.id, encHeaders(hs)))
proc sendData*(c: Conn, s: Stream, d: string, fin = false) {.async.} =
  var i = 0
  while i < d.len:
    if c.closed or s.reset: return
    let n = min(min(c.win, s.win), min(c.maxFrame, d.len - i))
    if n <= 0:
      await sleepAsync(1)
      continue
    c.win -= n
    s.win -= n
    await c.rawSend(frame(0, (if fin and i + n == d.len: 1 else: 0), s.id, d[i ..< i+n]))
    i += n
  if d.len == 0 and fin: await c.rawSend(frame(0, 1, s.id, ""))
proc newConn*(sock: AsyncSocket, server: bool): Conn =
  Conn(sock: sock, server: server, win: 65535, initWin: 65535, maxFrame: 16384, hp: Hpack(maxSize: 4096))
proc newStream*(c: Conn, id: int): Stream =
  result = Stream(id: id, win: c.initWin)
  c.streams[id] = result
proc recvN(c: Conn, n: int): Future[string] {.async.} =
  result = newStringOfCap(n)
  while result.len < n:
    let x = await c.sock.recv(min(n - result.len, 1 shl 18))
    if x.len == 0: raise newException(IOError, "closed")
    bytesIn += x.len
    result.add x
proc hello*(c: Conn) {.async.} =
  # a large window, large frames
  var st = ""
  st.add "\0\4" & be32(8 * 1024 * 1024)
  st.add "\0\5" & be32(1024 * 1024)
  if c.server: st.add "\0\3" & be32(1000)
  else: st.add "\0\2" & be32(0)
  await c.rawSend((if c.server: "" else: "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n") & frame(4, 0, 0, st) &
    frame(8, 0, 0, be32(512 * 1024 * 1024)))
proc closeConn*(c: Conn) =
  if not c.closed:
    c.closed = true
    try: c.sock.close() except: discard
proc readLoop*(c: Conn, onData: Handler) {.async.} =
  try:
    if c.server:
      let p = await c.recvN(24)
      if not p.startsWith("PRI * HTTP/2.0"): raise newException(IOError, "preface")
    var hb = ""
    var hbId = 0
    var hbEnd = false
    while not c.closed:
      let h = await c.recvN(9)
      let n = rd(h, 0, 3)
      let t = ord(h[3])
      let fl = ord(h[4])
      let id = rd(h, 5, 4) and 0x7fffffff
      if n > 1024 * 1024 + 16384:
        await c.rawSend(frame(7, 0, 0, be32(c.lastStream) & be32(6)))
        break
      var p = if n > 0: await c.recvN(n) else: ""
      case t
      of 0:
        var st = 0
        var e = p.len
        if (fl and 8) != 0 and p.len > 0:
          e = p.len - ord(p[0])
          st = 1
        c.consumed += n
        if c.consumed > 4 * 1024 * 1024:
          await c.rawSend(frame(8, 0, 0, be32(c.consumed)))
          c.consumed = 0
        if id in c.streams:
          let s = c.streams[id]
          if e > st:
            if st == 0 and e == p.len: s.body.add p
            else: s.body.add p[st ..< e]
          if (fl and 1) != 0: s.ended = true
          elif n > 0: await c.rawSend(frame(8, 0, id, be32(n)))
          if s.body.len > 110 * 1024 * 1024:
            s.body = ""
            s.reset = true
            await c.rawSend(frame(3, 0, id, be32(11)))
            c.streams.del id
          else: asyncCheck onData(c, s)
      of 1, 9:
        if t == 1:
          var st = 0
          var e = p.len
          if (fl and 8) != 0:
            e -= ord(p[0])
            st = 1
          if (fl and 32) != 0: st += 5
          hb = if e > st: p[st ..< e] else: ""
          hbId = id
          hbEnd = (fl and 1) != 0
        else: hb.add p
        if (fl and 4) != 0:
          let hs = c.hp.decode(hb)
          var s: Stream
          if hbId in c.streams:
            s = c.streams[hbId]
            s.trailers = hs
          elif c.server and hbId > c.lastStream:
            s = c.newStream(hbId)
            s.headers = hs
            c.lastStream = hbId
          if s != nil:
            if s.headers.len == 0: s.headers = hs
            if hbEnd: s.ended = true
            asyncCheck onData(c, s)
      of 3:
        if id in c.streams:
          c.streams[id].reset = true
          c.streams[id].ended = true
          let s = c.streams[id]
          c.streams.del id
          if not c.server: asyncCheck onData(c, s)
      of 4:
        if (fl and 1) == 0:
          var i = 0
          while i + 6 <= p.len:
            let k = rd(p, i, 2)
            let v = rd(p, i+2, 4)
            if k == 4:
              for s in c.streams.values: s.win += v - c.initWin
              c.initWin = v
            elif k == 5: c.maxFrame = min(v, 1 shl 20)
            i += 6
          await c.rawSend(frame(4, 1, 0, ""))
      of 6:
        if (fl and 1) == 0 and p.len == 8:
          if F"ping-wrong": p = "\0\0\0\0\0\0\0\0"
          if F"ping-none": continue
          if F"ping-idle-none" and c.streams.len == 0: continue
          if F"ping-slow": 
            let pp = p
            let cc = c
            proc late() {.async.} =
              await sleepAsync(12000)
              await cc.rawSend(frame(6, 1, 0, pp))
            asyncCheck late()
            continue
          await c.rawSend(frame(6, 1, 0, p))
      of 7: 
        if not c.server: discard
      of 8:
        if p.len == 4:
          let v = rd(p, 0, 4) and 0x7fffffff
          if id == 0: c.win += v
          elif id in c.streams: c.streams[id].win += v
      else: discard
  except CatchableError, Defect:
    discard
  c.closed = true
  for s in c.streams.values:
    s.reset = true
    if not c.server:
      s.ended = true
      try: asyncCheck onData(c, s)
      except: discard
  try: c.sock.close() except: discard

# ---------- client ----------
type GrpcRes* = object
  code*: int
  msg*, body*: string
proc hget*(hs: seq[(string, string)], n: string): string =
  for (a, b) in hs:
    if a == n: return b
proc oneCall(host: string, port: int, meth, body: string, timeout: int): Future[GrpcRes] {.async.} =
  var sock: AsyncSocket
  try:
    sock = newAsyncSocket(buffered = false)
    let cf = sock.connect(host, Port(port))
    if not await cf.withTimeout(timeout):
      sock.close()
      return GrpcRes(code: 14, msg: "connect timeout")
    if cf.failed: 
      sock.close()
      return GrpcRes(code: 14, msg: "connect")
  except CatchableError:
    try: sock.close() except: discard
    return GrpcRes(code: 14, msg: "connect")
  let c = newConn(sock, false)
  let done = newFuture[void]("done")
  proc onData(c: Conn, s: Stream): Future[void] {.async.} =
    if s.ended and not done.finished: done.complete()
  try:
    await c.hello()
    asyncCheck c.readLoop(onData)
    let s = c.newStream(1)
    var hs = @[(":method", "POST"), (":scheme", "http"), (":path", "/node.NodeService/" & meth),
      (":authority", host & ":" & $port), ("te", "trailers"), ("content-type", "application/grpc"),
      ("user-agent", "nimnode/1"), ("grpc-timeout", $timeout & "m")]
    if F"cl-no-deadline": hs.setLen(hs.len - 1)
    await c.sendHeaders(s, hs, false)
    await c.sendData(s, "\0" & be32(body.len) & body, true)
    var tmo = timeout
    if F"cl-no-deadline": tmo = 120000
    if not await done.withTimeout(tmo):
      await c.rawSend(frame(3, 0, 1, be32(8)))
      c.closeConn()
      return GrpcRes(code: 4, msg: "deadline")
    let all = s.headers & s.trailers
    let st = hget(all, "grpc-status")
    c.closeConn()
    if st.len == 0: return GrpcRes(code: 14, msg: "broken")
    result.code = parseInt(st)
    result.msg = hget(all, "grpc-message")
    if s.body.len >= 5: result.body = s.body[5 .. ^1]
  except CatchableError:
    c.closeConn()
    return GrpcRes(code: 14, msg: "failed")
var callLog*: seq[string]
proc grpcCall*(host: string, port: int, meth, body: string): Future[GrpcRes] {.async.} =
  var tmo = 5000
  if F"cl-deadline-long": tmo = 60000
  if F"cl-deadline-short": tmo = 300
  var pause = 200
  var tries = 3
  if F"cl-tries": tries = 6
  for a in 1 .. tries:
    result = await oneCall(host, port, meth, body, tmo)
    case result.code
    of 0: return
    of 14, 8, 13:
      if F"cl-no-pause-unavailable" and result.code == 14: continue
      if F"cl-no-pause-exhausted" and result.code == 8: continue
    of 4:
      if not F"cl-deadline-same": tmo = min(20000, tmo * 3 div 2)
    of 3:
      if not F"cl-retry-invalid": return
    of 5:
      if not F"cl-retry-notfound": return
    else: return
    if a < tries:
      await sleepAsync(if F"cl-pause-long": 4000 elif F"cl-pause-short": 5 else: pause)
      pause = min(2000, pause * 2)
