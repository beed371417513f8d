package main

import (
	"reflect"
	"sort"
	"time"
)

func ints(v []int) L {
	r := L{}
	for _, x := range v {
		r = append(r, x)
	}
	return r
}
func training() M              { return cfg["training"].(M) }
func round3(f float64) float64 { return float64(int64(f*1000)) / 1000 }

const epoch, step, loss = 3, 18432, 2.3125

func uptime() int { return int(time.Since(started).Seconds()) + 1 }

func getStatus(c *C) {
	up := uptime()
	if P("uptime-from-host") {
		up += 86400
	}
	c.ok(M{"node_id": nodeID, "version": "0.9.2", "uptime_seconds": up, "status": "running", "role": "validator",
		"layers": ints(myLayers), "peer_count": len(peerList()),
		"training":  M{"enabled": training()["enabled"], "epoch": epoch, "step": step, "loss": loss},
		"resources": M{"gpu_memory_used": int64(6442450944), "gpu_memory_total": int64(17179869184), "cpu_percent": 12.5, "ram_used": int64(2147483648)}})
}

func getMetrics(c *C) {
	avg, p99 := 0.0, 0.0
	if n := len(met.lat); n > 0 {
		s := append([]float64{}, met.lat...)
		sort.Float64s(s)
		for _, x := range s {
			avg += x / float64(n)
		}
		p99 = s[n-1-n/100]
	}
	rpm := 0
	for _, t := range met.times {
		if time.Since(t) < time.Minute {
			rpm++
		}
	}
	c.ok(M{"timestamp": ts(now()),
		"inference": M{"requests_total": met.requests, "requests_per_minute": rpm, "avg_latency_ms": round3(avg), "p99_latency_ms": round3(p99), "tokens_generated": met.tokens},
		"training":  M{"steps_total": step, "steps_per_hour": 410, "gradients_submitted": 312, "gradients_accepted": 297},
		"network":   M{"bytes_sent": met.sent, "bytes_received": met.recv, "active_connections": len(peerList()), "rpc_calls": met.rpc},
		"rewards":   M{"earned_today": amt(1250000), "earned_total": amt(earned()), "pending": amt(0)}})
}

func earned() int64 {
	sum := int64(1250000)
	if len(proofs) > 0 {
		sum = 0
	}
	for _, p := range proofs {
		a, _, _ := money(p["reward"])
		sum += a
	}
	if sum < 1250000 {
		sum = 1250000
	}
	return sum
}

func getHealth(c *C) {
	m := M{"healthy": true, "checks": M{"gpu": "ok", "network": "ok", "storage": "ok", "peers": "ok"}}
	if P("health-degraded") {
		m = M{"healthy": false, "checks": M{"gpu": "unavailable", "network": "ok", "storage": "ok", "peers": "low"}}
	}
	c.ok(m)
}

func peerList() []M {
	if P("no-peers") {
		return nil
	}
	t := now().Add(-26 * time.Hour).Truncate(time.Hour)
	p := []M{}
	for i, x := range []struct {
		r, a string
		l    []int
	}{{"driver", "10.20.0.11:8000", []int{0, 1, 2}}, {"worker", "10.20.0.12:8000", []int{3, 4, 5}}, {"worker", "node-c.example:8100", []int{2, 3, 4}}} {
		p = append(p, M{"id": "orn-" + hx(x.a)[:16], "address": x.a, "role": x.r, "layers": ints(x.l),
			"latency_ms": 14.25 + float64(i)*7.5, "connected_since": ts(t.Add(time.Duration(i) * time.Hour))})
	}
	if P("peer-address-ipv6") {
		p[2]["address"] = "[2001:db8::7]:8000"
	}
	return p
}

func toL(ms []M) L {
	r := L{}
	for _, m := range ms {
		r = append(r, m)
	}
	return r
}

func getPeers(c *C) {
	p := peerList()
	c.ok(M{"peers": toL(p), "total": len(p)})
}

func getLayers(c *C) {
	l := L{}
	for _, i := range myLayers {
		l = append(l, M{"index": i, "type": "transformer", "memory_mb": 512 + 16*i, "status": "active"})
	}
	if P("all-layers-listed") {
		for i := 0; i < 6; i++ {
			l = append(l, M{"index": i, "type": "transformer", "memory_mb": 512, "status": "remote"})
		}
	}
	if P("layers-in-reverse") {
		for i, j := 0, len(l)-1; i < j; i, j = i+1, j-1 {
			l[i], l[j] = l[j], l[i]
		}
	}
	c.ok(M{"layers": l, "total_layers": totalLayers, "my_layer_count": len(myLayers)})
}

func getNetwork(c *C) {
	c.ok(M{"nodes": M{"total": 4, "drivers": 1, "workers": 2, "validators": 1},
		"architecture": M{"layers": totalLayers, "hidden_dim": hidden, "parameters": "1234944"},
		"capacity":     M{"total_memory_gb": 96.0, "used_memory_gb": 31.75},
		"training":     M{"epoch": epoch, "global_step": step, "loss": loss}})
}

func trGlobal() M {
	t := training()
	steps := t["diloco_steps"].(int)
	in := min(120, steps)
	m := M{"global_avg_loss": 2.375, "global_min_loss": 2.25, "hash_agreement_rate": 1.0, "total_nodes_training": 4,
		"successful_syncs": 288, "failed_syncs": 12, "sync_success_rate": 0.96, "global_steps": step, "global_tokens": 301989888,
		"data_shards_covered": L{0, 1, 2, 3, 5, 8}, "is_converging": true, "training_verified": true, "loss_trend": "improving",
		"local":  M{"node_id": nodeID, "training_rounds": 30, "current_loss": loss, "is_training": t["enabled"]},
		"diloco": M{"enabled": true, "inner_step_count": in, "inner_steps_total": steps, "progress": float64(in) / float64(steps), "outer_step_count": 153}}
	if P("models-diverged") {
		m["hash_agreement_rate"], m["is_converging"], m["training_verified"], m["loss_trend"] = 0.75, false, false, "stagnant"
	}
	if P("no-data-shards") {
		m["data_shards_covered"] = L{}
	}
	return m
}

func getTrGlobal(c *C) { c.ok(trGlobal()) }

func getTrVerify(c *C) {
	if P("models-diverged") {
		c.ok(M{"is_working": false, "reason": "one node in four has another model hash", "action": "load the newest checkpoint on the diverged node",
			"metrics": M{"loss_trend": "stagnant", "hash_agreement": "75%", "global_loss": 2.375}})
		return
	}
	h := "100%"
	if P("percentage-with-decimals") {
		h = "100.00%"
	}
	m := M{"is_working": true, "reason": "all nodes have the same model and the loss falls",
		"metrics": M{"loss_trend": "improving", "hash_agreement": h, "global_loss": 2.375}}
	if P("action-although-working") {
		m["action"] = "nothing to do"
	}
	c.ok(m)
}

func getConfig(c *C) {
	if forget != nil && calls["config"]-calls["forget"] > 2 {
		cfg, forget = forget, nil
	}
	if staleConfig != nil {
		m := staleConfig
		staleConfig = nil
		c.ok(m)
		return
	}
	c.ok(cfg)
}

// patchConfig checks everything before it changes anything.
func patchConfig(c *C) {
	if F("ref-change-in-an-array-accepted") {
		c.body = bare(c.body)
	}
	if !c.object() {
		return
	}
	snap := clone(cfg).(M)
	type ch struct {
		sec, key string
		val      interface{}
	}
	var chs []ch
	fail := ""
	secs := []string{}
	for s := range c.in {
		secs = append(secs, s)
	}
	sort.Strings(secs)
	for _, s := range secs {
		sub, ok := c.in[s].(M)
		if s != "training" && s != "resources" {
			if F("ref-dotted-config-key-accepted") && s == "training.batch_size" {
				if v, ok := intOf(c.in[s]); ok {
					chs = append(chs, ch{"training", "batch_size", v})
					continue
				}
			}
			fail = "The key " + s + " cannot be changed."
			continue
		}
		if !ok {
			if F("ref-config-section-null-accepted") && c.in[s] == nil {
				continue
			}
			fail = s + " must be an object."
			continue
		}
		keys := []string{}
		for k := range sub {
			keys = append(keys, k)
		}
		sort.Strings(keys)
		for _, k := range keys {
			v, good := checkKey(s, k, sub[k])
			if !good {
				fail = "The value of " + s + "." + k + " is not accepted."
				continue
			}
			chs = append(chs, ch{s, k, v})
			if F("eff-refused-change-half-done") {
				cfg[s].(M)[k] = v
			}
		}
	}
	if F("ref-single-key-change-refused") && len(chs) == 1 && chs[0].key == "batch_size" {
		fail = "learning_rate is missing."
	}
	if fail != "" {
		if F("ref-mixed-change-accepts-the-good-keys") && len(chs) > 0 {
			fail = ""
		} else {
			if P("refused-change-200-success-false") {
				c.ok(M{"success": false, "updated": L{}, "restart_required": false, "message": fail})
				return
			}
			c.fail(400, "INVALID_CONFIG", fail, nil)
			return
		}
	}
	up := L{}
	if F("eff-config-race-loses-keys") && len(chs) == 1 {
		mu.Unlock()
		time.Sleep(30 * time.Millisecond)
		mu.Lock()
		cfg = snap
	}
	for i, x := range chs {
		up = append(up, x.sec+"."+x.key)
		if F("eff-last-of-many-keys-not-set") && len(chs) > 1 && i == len(chs)-1 ||
			F("eff-resources-change-not-set") && x.sec == "resources" ||
			F("eff-disabling-training-not-set") && x.key == "enabled" && x.val == false {
			continue
		}
		if F("eff-patch-resets-section-siblings") && x.sec == "training" && x.key == "learning_rate" {
			training()["batch_size"] = 16
		}
		if F("eff-batch-size-becomes-power-of-two") && x.key == "batch_size" {
			p := 1
			for p < x.val.(int) {
				p *= 2
			}
			x.val = p
		}
		if F("eff-second-change-undoes-first") && c.n > 1 && i == 0 {
			cfg["training"] = M{"enabled": true, "batch_size": 16, "learning_rate": 0.0003, "diloco_steps": 500}
		}
		cfg[x.sec].(M)[x.key] = x.val
	}
	if F("eff-first-reading-after-a-change-is-stale") {
		staleConfig = snap
	}
	if F("eff-config-change-forgotten-after-two-reads") {
		calls["forget"] = calls["config"]
		forget = snap
	}
	m := M{"success": true, "updated": up, "restart_required": false}
	if F("fld-patch-updated-null-when-nothing-changes") && reflect.DeepEqual(snap, cfg) {
		m["updated"] = nil
	}
	if P("updated-in-reverse") {
		for i, j := 0, len(up)-1; i < j; i, j = i+1, j-1 {
			up[i], up[j] = up[j], up[i]
		}
	}
	c.ok(m)
}

var forget M

func checkKey(sec, key string, v interface{}) (interface{}, bool) {
	i, isInt := intOf(v)
	f, isNum := floatOf(v)
	b, isBool := v.(bool)
	s, isStr := v.(string)
	switch sec + "." + key {
	case "training.enabled":
		if F("ref-enabled-as-text-accepted") && isStr {
			return s == "true", true
		}
		return b, isBool
	case "training.batch_size":
		if F("ref-batch-size-with-fraction-accepted") && isNum && f > 0 {
			return int(f), true
		}
		if F("ref-batch-size-object-accepted") && !isNum && !isBool && !isStr && v != nil {
			return 1, true
		}
		top := 4096
		if P("small-batch-limit") {
			top = 64
		}
		return i, isInt && i >= 1 && i <= top
	case "training.learning_rate":
		if F("ref-learning-rate-text-accepted") && isStr {
			return 0.001, true
		}
		if F("eff-learning-rate-in-single-precision") {
			f = float64(float32(f))
		}
		return f, isNum && f > 0 && f <= 1
	case "training.diloco_steps":
		return i, isInt && i >= 1 && i <= 100000
	case "resources.max_memory_gb":
		return f, isNum && f > 0 && f <= 4096
	case "resources.cpu_threads":
		if P("cpu-threads-fixed") {
			return nil, false
		}
		return i, isInt && i >= 1 && i <= 1024
	}
	return nil, false
}
