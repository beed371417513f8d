package main

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strings"
	"time"
	"unicode/utf8"
)

type genReq struct {
	prompt string
	max    int
	stream bool
	stops  []string
}

// params reads the body of POST /inference.
func (c *C) params() (g genReq, ok bool) {
	p, is := c.in["prompt"].(string)
	if !is {
		switch {
		case F("ref-missing-prompt-is-empty-prompt") && c.in["prompt"] == nil:
			p = " "
		case F("ref-prompt-array-joined") && isList(c.in["prompt"]):
			p = string(enc(c.in["prompt"]))
		case F("ref-number-as-prompt-accepted") && c.in["prompt"] != nil:
			p = "5"
		default:
			return g, c.bad("prompt must be a string.")
		}
	}
	if p == "" && !P("empty-prompt-accepted") {
		return g, c.bad("prompt must not be empty.")
	}
	if F("ref-prompt-with-quotes-500") && strings.ContainsAny(p, "\"\n") {
		c.fail(500, "INTERNAL", "unterminated string", nil)
		return g, false
	}
	if F("ref-prompt-outside-bmp-refused") {
		for _, r := range p {
			if r > 0xffff {
				return g, c.bad("prompt has characters that are not supported.")
			}
		}
	}
	g.prompt, g.max = p, 100
	if F("lim-default-max-tokens-64") {
		g.max = 64
	}
	if F("lim-default-max-tokens-200") {
		g.max = 200
	}
	if F("lim-default-max-tokens-of-streams-16") && c.in["stream"] == true {
		g.max = 16
	}
	if v, there := c.in["max_tokens"]; there {
		if s, is := v.(string); is && F("ref-max-tokens-text-accepted") {
			v = json.Number(s)
		}
		n, is := intOf(v)
		_, arr := v.(L)
		top := 32768
		if P("max-tokens-limit-512") {
			top = 512
		}
		if F("ref-max-tokens-array-accepted") && arr {
			n, is = 5, true
		}
		if f, isN := floatOf(v); isN && F("ref-max-tokens-fraction-accepted") && f > 1 {
			n, is = int(f), true
		}
		if F("ref-max-tokens-one-refused") && n == 1 {
			is = false
		}
		if !is || n < 1 || n > top {
			return g, c.bad("max_tokens must be a whole number from 1 to 32768.")
		}
		g.max = n
	}
	if v, there := c.in["temperature"]; there {
		f, is := floatOf(v)
		if s, isS := v.(string); isS && F("ref-temperature-text-accepted") {
			f, is = floatOf(json.Number(s))
		}
		if _, isB := v.(bool); isB && F("ref-temperature-bool-accepted") {
			f, is = 1, true
		}
		hi, lo := 2.0, 0.0
		if F("lim-temperature-up-to-five") {
			hi = 5
		}
		if F("lim-temperature-two-refused") {
			hi = 1.99
		}
		if F("lim-temperature-zero-refused") {
			lo = 0.01
		}
		if F("lim-negative-temperature-accepted") {
			lo = -10
		}
		if F("lim-stream-temperature-unchecked") && c.in["stream"] == true {
			hi, lo = 1e9, -1e9
		}
		if F("lim-temperature-rounded-before-its-check") {
			hi = 2.0499
		}
		if F("lim-whole-temperature-refused") && wholeNumber(v) {
			is = false
		}
		if !is || f < lo || f > hi {
			return g, c.bad("temperature must be a number from 0 to 2.")
		}
	}
	if v, there := c.in["top_p"]; there {
		f, is := floatOf(v)
		hi := 1.0
		if F("lim-top-p-one-refused") {
			hi = 0.999
		}
		if F("ref-top-p-object-accepted") && !is {
			f, is = 1, true
		}
		lo := 0.0
		if F("lim-small-top-p-refused") {
			lo = 0.1
		}
		if !is || f <= lo || f > hi {
			return g, c.bad("top_p must be a number above 0 and at most 1.")
		}
	}
	if v, there := c.in["top_k"]; there {
		n, is := intOf(v)
		top := 1 << 40
		if F("lim-top-k-above-hundred-refused") {
			top = 100
		}
		if F("ref-top-k-text-accepted") && !is {
			n, is = 1, true
		}
		least := 1
		if F("lim-top-k-one-refused") {
			least = 2
		}
		if !is || n < least || n > top {
			return g, c.bad("top_k must be a whole number above 0.")
		}
	}
	if v, there := c.in["stream"]; there {
		b, is := v.(bool)
		switch v.(type) {
		case M, L:
			if F("ref-stream-object-is-true") {
				b, is = true, true
			}
		case string:
			if F("ref-stream-text-accepted") {
				b, is = v == "true", true
			}
		}
		if !is {
			return g, c.bad("stream must be a bool.")
		}
		g.stream = b || F("rou-stream-false-is-streamed")
	}
	if v, there := c.in["stop"]; there {
		l, is := v.(L)
		if s, isS := v.(string); isS && (F("ref-stop-text-accepted")) {
			l, is = L{s}, true
		}
		if is && len(l) == 0 && F("ref-empty-stop-refused") {
			is = false
		}
		most := 64
		if P("at-most-four-stops") {
			most = 4
		}
		if !is || len(l) > most {
			return g, c.bad("stop must be an array of strings.")
		}
		for _, x := range l {
			s, is := x.(string)
			if !is && F("ref-stop-with-numbers-accepted") {
				continue
			}
			if !is || s == "" {
				return g, c.bad("stop must be an array of strings that are not empty.")
			}
			g.stops = append(g.stops, s)
		}
		if F("lim-default-with-stop-is-a-thousand") && c.in["max_tokens"] == nil && len(g.stops) > 0 {
			g.max = 1000
		}
	}
	if P("unknown-parameters-refused") {
		for k := range c.in {
			if !strings.Contains(" prompt max_tokens temperature top_p top_k stream stop ", " "+k+" ") {
				return g, c.bad("unknown parameter " + k)
			}
		}
	}
	return g, true
}

func promptTokens(p string) int {
	n := utf8.RuneCountInString(p)
	if P("prompt-tokens-with-start-token") {
		n += 2
	}
	if P("prompt-tokens-as-bytes") {
		n = len(p)
	}
	return n
}

func postInference(c *C) {
	if !c.object() {
		return
	}
	g, ok := c.params()
	if !ok {
		return
	}
	rememberParams(c, &g)
	t1 := time.Now()
	c.prompt = g.prompt
	pt := promptTokens(g.prompt)
	if F("rel-prompt-tokens-kept-by-their-beginning") {
		pt = keepTokens(g.prompt, pt)
	}
	if F("lim-prompt-tokens-capped-at-64") && pt > 64 {
		pt = 64
	}
	max := g.max
	if F("lim-max-tokens-lessened-by-prompt") {
		max -= pt / 4
		if max < 1 {
			max = 1
		}
	}
	if F("lim-max-tokens-rounded-up-to-eight") {
		max = (max + 7) / 8 * 8
	}
	if F("lim-one-token-too-many") {
		max++
	}
	if F("lim-max-tokens-above-120-ignored") && max > 120 {
		max = 1000
	}
	stops := g.stops
	if F("eff-streams-ignore-stop") && g.stream {
		stops = nil
	}
	if F("eff-long-prompts-ignore-stop") && pt > 100 {
		stops = nil
	}
	if F("eff-stop-ignored-with-temperature-zero") {
		if f, ok := floatOf(c.in["temperature"]); ok && f == 0 {
			stops = nil
		}
	}
	if F("eff-stream-misses-stops-across-tokens") && g.stream {
		stops = insideTokens(g.prompt, max, stops)
	}
	toks, text, reason := generate(g.prompt, max, stops)
	n := len(toks)
	if F("eff-generations-at-once-fail") {
		busy++
		mu.Unlock()
		time.Sleep(30 * time.Millisecond)
		mu.Lock()
		b := busy
		busy--
		if b > 1 || collided {
			collided = busy > 0
			c.fail(500, "INTERNAL", "the engine is busy", nil)
			return
		}
	}
	per := int64(price)
	if P("generations-for-free") {
		per = 0
	}
	if P("generations-dear") {
		per = 1000 * price
	}
	cost := int64(pt+n) * per
	a := c.acct
	if cost > a.avail && !F("ref-unpaid-generation-served") {
		if F("ref-unpaid-stream-in-events") && g.stream {
			c.sse([]interface{}{M{"error": M{"code": "INSUFFICIENT_BALANCE", "message": "too little"}}}, false)
			return
		}
		if F("eff-unpaid-generation-takes-the-rest") {
			a.avail = 0
		}
		if F("ref-unpaid-generation-403") {
			c.fail(403, "FORBIDDEN", "too little", nil)
			return
		}
		c.poor(amt(cost), a.avail)
		return
	}
	take := cost
	payer := a
	switch {
	case F("eff-generation-charged-twice"):
		take *= 2
	case F("eff-long-generation-charged-twice") && n > 50:
		take *= 2
	case F("eff-stream-charged-for-max-tokens") && g.stream, F("eff-charged-for-max-tokens-when-stopped") && len(stops) > 0:
		take = int64(pt+g.max) * per
	case F("eff-second-account-generates-on-the-first"):
		payer = accounts["tok-a"]
	case F("eff-generations-at-once-charged-to-the-last"):
		lastAsker = a
		pause()
		payer = lastAsker
	case F("eff-charge-rounded-up-to-cents"):
		take = (take + 9999) / 10000 * 10000
	case F("eff-generation-not-charged"):
		take = 0
	}
	payer.avail -= take
	if !P("generations-not-in-history") && take > 0 {
		payer.add(M{"id": nextID("tx"), "type": "inference", "amount": amt(-take)})
	}
	// counters
	if F("eff-generations-at-once-counted-once") {
		r := met.requests
		pause()
		met.requests = r
	}
	met.requests++
	if F("eff-request-counted-twice") {
		met.requests++
	}
	if F("eff-stream-not-counted") && g.stream || F("eff-second-account-not-counted") && a.token == "tok-b" {
		met.requests--
	}
	if F("eff-stream-counted-twice") && g.stream {
		met.requests++
	}
	cnt := int64(n)
	switch {
	case F("eff-asked-tokens-counted") && len(stops) > 0:
		cnt = int64(g.max)
	case F("eff-prompt-tokens-counted-as-generated"):
		cnt += int64(pt)
	case F("eff-stream-tokens-not-counted") && g.stream:
		cnt = 0
	case F("eff-stream-tokens-counted-twice") && g.stream:
		cnt *= 2
	case F("eff-long-generation-tokens-not-counted") && n > 99:
		cnt = 0
	}
	if F("eff-repeated-prompt-not-counted") && seenPrompts[g.prompt] {
		met.requests--
		cnt = 0
	}
	if F("eff-repeated-prompt-not-counted") {
		seenPrompts[g.prompt] = true
	}
	met.tokens += cnt
	met.times = append(met.times, time.Now())
	usage := M{"prompt_tokens": pt, "completion_tokens": n, "total_tokens": pt + n}
	id := nextID("inf")
	if P("slow-generations") {
		time.Sleep(400 * time.Millisecond)
	}
	if g.stream && !(F("rou-stream-of-one-token-is-a-result") && g.max == 1) {
		c.stream(id, toks, reason, usage)
		return
	}
	end := time.Now()
	ms := func(a, b time.Time) float64 { return round3(float64(b.Sub(a).Microseconds()) / 1000) }
	q, inf, tot := ms(c.t0, t1), ms(t1, end), ms(c.t0, end)
	if P("whole-milliseconds") {
		q, inf, tot = 0, float64(int(inf)), float64(int(tot))
	}
	met.lat = append(met.lat, tot)
	cur := "ORR"
	if P("currency-long-name") {
		cur = "orrery-credit"
	}
	c.ok(M{"id": id, "text": text, "tokens_generated": n, "finish_reason": reason, "usage": usage,
		"cost":   M{"amount": amt(cost), "currency": cur},
		"timing": M{"queue_ms": q, "inference_ms": inf, "total_ms": tot}})
}

var busy int
var collided bool

// smut changes the list of events of a stream: the last one is the final event.
type smut struct {
	id string
	fn func(ev []M, c *C) []M
}

var smuts []smut

func sx(line string, fn func(ev []M, c *C) []M) {
	D(line)
	smuts = append(smuts, smut{strings.SplitN(line, "|", 2)[0], fn})
}

func (c *C) stream(id string, toks []string, reason string, usage M) {
	ev := []M{}
	if P("two-tokens-an-event") {
		var two []string
		for i := 0; i < len(toks); i += 2 {
			t := toks[i]
			if i+1 < len(toks) {
				t += toks[i+1]
			}
			two = append(two, t)
		}
		toks = two
	}
	if P("whole-text-in-one-event") && len(toks) > 0 {
		toks = []string{strings.Join(toks, "")}
	}
	for i, t := range toks {
		ev = append(ev, M{"token": t, "index": i})
	}
	fin := M{"token": "[DONE]", "finish_reason": reason, "usage": usage}
	if P("final-event-with-index") {
		fin["index"] = len(ev)
		fin["id"] = id
	}
	ev = append(ev, fin)
	for _, s := range smuts {
		if on(s.id) {
			ev = s.fn(ev, c)
		}
	}
	l := []interface{}{}
	for _, e := range ev {
		l = append(l, e)
	}
	c.sse(l, true)
}

var sseSep = "\n\n"
var sseTail = ""

func (c *C) sse(ev []interface{}, good bool) {
	ct := "text/event-stream"
	switch {
	case F("rou-stream-as-octet-stream"):
		ct = "application/octet-stream"
	case F("rou-stream-as-json"):
		ct = "application/json"
	case F("rou-stream-as-plain-text"):
		ct = "text/plain; charset=utf-8"
	case P("stream-charset"):
		ct = "text/event-stream; charset=utf-8"
	}
	c.w.Header().Set("Content-Type", ct)
	c.w.Header().Set("Cache-Control", "no-cache")
	c.w.WriteHeader(200)
	fl, _ := c.w.(http.Flusher)
	for i, e := range ev {
		var b bytes.Buffer
		enc := json.NewEncoder(&b)
		enc.SetEscapeHTML(false)
		enc.Encode(e)
		data := "data: "
		s := strings.TrimSuffix(b.String(), "\n")
		sep := "\n\n"
		last := i == len(ev)-1
		switch {
		case F("rou-events-without-blank-line"):
			sep = "\n"
		case F("rou-last-event-without-blank-line") && last:
			sep = "\n"
		case F("rou-last-event-cut") && last:
			s, sep = s[:len(s)-2], ""
		case F("rou-events-without-data-prefix"):
			data = ""
		case F("rou-final-event-is-a-bare-word") && last:
			s = "[DONE]"
		case F("rou-final-event-on-several-lines") && last:
			s = strings.ReplaceAll(s, ",", ",\ndata: ")
		case F("rou-events-as-python-text"):
			s = strings.ReplaceAll(s, `"`, `'`)
		case F("rou-event-with-duplicate-key"):
			s = strings.Replace(s, `{`, `{"token":"",`, 1)
		case P("crlf-events"):
			sep = "\r\n\r\n"
		}
		c.w.Write([]byte(data + s + sep))
		met.sent += int64(len(s) + 8)
		if fl != nil && i%16 == 0 {
			fl.Flush()
		}
	}
	if F("rou-line-after-the-final-event") {
		c.w.Write([]byte("data: {\"token\":\"\",\"index\":9999}\n\n"))
	}
}
