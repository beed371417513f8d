package main

import (
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"
)

type M = map[string]interface{}
type L = []interface{}

const unit = 1000000
const fee = 10000 // of a transfer
const price = 100 // of a token
const minStake = 5 * unit
const cooldown = 7 // days
const totalLayers = 12
const hidden = 64
const vocab = 32

var myLayers = []int{6, 7, 8, 9, 10, 11}

type Account struct {
	token, addr, pub       string
	avail, staked, pending int64
	start                  time.Time
	days                   int
	hist                   []M // oldest first
	nonce                  int
	reads                  int
}

var (
	mu       sync.Mutex
	started  time.Time
	accounts = map[string]*Account{}
	nodeID   string
	pubKey   string
	dhtID    []byte
	seq      int
	proofs   []M
	modelH   string
	cfg      M
	calls    = map[string]int{} // by route, how often it was called
)

var met = struct {
	requests, tokens, rpc, sent, recv int64
	lat                               []float64
	times                             []time.Time
}{requests: 1042, tokens: 88211, rpc: 5120, sent: 73400320, recv: 91226112}

func hx(s string) string { h := sha256.Sum256([]byte(s)); return hex.EncodeToString(h[:]) }
func now() time.Time     { return time.Now().UTC() }
func ts(t time.Time) string {
	if P("time-zero-offset") {
		return t.Format("2006-01-02T15:04:05.000000") + "+00:00"
	}
	if P("time-milliseconds") {
		return t.Format("2006-01-02T15:04:05.000Z")
	}
	return t.Format("2006-01-02T15:04:05.000000Z")
}
func date(t time.Time) string { return t.Format("2006-01-02") }
func nextID(p string) string {
	seq++
	if P("ids-decimal") {
		return fmt.Sprint(7000000 + seq)
	}
	if P("ids-long") {
		return p + hx(p+fmt.Sprint(seq)) + hx(fmt.Sprint(seq)+p)
	}
	return p + "_" + hx(p + fmt.Sprint(seq))[:20]
}

// amt writes atoms as whole units with decimals.
func amt(a int64) json.Number {
	if P("amounts-with-six-decimals") {
		s := ""
		if a < 0 {
			s, a = "-", -a
		}
		return json.Number(fmt.Sprintf("%s%d.%06d", s, a/unit, a%unit))
	}
	if P("amounts-with-exponent") {
		return json.Number(strconv.FormatInt(a, 10) + "e-6")
	}
	s := ""
	if a < 0 {
		s, a = "-", -a
	}
	s += fmt.Sprintf("%d.%06d", a/unit, a%unit)
	return json.Number(strings.TrimSuffix(strings.TrimRight(s, "0"), "."))
}

func clone(v interface{}) interface{} {
	switch x := v.(type) {
	case M:
		r := M{}
		for k, e := range x {
			r[k] = clone(e)
		}
		return r
	case L:
		r := make(L, len(x))
		for i, e := range x {
			r[i] = clone(e)
		}
		return r
	}
	return v
}

func setup() {
	started = time.Now()
	pubKey = "02" + hx("node key")
	pk, _ := hex.DecodeString(pubKey)
	h := sha1.Sum(pk)
	dhtID = h[:]
	nodeID = "orn-" + hex.EncodeToString(dhtID[:8])
	modelH = hx("model after round 30")
	cfg = M{"node_id": nodeID, "port": httpPort, "grpc_port": grpcPort, "tracker_url": "http://tracker.invalid:7000",
		"training":  M{"enabled": true, "batch_size": 16, "learning_rate": 0.0003, "diloco_steps": 500},
		"resources": M{"max_memory_gb": 24.5, "cpu_threads": 8}}
	a := &Account{token: "tok-a", addr: "orr1" + hx("account a")[:36], pub: "02" + hx("pub a"), avail: 25000 * unit, nonce: 35}
	b := &Account{token: "tok-b", addr: "orr1" + hx("account b")[:36], pub: "03" + hx("pub b"), avail: 500 * unit, nonce: 13}
	accounts["tok-a"], accounts["tok-b"] = a, b
	if P("second-account-empty") {
		b.avail = 0
	}
	base := now().Truncate(time.Second).Add(-30 * time.Hour)
	for i := 0; i < 32; i++ {
		rw := int64(120000 + 1000*(i%7))
		v := i%9 != 4
		if !v || P("zero-rewards") {
			rw = 0
		}
		proofs = append(proofs, M{"id": "prf_" + hx(fmt.Sprint("proof", i))[:16], "type": []string{"forward", "backward"}[i%4/3],
			"layer": myLayers[i%6], "timestamp": ts(base.Add(time.Duration(i) * 30 * time.Minute)), "verified": v, "reward": amt(rw)})
		if P("no-proofs") {
			proofs = nil
		}
	}
	if !P("empty-history") {
		for i := 0; i < 50; i++ {
			t := ts(base.Add(time.Duration(i)*30*time.Minute + 3*time.Minute))
			id := "tx_" + hx(fmt.Sprint("old", i))[:20]
			switch {
			case i%3 == 1 && len(proofs) > 0:
				j := i * 31 / 50
				a.hist = append(a.hist, M{"id": id, "type": "reward", "amount": proofs[j]["reward"], "timestamp": t,
					"details": M{"proof_id": proofs[j]["id"], "role": "validator"}})
			case i%3 == 2:
				a.hist = append(a.hist, M{"id": id, "type": "send", "amount": amt(-int64(i+1) * 250000), "timestamp": t, "to": b.addr, "memo": fmt.Sprint("invoice ", i), "fee": amt(fee)})
				b.hist = append(b.hist, M{"id": id, "type": "receive", "amount": amt(int64(i+1) * 250000), "timestamp": t, "from": a.addr, "memo": fmt.Sprint("invoice ", i)})
			default:
				a.hist = append(a.hist, M{"id": id, "type": "receive", "amount": amt(int64(i+1) * 500000), "timestamp": t, "from": "orr1" + hx("somebody")[:36]})
			}
		}
	}
	setupDHT()
	setupChain()
}

// model: text follows from the prompt.
var words = strings.Fields("amber basin cedar delta ember fjord grove heron islet jetty kelp ledge marsh north ochre plain quartz ridge slate thorn umber vale willow yonder zephyr arch brook cairn dune field glade harbor inlet knoll lagoon meadow notch oak pond quarry river shore trail upland vista water yard stone light stream winter summer hollow spring lantern meridian copper silver garden")

func generate(prompt string, max int, stops []string) (toks []string, text, reason string) {
	h := sha256.Sum256([]byte(prompt))
	x := uint64(0)
	for i := 0; i < 8; i++ {
		x = x<<8 | uint64(h[i])
	}
	end := 130 + int(x%90)
	reason = "length"
	for i := 0; i < max; i++ {
		if i == end {
			reason = "stop"
			if P("finish-reason-eos") {
				reason = "eos"
			}
			break
		}
		x = x*6364136223846793005 + 1442695040888963407
		w := words[(x>>33)%uint64(len(words))]
		if i%11 == 10 {
			w += "."
		}
		if i > 0 {
			w = " " + w
		}
		toks = append(toks, w)
	}
	text = strings.Join(toks, "")
	cut := -1
	for i, s := range stops {
		if F("eff-listed-order-decides-among-stops") && cut >= 0 {
			break
		}
		if F("eff-only-first-stop-sequence-counts") && i > 0 {
			break
		}
		t, u := text, s
		if F("eff-stop-ignores-letter-case") {
			t, u = strings.ToLower(text), strings.ToLower(s)
		}
		if F("eff-stop-only-at-token-start") && !strings.HasPrefix(s, " ") {
			u = " " + s
		}
		if F("eff-stop-with-trailing-blank-trimmed") {
			u = strings.TrimSpace(u)
		}
		if F("eff-stop-needs-whole-token") {
			p := -1
			k := 0
			for _, tk := range toks {
				if strings.TrimSpace(tk) == strings.TrimSpace(s) {
					p = k
					break
				}
				k += len(tk)
			}
			if p >= 0 && (cut < 0 || p < cut) {
				cut = p
			}
			continue
		}
		if p := strings.Index(t, u); p >= 0 && (cut < 0 || p < cut) {
			cut = p
			if F("eff-text-goes-on-to-end-of-token-after-stop") {
				cut = p + len(u)
				for cut < len(text) && text[cut] != ' ' {
					cut++
				}
				if cut == p+len(u) {
					cut = min(len(text), cut+6)
				}
			}
			if P("stop-sequence-kept-in-text") {
				cut = p + len(u)
			}
		}
	}
	if cut >= 0 {
		n := 0
		var kept []string
		for _, t := range toks {
			if n >= cut {
				break
			}
			if n+len(t) > cut {
				t = t[:cut-n]
			}
			kept = append(kept, t)
			n += len(t)
		}
		toks, text, reason = kept, text[:cut], "stop"
	}
	return
}

func min(a, b int) int {
	if a < b {
		return a
	}
	return b
}
