package main

import (
	"bytes"
	"crypto/sha1"
	"fmt"
	"net"
	"sort"
	"time"
)

const dhtK = 20

type contact struct {
	id   []byte
	ip   string
	port int64
}

var contacts []contact
var store = map[string]string{}
var storeOrder []string
var finds = map[string]int{}

func setupDHT() {
	for i := 0; i < 12; i++ {
		h := sha1.Sum([]byte(fmt.Sprint("contact", i)))
		contacts = append(contacts, contact{h[:], fmt.Sprintf("10.20.1.%d", i+2), int64(9000 + i)})
	}
	if P("dht-knows-nobody") {
		contacts = nil
	}
}

// nodeInfo writes a DHTNodeInfo. where is self, node or last.
func nodeInfo(c contact, where string) *Msg {
	m := &Msg{}
	id := c.id
	self := where == "self"
	switch {
	case F("num-node-ids-as-hex") && !self, F("num-responder-id-as-hex") && self:
		id = []byte(fmt.Sprintf("%x", id))
	case F("num-listed-node-ids-cut") && !self:
		id = id[:16]
	case F("num-last-listed-node-id-is-sha256") && where == "last":
		id = append(append([]byte{}, id...), id[:12]...)
	}
	m.bytes(1, id)
	m.str(2, c.ip)
	if F("num-node-port-as-text") {
		m.str(3, fmt.Sprint(c.port))
	} else {
		m.varint(3, c.port)
	}
	if F("num-node-port-at-four") {
		m.renum(3, 4)
	}
	if F("num-node-ip-and-port-exchanged") {
		m.renum(2, 3)
	}
	if F("num-listed-nodes-counted-from-zero") && !self {
		m.f[0].n, m.f[1].n, m.f[2].n = 5, 1, 2
	}
	if F("num-responder-without-port") && self {
		m.drop(3)
	}
	return m
}

func selfInfo() *Msg {
	c := contact{dhtID, "127.0.0.1", int64(grpcPort)}
	if P("responder-names-http-port") {
		c.port = int64(httpPort)
	}
	if P("responder-names-localhost") {
		c.ip = "localhost"
	}
	return nodeInfo(c, "self")
}

// learn remembers the sender of a request.
func learn(g *G) error {
	b := g.req.getBytes(1)
	if b == nil {
		return nil
	}
	s, err := parse(b)
	if err != nil || s.badText(2) {
		return inval("sender cannot be read")
	}
	id, ip, port := append([]byte{}, s.getBytes(1)...), s.getStr(2), s.getInt32(3)
	if F("rel-sender-without-address-is-listed") && ip == "" && len(id) == 20 {
		contacts = append(contacts, contact{id, "", 0})
		return nil
	}
	if P("dht-learns-nobody") || len(id) != 20 || ip == "" || port < 1 || port > 65535 || bytes.Equal(id, dhtID) {
		return nil
	}
	if F("lim-dht-remembers-one-node-of-a-prefix") {
		for i := range contacts {
			if bytes.Equal(contacts[i].id[:2], id[:2]) && !bytes.Equal(contacts[i].id, id) {
				return nil
			}
		}
	}
	for i := range contacts {
		if bytes.Equal(contacts[i].id, id) {
			if F("eff-moved-node-is-listed-twice") && (contacts[i].ip != ip || contacts[i].port != port) {
				continue
			}
			contacts[i].ip, contacts[i].port = ip, port
			return nil
		}
	}
	contacts = append(contacts, contact{id, ip, port})
	return nil
}

func dist(a, b []byte) []byte {
	d := make([]byte, 20)
	for i := range d {
		d[i] = a[i] ^ b[i]
	}
	return d
}

func closest(target []byte) []contact {
	l := append([]contact{}, contacts...)
	k := dhtK
	if P("dht-k-of-three") {
		k = 3
	}
	if F("lim-search-of-the-first-twenty-known") && len(l) > dhtK {
		l = l[:dhtK]
	}
	sort.SliceStable(l, func(i, j int) bool {
		x, y := dist(l[i].id, target), dist(l[j].id, target)
		if F("rel-closest-by-signed-bytes") {
			x, y = signed(x), signed(y)
		}
		if F("rel-closest-by-difference-not-xor") {
			x, y = l[i].id, l[j].id
		}
		if F("rel-closest-by-first-byte-only") {
			x, y = x[:1], y[:1]
		}
		return bytes.Compare(x, y) < 0
	})
	if F("rel-farthest-nodes-are-listed") {
		for i, j := 0, len(l)-1; i < j; i, j = i+1, j-1 {
			l[i], l[j] = l[j], l[i]
		}
		k = 5
	}
	if F("rel-the-closest-node-is-left-out") && len(l) > 1 {
		l = l[1:]
	}
	if F("rel-target-itself-is-left-out") && len(l) > 0 && bytes.Equal(l[0].id, target) {
		l = l[1:]
	}
	if F("lim-dht-lists-eight-of-the-oldest") || F("rel-closest-by-difference-not-xor") {
		k = 8
	}
	if F("lim-dht-lists-eight-of-the-oldest") {
		l = append([]contact{}, contacts...)
	}
	if len(l) > k {
		l = l[:k]
	}
	if F("rel-a-node-is-listed-twice") && len(l) > 1 {
		l = append(l, l[0])
	}
	if P("listed-nodes-in-any-order") {
		for i, j := 0, len(l)-1; i < j; i, j = i+1, j-1 {
			l[i], l[j] = l[j], l[i]
		}
	}
	return l
}

func nodes(m *Msg, n int, target []byte) {
	l := closest(target)
	for i, c := range l {
		w := "node"
		if i == len(l)-1 {
			w = "last"
		}
		m.sub(n, nodeInfo(c, w))
	}
}

func gPing(g *G) (*Msg, error) {
	if err := learn(g); err != nil {
		return nil, err
	}
	m := &Msg{}
	m.sub(1, selfInfo())
	return m, nil
}

func id20(b []byte, what string) error {
	if len(b) == 20 {
		return nil
	}
	switch {
	case F("ref-short-id-is-a-panic"):
		return gerr(2, "panic: index out of range")
	case F("ref-short-id-is-out-of-range"):
		return gerr(11, "length")
	}
	return inval("%s must have 20 bytes", what)
}

func gStore(g *G) (*Msg, error) {
	if err := learn(g); err != nil {
		return nil, err
	}
	k := g.req.getBytes(2)
	if err := id20(k, "key"); err != nil {
		return nil, err
	}
	if g.req.badText(3) {
		return nil, inval("value is no text")
	}
	v := g.req.getStr(3)
	m := &Msg{}
	m.sub(1, selfInfo())
	ks := string(k)
	top := 1 << 20
	if P("dht-values-up-to-256-bytes") {
		top = 256
	}
	if F("eff-refused-value-clears-the-old-one") && len(v) > top {
		delete(store, ks)
	}
	if P("dht-stores-nothing") || len(v) > top {
		return m, nil
	}
	if F("eff-store-reported-refused-but-kept") {
		store[ks] = v
		return m, nil
	}
	if _, there := store[ks]; there && P("first-value-stays") {
		m.boolean(2, true)
		return m, nil
	}
	switch {
	case F("eff-stored-values-cut-at-hundred") && len(v) > 100:
		v = v[:100]
	case F("eff-stored-values-trimmed"):
		v = trim(v)
	case F("eff-stored-values-lose-foreign-letters"):
		v = ascii(v)
	case F("eff-keys-told-apart-by-eight-bytes"):
		ks = ks[:8]
	case F("eff-keys-read-as-text"):
		ks = string([]rune(ks))
	case F("eff-last-byte-of-keys-ignored"):
		ks = ks[:19]
	}
	store[ks] = v
	storeOrder = append(storeOrder, ks)
	if F("lim-dht-keeps-the-last-four-values") && len(storeOrder) > 4 {
		delete(store, storeOrder[len(storeOrder)-5])
	}
	m.boolean(2, true)
	return m, nil
}

func trim(s string) string {
	for len(s) > 0 && (s[0] == ' ' || s[0] == '\n') {
		s = s[1:]
	}
	for len(s) > 0 && (s[len(s)-1] == ' ' || s[len(s)-1] == '\n') {
		s = s[:len(s)-1]
	}
	return s
}
func ascii(s string) string {
	o := ""
	for _, r := range s {
		if r > 127 {
			r = '?'
		}
		o += string(r)
	}
	return o
}

func gFindNode(g *G) (*Msg, error) {
	if err := learn(g); err != nil {
		return nil, err
	}
	t := g.req.getBytes(2)
	if err := id20(t, "target_id"); err != nil {
		return nil, err
	}
	m := &Msg{}
	m.sub(1, selfInfo())
	nodes(m, 2, t)
	return m, nil
}

func gFindValue(g *G) (*Msg, error) {
	if err := learn(g); err != nil {
		return nil, err
	}
	k := g.req.getBytes(2)
	if err := id20(k, "key"); err != nil {
		return nil, err
	}
	ks := string(k)
	if F("eff-keys-told-apart-by-eight-bytes") {
		ks = ks[:8]
	}
	if F("eff-last-byte-of-keys-ignored") {
		ks = ks[:19]
	}
	if F("eff-keys-read-as-text") {
		ks = string([]rune(ks))
	}
	m := &Msg{}
	m.sub(1, selfInfo())
	v, ok := store[ks]
	g.key = ks
	if F("eff-empty-value-is-not-found") && v == "" {
		ok = false
	}
	for _, x := range contacts {
		if F("eff-value-under-the-id-of-a-node-not-found") && bytes.Equal(x.id, k) {
			ok = false
		}
	}
	if F("eff-value-found-only-once") && ok {
		finds[ks]++
		ok = finds[ks] < 2
	}
	if F("eff-value-found-late") && ok {
		finds[ks]++
		ok = finds[ks] > 1
	}
	if ok {
		m.str(2, v)
		m.boolean(4, true)
		return m, nil
	}
	if F("rel-search-lists-those-near-the-node") {
		k = dhtID
	}
	if !F("rel-unsuccessful-search-lists-nobody") {
		nodes(m, 3, k)
	}
	if F("rel-unfound-value-has-an-empty-looking-value") {
		m.str(2, "null")
	}
	if F("rel-unfound-value-is-found") {
		m.boolean(4, true)
	}
	return m, nil
}

var _ = net.IPv4zero
var _ = time.Now
