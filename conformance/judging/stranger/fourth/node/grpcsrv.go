package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	_ "google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"
)

// rawCodec hands the bytes of messages through; wire.go reads and writes them.
type rawCodec struct{}

func (rawCodec) Marshal(v interface{}) ([]byte, error) {
	switch b := v.(type) {
	case []byte:
		return b, nil
	case *[]byte:
		return *b, nil
	}
	return nil, errWire
}
func (rawCodec) Unmarshal(d []byte, v interface{}) error {
	*(v.(*[]byte)) = d
	return nil
}
func (rawCodec) Name() string   { return "proto" }
func (rawCodec) String() string { return "proto" }

// G is one gRPC call.
type G struct {
	method string
	req    *Msg
	n      int
	err    error
	fail   bool // an ordinary answer that reports a failure
	key    string
}

const svc = "node.NodeService"
const maxMsg = 100<<20 + 65536

var gcalls = map[string]int{}

type handler func(g *G) (*Msg, error)

func gerr(c codes.Code, f string, a ...interface{}) error { return status.Errorf(c, f, a...) }
func inval(f string, a ...interface{}) error              { return gerr(codes.InvalidArgument, f, a...) }

var handlers = map[string]handler{
	"UnaryInference": gInference, "GetWeights": gWeights, "GossipGradient": gGradient, "GetCheckpoint": gCheckpoint, "GetCheckpointInfo": gCheckpointInfo,
	"GossipProof": gGossip, "GossipTransaction": gGossip, "GossipStake": gGossip, "RequestProofValidation": gGossip, "GossipValidationVote": gGossip,
	"PipelineForward": gForward, "PipelineBackward": gBackward, "GetShardInfo": gShardInfo,
	"DHTPing": gPing, "DHTStore": gStore, "DHTFindNode": gFindNode, "DHTFindValue": gFindValue,
	"SwarmForward": gSwarm, "GetSwarmStatus": gSwarmStatus, "UpdatePeerCapacity": gGossip,
}

func call(method string, h handler, in []byte) ([]byte, error) {
	if P("slow-answers") {
		time.Sleep(250 * time.Millisecond)
	}
	mu.Lock()
	defer mu.Unlock()
	met.rpc++
	met.recv += int64(len(in))
	gcalls[method]++
	g := &G{method: method, n: gcalls[method]}
	m, err := parse(in)
	if err != nil {
		switch {
		case F("ref-malformed-grpc-message-is-internal"):
			return nil, gerr(codes.Internal, "cannot parse")
		case F("ref-malformed-grpc-message-is-unknown-error"):
			return nil, gerr(codes.Unknown, "cannot parse")
		case F("ref-malformed-grpc-message-is-served") && method == "GetCheckpointInfo":
		default:
			return nil, inval("the message cannot be read")
		}
	}
	g.req = m
	for _, x := range rmuts {
		if on(x.id) && (x.method == method || x.method == "*") {
			x.fn(m, g)
		}
	}
	r, err := h(g)
	g.err = err
	if r == nil {
		r = &Msg{}
	}
	for _, x := range gmuts {
		if on(x.id) && (x.method == method || x.method == "*") {
			x.fn(r, g)
		}
	}
	if g.err != nil {
		return nil, g.err
	}
	if P("unknown-grpc-fields") {
		r.str(900, "orrery")
	}
	if P("grpc-fields-in-reverse") {
		for i, j := 0, len(r.f)-1; i < j; i, j = i+1, j-1 {
			// repeated fields keep their order among themselves
			if r.f[i].n != r.f[j].n {
				r.f[i], r.f[j] = r.f[j], r.f[i]
			}
		}
	}
	b := r.encode()
	met.sent += int64(len(b))
	return b, nil
}

func startGRPC() {
	sd := grpc.ServiceDesc{ServiceName: svc, HandlerType: (*interface{})(nil)}
	for n, h := range handlers {
		n, h := n, h
		name := n
		if F("rou-no-" + n) {
			continue
		}
		if F("rou-streamed-" + n) {
			sd.Streams = append(sd.Streams, grpc.StreamDesc{StreamName: name, ServerStreams: true, Handler: func(srv interface{}, s grpc.ServerStream) error {
				var in []byte
				if err := s.RecvMsg(&in); err != nil {
					return err
				}
				b, err := call(n, h, in)
				if err != nil {
					return err
				}
				s.SendMsg(b)
				return s.SendMsg(b)
			}})
			continue
		}
		sd.Methods = append(sd.Methods, grpc.MethodDesc{MethodName: name, Handler: func(srv interface{}, ctx context.Context, dec func(interface{}) error, _ grpc.UnaryServerInterceptor) (interface{}, error) {
			var in []byte
			if err := dec(&in); err != nil {
				return nil, err
			}
			b, err := call(n, h, in)
			if err != nil {
				return nil, err
			}
			return b, nil
		}})
	}
	if !F("rou-no-StreamInference") {
		sd.Streams = append(sd.Streams, grpc.StreamDesc{StreamName: "StreamInference", ServerStreams: true, ClientStreams: true, Handler: func(srv interface{}, s grpc.ServerStream) error {
			for k := 0; ; k++ {
				var in []byte
				if err := s.RecvMsg(&in); err != nil {
					if F("ref-stream-inference-ends-with-cancelled") {
						return gerr(codes.Canceled, "closed")
					}
					return nil
				}
				if F("lim-stream-inference-takes-one-message") && k > 0 {
					return gerr(codes.InvalidArgument, "only one message is taken")
				}
				if F("lim-stream-inference-answers-only-the-first") && k > 0 {
					continue
				}
				b, err := call("StreamInference", gInference, in)
				if err != nil {
					return err
				}
				if err := s.SendMsg(b); err != nil {
					return err
				}
				if F("lim-stream-inference-closes-after-one") {
					return nil
				}
			}
		}})
	}
	limit := maxMsg
	if F("lim-grpc-messages-to-four-mib") {
		limit = 4 << 20
	}
	if F("lim-grpc-messages-to-thirty-two-mib") {
		limit = 32 << 20
	}
	opts := []grpc.ServerOption{grpc.CustomCodec(rawCodec{}), grpc.MaxRecvMsgSize(limit), grpc.MaxSendMsgSize(maxMsg),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true})}
	if F("ref-unlisted-operation-succeeds") {
		opts = append(opts, grpc.UnknownServiceHandler(func(srv interface{}, s grpc.ServerStream) error {
			var in []byte
			s.RecvMsg(&in)
			return s.SendMsg([]byte{})
		}))
	}
	if F("num-service-in-another-package") {
		sd.ServiceName = "nodes.NodeService"
	}
	if F("num-service-of-another-name") {
		sd.ServiceName = "node.Node"
	}
	s := grpc.NewServer(opts...)
	s.RegisterService(&sd, nil)
	p := grpcPort
	if F("rou-grpc-at-plus-thousand-one") {
		p++
	}
	l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", p))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	go s.Serve(l)
}

// The messages of these operations are open: InferenceRequest has prompt (1)
// and max_tokens (2), InferenceResponse text (1), tokens (2), finish_reason (3).
func gInference(g *G) (*Msg, error) {
	p := g.req.getStr(1)
	if p == "" {
		return nil, inval("prompt is missing")
	}
	n := int(g.req.getInt32(2))
	if n <= 0 || n > 4096 {
		n = 100
	}
	toks, text, reason := generate(p, n, nil)
	m := &Msg{}
	m.str(1, text)
	m.varint(2, int64(len(toks)))
	m.str(3, reason)
	return m, nil
}

// gGossip takes messages whose form is open and uses none: accepted (1) is
// false, reason (2) says why.
func gGossip(g *G) (*Msg, error) {
	m := &Msg{}
	m.str(2, "this node does not take such messages")
	return m, nil
}

func gShardInfo(g *G) (*Msg, error) {
	m := &Msg{}
	m.str(1, nodeID)
	l := []int64{}
	for _, i := range myLayers {
		l = append(l, int64(i))
	}
	m.packed(2, l)
	m.varint(3, totalLayers)
	return m, nil
}

func gSwarm(g *G) (*Msg, error) {
	if len(g.req.f) == 0 {
		return nil, inval("the message is empty")
	}
	return nil, gerr(codes.NotFound, "this node is in no swarm")
}

func gSwarmStatus(g *G) (*Msg, error) {
	m := &Msg{}
	m.varint(1, int64(len(peerList())))
	m.str(2, "none")
	return m, nil
}

const round = 28
const params = 1234944

var ckpt, ckptPlain []byte

func ckptBytes() []byte {
	if ckpt == nil {
		d := M{}
		for l := 0; l < totalLayers; l++ {
			d[fmt.Sprintf("layers.%d.w", l)] = strings.Repeat(hx(fmt.Sprint("w", l)), 40)
		}
		ckptPlain, _ = json.Marshal(d)
		ckpt = lz4frame(ckptPlain)
	}
	return ckpt
}

func gCheckpoint(g *G) (*Msg, error) {
	h, v := g.req.getStr(1), g.req.getInt32(2)
	if g.req.badText(1) {
		return nil, inval("model_hash is no text")
	}
	data := ckptBytes()
	why := ""
	if F("ref-checkpoint-by-hash-ignores-the-version") && h == modelH {
		v = 0
	}
	if h != "" && h != modelH {
		why = "there is no checkpoint with this hash"
		if F("ref-checkpoint-of-unknown-hash-is-given") {
			why = ""
		}
	}
	if v > round {
		why = fmt.Sprintf("the newest version is %d", round)
		if F("ref-checkpoint-older-than-minimum-is-given") {
			why = ""
		}
		if F("ref-checkpoint-too-new-is-internal") {
			return nil, gerr(codes.Internal, "index out of range")
		}
	}
	if v == round && F("ref-checkpoint-of-own-version-refused") || h == modelH && F("ref-checkpoint-of-own-hash-refused") {
		why = "not found"
	}
	m := &Msg{}
	if why != "" {
		if P("checkpoint-not-found-status") {
			return nil, gerr(codes.NotFound, why)
		}
		g.fail = true
		if !F("ref-checkpoint-failure-without-reason") {
			m.str(2, why)
		}
		if F("ref-checkpoint-failure-with-data") {
			m.bytes(6, data)
			m.str(4, modelH)
		}
		return m, nil
	}
	if P("checkpoint-unavailable") {
		g.fail = true
		m.str(2, "no checkpoint is kept here")
		return m, nil
	}
	m.boolean(1, true)
	m.varint(3, round)
	m.str(4, modelH)
	m.str(5, "early")
	if P("other-phase-word") {
		m.drop(5)
		m.str(5, "late-growth")
	}
	m.bytes(6, data)
	sz := len(ckptPlain)
	if P("total-size-compressed") {
		sz = len(data)
	}
	m.varint(7, int64(sz))
	return m, nil
}

func gCheckpointInfo(g *G) (*Msg, error) {
	m := &Msg{}
	m.varint(1, round)
	m.str(2, modelH)
	m.str(3, "early")
	if P("other-phase-word") {
		m.drop(3)
		m.str(3, "late-growth")
	}
	m.varint(4, params)
	m.double(5, loss)
	return m, nil
}
