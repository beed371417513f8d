import std/[algorithm, json, strutils, tables, math, times, monotimes, parseutils, sets]
from std/unicode import Rune, runes, runeLen, validateUtf8, toUTF8, `$`
export json, strutils, tables, math, times, sets, algorithm

# ---------- faults ----------
type FaultDef* = object
  id*, kind*, req*, text*: string
  gen*: seq[string]
const defText = staticRead("faults.def")
const pecText = staticRead("peculiarities.def")
proc loadDefs*(): seq[FaultDef] =
  for l in defText.splitLines:
    if l.len == 0 or l[0] == '#': continue
    let c = l.split('|')
    var d = FaultDef(id: c[0], kind: c[1], req: c[2], text: c[3])
    if c.len > 4: d.gen = c[4..^1]
    result.add d
proc loadPecs*(): seq[string] =
  for l in pecText.splitLines:
    if l.len > 0: result.add l.split('|')[0]
var fault* = ""
var gen*: seq[string]      # parameters of the generic fault
var pecs*: HashSet[string]
template F*(s: string): bool = fault == s
template Q*(s: string): bool = (s in pecs)

# ---------- time ----------
proc nowF*(): float = epochTime()
let t0m = getMonoTime().ticks
proc mono*(): float = float(getMonoTime().ticks - t0m) / 1e9
proc isoOf*(t: float): string =
  let s = floor(t)
  var us = int((t - s) * 1e6)
  if us > 999999: us = 999999
  result = fromUnix(int64(s)).utc.format("yyyy-MM-dd'T'HH:mm:ss") & "." & align($us, 6, '0') & "Z"
  if Q"time-seconds": result = fromUnix(int64(s)).utc.format("yyyy-MM-dd'T'HH:mm:ss") & "Z"
  if Q"time-offset": result = fromUnix(int64(s)).utc.format("yyyy-MM-dd'T'HH:mm:ss") & "." & align($us, 6, '0') & "+00:00"
proc iso*(): string = isoOf(nowF())
proc dateOf*(t: float): string = fromUnix(int64(floor(t))).utc.format("yyyy-MM-dd")
proc httpDate*(t: float): string = fromUnix(int64(floor(t))).utc.format("ddd, dd MMM yyyy HH:mm:ss") & " GMT"

# ---------- strict JSON ----------
type JErr* = object of ValueError
proc bad(m: string) = raise newException(JErr, m)
proc skipWs(s: string, i: var int) =
  while i < s.len and s[i] in {' ', '\t', '\n', '\r'}: inc i
proc pstr(s: string, i: var int): string =
  inc i
  while true:
    if i >= s.len: bad("string")
    let c = s[i]
    if c == '"': inc i; return
    if c < ' ': bad("control")
    if c == '\\':
      inc i
      if i >= s.len: bad("escape")
      case s[i]
      of '"', '\\', '/': result.add s[i]
      of 'b': result.add '\b'
      of 'f': result.add '\f'
      of 'n': result.add '\n'
      of 'r': result.add '\r'
      of 't': result.add '\t'
      of 'u':
        template hex4(p: int): int =
          if p + 4 > s.len: bad("u")
          for k in p ..< p+4:
            if s[k] notin HexDigits: bad("u")
          fromHex[int](s[p ..< p+4])
        var cp = hex4(i+1)
        i += 4
        if cp in 0xD800..0xDBFF and i + 6 < s.len and s[i+1] == '\\' and s[i+2] == 'u':
          let lo = hex4(i+3)
          if lo in 0xDC00..0xDFFF:
            cp = 0x10000 + ((cp - 0xD800) shl 10) + (lo - 0xDC00)
            i += 6
        if cp in 0xD800..0xDFFF: bad("lone surrogate")
        result.add $Rune(cp)
      else: bad("escape")
      inc i
    else:
      result.add c
      inc i
proc pval(s: string, i: var int, depth: int): JsonNode =
  if depth > 200: bad("depth")
  skipWs(s, i)
  if i >= s.len: bad("end")
  case s[i]
  of '{':
    result = newJObject()
    inc i
    skipWs(s, i)
    if i < s.len and s[i] == '}': inc i; return
    while true:
      skipWs(s, i)
      if i >= s.len or s[i] != '"': bad("key")
      let k = pstr(s, i)
      skipWs(s, i)
      if i >= s.len or s[i] != ':': bad("colon")
      inc i
      result[k] = pval(s, i, depth+1)
      skipWs(s, i)
      if i >= s.len: bad("end")
      if s[i] == ',': inc i
      elif s[i] == '}': inc i; return
      else: bad("object")
  of '[':
    result = newJArray()
    inc i
    skipWs(s, i)
    if i < s.len and s[i] == ']': inc i; return
    while true:
      result.add pval(s, i, depth+1)
      skipWs(s, i)
      if i >= s.len: bad("end")
      if s[i] == ',': inc i
      elif s[i] == ']': inc i; return
      else: bad("array")
  of '"': result = newJString(pstr(s, i))
  else:
    if s.continuesWith("true", i): i += 4; return newJBool(true)
    if s.continuesWith("false", i): i += 5; return newJBool(false)
    if s.continuesWith("null", i): i += 4; return newJNull()
    let st = i
    var isF = false
    if i < s.len and s[i] == '-': inc i
    let ds = i
    while i < s.len and s[i] in Digits: inc i
    if i == ds: bad("value")
    if s[ds] == '0' and i - ds > 1: bad("zeros")
    if i < s.len and s[i] == '.':
      isF = true
      inc i
      let d = i
      while i < s.len and s[i] in Digits: inc i
      if i == d: bad("fraction")
    if i < s.len and s[i] in {'e', 'E'}:
      isF = true
      inc i
      if i < s.len and s[i] in {'+', '-'}: inc i
      let d = i
      while i < s.len and s[i] in Digits: inc i
      if i == d: bad("exponent")
    let t = s[st ..< i]
    if not isF and t.len <= 18: result = newJInt(parseBiggestInt(t))
    else:
      var f: float
      discard parseutils.parseFloat(t, f)
      if not isF and abs(f) < 9.2e18:
        result = newJInt(parseBiggestInt(t))
      else: result = newJFloat(f)
proc parseStrict*(s: string): JsonNode =
  if validateUtf8(s) >= 0: bad("utf-8")
  var i = 0
  if s.startsWith("\xEF\xBB\xBF"): i = 3
  result = pval(s, i, 0)
  skipWs(s, i)
  if i != s.len: bad("trailing")
proc runeLenOf*(s: string): int = runeLen(s)
proc isNum*(n: JsonNode): bool = n.kind in {JInt, JFloat}
proc canon*(n: JsonNode): string =
  case n.kind
  of JObject:
    var ks: seq[string]
    for k in n.keys: ks.add k
    ks.sort()
    result = "{"
    for i, k in ks:
      if i > 0: result.add ","
      result.add escapeJson(k) & ":" & canon(n[k])
    result.add "}"
  of JArray:
    result = "["
    for i in 0 ..< n.len:
      if i > 0: result.add ","
      result.add canon(n[i])
    result.add "]"
  else: result = $n

# ---------- crypto ----------
const lib = "libcrypto.so.3"
proc cSHA256(d: pointer, n: csize_t, md: pointer): pointer {.importc: "SHA256", dynlib: lib, cdecl.}
proc cSHA1(d: pointer, n: csize_t, md: pointer): pointer {.importc: "SHA1", dynlib: lib, cdecl.}
proc EC_KEY_new_by_curve_name(nid: cint): pointer {.importc, dynlib: lib, cdecl.}
proc EC_KEY_free(k: pointer) {.importc, dynlib: lib, cdecl.}
proc EC_KEY_get0_group(k: pointer): pointer {.importc, dynlib: lib, cdecl.}
proc EC_POINT_new(g: pointer): pointer {.importc, dynlib: lib, cdecl.}
proc EC_POINT_free(p: pointer) {.importc, dynlib: lib, cdecl.}
proc EC_POINT_mul(g, r, n, q, m, ctx: pointer): cint {.importc, dynlib: lib, cdecl.}
proc EC_POINT_point2oct(g, p: pointer, form: cint, buf: pointer, n: csize_t, ctx: pointer): csize_t {.importc, dynlib: lib, cdecl.}
proc EC_KEY_set_private_key(k, b: pointer): cint {.importc, dynlib: lib, cdecl.}
proc EC_KEY_set_public_key(k, p: pointer): cint {.importc, dynlib: lib, cdecl.}
proc EC_KEY_oct2key(k: pointer, b: pointer, n: csize_t, ctx: pointer): cint {.importc, dynlib: lib, cdecl.}
proc BN_bin2bn(b: pointer, n: cint, r: pointer): pointer {.importc, dynlib: lib, cdecl.}
proc BN_free(b: pointer) {.importc, dynlib: lib, cdecl.}
proc ECDSA_sign(t: cint, d: pointer, n: cint, sig: pointer, sl: ptr cuint, k: pointer): cint {.importc, dynlib: lib, cdecl.}
proc ECDSA_verify(t: cint, d: pointer, n: cint, sig: pointer, sl: cint, k: pointer): cint {.importc, dynlib: lib, cdecl.}
proc cp(s: string): pointer =
  if s.len == 0: return nil
  cast[pointer](unsafeAddr s[0])
proc sha256*(s: string): string =
  result = newString(32)
  var z = " "
  discard cSHA256(if s.len == 0: cast[pointer](addr z[0]) else: cp(s), csize_t(s.len), addr result[0])
proc sha1*(s: string): string =
  result = newString(20)
  discard cSHA1(cp(s), csize_t(s.len), addr result[0])
proc hexOf*(s: string): string =
  for c in s: result.add toHex(ord(c), 2).toLowerAscii
proc sha256h*(s: string): string = hexOf(sha256(s))
proc unhex*(s: string): string =
  if s.len mod 2 != 0: return ""
  for c in s:
    if c notin HexDigits: return ""
  parseHexStr(s)
proc pubOf*(priv: string): string =
  let k = EC_KEY_new_by_curve_name(714)
  let b = BN_bin2bn(cp(priv), 32, nil)
  let g = EC_KEY_get0_group(k)
  let p = EC_POINT_new(g)
  discard EC_POINT_mul(g, p, b, nil, nil, nil)
  result = newString(33)
  discard EC_POINT_point2oct(g, p, 2, addr result[0], 33, nil)
  EC_POINT_free(p)
  BN_free(b)
  EC_KEY_free(k)
proc ecSign*(priv, msg: string): string =
  let k = EC_KEY_new_by_curve_name(714)
  let b = BN_bin2bn(cp(priv), 32, nil)
  let p = EC_POINT_new(EC_KEY_get0_group(k))
  discard EC_POINT_mul(EC_KEY_get0_group(k), p, b, nil, nil, nil)
  discard EC_KEY_set_private_key(k, b)
  discard EC_KEY_set_public_key(k, p)
  let d = sha256(msg)
  result = newString(80)
  var n: cuint = 80
  discard ECDSA_sign(0, cp(d), 32, addr result[0], addr n, k)
  result.setLen int(n)
  EC_POINT_free(p)
  BN_free(b)
  EC_KEY_free(k)
proc pubOk*(pub: string): bool =
  if pub.len != 33: return false
  let k = EC_KEY_new_by_curve_name(714)
  result = EC_KEY_oct2key(k, cp(pub), 33, nil) == 1
  EC_KEY_free(k)
proc ecVerify*(pub, msg, sig: string): bool =
  if pub.len != 33 or sig.len < 8: return false
  let k = EC_KEY_new_by_curve_name(714)
  if EC_KEY_oct2key(k, cp(pub), 33, nil) == 1:
    let d = sha256(msg)
    result = ECDSA_verify(0, cp(d), 32, cp(sig), cint(sig.len), k) == 1
  EC_KEY_free(k)

# ---------- lz4 ----------
proc rotl(x: uint32, r: int): uint32 = (x shl r) or (x shr (32 - r))
proc le32*(s: string, i: int): uint32 =
  uint32(ord(s[i])) or (uint32(ord(s[i+1])) shl 8) or (uint32(ord(s[i+2])) shl 16) or (uint32(ord(s[i+3])) shl 24)
proc xxh32*(s: string): uint32 =
  const p1 = 2654435761'u32
  const p2 = 2246822519'u32
  const p3 = 3266489917'u32
  const p4 = 668265263'u32
  const p5 = 374761393'u32
  var i = 0
  var h: uint32
  if s.len >= 16:
    var v = [p1 + p2, p2, 0'u32, 0'u32 - p1]
    while i + 16 <= s.len:
      for k in 0..3:
        v[k] = rotl(v[k] + le32(s, i + 4*k) * p2, 13) * p1
      i += 16
    h = rotl(v[0], 1) + rotl(v[1], 7) + rotl(v[2], 12) + rotl(v[3], 18)
  else: h = p5
  h += uint32(s.len)
  while i + 4 <= s.len:
    h = rotl(h + le32(s, i) * p3, 17) * p4
    i += 4
  while i < s.len:
    h = rotl(h + uint32(ord(s[i])) * p5, 11) * p1
    inc i
  h = h xor (h shr 15)
  h *= p2
  h = h xor (h shr 13)
  h *= p3
  h xor (h shr 16)
proc addLe32*(s: var string, v: uint32) =
  for k in 0..3: s.add chr(int((v shr (8*k)) and 255))
proc lz4Frame*(d: string): string =
  result = "\x04\x22\x4d\x18\x60\x70"
  result.add chr(int((xxh32("\x60\x70") shr 8) and 255))
  var i = 0
  while i < d.len:
    let n = min(4 * 1024 * 1024, d.len - i)
    result.addLe32(uint32(n) or 0x80000000'u32)
    result.add d[i ..< i+n]
    i += n
  result.addLe32(0)
proc lz4Unframe*(s: string): string =
  ## raises ValueError when it is none
  template need(n: int) =
    if i + n > s.len: raise newException(ValueError, "lz4 is short")
  var i = 0
  if s.len < 7: raise newException(ValueError, "no lz4 frame")
  while i < s.len:
    need 4
    let m = le32(s, i)
    i += 4
    if m >= 0x184D2A50'u32 and m <= 0x184D2A5F'u32:
      need 4
      let n = int(le32(s, i))
      i += 4
      need n
      i += n
      continue
    if m != 0x184D2204'u32: raise newException(ValueError, "no lz4 frame")
    need 3
    let flg = ord(s[i])
    if (flg shr 6) != 1: raise newException(ValueError, "lz4 version")
    let hs = i
    i += 2
    if (flg and 8) != 0: i += 8
    if (flg and 1) != 0: i += 4
    need 1
    if ord(s[i]) != int((xxh32(s[hs ..< i]) shr 8) and 255): raise newException(ValueError, "lz4 header checksum")
    inc i
    let fs = result.len
    while true:
      need 4
      let b = le32(s, i)
      i += 4
      if b == 0: break
      let n = int(b and 0x7fffffff'u32)
      need n
      if (b and 0x80000000'u32) != 0: result.add s[i ..< i+n]
      else:
        var p = i
        let e = i + n
        while p < e:
          let tok = ord(s[p])
          inc p
          var ll = tok shr 4
          if ll == 15:
            while p < e:
              let x = ord(s[p])
              inc p
              ll += x
              if x != 255: break
          if p + ll > e: raise newException(ValueError, "lz4 literal")
          result.add s[p ..< p+ll]
          p += ll
          if p >= e: break
          if p + 2 > e: raise newException(ValueError, "lz4 offset")
          let off = ord(s[p]) or (ord(s[p+1]) shl 8)
          p += 2
          var ml = tok and 15
          if ml == 15:
            while p < e:
              let x = ord(s[p])
              inc p
              ml += x
              if x != 255: break
          ml += 4
          if off == 0 or off > result.len - fs: raise newException(ValueError, "lz4 match")
          var q = result.len - off
          for k in 0 ..< ml:
            result.add result[q]
            inc q
          if result.len > 200_000_000: raise newException(ValueError, "lz4 too large")
      i += n
      if (flg and 16) != 0: i += 4
    if (flg and 4) != 0:
      need 4
      if le32(s, i) != xxh32(result[fs .. ^1]): raise newException(ValueError, "lz4 checksum")
      i += 4

# ---------- protobuf ----------
type
  PbErr* = object of ValueError
  PbField* = object
    num*, wt*: int
    v*: uint64
    s*: string
  Pb* = seq[PbField]
proc rdVar(s: string, i: var int): uint64 =
  var sh = 0
  while true:
    if i >= s.len or sh > 63: raise newException(PbErr, "varint")
    let b = uint64(ord(s[i]))
    inc i
    result = result or ((b and 127) shl sh)
    if b < 128: return
    sh += 7
proc parsePbAt(s: string, i: var int, grp: int): Pb =
  while i < s.len:
    let t = rdVar(s, i)
    var f = PbField(num: int(t shr 3), wt: int(t and 7))
    if f.num == 0: raise newException(PbErr, "field 0")
    case f.wt
    of 0: f.v = rdVar(s, i)
    of 1:
      if i + 8 > s.len: raise newException(PbErr, "short")
      f.v = uint64(le32(s, i)) or (uint64(le32(s, i+4)) shl 32)
      i += 8
    of 2:
      let n = rdVar(s, i)
      if n > uint64(s.len - i): raise newException(PbErr, "short")
      f.s = s[i ..< i + int(n)]
      i += int(n)
    of 5:
      if i + 4 > s.len: raise newException(PbErr, "short")
      f.v = uint64(le32(s, i))
      i += 4
    of 3: discard parsePbAt(s, i, f.num)
    of 4:
      if f.num != grp: raise newException(PbErr, "group")
      return
    else: raise newException(PbErr, "wire type")
    result.add f
  if grp != 0: raise newException(PbErr, "group")
proc parsePb*(s: string): Pb =
  var i = 0
  parsePbAt(s, i, 0)
proc gS*(p: Pb, n: int): string =
  for f in p:
    if f.num == n and f.wt == 2: result = f.s
proc gStr*(p: Pb, n: int): string =
  result = gS(p, n)
  if validateUtf8(result) >= 0: raise newException(PbErr, "utf-8")
proc gI*(p: Pb, n: int): int64 =
  for f in p:
    if f.num == n and f.wt == 0: result = cast[int64](f.v)
proc gI32*(p: Pb, n: int): int = int(cast[int32](uint32(cast[uint64](gI(p, n)) and 0xffffffff'u64)))
proc gD*(p: Pb, n: int): float =
  for f in p:
    if f.num == n and f.wt == 1: result = cast[float64](f.v)
proc gRep*(p: Pb, n: int): seq[string] =
  for f in p:
    if f.num == n and f.wt == 2: result.add f.s
proc gInts*(p: Pb, n: int): seq[int64] =
  for f in p:
    if f.num == n:
      if f.wt == 0: result.add cast[int64](f.v)
      elif f.wt == 2:
        var i = 0
        while i < f.s.len: result.add cast[int64](rdVar(f.s, i))
proc gMsg*(p: Pb, n: int): Pb =
  var all = ""
  for f in p:
    if f.num == n and f.wt == 2: all.add f.s
  parsePb(all)
proc has*(p: Pb, n: int): bool =
  for f in p:
    if f.num == n: return true

var pbMethod* = ""   # the operation whose answer is being written
var gOn* = true
proc wVar*(o: var string, v: uint64) =
  var x = v
  while x >= 128:
    o.add chr(int(x and 127) or 128)
    x = x shr 7
  o.add chr(int(x))
proc gf(n: int): string =
  ## the generic fault for this field of the answer: P|method|field|op
  if gen.len == 4 and gen[0] == "P" and gen[1] == pbMethod and gen[2] == $n: gen[3] else: ""
proc opNum(op: string, n: int): int =
  if op.startsWith("to"): parseInt(op[2..^1]) else: n
proc wI*(o: var string, n: int, v: int64) =
  let op = gf(n)
  if op == "drop": return
  var x = v
  if op == "neg": x = -v - 1
  if op == "zero": x = 0
  if op == "inc": x = v + 1
  if op == "big": x = v + 70000
  if op == "flip": x = 1 - v
  if x == 0: return
  if op == "str":
    o.wVar(uint64(n shl 3 or 2))
    o.wVar(uint64(len($x)))
    o.add $x
    return
  o.wVar(uint64(opNum(op, n) shl 3))
  o.wVar(cast[uint64](x))
proc wS*(o: var string, n: int, s: string) =
  let op = gf(n)
  var x = s
  if op == "drop": return
  if op == "empty": x = ""
  if op == "half": x = s[0 ..< s.len div 2]
  if op == "add": x = s & "x"
  if op == "lower": x = s.toLowerAscii
  if op == "ascii":
    x = ""
    for c in s: x.add(if c > '~': '?' else: c)
  if op == "trim": x = s.strip
  if op == "cut64": x = s[0 ..< min(s.len, 63)]
  if op == "hex": x = hexOf(s)
  if x.len == 0: return
  o.wVar(uint64(opNum(op, n) shl 3 or 2))
  o.wVar(uint64(x.len))
  o.add x
proc wM*(o: var string, n: int, s: string) =
  let op = gf(n)
  if op == "drop": return
  o.wVar(uint64(opNum(op, n) shl 3 or 2))
  o.wVar(uint64(s.len))
  o.add s
proc wD*(o: var string, n: int, d: float) =
  let op = gf(n)
  var x = d
  if op == "drop" : return
  if op == "neg": x = -d
  if op == "nan": x = NaN
  if x == 0: return
  if op == "float":
    o.wVar(uint64(n shl 3 or 5))
    o.addLe32(cast[uint32](float32(x)))
    return
  o.wVar(uint64(opNum(op, n) shl 3 or 1))
  let u = cast[uint64](x)
  o.addLe32(uint32(u and 0xffffffff'u64))
  o.addLe32(uint32(u shr 32))
proc wInts*(o: var string, n: int, v: openArray[int64]) =
  let op = gf(n)
  if op == "drop" or v.len == 0: return
  var b = ""
  for i, x in v:
    if op == "rev": b.wVar(cast[uint64](v[v.len - 1 - i]))
    elif op == "two" and i == 0: continue
    else: b.wVar(cast[uint64](x))
  o.wVar(uint64(opNum(op, n) shl 3 or 2))
  o.wVar(uint64(b.len))
  o.add b
