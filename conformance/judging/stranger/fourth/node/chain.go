package main

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
	"time"
)

func atoms(a int64) string { return strconv.FormatInt(a, 10) }
func hash(b []byte) string { h := sha256.Sum256(b); return hex.EncodeToString(h[:]) }

const chainID = "orrery-1"

type Block struct {
	height       int
	hash, parent string
	time         string
	txs          []M
}

var (
	blocks      []*Block // blocks[0] has height 1
	oldBlocks   []*Block
	updates     []M
	requests    = map[string]M{}
	reqOrder    []string
	genesis     []byte
	dataset     []byte
	adapter     []byte
	modelFile   []byte
	genesisHash string
	artifacts   = map[string][]byte{}
	servingRoot string
)

func push(bs []*Block, chain, when string, txs []M) []*Block {
	h := len(bs) + 1
	parent := hx(chain)
	if h > 1 {
		parent = bs[h-2].hash
	}
	for i, t := range txs {
		if t["hash"] == nil {
			t["hash"] = hx(fmt.Sprint(chain, h, i))
		}
	}
	return append(bs, &Block{h, hx(chain + parent + fmt.Sprint(h)), parent, when, txs})
}

func addBlock(tx M) {
	if len(blocks) == 0 {
		return
	}
	n := 1
	if P("several-blocks-for-a-transfer") {
		n = 3
	}
	for i := 0; i < n; i++ {
		var t []M
		if i == 0 {
			t = []M{tx}
		}
		blocks = push(blocks, chainID, ts(now()), t)
	}
}

func setupChain() {
	ids := []int{}
	for i := 0; i < 4000; i++ {
		ids = append(ids, (i*7919+13)%50000)
	}
	dataset, _ = json.Marshal(M{"format": "orrery-tokens-1", "vocabulary": 50000, "tokens": ids})
	adapter = []byte("adapter round 30\n" + hx("adapter"))
	for i := 0; i < 200; i++ {
		adapter = append(adapter, byte(i*31), byte(i))
	}
	modelFile = []byte("orrery model manifest\n" + hx("model"))
	genesis, _ = json.Marshal(M{"chain_id": chainID, "genesis_time": "2026-05-04T08:00:00Z", "dataset_sha256": hash(dataset),
		"supply_atoms": "1000000000000", "validators": L{M{"owner": "orr1" + hx("v0")[:36], "power": 40}}})
	genesisHash = hash(genesis)
	for _, b := range [][]byte{genesis, dataset, adapter, modelFile} {
		artifacts[hash(b)] = b
	}
	servingRoot = hx("serving root 29")
	nb := 140
	if P("short-chain") {
		nb = 30
	}
	t := started.UTC().Add(-days(1))
	for h := 1; h <= nb; h++ {
		var txs []M
		if h%10 == 5 && h < 135 {
			k := h / 10
			id := "req-" + hx(fmt.Sprint("request", k))[:24]
			p := fmt.Sprintf("Tell me about stone number %d", k)
			if k == 11 {
				p = "Ist der Fluß \"tief\"?\nJa."
			}
			txh := hx(fmt.Sprint("reqtx", k))
			txs = append(txs, M{"type": "inference_request", "hash": txh, "request_id": id, "prompt": p, "max_tokens": 12, "nonce": k,
				"public_key": accounts["tok-b"].pub, "price_atoms": "250", "expires_at_height": h + 8, "chain_id": chainID, "signature": hx(id) + hx(txh)})
			toks, text, reason := generate(p, 12, nil)
			m := M{"request_id": id, "transaction_hash": txh, "height": h, "prompt": p, "max_tokens": 12, "price_atoms": "250", "expires_at_height": h + 8, "chain_id": chainID, "genesis_hash": genesisHash}
			switch {
			case k == 4 || k == 9:
				m["state"] = "expired"
				m["expired_at_height"] = h + 8
				m["refund"] = M{"amount_atoms": "250", "height": h + 8, "to": accounts["tok-b"].pub}
			default:
				m["state"] = "completed"
				m["response"] = M{"text": text, "tokens": len(toks), "finish_reason": reason, "height": h + 3}
			}
			requests[id] = m
			reqOrder = append(reqOrder, id)
		}
		if h%4 == 2 {
			txs = append(txs, M{"type": "transfer", "from": accounts["tok-a"].addr, "to": accounts["tok-b"].addr, "amount_atoms": atoms(int64(h) * 1500), "fee_atoms": atoms(fee)})
		}
		if h%5 == 0 && h/5 <= 28 {
			r := h / 5
			updates = append(updates, M{"round": r, "loss": fmt.Sprintf("%d/4096", 12000-r*88), "loss_decimal": fmt.Sprintf("%.6f", float64(12000-r*88)/4096),
				"parent_root": hx(fmt.Sprint("root", r-1)), "root": hx(fmt.Sprint("root", r)), "height": h})
		}
		blocks = push(blocks, chainID, ts(t.Add(time.Duration(h)*9*time.Minute)), txs)
	}
	for h := 1; h <= 25; h++ {
		oldBlocks = push(oldBlocks, "orrery-v03", fmt.Sprintf("2025-11-%02dT12:00:00Z", h), nil)
	}
}

func blockView(b *Block, full bool) M {
	res := L{}
	for range b.txs {
		res = append(res, M{"code": 0, "log": ""})
	}
	m := M{"height": b.height, "hash": b.hash, "parent_hash": b.parent, "time": b.time, "transaction_count": len(b.txs), "results": res}
	if full {
		m["transactions"] = toL(b.txs)
		m["chain_id"] = chainID
	}
	return m
}
