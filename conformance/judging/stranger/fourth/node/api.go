package main

import (
	"bytes"
	"encoding/json"
	"io"
	"math"
	"math/big"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// C is one HTTP call.
type C struct {
	w      http.ResponseWriter
	r      *http.Request
	t0     time.Time
	route  string
	acct   *Account
	body   []byte
	in     M
	q      map[string]int
	n      int // how often this route was called, this call included
	status int
	ctype  string
	raw    []byte
	prompt string
	native bool
	failed bool // the answer is an error
	code   string
}

type gmatch struct {
	id, route string
	fn        func(c *C, h, tok string) int
}

var guards []gmatch

// gd declares a guard fault: the function returns 0 for the usual treatment,
// 1 to let the call in as the main account, 2 to refuse it.
func gd(line, route string, fn func(c *C, h, tok string) int) {
	D(line)
	guards = append(guards, gmatch{strings.SplitN(line, "|", 2)[0], route, fn})
}

func (c *C) auth() bool {
	h := c.r.Header.Get("Authorization")
	tok := ""
	if len(h) >= 7 && (h[:7] == "Bearer " || P("bearer-in-any-case") && strings.EqualFold(h[:7], "Bearer ")) {
		tok = h[7:]
	}
	a := accounts[tok]
	for _, g := range guards {
		if on(g.id) && (g.route == c.route || g.route == "*") {
			switch g.fn(c, h, tok) {
			case 1:
				if a == nil {
					a = accounts["tok-a"]
				}
			case 2:
				a = nil
			}
		}
	}
	c.acct = a
	if a != nil {
		return true
	}
	msg := "The access token is missing, unknown or expired."
	if tok == "tok-x" {
		msg = "The access token has expired."
	}
	c.fail(401, "UNAUTHORIZED", msg, nil)
	return false
}

func (c *C) fail(status int, code, msg string, details M) {
	if P("errors-422") && status == 400 {
		status = 422
	}
	if P("error-codes-lowercase") && status != 401 && status != 402 {
		code = strings.ToLower(code)
	}
	e := M{"code": code, "message": msg}
	if details != nil {
		e["details"] = details
	}
	if P("error-message-localised") {
		e["message"] = "Nicht möglich: " + msg
	}
	if P("error-with-request-id") {
		e["request_id"] = hx(msg)[:12]
	}
	m := M{"error": e}
	c.failed, c.code = true, code
	if c.native {
		m = M{"error": msg}
		if P("native-errors-structured") {
			m = M{"error": M{"reason": msg, "status": status}}
		}
	}
	if status == 401 && P("www-authenticate") {
		c.w.Header().Set("WWW-Authenticate", "Bearer")
	}
	c.status = status
	c.send(m)
}

func (c *C) ok(m M) {
	c.status = 200
	c.send(m)
}

// send applies the faults of this route and writes the answer.
func (c *C) send(m M) {
	m = clone(m).(M)
	if c.ctype == "" {
		c.ctype = "application/json"
		if P("charset") {
			c.ctype = "application/json; charset=utf-8"
		}
	}
	if P("extra-fields") && !c.native {
		m["x_build"] = M{"commit": "0f3a", "flags": L{"toy"}}
	}
	for _, x := range hmuts {
		if on(x.id) && (x.route == c.route && !c.failed || x.route == "*" || x.route == "!" && c.failed || x.route == "!"+c.route && c.failed) {
			x.fn(m, c)
		}
	}
	b := c.raw
	if b == nil {
		var buf bytes.Buffer
		e := json.NewEncoder(&buf)
		e.SetEscapeHTML(P("html-escapes"))
		if P("pretty-json") {
			e.SetIndent("", "   ")
		}
		if err := e.Encode(m); err != nil {
			buf.Reset()
			c.status = 500
			buf.WriteString(`{"error":{"code":"INTERNAL","message":"encoding"}}`)
		}
		b = buf.Bytes()
		if P("ascii-only-json") {
			b = asciiJSON(b)
		}
	}
	c.write(b)
}

func asciiJSON(b []byte) []byte {
	var o bytes.Buffer
	for _, r := range string(b) {
		if r < 128 {
			o.WriteByte(byte(r))
		} else if r < 0x10000 {
			o.WriteString("\\u" + strconv.FormatInt(int64(r)+0x10000, 16)[1:])
		} else {
			r -= 0x10000
			for _, x := range []rune{0xd800 + r>>10, 0xdc00 + r&0x3ff} {
				o.WriteString("\\u" + strconv.FormatInt(int64(x), 16))
			}
		}
	}
	return o.Bytes()
}

func (c *C) write(b []byte) {
	met.sent += int64(len(b))
	if P("lowercase-headers") {
		c.w.Header()["content-type"] = []string{c.ctype}
		c.w.Header()["x-served-by"] = []string{"orrery"}
	} else {
		c.w.Header().Set("Content-Type", c.ctype)
	}
	if P("connection-close") {
		c.w.Header().Set("Connection", "close")
	}
	if P("cors-headers") {
		c.w.Header().Set("Access-Control-Allow-Origin", "*")
		c.w.Header().Set("Vary", "Origin")
	}
	c.w.WriteHeader(c.status)
	if P("chunked-bodies") && len(b) > 4 {
		c.w.Write(b[:4])
		if f, ok := c.w.(http.Flusher); ok {
			f.Flush()
		}
		b = b[4:]
	}
	c.w.Write(b)
}

// object reads the body as one JSON object.
func (c *C) object() bool {
	if c.body == nil {
		b, err := io.ReadAll(io.LimitReader(c.r.Body, 20<<20+1))
		if err != nil {
			c.fail(400, "INVALID_REQUEST", "The body cannot be read.", nil)
			return false
		}
		if len(b) > 20<<20 {
			c.fail(413, "BODY_TOO_LARGE", "The body is too large.", nil)
			return false
		}
		c.body = b
		met.recv += int64(len(b))
	}
	d := json.NewDecoder(bytes.NewReader(c.body))
	d.UseNumber()
	var v interface{}
	err := d.Decode(&v)
	if err == nil {
		if _, e := d.Token(); e != io.EOF {
			err = errWire
			if F("ref-trailing-bytes-after-json-accepted") {
				err = nil
			}
		}
	}
	m, ok := v.(M)
	if err != nil || !ok {
		if F("ref-no-json-is-the-prompt") && c.route == "inference" {
			c.in = M{"prompt": string(c.body)}
			return true
		}
		if F("ref-no-json-is-a-server-error") && c.route == "inference" {
			c.fail(500, "INTERNAL", "json: cannot decode", nil)
			return false
		}
		c.fail(400, "INVALID_JSON", "The body is not a JSON object.", nil)
		return false
	}
	c.in = m
	return true
}

func (c *C) bad(msg string) bool {
	if F("ref-bad-stream-refused-in-an-event") && c.route == "inference" && c.in["stream"] == true {
		c.sse([]interface{}{M{"error": M{"code": "INVALID_REQUEST", "message": msg}}}, false)
		return false
	}
	c.fail(400, "INVALID_REQUEST", msg, nil)
	return false
}

// intOf reads an integer; 5.0 has no fraction and is one too.
func intOf(v interface{}) (int, bool) {
	n, ok := v.(json.Number)
	if !ok {
		return 0, false
	}
	f, err := n.Float64()
	if err != nil || f != math.Trunc(f) || math.Abs(f) > 1e15 {
		return 0, false
	}
	return int(f), true
}
func floatOf(v interface{}) (float64, bool) {
	n, ok := v.(json.Number)
	if !ok {
		return 0, false
	}
	f, err := n.Float64()
	return f, err == nil
}

// money reads an amount. ok is false for what is no amount; huge is true for
// more than there can be.
func money(v interface{}) (atoms int64, huge, ok bool) {
	n, is := v.(json.Number)
	if !is || len(n) > 60 {
		return
	}
	f, err := n.Float64()
	if err != nil || f <= 0 {
		return
	}
	if f > 1e12 {
		return 0, true, true
	}
	if f < 1e-7 {
		return
	}
	r, good := new(big.Rat).SetString(string(n))
	if !good {
		return
	}
	r.Mul(r, big.NewRat(unit, 1))
	if !r.IsInt() {
		return
	}
	return r.Num().Int64(), false, true
}

// limits reads limit and offset.
func (c *C) limits(def, max int, names ...string) bool {
	c.q = map[string]int{"limit": def, "offset": 0}
	for _, k := range names {
		s := c.r.URL.Query().Get(k)
		if s == "" {
			continue
		}
		v, err := strconv.Atoi(s)
		if err != nil || v < 0 {
			if F("lim-bad-limit-500") && c.route == "transactions" {
				c.fail(500, "INTERNAL", "strconv", nil)
				return false
			}
			if P("bad-limit-ignored") {
				continue
			}
			c.fail(400, "INVALID_QUERY", k+" must be a whole number, 0 or more.", nil)
			return false
		}
		c.q[k] = v
	}
	if c.q["limit"] > max {
		c.q["limit"] = max
	}
	return true
}

type route struct {
	name, method string
	auth         bool
	fn           func(c *C)
}

var nodeRoutes = map[string][]route{
	"/api/v1/status":              {{"status", "GET", false, getStatus}},
	"/api/v1/metrics":             {{"metrics", "GET", false, getMetrics}},
	"/api/v1/health":              {{"health", "GET", false, getHealth}},
	"/api/v1/network":             {{"network", "GET", false, getNetwork}},
	"/api/v1/inference":           {{"inference", "POST", true, postInference}},
	"/api/v1/wallet/balance":      {{"balance", "GET", true, getBalance}},
	"/api/v1/wallet/send":         {{"send", "POST", true, postSend}},
	"/api/v1/wallet/transactions": {{"transactions", "GET", true, getTransactions}},
	"/api/v1/wallet/stake":        {{"stake", "POST", true, postStake}},
	"/api/v1/wallet/unstake":      {{"unstake", "POST", true, postUnstake}},
	"/api/v1/peers":               {{"peers", "GET", true, getPeers}},
	"/api/v1/layers":              {{"layers", "GET", true, getLayers}},
	"/api/v1/config":              {{"config", "GET", true, getConfig}, {"patch", "PATCH", true, patchConfig}},
	"/api/v1/proofs":              {{"proofs", "GET", true, getProofs}},
	"/api/training/global":        {{"tr-global", "GET", false, getTrGlobal}},
	"/api/training/verify":        {{"tr-verify", "GET", false, getTrVerify}},
}

func serve(w http.ResponseWriter, r *http.Request) {
	c := &C{w: w, r: r, t0: time.Now()}
	if P("slow-answers") {
		time.Sleep(250 * time.Millisecond)
	}
	if r.Body != nil && r.Method != "GET" {
		b, err := io.ReadAll(io.LimitReader(r.Body, 20<<20+1))
		if err == nil && len(b) <= 20<<20 {
			c.body = b
		} else {
			mu.Lock()
			defer mu.Unlock()
			if err == nil && strings.HasPrefix(r.URL.Path, "/api/v1/") && accounts[strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")] == nil {
				c.auth()
				return
			}
			c.fail(413, "BODY_TOO_LARGE", "The body is too large.", nil)
			return
		}
	}
	path := r.URL.Path
	if P("trailing-slash-accepted") && len(path) > 1 {
		path = strings.TrimSuffix(path, "/")
	}
	path = routeFaults(c, path)
	mu.Lock()
	defer mu.Unlock()
	if rs, ok := nodeRoutes[path]; ok {
		for _, t := range rs {
			if t.method == r.Method || t.method == "GET" && r.Method == "HEAD" {
				c.route = t.name
				calls[t.name]++
				c.n = calls[t.name]
				if a := accounts[strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")]; openGuards(c, a) || openGuards2(c, a) {
					return
				}
				if t.auth && !c.auth() {
					return
				}
				t.fn(c)
				return
			}
		}
		c.route = "method"
		if P("options-answered") && r.Method == "OPTIONS" {
			w.Header().Set("Allow", rs[0].method)
			w.WriteHeader(204)
			return
		}
		w.Header().Set("Allow", rs[0].method)
		c.fail(405, "METHOD_NOT_ALLOWED", "This path has no such method.", nil)
		return
	}
	if strings.HasPrefix(path, "/api/v1/") || path == "/api/v1" {
		c.route = "nowhere"
		c.fail(404, "NOT_FOUND", "There is nothing at this path.", nil)
		return
	}
	c.native = true
	serveNative(c, path)
}
