package main

import (
	"math"
	"net"
)

func numberFaults2() {
	D("num-sent-backward-shape-as-doubles|2.3|CL-MSG-002 (grad_shape: repeated int64)|grad_shape of a gradient that goes back has 64-bit floats")
	gx("num-forward-cache-in-hidden-states|2.3|GR-PIPELINE-FORWARD-RESPONSE-06, -04|the KV cache is at number 4", "PipelineForward", func(m *Msg, g *G) { m.renum(6, 4) })
	gx("num-forward-shape-zigzag|2.3|GR-PIPELINE-FORWARD-RESPONSE-09 (int64), PL-FWD-007|logits_shape is written as sint64", "PipelineForward", func(m *Msg, g *G) {
		if s, _ := m.getInts(9); len(s) > 0 {
			m.drop(9)
			for i := range s {
				s[i] *= 2
			}
			m.packed(9, s)
		}
	})
	rx("num-labels-and-sender-exchanged|2.3|GR-PIPELINE-FORWARD-REQUEST-11, -12|training_labels and sender_url are read at each other's numbers", "PipelineForward", func(m *Msg, g *G) { m.renum(11, 12) })
	rx("num-hidden-shape-read-at-five|2.3|GR-PIPELINE-FORWARD-REQUEST-04|hidden_shape is read at number 5", "PipelineForward", func(m *Msg, g *G) { m.renum(4, 5) })
	rx("num-backward-target-read-at-six|2.3|GR-PIPELINE-BACKWARD-REQUEST-05|target_shard of a backward pass is read at number 6", "PipelineBackward", func(m *Msg, g *G) { m.renum(5, 6) })
	gx("num-gossip-accepted-at-four|2.3|GR-GOSSIP-GRADIENT-RESPONSE-01|accepted is at number 4", "GossipGradient", func(m *Msg, g *G) { m.renum(1, 4) })
	gx("num-checkpoint-success-and-version-exchanged|2.3|GR-GET-CHECKPOINT-RESPONSE-01, -03|success and version are exchanged", "GetCheckpoint", func(m *Msg, g *G) { m.renum(1, 3) })
	rx("num-checkpoint-request-exchanged|2.3|GR-GET-CHECKPOINT-REQUEST-01, -02, GR-CKPT-002|model_hash and min_version of a request are read at each other's numbers", "GetCheckpoint", func(m *Msg, g *G) { m.renum(1, 2) })
	gx("num-info-phase-is-a-number|2.3|GR-GET-CHECKPOINT-INFO-RESPONSE-03 (string)|phase is the number of the phase", "GetCheckpointInfo", func(m *Msg, g *G) {
		m.drop(3)
		m.varint(3, 2)
	})
	gx("num-search-responder-and-nodes-exchanged|2.3|GR-DHT-FIND-VALUE-RESPONSE-01, -03|responder and nodes of DHTFindValue are exchanged", "DHTFindValue", func(m *Msg, g *G) { m.renum(1, 3) })
	gx("num-listed-ips-as-four-bytes|2.3|GR-DHT-NODE-INFO-02 (string)|the ip of a listed node is its four bytes", "DHTFindNode", func(m *Msg, g *G) {
		eachNode(m, 2, func(s *Msg) {
			if f := s.last(2, 2); f != nil {
				if ip := net.ParseIP(string(f.b)).To4(); ip != nil {
					f.b = ip
				}
			}
		})
	})
	gx("num-forward-final-as-text|2.3|GR-PIPELINE-FORWARD-RESPONSE-07 (bool)|is_final is the text true", "PipelineForward", func(m *Msg, g *G) {
		if m.has(7) {
			m.drop(7)
			m.str(7, "true")
		}
	})
}

// doubles writes a packed field of integers as 64-bit floats.
func doubles(m *Msg, n int) {
	s, _ := m.getInts(n)
	m.drop(n)
	for _, v := range s {
		m.f = append(m.f, Fld{n, 1, math.Float64bits(float64(v)), nil})
	}
}
