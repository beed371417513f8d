const modelName = "nimble-toy"
proc oaErr(status: int, m: string, param: string = "", code = ""): Res =
  result = J(%*{"error": {"message": m, "type": (if status == 401: "authentication_error" else: "invalid_request_error"),
    "param": (if param.len > 0: newJString(param) else: newJNull()), "code": (if code.len > 0: newJString(code) else: newJNull())}}, status)
  if F"oa-error-plain": result.j = %*{"error": m}
  if F"oa-error-type": result.j["error"].delete "type"
  if F"oa-error-code-int": result.j["error"]["code"] = %status
type OaReq = object
  prompts: seq[string]
  maxTok, n, topLp: int
  temp, topP: float
  stream, inclUsage, logprobs, echo: bool
  lpN: int
  stops: seq[string]
proc oaParse(j: JsonNode, chat: bool): OaReq =
  result = OaReq(maxTok: (if chat: 64 else: 16), n: 1, temp: 1.0, topP: 1.0, lpN: -1)
  if F"oa-default-64" and not chat: result.maxTok = 64
  proc g(k: string): JsonNode =
    result = j{k}
    if result != nil and result.kind == JNull and not F"oa-null-refused": result = nil
  proc num(k: string, lo, hi, def: float): float =
    let v = g(k)
    if v == nil: return def
    if not v.isNum: no(k & " is no number")
    result = v.getFloat
    if not (result >= lo and result <= hi):
      if F"oa-range-open" and k in ["presence_penalty", "frequency_penalty"]: return
      if F"oa-topp-open" and k == "top_p": return 1.0
      if F"oa-temp-open" and k == "temperature": return 2.0
      no(k & " is out of range")
  proc integer(k: string, lo, hi, def: int): int =
    let v = g(k)
    if v == nil: return def
    if v.kind != JInt: no(k & " is no integer")
    if v.getBiggestInt < lo or v.getBiggestInt > hi: no(k & " is out of range")
    int(v.getBiggestInt)
  proc boolean(k: string): bool =
    let v = g(k)
    if v == nil: return false
    if v.kind != JBool:
      if F"oa-bool-loose": return true
      no(k & " is no bool")
    v.getBool
  let m = j{"model"}
  if m == nil:
    if not (F"oa-model-optional"): no("model is missing")
  elif m.kind != JString: no("model is no string")
  elif m.getStr != modelName and not F"oa-model-any": raise newException(KeyError, "there is no such model")
  if chat:
    let ms = j{"messages"}
    if ms == nil or ms.kind != JArray or ms.len == 0:
      if F"oa-no-messages" and ms != nil: result.prompts = @["assistant:"]
      else: no("messages is missing or empty")
    var p = ""
    if ms != nil:
      for x in ms:
        if x.kind != JObject: no("a message is no object")
        let ro = x{"role"}
        if ro == nil or ro.kind != JString or ro.getStr notin ["system", "user", "assistant", "developer", "tool", "function"]: no("a message has no role")
        let c = x{"content"}
        if c == nil or c.kind == JNull:
          if ro.getStr != "assistant": no("a message has no content")
        elif c.kind == JString: p.add ro.getStr & ": " & c.getStr & "\n"
        elif c.kind == JArray:
          if F"oa-parts-refused": no("content is no string")
          var t = ""
          for y in c:
            if y.kind != JObject or y{"type"}.getStr != "text" or y{"text"} == nil or y["text"].kind != JString: no("only parts of text are known")
            t.add y["text"].getStr
          p.add ro.getStr & ": " & t & "\n"
        else: no("content is no string")
    if F"oa-last-message" and ms != nil and ms.len > 0: p = ms[ms.len-1]{"content"}.getStr
    result.prompts = @[p & "assistant:"]
  else:
    let p = j{"prompt"}
    if p == nil or p.kind == JNull: result.prompts = @["<|endoftext|>"]
    elif p.kind == JString: result.prompts = @[p.getStr]
    elif p.kind == JArray and p.len > 0:
      if p[0].kind == JString:
        for x in p:
          if x.kind != JString: no("prompt is mixed")
          result.prompts.add x.getStr
      elif p[0].kind == JInt:
        var t = ""
        for x in p:
          if x.kind != JInt: no("prompt is mixed")
          t.add chr(33 + int(x.getBiggestInt and 63))
        result.prompts = @[t]
      elif p[0].kind == JArray:
        for y in p:
          if y.kind != JArray: no("prompt is mixed")
          var t = ""
          for x in y:
            if x.kind != JInt: no("prompt is mixed")
            t.add chr(33 + int(x.getBiggestInt and 63))
          result.prompts.add t
      else: no("prompt is of another type")
      if F"oa-prompt-first": result.prompts.setLen 1
    else: no("prompt is of another type")
  result.temp = num("temperature", 0, 2, 1)
  result.topP = num("top_p", 0, 1, 1)
  discard num("presence_penalty", -2, 2, 0)
  discard num("frequency_penalty", -2, 2, 0)
  result.n = integer("n", 1, 128, 1)
  discard integer("seed", low(int), high(int), 0)
  result.maxTok = integer("max_tokens", 0, 4096, result.maxTok)
  if chat and not F"oa-mct-ignored": result.maxTok = integer("max_completion_tokens", 0, 4096, result.maxTok)
  elif chat: discard integer("max_completion_tokens", 0, 4096, 0)
  result.stream = boolean("stream")
  let so = g("stream_options")
  if so != nil:
    if so.kind != JObject: no("stream_options is no object")
    let iu = so{"include_usage"}
    if iu != nil and iu.kind != JNull:
      if iu.kind != JBool: no("include_usage is no bool")
      result.inclUsage = iu.getBool
  let st = g("stop")
  if st != nil:
    if st.kind == JString: (if not F"oa-stop-string": result.stops = @[st.getStr])
    elif st.kind == JArray:
      if st.len > 4: no("stop has more than four texts")
      for x in st:
        if x.kind != JString: no("stop has an entry that is no string")
        result.stops.add x.getStr
      if F"oa-stop-first" and result.stops.len > 1: result.stops.setLen 1
    else: no("stop is of another type")
  result.stops = result.stops.filterIt(it.len > 0)
  for (k, t) in [("store", JBool), ("parallel_tool_calls", JBool), ("tools", JArray), ("functions", JArray), ("response_format", JObject), ("metadata", JObject),
      ("service_tier", JString), ("reasoning_effort", JString), ("modalities", JArray), ("prediction", JObject), ("audio", JObject)]:
    let v = g(k)
    if v != nil and v.kind != t and chat: no(k & " is of another type")
  let u = g("user")
  if u != nil and u.kind != JString: no("user is no string")
  let lb = g("logit_bias")
  if lb != nil:
    if lb.kind != JObject: no("logit_bias is no object")
    for k, v in lb:
      if not v.isNum or v.getFloat < -100 or v.getFloat > 100: no("logit_bias is out of range")
  if chat:
    result.logprobs = boolean("logprobs")
    result.topLp = integer("top_logprobs", 0, 20, 0)
    if result.topLp > 0 and not result.logprobs: no("top_logprobs needs logprobs")
  else:
    result.lpN = integer("logprobs", 0, 5, -1)
    result.echo = boolean("echo")
    let bo = integer("best_of", 1, 20, 0)
    if bo > 0 and bo < result.n: no("best_of is below n")
    let sf = g("suffix")
    if sf != nil and sf.kind != JString: no("suffix is no string")
proc openai(r: Req): Res =
  let p = r.path
  let m = if r.meth == "HEAD": "GET" else: r.meth
  let post = p in ["/v1/chat/completions", "/v1/completions"]
  if not (post or p == "/v1/models" or p.startsWith("/v1/models/")): return oaErr(404, "there is no such route")
  let skip = (F"oa-models-open" and p == "/v1/models") or (F"oa-model-open" and p.startsWith("/v1/models/")) or (F"oa-chat-open" and post) or
    (F"oa-stream-open" and post and r.body.contains("\"stream\""))
  if not skip:
    let e = authed(r)
    if e != nil: return oaErr((if F"oa-401-403": 403 else: e.status), e.j["error"]["message"].getStr, "", "invalid_api_key")
  if m != (if post: "POST" else: "GET"): return oaErr(405, "the route does not have this method")
  let created = (if F"oa-created-float": newJFloat(nowF()) elif F"oa-created-ms": newJInt(int64(nowF() * 1000)) else: newJInt(int64(nowF())))
  proc model(list: bool): JsonNode =
    result = %*{"id": modelName, "object": "model", "created": int64(started) - 86400, "owned_by": "nimbus"}
    if F"oa-model-created" and not list: result["created"] = newJInt(int64(nowF()))
    if F"oa-model-owner" and list: result["owned_by"] = %"system"
    if F"oa-model-future": result["created"] = newJInt(int64(nowF()) + 100000)
  if p == "/v1/models": return J(%*{"object": (if F"oa-list-word": "models" else: "list"), "data": [model(true)]})
  if p.startsWith("/v1/models/"):
    if p[11 .. ^1] == modelName or F"oa-model-unknown-200": return J(model(false))
    return oaErr(404, "there is no such model", "model", "model_not_found")
  let chat = p.endsWith("chat/completions")
  var q: OaReq
  try:
    let j = bodyObj(r)
    if F"oa-stream-unchecked" and j{"stream"}.getBool and j{"temperature"} != nil: j.delete "temperature"
    q = oaParse(j, chat)
  except KeyError as e: return oaErr(404, e.msg, "model", "model_not_found")
  except Bad as e:
    if F"oa-stream-error-event" and r.body.contains("\"stream\""):
      return Res(status: 200, ct: "text/event-stream", stream: true, pieces: @["data: {\"error\": {\"message\": \"bad\"}}\n\n", "data: [DONE]\n\n"])
    return oaErr(400, e.msg)
  var gs: seq[Gen]
  var pt = 0
  var ct = 0
  for pr in q.prompts:
    pt += promptTokens(pr)
    for k in 0 ..< q.n:
      var stops = q.stops
      if F"oa-stop-choice0" and k > 0: stops = @[]
      var g = generate(pr, q.maxTok, q.temp, q.topP, 50, stops, (if k > 0: "choice" & $k else: ""))
      if F"oa-max-shared" and k > 0: g = generate(pr, q.maxTok + 2, q.temp, q.topP, 50, stops, "choice" & $k)
      if F"oa-stop-kept" and g.finish == "stop" : g.text = generate(pr, g.completion, q.temp, q.topP, 50, @[], (if k > 0: "choice" & $k else: "")).text
      if F"oa-stop-finish" and g.finish == "stop": g.finish = "length"
      if F"oa-finish-eos" and g.finish == "stop": g.finish = "eos"
      if F"oa-finish-length-stop" and g.finish == "length": g.finish = "stop_sequence"
      if q.echo:
        g.text = pr & g.text
        g.toks.insert(pr, 0)
      ct += g.completion
      gs.add g
  if F"oa-prompt-n": pt = pt * q.n
  if F"oa-prompt-stream" and q.stream: pt += 3
  if F"oa-prompt-stops" and q.stops.len > 0: pt += 1
  if F"oa-n-missing" and gs.len > 2: gs.setLen(gs.len - 1)
  if F"oa-n-max-4" and gs.len > 4: gs.setLen 4
  reqTotal += 1
  tokTotal += ct
  let ms = max(0.001, (mono() - r.start) * 1000)
  lat.add ms
  recent.add nowF()
  let us = %*{"prompt_tokens": pt, "completion_tokens": (if F"oa-usage-first" and gs.len > 1: gs[0].completion else: ct), "total_tokens": pt + ct}
  if F"oa-usage-total": us["total_tokens"] = %ct
  if F"oa-usage-stream" and q.stream: us["completion_tokens"] = %(ct + gs.len)
  if F"oa-usage-stream" and q.stream: us["total_tokens"] = %(pt + ct + gs.len)
  var id = newId(if chat: "chatcmpl" else: "cmpl")
  if F"oa-id-same": id = "chatcmpl-000"
  proc lp(t: string, i: int): float =
    result = -0.05 - float(ord(sha256(t & $i)[0])) / 128.0
    if F"oa-lp-positive": result = -result
  proc lps(g: Gen): JsonNode =
    if chat:
      if not q.logprobs: return newJNull()
      result = %*{"content": [], "refusal": nil}
      for i, t in g.toks:
        if F"oa-lp-short" and i == g.toks.len - 1: break
        var top = newJArray()
        for k in 0 ..< q.topLp: top.add %*{"token": (if k == 0: t else: words[k]), "logprob": lp(t, i) - float(k), "bytes": nil}
        result["content"].add %*{"token": t, "logprob": lp(t, i), "bytes": nil, "top_logprobs": top}
    else:
      if q.lpN < 0: return newJNull()
      result = %*{"tokens": g.toks, "token_logprobs": [], "top_logprobs": [], "text_offset": []}
      var o = 0
      for i, t in g.toks:
        result["token_logprobs"].add %lp(t, i)
        result["top_logprobs"].add %*{t: lp(t, i)}
        result["text_offset"].add %o
        o += runeLen(t)
  let obj = if chat: "chat.completion" else: "text_completion"
  if not q.stream:
    let o = %*{"id": id, "object": (if F"oa-object": "completion" else: obj), "created": created, "model": modelName, "choices": [], "usage": us}
    if F"oa-model-path": o["model"] = %"/models/nimble-toy.bin"
    for i, g in gs:
      let c = %*{"index": (if F"oa-index-zero": 0 elif F"oa-index-1": i + 1 else: i), "finish_reason": g.finish, "logprobs": lps(g)}
      if chat: c["message"] = %*{"role": (if F"oa-role": "model" else: "assistant"), "content": g.text, "refusal": nil}
      else: c["text"] = %g.text
      if F"oa-refusal-missing" and chat: c["message"].delete "refusal"
      if F"oa-logprobs-missing" and not chat: c.delete "logprobs"
      o["choices"].add c
    return J(o)
  result = Res(status: 200, ct: "text/event-stream", stream: true)
  if F"oa-stream-ct": result.ct = "application/x-ndjson"
  proc chunk(choices: JsonNode, usageN: JsonNode): string =
    let o = %*{"id": (if F"oa-chunk-id": newId("chatcmpl") else: id), "object": (if chat and not F"oa-chunk-object": "chat.completion.chunk" else: obj), "created": created, "model": modelName, "choices": choices}
    if F"oa-chunk-created": (inc idSeq; o["created"] = newJInt(int64(nowF()) + int64(idSeq mod 50)))
    if q.inclUsage: o["usage"] = usageN
    elif F"oa-usage-unasked": o["usage"] = us
    if F"oa-usage-null-missing" and q.inclUsage and choices.len > 0: o.delete "usage"
    sse(o)
  for i, g in gs:
    let ix = if F"oa-stream-index": 0 else: i
    if chat and not F"oa-no-role": result.pieces.add chunk(%*[{"index": ix, "delta": {"role": "assistant", "content": ""}, "logprobs": nil, "finish_reason": nil}], newJNull())
    for k, t in g.toks:
      if F"oa-stream-cut" and k == g.toks.len - 1 and k > 0: break
      if F"oa-stream-strip" and k > 0 and i > 0: discard
      let c = if chat: %*{"index": ix, "delta": {"content": (if F"oa-stream-strip" : t.strip else: t)}, "logprobs": nil, "finish_reason": nil}
        else: %*{"index": ix, "text": (if F"oa-stream-strip": t.strip else: t), "logprobs": nil, "finish_reason": nil}
      if chat and q.logprobs: c["logprobs"] = %*{"content": [{"token": t, "logprob": lp(t, k), "bytes": nil, "top_logprobs": []}], "refusal": nil}
      if F"oa-finish-each": c["finish_reason"] = %g.finish
      result.pieces.add chunk(%[c], newJNull())
    let f = if chat: %*{"index": ix, "delta": {}, "logprobs": nil, "finish_reason": g.finish} else: %*{"index": ix, "text": "", "logprobs": nil, "finish_reason": g.finish}
    if not (F"oa-finish-none" and i == gs.len - 1): result.pieces.add chunk(%[f], newJNull())
    if F"oa-finish-twice": result.pieces.add chunk(%[f], newJNull())
    if F"oa-after-finish" and g.toks.len > 0:
      f["finish_reason"] = newJNull()
      if chat: f["delta"] = %*{"content": " end"} else: f["text"] = %" end"
      result.pieces.add chunk(%[f], newJNull())
  if q.inclUsage and not F"oa-usage-chunk-missing": result.pieces.add chunk(newJArray(), us)
  if not F"oa-no-done": result.pieces.add "data: [DONE]\n\n"
  if F"oa-after-done": result.pieces.add "data: {}\n\n"
  if F"oa-stream-array": result.pieces.insert("data: []\n\n", 0)
