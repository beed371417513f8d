package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/pierrec/lz4"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"
)

func lz4frame(b []byte) []byte {
	var o bytes.Buffer
	w := lz4.NewWriter(&o)
	w.Write(b)
	w.Close()
	return o.Bytes()
}

var lz4magic = []byte{0x04, 0x22, 0x4d, 0x18}

func unframe(b []byte) ([]byte, error) {
	if !bytes.HasPrefix(b, lz4magic) {
		return b, nil
	}
	return io.ReadAll(io.LimitReader(lz4.NewReader(bytes.NewReader(b)), 400<<20))
}

func floats(b []byte) ([]float32, bool) {
	if len(b)%4 != 0 {
		return nil, false
	}
	f := make([]float32, len(b)/4)
	for i := range f {
		f[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
		if f[i] != f[i] || math.IsInf(float64(f[i]), 0) {
			return nil, false
		}
	}
	return f, true
}
func fbytes(f []float32) []byte {
	b := make([]byte, 4*len(f))
	for i, x := range f {
		binary.LittleEndian.PutUint32(b[4*i:], math.Float32bits(x))
	}
	return b
}

func held(l int) bool {
	for _, x := range myLayers {
		if x == l {
			return true
		}
	}
	return false
}

type pass struct {
	session, sender string
	source          int64
	b, s            int64
}

var passes = map[string]*pass{}

func tensor(data []byte, shape []int64, what string) ([]float32, error) {
	if len(shape) != 3 {
		return nil, inval("%s has not three dimensions", what)
	}
	n := int64(1)
	for _, d := range shape {
		if d < 1 || d > 1<<20 {
			return nil, inval("%s has a dimension that is not accepted", what)
		}
		n *= d
		if n > 1<<26 {
			return nil, inval("%s is too large", what)
		}
	}
	raw, err := unframe(data)
	if err != nil {
		return nil, inval("%s is no LZ4 frame", what)
	}
	f, ok := floats(raw)
	if !ok || int64(len(f)) != n {
		return nil, inval("%s does not have the bytes of its shape, or values that are not finite", what)
	}
	return f, nil
}

func gForward(g *G) (*Msg, error) {
	r := g.req
	rid := r.getStr(2)
	g.key = rid
	if r.badText(1, 2, 12) {
		return nil, inval("a text is not UTF-8")
	}
	shape, err := r.getInts(4)
	if err != nil {
		return nil, inval("hidden_shape cannot be read")
	}
	x, err := tensor(r.getBytes(3), shape, "hidden_states")
	if err == nil && shape[2] != hidden {
		err = inval("the hidden size is %d", hidden)
	}
	if err != nil {
		if P("forward-failures-in-the-answer") {
			g.fail = true
			m := &Msg{}
			m.str(1, rid)
			m.str(3, err.Error())
			return m, nil
		}
		switch {
		case F("ref-forward-failure-without-reason"):
			g.fail = true
			m := &Msg{}
			m.str(1, rid)
			return m, nil
		case F("ref-bad-tensor-is-internal"):
			return nil, gerr(codes.Internal, "reshape")
		case F("ref-empty-forward-succeeds") && len(r.getBytes(3)) == 0:
			m := &Msg{}
			m.str(1, rid)
			m.boolean(2, true)
			return m, nil
		}
		return nil, err
	}
	t := int(r.getInt32(10))
	if F("ref-negative-layer-counts-from-the-end") && t < 0 && t >= -6 {
		t += totalLayers
	}
	if !held(t) {
		switch {
		case F("ref-absent-layer-is-unavailable"):
			return nil, gerr(codes.Unavailable, "layer %d", t)
		case F("ref-absent-layer-is-computed"):
			t = 6
		case F("ref-absent-layer-is-invalid"):
			return nil, inval("layer %d", t)
		case F("ref-absent-layer-is-exhausted"):
			return nil, gerr(codes.ResourceExhausted, "layer %d", t)
		default:
			return nil, gerr(codes.NotFound, "layer %d is not held here", t)
		}
	}
	if t == 11 && F("ref-last-own-layer-not-found") {
		return nil, gerr(codes.NotFound, "layer %d is not held here", t)
	}
	if shape[0] > 1 && P("one-sequence-at-a-time") {
		return nil, inval("only one sequence at a time")
	}
	y := append([]float32{}, x...)
	for l := t; l < totalLayers; l++ {
		for i := range y {
			y[i] = y[i]*0.9 + float32(math.Tanh(float64(y[(i/hidden)*hidden+(i+l)%hidden])))*0.1
		}
	}
	b, s := shape[0], shape[1]
	if F("lim-only-the-first-sequence-is-computed") {
		b = 1
	}
	if F("lim-only-the-last-position-is-computed") && s > 1 {
		s = 1
	}
	lg := make([]float32, b*s*vocab)
	for p := int64(0); p < b*s; p++ {
		for v := 0; v < vocab; v++ {
			lg[p*vocab+int64(v)] = y[p*hidden+int64(v)] + 0.5*y[p*hidden+int64(v+vocab)]
		}
	}
	m := &Msg{}
	m.str(1, rid)
	m.boolean(2, true)
	if r.getInt(8) != 0 && !P("no-cache-kept") {
		for l := t; l < totalLayers; l++ {
			m.bytes(6, fbytes(y[:8]))
		}
	}
	m.boolean(7, true)
	m.bytes(8, fbytes(lg))
	m.packed(9, []int64{b, s, vocab})
	lab := r.getBytes(11)
	if len(lab) > 0 {
		lab, _ = unframe(lab)
		w := 0
		if int64(len(lab)) == 8*shape[0]*shape[1] {
			w = 8
		} else if int64(len(lab)) == 4*shape[0]*shape[1] {
			w = 4
		}
		if w == 0 {
			return nil, inval("training_labels must be int64 or int32 of the shape [batch, seq]")
		}
		sum, n := 0.0, 0
		for p := int64(0); p < b*s; p++ {
			v := int64(int32(binary.LittleEndian.Uint32(lab[int(p)*w:])))
			if w == 8 {
				v = int64(binary.LittleEndian.Uint64(lab[int(p)*8:]))
			}
			if v < 0 || v >= vocab {
				continue
			}
			z := 0.0
			for k := int64(0); k < vocab; k++ {
				z += math.Exp(float64(lg[p*vocab+k]))
			}
			sum += math.Log(z) - float64(lg[p*vocab+v])
			n++
		}
		if n > 0 {
			m.double(10, sum/float64(n))
		}
	}
	if s := r.getStr(12); s != "" {
		latestSender = s
	}
	if len(lab) > 0 || r.getStr(12) != "" {
		passes[rid] = &pass{r.getStr(1), r.getStr(12), r.getInt32(9), shape[0], shape[1]}
	}
	return m, nil
}

func gBackward(g *G) (*Msg, error) {
	r := g.req
	if r.badText(1, 2) {
		return nil, inval("a text is not UTF-8")
	}
	t := int(r.getInt32(5))
	if !held(t) {
		if F("eff-refused-backward-drops-the-pass") {
			delete(passes, r.getStr(2))
		}
		switch {
		case F("ref-backward-to-absent-layer-succeeds"):
			m := &Msg{}
			m.boolean(1, true)
			return m, nil
		case F("ref-backward-to-absent-layer-is-unavailable"):
			return nil, gerr(codes.Unavailable, "no")
		}
		return nil, gerr(codes.NotFound, "layer %d is not held here", t)
	}
	shape, err := r.getInts(4)
	if err != nil {
		return nil, inval("grad_shape cannot be read")
	}
	x, err := tensor(r.getBytes(3), shape, "grad_output")
	if err != nil {
		return nil, err
	}
	m := &Msg{}
	rid := r.getStr(2)
	p := passes[rid]
	if p == nil || shape[0] != p.b || shape[1] != p.s || shape[2] != hidden && shape[2] != vocab {
		g.fail = true
		if F("eff-refused-backward-drops-the-pass") {
			delete(passes, rid)
		}
		if !F("ref-backward-failure-without-reason") {
			m.str(2, "no pass with this request_id waits for such a gradient")
		}
		if F("ref-backward-of-unknown-pass-internal") {
			return nil, gerr(codes.Internal, "KeyError")
		}
		return m, nil
	}
	if F("ref-backward-of-known-pass-refused") {
		g.fail = true
		m.str(2, "no graph")
		return m, nil
	}
	if !F("eff-gradients-go-back-twice") {
		delete(passes, rid)
	}
	if F("eff-gradients-go-to-the-latest-sender") {
		p.sender = latestSender
	}
	if p.sender != "" && !F("eff-gradients-do-not-go-back") {
		gr := make([]float32, p.b*p.s*hidden)
		w := int(shape[2])
		for i := range gr {
			gr[i] = x[(i/hidden)*w+(i%hidden)%w] * 0.9
		}
		go sendBack(p, rid, gr)
		if F("eff-gradients-go-back-twice") {
			go sendBack(p, rid, gr)
		}
	}
	m.boolean(1, true)
	return m, nil
}

// sendBack passes the gradients to the previous node: at most three attempts,
// each with a deadline; only what may pass is tried again.
func sendBack(p *pass, rid string, gr []float32) {
	addr := p.sender
	if i := strings.Index(addr, "://"); i >= 0 {
		sch := addr[:i]
		addr = strings.SplitN(addr[i+3:], "/", 2)[0]
		if j := strings.LastIndex(addr, ":"); j >= 0 && strings.HasPrefix(sch, "http") {
			n, _ := strconv.Atoi(addr[j+1:])
			n += 1000
			if F("rou-gradients-go-to-the-http-port") {
				n -= 1000
			}
			addr = fmt.Sprintf("%s:%d", addr[:j], n)
		}
	}
	m := &Msg{}
	m.str(1, p.session)
	m.str(2, rid)
	b := fbytes(gr)
	if F("rel-returned-gradient-shorter-than-its-shape") {
		b = b[:len(b)-4]
	}
	m.bytes(3, b)
	m.packed(4, []int64{p.b, p.s, hidden})
	m.varint(5, p.source)
	if F("num-sent-backward-shape-as-doubles") {
		doubles(m, 4)
	}
	if F("num-sent-backward-shape-at-five") {
		m.renum(4, 5)
	}
	if F("num-sent-backward-request-id-at-one") {
		m.renum(1, 2)
	}
	cc, err := grpc.Dial(addr, grpc.WithInsecure(), grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 30 * time.Second, Timeout: 10 * time.Second, PermitWithoutStream: true}),
		grpc.WithDefaultCallOptions(grpc.ForceCodec(rawCodec{}), grpc.MaxCallRecvMsgSize(100<<20), grpc.MaxCallSendMsgSize(100<<20)))
	if err != nil {
		return
	}
	defer cc.Close()
	for i := 0; i < 3 || F("lim-gradients-tried-ten-times") && i < 10; i++ {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		var out []byte
		err := cc.Invoke(ctx, "/"+svc+"/PipelineBackward", m.encode(), &out)
		cancel()
		c := status.Code(err)
		if F("eff-gradients-sent-again-after-not-found") && c == codes.NotFound {
			c = codes.Unavailable
		}
		if c != codes.Unavailable && c != codes.ResourceExhausted && c != codes.DeadlineExceeded {
			return
		}
		if !F("eff-gradients-sent-again-without-pause") {
			time.Sleep(time.Duration(200<<uint(min(i, 3))) * time.Millisecond)
		}
	}
}

func gWeights(g *G) (*Msg, error) {
	s := g.req.getStr(1)
	a, b := 6, 11
	if s != "" {
		p := strings.SplitN(s, "-", 2)
		x, e1 := strconv.Atoi(p[0])
		y, e2 := x, error(nil)
		if len(p) == 2 {
			y, e2 = strconv.Atoi(p[1])
		}
		if e1 != nil || e2 != nil || y < x {
			if F("ref-range-that-is-none-is-internal") {
				return nil, gerr(codes.Internal, "strconv")
			} else {
				return nil, inval("shard_range is a layer like 7, or a range like 6-8")
			}
		}
		if F("ref-weights-partly-held-are-served") && !held(x) && held(y) {
			x = 6
		}
		if F("ref-weights-of-a-high-layer-out-of-range") && x >= totalLayers {
			return nil, gerr(codes.OutOfRange, "layer %d", x)
		}
		if !held(x) || !held(y) {
			switch {
			case F("ref-weights-of-absent-layer-empty"):
				return &Msg{}, nil
			case F("ref-weights-of-absent-layer-are-own"):
				x, y = 6, 6
			case F("ref-weights-of-absent-layer-invalid"):
				return nil, inval("not held")
			default:
				return nil, gerr(codes.NotFound, "layers %s are not held here", s)
			}
		}
		a, b = x, y
	}
	if F("rel-weights-of-every-layer-are-those-of-the-first") {
		b = a
		a, b = 6, 6
	}
	d := M{}
	for l := a; l <= b; l++ {
		d[fmt.Sprintf("layers.%d.w", l)] = strings.Repeat(hx(fmt.Sprint("w", l)), 20)
	}
	m := &Msg{}
	j, _ := json.Marshal(d)
	if P("weights-compressed") {
		j = lz4frame(j)
	}
	m.bytes(1, j)
	return m, nil
}

func gGradient(g *G) (*Msg, error) {
	r := g.req
	if r.badText(1, 3, 8) {
		return nil, inval("a text is not UTF-8")
	}
	rd := r.getInt32(2)
	why := ""
	layers := r.all(7)
	if F("ref-stale-gradient-is-a-failed-precondition") && (rd < round-1 || rd > round+1) {
		return nil, gerr(codes.FailedPrecondition, "round %d", rd)
	}
	switch {
	case P("gradients-never-accepted"):
		why = "this node takes no gradients"
	case r.getStr(1) == "":
		why = "node_id is missing"
	case rd < round-1 || rd > round+1:
		why = "the round is another one"
	case r.getStr(3) != modelH && !F("ref-gradient-of-another-model-accepted"):
		why = "the model is another one"
	case r.getInt32(5) < 1:
		why = "batch_size must be above 0"
	case math.IsNaN(r.getDouble(6)) || math.IsInf(r.getDouble(6), 0):
		why = "the loss is not finite"
	case len(layers) == 0:
		why = "there are no gradients"
	}
	for _, b := range layers {
		e, err := parse(b)
		if err != nil {
			return nil, inval("layer_gradients cannot be read")
		}
		d := e.getBytes(2)
		if F("num-gradients-read-as-text") {
			if e.badText(2) {
				return nil, inval("layer_gradients: not a valid UTF-8 string")
			}
		}
		if why != "" {
			continue
		}
		if !bytes.HasPrefix(d, lz4magic) {
			why = "a gradient is no LZ4 frame"
			continue
		}
		raw, err := unframe(d)
		f, ok := floats(raw)
		if err != nil || !ok || len(f) == 0 {
			why = "a gradient has no finite values"
		}
	}
	m := &Msg{}
	cur := int64(round)
	if why != "" {
		g.fail = true
		if !F("ref-refused-gradient-without-reason") {
			m.str(2, why)
		}
		if F("rel-refusals-count-the-round-up") {
			cur += int64(g.n)
		}
		if F("rel-refusal-repeats-the-round-of-the-sender") {
			cur = rd
		}
		if F("ref-useless-gradient-accepted") {
			m.drop(2)
			m.boolean(1, true)
		}
	} else {
		m.boolean(1, true)
		if F("rel-accepted-gradient-names-the-next-round") {
			cur++
		}
		if F("rel-accepted-gradient-names-no-round") {
			cur = 0
		}
	}
	m.varint(3, cur)
	return m, nil
}
