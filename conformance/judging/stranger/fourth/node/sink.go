package main

import (
	"context"
	"fmt"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
)

var sinkMu sync.Mutex
var sink []string
var sinkPort, failing int

// startSink serves PipelineBackward for the self-test, as the previous node
// would. It fails the first call with UNAVAILABLE.
func startSink() string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return ""
	}
	sinkPort = l.Addr().(*net.TCPAddr).Port
	last := time.Now()
	n := 0
	sd := grpc.ServiceDesc{ServiceName: svc, HandlerType: (*interface{})(nil), Methods: []grpc.MethodDesc{{MethodName: "PipelineBackward",
		Handler: func(srv interface{}, ctx context.Context, dec func(interface{}) error, _ grpc.UnaryServerInterceptor) (interface{}, error) {
			var in []byte
			dec(&in)
			sinkMu.Lock()
			defer sinkMu.Unlock()
			if m, err := parse(in); err == nil && (m.getStr(2) == "r62true" || m.getStr(1) == "r62true") {
				failing++
				return nil, gerr(codes.Unavailable, "never")
			}
			n++
			sink = append(sink, fmt.Sprint(n > 1 && time.Since(last) > 100*time.Millisecond, " ", show(in, 0)))
			last = time.Now()
			if n == 1 {
				return nil, gerr(codes.Unavailable, "again")
			}
			if n > 1 {
				return nil, gerr(codes.NotFound, "gone")
			}
			return []byte{8, 1}, nil
		}}}}
	s := grpc.NewServer(grpc.CustomCodec(rawCodec{}))
	s.RegisterService(&sd, nil)
	go s.Serve(l)
	return fmt.Sprintf("http://127.0.0.1:%d", sinkPort-1000)
}
