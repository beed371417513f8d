package main

import (
	"encoding/json"
	"net/http"
	"strings"
)

const oaModel = "orrery-toy"

func oaErr(c *C, status int, msg, typ string, param interface{}) {
	c.failed = true
	c.status = status
	m := M{"error": M{"message": msg, "type": typ, "param": param, "code": nil}}
	if status == 401 {
		m["error"].(M)["code"] = "invalid_api_key"
	}
	c.send(m)
}

func serveOpenAI(c *C, path string) {
	tok := strings.TrimPrefix(c.r.Header.Get("Authorization"), "Bearer ")
	a := accounts[tok]
	c.route = map[string]string{"/v1/models": "oa-models", "/v1/models/" + oaModel: "oa-model", "/v1/chat/completions": "oa-chat", "/v1/completions": "oa-text"}[path]
	if P("no-openai-routes") {
		c.route = "n-nowhere"
		c.missing("There is nothing at this path.")
		return
	}
	if F("gua-openai-stream-takes-any-key") && c.route == "oa-chat" && oaWantsStream(c) {
		a = accounts["tok-a"]
	}
	if F("gua-openai-models-without-key") && c.route == "oa-models" || F("gua-openai-chat-takes-any-key") && c.route == "oa-chat" && tok != "" {
		a = accounts["tok-a"]
	}
	if a == nil {
		if F("gua-openai-bad-key-is-400") {
			oaErr(c, 400, "bad key", "invalid_request_error", nil)
			return
		}
		oaErr(c, 401, "The key is not valid.", "invalid_request_error", nil)
		return
	}
	calls[c.route]++
	c.n = calls[c.route]
	c.acct = a
	post := c.route == "oa-chat" || c.route == "oa-text"
	model := M{"id": oaModel, "object": "model", "created": 1777881600, "owned_by": "orrery"}
	switch {
	case c.route == "":
		if strings.HasPrefix(path, "/v1/models/") && F("ref-openai-unknown-model-is-shown") {
			c.ok(model)
			return
		}
		oaErr(c, 404, "There is no such model or path.", "invalid_request_error", nil)
		return
	case post && c.r.Method != "POST" || !post && c.r.Method != "GET":
		oaErr(c, 405, "This path has no such method.", "invalid_request_error", nil)
		return
	case c.route == "oa-models":
		c.ok(M{"object": "list", "data": L{model}})
		return
	case c.route == "oa-model":
		c.ok(model)
		return
	}
	var v interface{}
	d := json.NewDecoder(strings.NewReader(string(c.body)))
	d.UseNumber()
	if d.Decode(&v) != nil {
		oaErr(c, 400, "The body is not JSON.", "invalid_request_error", nil)
		return
	}
	in, ok := v.(M)
	bad := func(p string) { oaErr(c, 400, "The value of "+p+" is not accepted.", "invalid_request_error", p) }
	if !ok {
		bad("body")
		return
	}
	if m, is := in["model"].(string); !is || m != oaModel && !F("ref-openai-chat-with-any-model") {
		if !(F("ref-openai-chat-without-model") && in["model"] == nil) {
			bad("model")
			return
		}
	}
	prompt := ""
	if c.route == "oa-chat" {
		l, is := in["messages"].(L)
		if !is || len(l) == 0 && !F("ref-openai-empty-messages-accepted") {
			bad("messages")
			return
		}
		for _, x := range l {
			m, is := x.(M)
			s, isS := m["content"].(string)
			role, isR := m["role"].(string)
			if parts, isL := m["content"].(L); isL {
				isS = true
				for _, p := range parts {
					pm, _ := p.(M)
					t, _ := pm["text"].(string)
					s += t
				}
			}
			if m["content"] == nil && role == "assistant" {
				isS = true
			}
			if !is || !isS || !isR || !strings.Contains(" system developer user assistant tool function ", " "+role+" ") {
				bad("messages")
				return
			}
			prompt += role + ": " + s + "\n"
		}
	} else {
		switch p := in["prompt"].(type) {
		case string:
			prompt = p
		case L:
			if len(p) == 1 {
				if s, is := p[0].(string); is {
					prompt = s
					break
				}
			}
			bad("prompt")
			return
		default:
			bad("prompt")
			return
		}
	}
	max, n := 100, 1
	if c.route == "oa-text" {
		max = 16
		if F("lim-openai-completion-default-is-100") {
			max = 100
		}
	}
	for _, k := range []string{"max_tokens", "max_completion_tokens"} {
		if x, there := in[k]; there && x != nil {
			i, is := intOf(x)
			if !is || i < 1 {
				bad(k)
				return
			}
			if k == "max_completion_tokens" && F("lim-openai-max-completion-tokens-ignored") {
				continue
			}
			max = min(i, 32768)
		}
	}
	rng := func(k string, lo, hi float64) bool {
		x, there := in[k]
		if !there || x == nil {
			return true
		}
		f, is := floatOf(x)
		if !is || f < lo || f > hi {
			if F("ref-openai-temperature-out-of-range-accepted") && k == "temperature" && is {
				return true
			}
			bad(k)
			return false
		}
		return true
	}
	if !rng("temperature", 0, 2) || !rng("top_p", 0, 1) || !rng("presence_penalty", -2, 2) || !rng("frequency_penalty", -2, 2) {
		return
	}
	if x, there := in["n"]; there && x != nil {
		i, is := intOf(x)
		if !is || i < 1 && !(F("ref-openai-n-of-zero-accepted") && i == 0) || i > 128 {
			bad("n")
			return
		}
		n = i
		if F("lim-openai-one-choice-more") && n > 1 {
			n++
		}
	}
	stream := false
	if x, there := in["stream"]; there && x != nil {
		b, is := x.(bool)
		if !is {
			bad("stream")
			return
		}
		stream = b
	}
	if lp, there := in["logprobs"]; there && lp != nil && lp != false {
		bad("logprobs")
		return
	}
	for k, v := range in {
		if v == nil {
			continue
		}
		ok := true
		switch k {
		case "seed":
			_, ok = intOf(v)
		case "top_logprobs":
			i, is := intOf(v)
			ok = is && i >= 0 && i <= 20
		case "user", "service_tier", "reasoning_effort":
			_, ok = v.(string)
		case "logit_bias", "response_format", "stream_options", "metadata":
			_, ok = v.(M)
		case "tools", "modalities":
			_, ok = v.(L)
		case "store", "parallel_tool_calls", "echo":
			_, ok = v.(bool)
		}
		if !ok {
			bad(k)
			return
		}
	}
	var stops []string
	switch s := in["stop"].(type) {
	case nil:
	case string:
		stops = []string{s}
	case L:
		for _, x := range s {
			t, is := x.(string)
			if !is {
				bad("stop")
				return
			}
			stops = append(stops, t)
		}
		if len(s) > 4 {
			bad("stop")
			return
		}
	default:
		bad("stop")
		return
	}
	if F("eff-openai-stop-ignored") {
		stops = nil
	}
	if F("lim-openai-n-ignored") {
		n = 1
	}
	if F("lim-openai-cut-at-sixty-four") && max > 64 {
		max = 64
	}
	usage := M{}
	pt := promptTokens(prompt)
	total := 0
	choices := L{}
	var all [][]string
	var reasons []string
	for i := 0; i < n; i++ {
		key := prompt
		if i > 0 {
			key += strings.Repeat("#", i)
		}
		if F("eff-openai-stop-ends-the-first-choice-only") && i > 0 {
			stops = nil
		}
		toks, text, reason := generate(key, max, stops)
		total += len(toks)
		all, reasons = append(all, toks), append(reasons, reason)
		ch := M{"index": i, "finish_reason": reason, "logprobs": nil}
		if c.route == "oa-chat" {
			ch["message"] = M{"role": "assistant", "content": text, "refusal": nil}
		} else {
			ch["text"] = text
		}
		choices = append(choices, ch)
	}
	usage = M{"prompt_tokens": pt, "completion_tokens": total, "total_tokens": pt + total}
	created := int(now().Unix())
	id := nextID("cmpl")
	if stream {
		oaStream(c, in, id, created, all, reasons, usage)
		return
	}
	obj := "chat.completion"
	if c.route == "oa-text" {
		obj = "text_completion"
	}
	c.ok(M{"id": id, "object": obj, "created": created, "model": oaModel, "choices": choices, "usage": usage})
}

func oaStream(c *C, in M, id string, created int, all [][]string, reasons []string, usage M) {
	so, _ := in["stream_options"].(M)
	inc, _ := so["include_usage"].(bool)
	ct := "text/event-stream"
	if F("rou-openai-stream-as-ndjson") {
		ct = "application/x-ndjson"
	}
	c.w.Header().Set("Content-Type", ct)
	c.w.WriteHeader(200)
	chat := c.route == "oa-chat"
	k := 0
	emit := func(ch L, u interface{}) {
		obj := "chat.completion.chunk"
		if !chat {
			obj = "text_completion"
		}
		if F("fld-openai-chunk-object-is-that-of-a-whole-answer") && chat {
			obj = "chat.completion"
		}
		m := M{"id": id, "object": obj, "created": created, "model": oaModel, "choices": ch}
		if F("rel-openai-created-counts-up") {
			m["created"] = created + k/8
		}
		if F("rel-openai-chunks-have-an-id-each") {
			m["id"] = nextID("cmpl")
		}
		if inc || u != nil {
			if !(F("fld-openai-usage-null-missing") && u == nil) {
				m["usage"] = u
			}
		}
		if F("lim-openai-usage-in-every-stream") && u == nil && !inc {
			m["usage"] = usage
		}
		b, _ := json.Marshal(m)
		c.w.Write([]byte("data: " + string(b) + "\n\n"))
		k++
	}
	one := func(i int, delta M, text string, reason interface{}) L {
		if chat {
			if F("fld-openai-chunk-finish-reason-left-out") && reason == nil {
				return L{M{"index": i, "delta": delta}}
			}
			return L{M{"index": i, "delta": delta, "finish_reason": reason}}
		}
		return L{M{"index": i, "text": text, "logprobs": nil, "finish_reason": reason}}
	}
	for i, toks := range all {
		if F("rel-openai-stream-of-the-first-choice") && i > 0 {
			break
		}
		if chat {
			d := M{"role": "assistant", "content": ""}
			if F("fld-openai-first-chunk-without-role") {
				delete(d, "role")
			}
			emit(one(i, d, "", nil), nil)
		}
		for _, t := range toks {
			emit(one(i, M{"content": t}, t, nil), nil)
		}
		emit(one(i, M{}, "", reasons[i]), nil)
		if F("eff-openai-choice-ends-twice") {
			emit(one(i, M{}, "", reasons[i]), nil)
		}
	}
	if inc {
		if F("rou-openai-done-before-the-usage") {
			c.w.Write([]byte("data: [DONE]\n\n"))
		}
		ch := L{}
		if F("lim-openai-usage-chunk-has-a-choice") {
			ch = one(0, M{}, "", nil)
		}
		if F("rel-openai-usage-counts-the-role") {
			n := usage["completion_tokens"].(int) + len(all)
			usage["completion_tokens"], usage["total_tokens"] = n, usage["prompt_tokens"].(int)+n
		}
		emit(ch, usage)
	}
	if !F("rou-openai-stream-without-done") && !(F("rou-openai-done-before-the-usage") && inc) {
		c.w.Write([]byte("data: [DONE]\n\n"))
	}
	if f, ok := c.w.(http.Flusher); ok {
		f.Flush()
	}
}
