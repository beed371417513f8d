package main

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"net/url"
	"strconv"
	"strings"
)

func (c *C) bytes(ct string, b []byte) {
	c.ctype, c.raw = ct, b
	c.ok(M{})
}
func (c *C) missing(what string) { c.fail(404, "NOT_FOUND", what, nil) }

var gone = map[string]bool{"/register": true, "/api/register": true, "/api/auth/register": true, "/api/accounts": true, "/api/keys": true, "/api/account/register": true}
var joinPaths = map[string]bool{"/login": true, "/signup": true, "/api/login": true, "/api/signup": true, "/auth/login": true, "/auth/signup": true}

func serveNative(c *C, path string) {
	meth := c.r.Method
	q := c.r.URL.Query()
	name, get := "", true
	switch {
	case gone[path]:
		c.route = "n-register"
		c.fail(410, "GONE", "Registration has ended; accounts are keys.", nil)
		return
	case joinPaths[path]:
		c.route = "n-login"
		st, to := 302, "/join"
		if P("redirect-308") {
			st = 308
		}
		if P("redirect-absolute") {
			to = "http://" + c.r.Host + "/join"
		}
		switch {
		case F("rou-login-redirects-to-home"):
			to = "/"
		case F("rou-signup-is-404") && strings.Contains(path, "signup"):
			c.missing("nothing here")
			return
		case F("rou-login-is-a-page") && strings.Contains(path, "login"):
			st = 200
		case F("rou-login-redirect-without-location"):
			to = ""
		}
		if to != "" {
			c.w.Header().Set("Location", to)
		}
		c.status = st
		c.raw, c.ctype = []byte("see /join\n"), "text/plain; charset=utf-8"
		c.send(M{})
		return
	case path == "/join":
		name = "n-join"
	case path == "/rpc":
		name, get = "n-rpc", false
	case path == "/work/poll":
		name, get = "n-poll", false
	case path == "/work/result":
		name, get = "n-result", false
	case strings.HasPrefix(path, "/v1/"):
		serveOpenAI(c, path)
		return
	case strings.HasPrefix(path, "/reference/v03/api/"):
		name = "n-old"
	case strings.HasPrefix(path, "/api/block/"):
		name = "n-block"
	case strings.HasPrefix(path, "/artifacts/sha256/"):
		name = "n-artifact"
	default:
		name = map[string]string{"/healthz": "n-healthz", "/api/network": "n-network", "/api/model": "n-model", "/api/model/checkpoint.json": "n-checkpoint",
			"/api/training": "n-training", "/api/blocks": "n-blocks", "/api/account": "n-account", "/api/validators": "n-validators", "/api/inference": "n-inference",
			"/api/inference/request": "n-request", "/network/genesis.json": "n-genesis", "/network/dataset.json": "n-dataset", "/work/status": "n-status"}[path]
	}
	if name == "" {
		c.route = "n-nowhere"
		c.missing("There is nothing at this path.")
		return
	}
	c.route = name
	calls[name]++
	c.n = calls[name]
	if get && meth != "GET" && meth != "HEAD" || !get && meth != "POST" {
		c.code = "405"
		c.w.Header().Set("Allow", map[bool]string{true: "GET", false: "POST"}[get])
		if name == "n-old" && F("ref-earlier-chain-takes-posts") {
			c.ok(M{"chain_id": "orrery-v03", "accepted": true})
			return
		}
		if name == "n-old" && F("eff-delete-removes-an-earlier-block") && meth == "DELETE" && len(oldBlocks) > 1 {
			oldBlocks = oldBlocks[:len(oldBlocks)-1]
			c.ok(M{"deleted": true})
			return
		}
		c.fail(405, "METHOD_NOT_ALLOWED", "This path has no such method.", nil)
		return
	}
	head := blocks[len(blocks)-1]
	id := func(m M) M { m["chain_id"], m["genesis_hash"] = chainID, genesisHash; return m }
	switch name {
	case "n-healthz":
		if P("healthz-plain") {
			c.bytes("text/plain; charset=utf-8", []byte("ready\n"))
			return
		}
		if P("healthz-catching-up") {
			c.fail(503, "", "catching up", nil)
			return
		}
		c.ok(M{"status": "ready", "height": head.height})
	case "n-network":
		c.ok(id(M{"height": head.height, "hash": head.hash, "block": M{"height": head.height, "hash": head.hash}, "training_round": len(updates),
			"supply_atoms": "1000000000000", "ready": true, "version": "0.4.0"}))
	case "n-model":
		c.ok(id(M{"frozen_parameters": 1200000, "trained_parameters": 34944, "revision": "orrery-base-r2", "training_root": updates[len(updates)-1]["root"], "serving_root": servingRoot,
			"losses": M{"training": updates[len(updates)-1]["loss"], "evaluation": "9801/4096"}, "execution_profile": "int32-exact-1", "model_sha256": hash(modelFile)}))
	case "n-checkpoint":
		u := updates[len(updates)-1]
		c.ok(id(M{"round": u["round"], "root": u["root"], "adapter_sha256": hash(adapter), "adapter_size": len(adapter), "adapter_path": "/artifacts/sha256/" + hash(adapter), "serving_root": servingRoot}))
	case "n-training", "n-blocks":
		nativePage(c, q)
	case "n-block":
		h, err := strconv.Atoi(strings.TrimPrefix(path, "/api/block/"))
		if err != nil {
			c.fail(400, "", "The height must be a whole number.", nil)
			return
		}
		if h < 1 || h > len(blocks) {
			if F("ref-block-of-the-future-is-the-head") && h > 0 {
				h = len(blocks)
			} else {
				c.missing("There is no such block.")
				return
			}
		}
		if F("ref-first-block-not-found") && h == 1 {
			c.missing("There is no such block.")
			return
		}
		if F("ref-latest-block-not-found") && h == len(blocks) {
			c.missing("not yet")
			return
		}
		if F("rel-block-route-off-by-one-from-100") && h >= 100 {
			h--
		}
		c.ok(blockView(blocks[h-1], true))
	case "n-account":
		nativeAccount(c, q)
	case "n-validators":
		if !c.limits(20, 100, "limit", "offset") {
			return
		}
		l := L{}
		for i := 0; i < 3; i++ {
			l = append(l, M{"public_key": "02" + hx("validator"+strconv.Itoa(i)), "owner": "orr1" + hx("v" + strconv.Itoa(i))[:36], "power": 40 - 10*i, "bond_atoms": atoms(int64(40-10*i) * 1000 * unit)})
		}
		a, b := min(c.q["offset"], 3), 0
		b = min(a+c.q["limit"], 3)
		c.ok(id(M{"validators": l[a:b], "total": 3, "limit": c.q["limit"], "offset": c.q["offset"]}))
	case "n-inference":
		c.ok(id(M{"serving_root": servingRoot, "provider": M{"id": "orr1" + hx("v0")[:36], "public_key": pubKey}, "heartbeat": M{"state": "alive", "height": len(blocks) - 1},
			"price_atoms": "250", "fee_atoms": atoms(1000), "queue_length": 0}))
	case "n-request":
		rid := q.Get("id")
		if rid == "" {
			c.fail(400, "", "id is missing.", nil)
			return
		}
		m, ok := requests[rid]
		if !ok {
			if F("rel-unknown-request-is-pending") {
				c.ok(M{"request_id": rid, "state": "pending", "job": M{"position": 1}})
				return
			}
			if F("rel-unknown-request-is-the-latest") {
				c.ok(requests[reqOrder[len(reqOrder)-1]])
				return
			}
			c.missing("There is no such request.")
			return
		}
		if F("ref-expired-requests-not-found") && m["state"] == "expired" || F("lim-only-the-last-four-requests-kept") && !strings.Contains(strings.Join(reqOrder[len(reqOrder)-4:], " "), rid) {
			c.missing("There is no such request.")
			return
		}
		c.ok(m)
	case "n-genesis":
		c.bytes("application/json", genesis)
	case "n-dataset":
		b := dataset
		if F("rel-dataset-is-not-that-of-the-genesis") {
			b = bytes.Replace(dataset, []byte("13,"), []byte("14,"), 1)
		}
		c.bytes("application/json", b)
	case "n-artifact":
		hx := strings.TrimPrefix(path, "/artifacts/sha256/")
		if b, err := hex.DecodeString(hx); err != nil || len(b) != 32 {
			c.fail(400, "", "The digest must be 64 hexadecimal digits.", nil)
			return
		}
		b, ok := artifacts[strings.ToLower(hx)]
		if !ok {
			if F("rel-unknown-artifact-is-empty") {
				c.bytes("application/octet-stream", []byte{})
				return
			}
			c.missing("There is no such file.")
			return
		}
		if F("rel-artifacts-end-with-a-line-break") {
			b = append(append([]byte{}, b...), '\n')
		}
		if F("rel-artifacts-cut-at-4096") && len(b) > 4096 {
			b = b[:4096]
		}
		c.bytes("application/octet-stream", b)
	case "n-status":
		m := id(M{"sponsor": "orr1" + hx("sponsor")[:36], "stages": L{"evaluate", "train"}, "attempts_remaining": 12})
		if P("no-sponsor") {
			m["sponsor"] = nil
			m["stages"] = L{}
			m["attempts_remaining"] = 0
		}
		c.ok(m)
	case "n-poll", "n-result":
		if !c.object() {
			return
		}
		if F("ref-unsigned-work-accepted") && name == "n-result" {
			c.ok(M{"accepted": true})
			return
		}
		if F("ref-unsigned-poll-gets-work") && name == "n-poll" {
			c.ok(M{"work": nil})
			return
		}
		if s, _ := c.in["signature"].(string); s == "" {
			c.fail(400, "", "The message is not signed.", nil)
			return
		}
		c.fail(403, "", "The signature is not valid.", nil)
	case "n-rpc":
		serveRPC(c)
	case "n-old":
		serveOld(c, strings.TrimPrefix(path, "/reference/v03/api/"))
	case "n-join":
		c.bytes("text/html; charset=utf-8", []byte("<!doctype html><title>Join</title><p>Make a key and use it.</p>"))
	}
}

// nativePage answers /api/blocks and /api/training: the newest first; before
// is exclusive.
func nativePage(c *C, q url.Values) {
	lim, bef := 20, 1<<40
	for _, k := range []string{"limit", "before"} {
		if s := q.Get(k); s != "" {
			v, err := strconv.Atoi(s)
			if err != nil || v < 1 && k == "limit" || v < 0 {
				c.fail(400, "", k+" must be a whole number above 0.", nil)
				return
			}
			if k == "limit" {
				lim = v
			} else {
				bef = v
			}
		}
	}
	if P("native-before-inclusive") {
		bef++
	}
	top := 100
	if P("native-pages-up-to-eight") {
		top = 8
	}
	lim = min(lim, top)
	tr := c.route == "n-training"
	if F("lim-native-page-one-more") {
		lim++
	}
	if F("lim-training-limit-ignored") && tr {
		lim = 100
	}
	if F("lim-blocks-limit-ignored-with-before") && !tr && q.Get("before") != "" {
		lim = 20
	}
	if F("lim-blocks-before-ignored") && !tr || F("lim-training-before-is-a-height") && tr {
		if tr {
			bef = bef*5 + 1
		} else {
			bef = 1 << 40
		}
	}
	if F("lim-blocks-before-skips-one") && !tr && q.Get("before") != "" {
		bef--
	}
	if F("lim-blocks-before-means-after") && !tr && q.Get("before") != "" {
		l := L{}
		for h := bef + 1; h <= len(blocks) && len(l) < lim; h++ {
			l = append(l, blockView(blocks[h-1], false))
		}
		c.ok(M{"chain_id": chainID, "blocks": l})
		return
	}
	if F("lim-last-page-of-blocks-is-filled-up") && !tr && q.Get("before") != "" && bef <= lim {
		bef = lim + 1
	}
	l := L{}
	if tr {
		for i := len(updates) - 1; i >= 0 && len(l) < lim; i-- {
			if F("lim-first-round-never-listed") && i == 0 && q.Get("before") != "" {
				continue
			}
			if updates[i]["round"].(int) < bef {
				l = append(l, updates[i])
			}
		}
		if F("lim-short-training-page-has-the-oldest") && lim < 10 {
			l = L{}
			for i := 0; i < len(updates) && len(l) < lim; i++ {
				if updates[i]["round"].(int) < bef {
					l = append(L{updates[i]}, l...)
				}
			}
		}
		c.ok(M{"chain_id": chainID, "genesis_hash": genesisHash, "updates": l, "indexed_round": len(updates), "indexed_height": len(blocks), "error": nil})
		return
	}
	newest := len(blocks)
	if F("lim-blocks-without-before-lack-the-newest") && q.Get("before") == "" {
		newest -= 5
	}
	for h := newest; h >= 1 && len(l) < lim; h-- {
		if h < bef {
			if F("lim-blocks-without-transactions-left-out") && len(blocks[h-1].txs) == 0 {
				continue
			}
			l = append(l, blockView(blocks[h-1], false))
		}
	}
	if P("native-blocks-oldest-first-on-the-page") {
		for i, j := 0, len(l)-1; i < j; i, j = i+1, j-1 {
			l[i], l[j] = l[j], l[i]
		}
	}
	c.ok(M{"chain_id": chainID, "blocks": l})
}

func nativeAccount(c *C, q url.Values) {
	pk := strings.ToLower(q.Get("public_key"))
	b, err := hex.DecodeString(pk)
	if err != nil || len(b) != 33 || b[0] != 2 && b[0] != 3 {
		c.fail(400, "", "public_key must be a compressed public key of 33 bytes in hexadecimal.", nil)
		return
	}
	var a *Account
	for _, x := range accounts {
		if x.pub == pk {
			a = x
		}
	}
	if F("rel-every-key-has-the-first-account") {
		a = accounts["tok-a"]
		pk = a.pub
	}
	if a == nil {
		if P("unknown-account-404") {
			c.missing("There is no such account.")
			return
		}
		a = &Account{pub: pk}
	}
	locked := int64(0)
	if a.token == "tok-b" {
		locked = 2500
	}
	c.ok(M{"public_key": pk, "address": a.addr, "available_atoms": atoms(a.avail), "locked_atoms": atoms(locked), "total_atoms": atoms(a.avail + locked), "next_nonce": a.nonce, "chain_id": chainID})
}

func serveOld(c *C, p string) {
	switch {
	case p == "network":
		b := oldBlocks[len(oldBlocks)-1]
		c.ok(M{"chain_id": "orrery-v03", "version": "0.3", "height": b.height, "hash": b.hash})
	case p == "blocks":
		bs := oldBlocks
		if F("rel-earlier-chain-shows-present-blocks") {
			bs = blocks
		}
		l := L{}
		for i := len(bs) - 1; i >= 0 && len(l) < 20; i-- {
			m := blockView(bs[i], false)
			l = append(l, m)
		}
		c.ok(M{"chain_id": "orrery-v03", "blocks": l})
	case strings.HasPrefix(p, "block/"):
		h, err := strconv.Atoi(p[6:])
		if err != nil || h < 1 || h > len(oldBlocks) {
			c.missing("There is no such block.")
			return
		}
		m := blockView(oldBlocks[h-1], true)
		m["chain_id"] = "orrery-v03"
		c.ok(m)
	case p == "model":
		c.ok(M{"chain_id": "orrery-v03", "revision": "orrery-base-r1", "parameters": 400000})
	default:
		c.missing("There is nothing at this path.")
	}
}

func rawTxs(b *Block) L {
	l := L{}
	for _, t := range b.txs {
		j, _ := json.Marshal(t)
		l = append(l, j)
	}
	return l
}

func serveRPC(c *C) {
	var v interface{}
	d := json.NewDecoder(bytes.NewReader(c.body))
	d.UseNumber()
	var id interface{}
	rerr := func(code int, msg string) {
		c.failed = true
		c.status = 200
		if P("rpc-errors-with-status-400") {
			c.status = 400
		}
		c.send(M{"jsonrpc": "2.0", "id": id, "error": M{"code": code, "message": msg}})
	}
	if len(c.body) > 1<<20 {
		c.fail(413, "", "The body is too large.", nil)
		return
	}
	if d.Decode(&v) != nil {
		rerr(-32700, "Parse error")
		return
	}
	if l, is := v.(L); is && rpcBatch(c, l) {
		return
	}
	m, ok := v.(M)
	if !ok {
		rerr(-32600, "Invalid request")
		return
	}
	id = m["id"]
	meth, ok := m["method"].(string)
	if !ok {
		rerr(-32600, "Invalid request")
		return
	}
	c.code = meth
	par := M{}
	arr := L{}
	switch p := m["params"].(type) {
	case nil:
	case M:
		par = p
	case L:
		arr = p
	default:
		rerr(-32602, "Invalid params")
		return
	}
	res := func(r interface{}) { c.ok(M{"jsonrpc": "2.0", "id": id, "result": r}) }
	height := len(blocks)
	hv := par["height"]
	if len(arr) > 0 {
		hv = arr[0]
	}
	if meth == "block" || meth == "validators" {
		if hv != nil {
			s, is := hv.(string)
			n, isN := hv.(json.Number)
			if isN {
				s = string(n)
			}
			h, err := strconv.Atoi(s)
			if !is && !isN || err != nil || h < 1 || h > len(blocks) {
				rerr(-32602, "Invalid params: height")
				return
			}
			height = h
			if F("rel-rpc-block-ignores-height") && meth == "block" {
				height = len(blocks)
			}
			if F("ref-rpc-height-refused") {
				rerr(-32602, "Invalid params: unexpected height")
				return
			}
		} else if F("ref-rpc-validators-need-height") && meth == "validators" {
			rerr(-32602, "Invalid params: height is missing")
			return
		}
	}
	if F("rou-rpc-has-no-"+meth) && strings.Contains("validators abci_query broadcast_tx_sync", meth) {
		rerr(-32601, "Method not found")
		return
	}
	b := blocks[height-1]
	switch meth {
	case "status":
		h := blocks[len(blocks)-1]
		res(M{"node_info": M{"network": chainID, "version": "0.4.0"}, "sync_info": M{"latest_block_height": strconv.Itoa(h.height), "latest_block_hash": strings.ToUpper(h.hash), "catching_up": false}})
	case "block":
		res(M{"block_id": M{"hash": strings.ToUpper(b.hash)}, "block": M{"header": M{"chain_id": chainID, "height": strconv.Itoa(b.height), "time": b.time}, "data": M{"txs": rawTxs(b)}}})
	case "validators":
		l := L{}
		for i := 0; i < 3; i++ {
			l = append(l, M{"address": strings.ToUpper(hx("validator" + strconv.Itoa(i))[:40]), "voting_power": strconv.Itoa(40 - 10*i)})
		}
		res(M{"block_height": strconv.Itoa(height), "validators": l, "count": "3", "total": "3"})
	case "abci_query":
		p, _ := par["path"].(string)
		data, _ := par["data"].(string)
		if len(arr) > 0 {
			p, _ = arr[0].(string)
		}
		if len(arr) > 1 {
			data, _ = arr[1].(string)
		}
		if F("rou-native-query-job-missing") && p == "/job" {
			rerr(-32602, "Invalid params: unknown path")
			return
		}
		switch p {
		case "/jobs":
			res(M{"response": M{"code": 0, "value": "W10=", "height": strconv.Itoa(len(blocks))}})
		case "/job":
			raw, _ := hex.DecodeString(strings.TrimPrefix(data, "0x"))
			if j, ok := requests[string(raw)]; ok {
				v, _ := json.Marshal(j)
				res(M{"response": M{"code": 0, "value": v, "height": strconv.Itoa(len(blocks))}})
				return
			}
			res(M{"response": M{"code": 4, "log": "no such job", "value": nil, "height": strconv.Itoa(len(blocks))}})
		default:
			rerr(-32602, "Invalid params: path")
		}
	case "broadcast_tx_sync":
		tx, is := par["tx"].(string)
		if len(arr) > 0 {
			tx, is = arr[0].(string)
		}
		if !is || tx == "" {
			rerr(-32602, "Invalid params: tx")
			return
		}
		res(M{"code": 2, "log": "the transaction cannot be decoded", "hash": strings.ToUpper(hash([]byte(tx)))})
	case "dump_consensus_state", "unsafe_flush_mempool", "net_info", "genesis", "dial_peers":
		if F("gua-rpc-relays-" + strings.ReplaceAll(meth, "_", "-")) {
			res(M{"log": "done", "peers": L{}, "round_state": M{"height": strconv.Itoa(len(blocks))}})
			return
		}
		fallthrough
	default:
		if F("gua-rpc-relays-any-method") && meth != "" {
			res(M{})
			return
		}
		rerr(-32601, "Method not found")
	}
}
