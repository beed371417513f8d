package main

import (
	"math"
)

// eachNode applies a change to every DHTNodeInfo in field n.
func eachNode(m *Msg, n int, fn func(s *Msg)) {
	for i := range m.f {
		if m.f[i].n == n && m.f[i].wt == 2 {
			if s, err := parse(m.f[i].b); err == nil {
				fn(s)
				m.f[i].b = s.encode()
			}
		}
	}
}

func numberFaults() {
	D("num-gradients-read-as-text|2.3|GR-NUM-002|a gradient that is no UTF-8 text is refused as malformed",
		"num-last-listed-node-id-is-sha256|2.3|DH-003, LIM-010|the ID of the last listed node has 32 bytes",
		"num-listed-node-ids-cut|2.3|DH-003|the IDs of listed nodes have 16 bytes",
		"num-listed-nodes-counted-from-zero|2.3|GR-DHT-NODE-INFO-01..03 (GR-NUM-001)|the fields of listed nodes are at other numbers than those of the responder",
		"num-node-ids-as-hex|2.3|DH-003|the IDs of listed nodes are written in hexadecimal",
		"num-node-ip-and-port-exchanged|2.3|GR-DHT-NODE-INFO-02, -03|ip and port of a node have each other's numbers",
		"num-node-port-as-text|2.3|GR-DHT-NODE-INFO-03 (int32)|port is a string",
		"num-node-port-at-four|2.3|GR-DHT-NODE-INFO-03|port is at number 4",
		"num-responder-id-as-hex|2.3|DH-003|the ID of the responder has 40 bytes",
		"num-responder-without-port|2.3|DH-026 (the responder has a port)|the responder has no port",
		"num-sent-backward-request-id-at-one|2.3|CL-MSG-002|session_id and request_id of a gradient that goes back are exchanged",
		"num-sent-backward-shape-at-five|2.3|CL-MSG-002|grad_shape and target_shard of a gradient that goes back are exchanged",
		"num-service-in-another-package|4.3|GR-NAME-001|the service is nodes.NodeService",
		"num-service-of-another-name|4.3|GR-NAME-001|the service is node.Node")
	gx("num-forward-final-and-cache-exchanged|2.3|GR-PIPELINE-FORWARD-RESPONSE-07, GR-NUM-001|is_final is at number 6 and the cache at 7", "PipelineForward", func(m *Msg, g *G) { m.renum(6, 7) })
	gx("num-forward-logits-in-hidden-states|2.3|GR-PIPELINE-FORWARD-RESPONSE-08, -09|logits and their shape are at the numbers of the hidden states", "PipelineForward", func(m *Msg, g *G) { m.renum(8, 4); m.renum(9, 5) })
	gx("num-forward-loss-as-float|2.3|GR-PIPELINE-FORWARD-RESPONSE-10 (double)|loss is a 32-bit float", "PipelineForward", func(m *Msg, g *G) {
		if f := m.last(10, 1); f != nil {
			f.wt, f.u = 5, uint64(math.Float32bits(float32(math.Float64frombits(f.u))))
		}
	})
	gx("num-forward-loss-at-eleven|2.3|GR-PIPELINE-FORWARD-RESPONSE-10|loss is at number 11", "PipelineForward", func(m *Msg, g *G) { m.renum(10, 11) })
	gx("num-forward-shape-as-doubles|2.3|GR-PIPELINE-FORWARD-RESPONSE-09 (repeated int64)|logits_shape has 64-bit floats", "PipelineForward", func(m *Msg, g *G) {
		if s, _ := m.getInts(9); len(s) > 0 {
			m.drop(9)
			for _, v := range s {
				m.f = append(m.f, Fld{9, 1, math.Float64bits(float64(v)), nil})
			}
		}
	})
	gx("num-forward-request-id-as-number|2.3|GR-PIPELINE-FORWARD-RESPONSE-01, PL-FWD-003|request_id is a number", "PipelineForward", func(m *Msg, g *G) {
		if m.has(1) {
			m.drop(1)
			m.varint(1, 7)
		}
	})
	gx("num-backward-success-at-two|2.3|GR-PIPELINE-BACKWARD-RESPONSE-01, -02|success and error_message of a backward pass are exchanged", "PipelineBackward", func(m *Msg, g *G) { m.renum(1, 2) })
	gx("num-gossip-round-at-two|2.3|GR-GOSSIP-GRADIENT-RESPONSE-02, -03|reason and current_round are exchanged", "GossipGradient", func(m *Msg, g *G) { m.renum(2, 3) })
	gx("num-gossip-round-as-text|2.3|GR-GOSSIP-GRADIENT-RESPONSE-03 (int32)|current_round is a string", "GossipGradient", func(m *Msg, g *G) {
		v := m.getInt(3)
		m.drop(3)
		m.str(3, text(int(v)))
	})
	gx("num-gossip-round-zigzag|2.3|GR-GOSSIP-GRADIENT-RESPONSE-03 (int32); GR-SANE-001 (rounds are not negative)|current_round is the complement of the round", "GossipGradient", func(m *Msg, g *G) {
		if f := m.last(3, 0); f != nil {
			f.u = uint64(-int64(f.u) - 1)
		}
	})
	gx("num-weights-at-two|2.3|GR-WEIGHT-RESPONSE-01|weights_data is at number 2", "GetWeights", func(m *Msg, g *G) { m.renum(1, 2) })
	gx("num-checkpoint-hash-and-phase-exchanged|2.3|GR-GET-CHECKPOINT-RESPONSE-04, -05|model_hash and phase are exchanged", "GetCheckpoint", func(m *Msg, g *G) { m.renum(4, 5) })
	gx("num-checkpoint-size-as-fixed|2.3|GR-GET-CHECKPOINT-RESPONSE-07 (int64)|total_size is a fixed64", "GetCheckpoint", func(m *Msg, g *G) {
		if f := m.last(7, 0); f != nil {
			f.wt = 1
		}
	})
	gx("num-checkpoint-version-as-text|2.3|GR-GET-CHECKPOINT-RESPONSE-03 (int32)|version is a string", "GetCheckpoint", func(m *Msg, g *G) {
		if v := m.getInt(3); v != 0 {
			m.drop(3)
			m.str(3, text(int(v)))
		}
	})
	gx("num-checkpoint-data-at-eight|2.3|GR-GET-CHECKPOINT-RESPONSE-06|checkpoint_data is at number 8", "GetCheckpoint", func(m *Msg, g *G) { m.renum(6, 8) })
	gx("num-checkpoint-error-at-three-in-failures|2.3|GR-GET-CHECKPOINT-RESPONSE-02|error_message of a failure is at number 3", "GetCheckpoint", func(m *Msg, g *G) {
		if g.fail {
			m.renum(2, 3)
		}
	})
	gx("num-info-params-as-double|2.3|GR-GET-CHECKPOINT-INFO-RESPONSE-04 (int64)|params is a double", "GetCheckpointInfo", func(m *Msg, g *G) {
		if f := m.last(4, 0); f != nil {
			f.wt, f.u = 1, math.Float64bits(float64(f.u))
		}
	})
	gx("num-info-counted-from-the-checkpoint|2.3|GR-GET-CHECKPOINT-INFO-RESPONSE-01..05|the fields have the numbers of GetCheckpointResponse", "GetCheckpointInfo", func(m *Msg, g *G) {
		for i := range m.f {
			m.f[i].n += 2
		}
	})
	gx("num-info-loss-nan|2.3|GR-SANE-002 (a finite number)|loss is not a number", "GetCheckpointInfo", func(m *Msg, g *G) {
		if f := m.last(5, 1); f != nil {
			f.u = math.Float64bits(math.NaN())
		}
	})
	gx("num-info-params-zero|2.3|GR-CKPT-011 (a model that has a hash has parameters)|params is left out", "GetCheckpointInfo", func(m *Msg, g *G) { m.drop(4) })
	gx("num-info-version-unsigned-overflow|2.3|GR-SANE-001 (versions are not negative)|version is -1", "GetCheckpointInfo", func(m *Msg, g *G) {
		if f := m.last(1, 0); f != nil {
			f.u = math.MaxUint64
		}
	})
	gx("num-find-nodes-at-three|2.3|GR-DHT-FIND-NODE-RESPONSE-02|nodes of DHTFindNode is at number 3, as in DHTFindValue", "DHTFindNode", func(m *Msg, g *G) { m.renum(2, 3) })
	gx("num-find-only-one-node-packed|2.3|GR-DHT-FIND-NODE-RESPONSE-02 (repeated DHTNodeInfo)|the nodes are joined into one entry", "DHTFindNode", func(m *Msg, g *G) {
		var b []byte
		for _, x := range m.all(2) {
			b = append(b, x...)
		}
		m.drop(2)
		m.bytes(2, b)
	})
	gx("num-value-found-at-three|2.3|GR-DHT-FIND-VALUE-RESPONSE-03, -04|found is at number 3 and nodes at 4", "DHTFindValue", func(m *Msg, g *G) { m.renum(3, 4) })
	gx("num-value-at-five|2.3|GR-DHT-FIND-VALUE-RESPONSE-02|value is at number 5", "DHTFindValue", func(m *Msg, g *G) { m.renum(2, 5) })
	gx("num-store-success-as-text|2.3|GR-DHT-STORE-RESPONSE-02 (bool)|success of a store is the text true", "DHTStore", func(m *Msg, g *G) {
		if m.has(2) {
			m.drop(2)
			m.str(2, "true")
		}
	})
	gx("num-store-success-at-three|2.3|GR-DHT-STORE-RESPONSE-02|success of a store is at number 3", "DHTStore", func(m *Msg, g *G) { m.renum(2, 3) })
	gx("num-ping-responder-at-two|2.3|GR-DHT-PING-RESPONSE-01|responder is at number 2 in DHTPing", "DHTPing", func(m *Msg, g *G) { m.renum(1, 2) })
	gx("num-responder-port-outside-its-range|4.3|DH-013 (every port is between 1 and 65535)|the port of a listed node is 0x10000 higher", "DHTFindNode", func(m *Msg, g *G) {
		eachNode(m, 2, func(s *Msg) {
			if f := s.last(3, 0); f != nil {
				f.u += 65536
			}
		})
	})
	rx("num-store-value-read-at-four|2.3|GR-DHT-STORE-REQUEST-03, DH-025|the value of a store is read at number 4", "DHTStore", func(m *Msg, g *G) { m.renum(3, 4) })
	rx("num-min-version-read-at-three|2.3|GR-GET-CHECKPOINT-REQUEST-02|min_version is read at number 3", "GetCheckpoint", func(m *Msg, g *G) { m.renum(2, 3) })
	rx("num-shard-range-read-at-two|2.3|GR-WEIGHT-REQUEST-01, GR-WEIGHT-003|shard_range is read at number 2", "GetWeights", func(m *Msg, g *G) { m.renum(1, 2) })
	rx("num-target-shard-read-at-nine|2.3|GR-PIPELINE-FORWARD-REQUEST-10|target_shard is read at number 9", "PipelineForward", func(m *Msg, g *G) { m.renum(9, 10) })
	rx("num-forward-ids-exchanged|2.3|GR-PIPELINE-FORWARD-REQUEST-01, -02, PL-FWD-003|request_id is read at number 1", "PipelineForward", func(m *Msg, g *G) { m.renum(1, 2) })
	rx("num-target-id-read-at-three|2.3|GR-DHT-FIND-NODE-REQUEST-02|target_id is read at number 3", "DHTFindNode", func(m *Msg, g *G) { m.renum(2, 3) })
	rx("num-unpacked-shapes-only|2.3|GR-PIPELINE-FORWARD-REQUEST-04 (repeated int64, packed as proto3 does)|a packed hidden_shape is not read", "PipelineForward", func(m *Msg, g *G) {
		var k []Fld
		for _, f := range m.f {
			if f.n != 4 || f.wt == 0 {
				k = append(k, f)
			}
		}
		m.f = k
	})
	rx("num-gradient-hash-read-at-eight|2.3|GR-GOSSIP-GRADIENT-REQUEST-03|model_hash and signature of a gradient are exchanged", "GossipGradient", func(m *Msg, g *G) { m.renum(3, 8) })
}
