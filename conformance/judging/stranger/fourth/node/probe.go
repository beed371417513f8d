package main

import (
	"context"
	"crypto/sha1"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
)

func show(b []byte, depth int) string {
	m, err := parse(b)
	if err != nil || depth > 2 {
		return fmt.Sprintf("raw:%s", hash(b)[:10])
	}
	var o []string
	for _, f := range m.f {
		switch f.wt {
		case 2:
			s := string(f.b)
			if !utf8.ValidString(s) || len(s) > 60 {
				s = fmt.Sprintf("<%d %s>", len(s), hash(f.b)[:8])
				if len(f.b) < 60 && f.n < 4 {
					s = "{" + show(f.b, depth+1) + "}"
				}
			}
			o = append(o, fmt.Sprintf("%d:%q", f.n, s))
		default:
			o = append(o, fmt.Sprintf("%d/%d=%d", f.n, f.wt, f.u))
		}
	}
	return strings.Join(o, " ")
}

// runProbe makes a fixed series of calls and prints the answers.
func runProbe(addr string) {
	cc, err := grpc.Dial(addr, grpc.WithInsecure(), grpc.WithDefaultCallOptions(grpc.ForceCodec(rawCodec{}), grpc.MaxCallRecvMsgSize(100<<20), grpc.MaxCallSendMsgSize(100<<20)))
	if err != nil {
		fmt.Println(err)
		return
	}
	do := func(label, meth string, m *Msg) []byte {
		ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
		defer cancel()
		var out []byte
		name := meth
		if !strings.HasPrefix(name, "/") {
			name = "/" + svc + "/" + meth
		}
		err := cc.Invoke(ctx, name, m.encode(), &out)
		fmt.Println(label, meth, status.Code(err), show(out, 0))
		return out
	}
	E := &Msg{}
	for _, n := range []string{"UnaryInference", "GetWeights", "GossipGradient", "GetCheckpoint", "GetCheckpointInfo", "GossipProof", "GossipTransaction", "GossipStake", "RequestProofValidation", "GossipValidationVote", "PipelineForward", "PipelineBackward", "GetShardInfo", "DHTPing", "DHTStore", "DHTFindNode", "DHTFindValue", "SwarmForward", "GetSwarmStatus", "UpdatePeerCapacity", "PutCheckpoint", "/other.Service/Do"} {
		do("empty", n, E)
	}
	do("bad", "GetCheckpointInfo", &Msg{f: []Fld{{1, 7, 0, nil}}})
	do("badutf8", "GetCheckpoint", &Msg{f: []Fld{{1, 2, 0, []byte{0xff}}}})
	s := func(n int, v string) Fld { return Fld{n, 2, 0, []byte(v)} }
	i := func(n int, v int64) Fld { return Fld{n, 0, uint64(v), nil} }
	mk := func(f ...Fld) *Msg { return &Msg{f} }
	info, _ := parse(do("i", "GetCheckpointInfo", E))
	h := info.getStr(2)
	if len(h) < 10 {
		h = hx("model after round 30")
	}
	do("own hash", "GetCheckpoint", mk(s(1, h)))
	do("own version", "GetCheckpoint", mk(i(2, 28)))
	do("low", "GetCheckpoint", mk(i(2, 3)))
	do("high", "GetCheckpoint", mk(i(2, 99)))
	do("other hash", "GetCheckpoint", mk(s(1, hx("x"))))
	for _, r := range []string{"6", "7", "6-8", "2", "99", "abc"} {
		do("w "+r, "GetWeights", mk(s(1, r)))
	}
	for _, n := range []string{"a", "b", "c"} {
		do("inf", "UnaryInference", mk(s(1, n), i(2, 3)))
	}
	// gradients
	z := lz4frame(make([]byte, 256))
	gr := func(rd int64, mh string, data []byte) *Msg {
		e := mk(s(1, "layers.7"), Fld{2, 2, 0, data})
		m := mk(s(1, "peer"), i(2, rd), s(3, mh))
		m.double(4, 1.7e9)
		m.varint(5, 4)
		m.double(6, 2.5)
		m.sub(7, e)
		m.varint(9, 2)
		return m
	}
	do("ok", "GossipGradient", gr(28, h, z))
	do("raw", "GossipGradient", gr(28, h, []byte("text")))
	do("binary", "GossipGradient", gr(28, h, []byte{0xff, 0xfe, 0x80}))
	do("model", "GossipGradient", gr(28, hx("q"), z))
	do("round", "GossipGradient", gr(3, h, z))
	// passes
	fw := func(t, b, sq int64, labels bool, sender string) *Msg {
		x := make([]float32, b*sq*64)
		for k := range x {
			x[k] = float32(k%17)/10 - 0.5
		}
		m := mk(s(1, "s1"), s(2, fmt.Sprintf("r%d%d%v", t, b, labels)), Fld{3, 2, 0, fbytes(x)})
		m.packed(4, []int64{b, sq, 64})
		m.varint(8, 1)
		m.varint(9, 5)
		m.varint(10, t)
		if labels {
			m.bytes(11, make([]byte, 8*b*sq))
		}
		m.str(12, sender)
		return m
	}
	do("f6", "PipelineForward", fw(6, 1, 3, false, ""))
	do("f11", "PipelineForward", fw(11, 2, 3, false, ""))
	do("f2", "PipelineForward", fw(2, 1, 3, false, ""))
	do("train", "PipelineForward", fw(6, 1, 3, true, startSink()))
	short := fw(6, 1, 3, false, "")
	short.f[2].b = short.f[2].b[:40]
	do("short", "PipelineForward", short)
	bw := func(t int64, rid string) *Msg {
		m := mk(s(1, "s1"), s(2, rid), Fld{3, 2, 0, make([]byte, 4*3*64)})
		m.packed(4, []int64{1, 3, 64})
		m.varint(5, t)
		return m
	}
	do("back", "PipelineBackward", bw(6, "r61true"))
	time.Sleep(350 * time.Millisecond)
	sinkMu.Lock()
	sink = append(sink, fmt.Sprint("failures follow ", len(sink)))
	sinkMu.Unlock()
	do("nobody", "PipelineBackward", bw(6, "nobody"))
	do("absent", "PipelineBackward", bw(2, "r61true"))
	if w, _ := strconv.Atoi(os.Getenv("PROBE_RETRIES")); w > 0 { // only to see how often a failing peer is called
		do("train2", "PipelineForward", fw(6, 2, 3, true, startSink()))
		m := bw(6, "r62true")
		m.f[2].b = make([]byte, 4*2*3*64)
		m.drop(4)
		m.packed(4, []int64{2, 3, 64})
		do("back2", "PipelineBackward", m)
		time.Sleep(time.Duration(w) * time.Millisecond)
		sinkMu.Lock()
		fmt.Println("calls of a peer that is unavailable:", failing)
		sinkMu.Unlock()
		return
	}
	// DHT
	id := func(n string) []byte { x := sha1.Sum([]byte(n)); return x[:] }
	node := func(k []byte, ip string, p int64) Fld {
		m := mk(Fld{1, 2, 0, k})
		m.str(2, ip)
		m.varint(3, p)
		return Fld{1, 2, 0, m.encode()}
	}
	K := func(b []byte) Fld { return Fld{2, 2, 0, b} }
	for p := 0; p < 3; p++ {
		for q := 0; q < 12; q++ {
			k := id("same")
			k[19], k[10] = byte(q), byte(p)
			do("ping", "DHTPing", mk(node(k, fmt.Sprintf("10.9.%d.%d", p, q), 9000)))
		}
	}
	do("move", "DHTPing", mk(node(id("same"), "10.9.9.9", 9000)))
	do("move", "DHTPing", mk(node(id("same"), "10.9.9.10", 9001)))
	do("noaddr", "DHTPing", mk(node(id("noaddr"), "", 0)))
	do("find", "DHTFindNode", mk(K(id("same"))))
	do("find", "DHTFindNode", mk(K(id("noaddr"))))
	do("find", "DHTFindNode", mk(K(dhtIDOf("contact3"))))
	do("find", "DHTFindNode", mk(K(make([]byte, 20))))
	do("shortid", "DHTFindNode", mk(K([]byte("abc"))))
	do("shortkey", "DHTFindValue", mk(K([]byte("abc"))))
	do("shortkey", "DHTStore", mk(K([]byte("abc")), s(3, "v")))
	k1, k2 := id("k"), id("k")
	k2[19] ^= 1
	k3 := id("k")
	k3[12] ^= 0x40
	k4, k5 := id("u"), id("u")
	k4[3], k5[3] = 0xff, 0xfe
	vals := []string{"10.0.0.1:9000", " kept Ünï \n", strings.Repeat("long ", 60), "x", "y"}
	for n, k := range [][]byte{k1, k2, k3, k4, k5} {
		do("unfound", "DHTFindValue", mk(K(k)))
		do("store", "DHTStore", mk(K(k), s(3, vals[n])))
	}
	for n := 0; n < 2; n++ {
		for _, k := range [][]byte{k1, k2, k3, k4, k5} {
			do("found", "DHTFindValue", mk(K(k)))
		}
	}
	for n := 0; n < 12; n++ {
		do("store", "DHTStore", mk(K(id(fmt.Sprint("many", n))), s(3, "m")))
	}
	do("found", "DHTFindValue", mk(K(k1)))
	// large messages
	big := mk(s(1, "6"), Fld{50, 2, 0, make([]byte, 40<<20)})
	do("40MiB", "GetWeights", big)
	do("6MiB", "GetWeights", mk(s(1, "6"), Fld{50, 2, 0, make([]byte, 6<<20)}))
	// streams
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	st, err := cc.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, "/"+svc+"/StreamInference")
	if err == nil {
		for n := 0; n < 3; n++ {
			st.SendMsg(mk(s(1, fmt.Sprint("p", n)), i(2, 2)).encode())
		}
		st.CloseSend()
		for n := 0; n < 4; n++ {
			var o []byte
			err := st.RecvMsg(&o)
			if err != nil {
				fmt.Println("stream ends", status.Code(err))
				break
			}
			fmt.Println("stream", show(o, 0))
		}
	}
	time.Sleep(time.Duration(waitSink) * time.Millisecond)
	sinkMu.Lock()
	for _, l := range sink {
		fmt.Println("sink", l)
	}
	sinkMu.Unlock()
}

var waitSink = 500

func dhtIDOf(n string) []byte { x := sha1.Sum([]byte(n)); return x[:] }
