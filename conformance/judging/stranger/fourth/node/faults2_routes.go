package main

import "strings"

// replace makes m an answer of its own.
func replace(m M, by M) {
	for k := range m {
		delete(m, k)
	}
	for k, v := range by {
		m[k] = v
	}
}

func oaWantsStream(c *C) bool {
	s := strings.ReplaceAll(string(c.body), " ", "")
	return strings.Contains(s, `"stream":true`)
}

func routeDecls2() {
	D("rou-final-event-on-several-lines|6|NA-SSE-001 (each event is a line data: <json>)|the JSON of the final event is spread over several data lines",
		"rou-stream-of-one-token-is-a-result|4.1|NA-INF-011|a stream with max_tokens 1 is answered with one JSON result",
		"rou-stream-false-is-streamed|4.1|NA-INF-010|a request that names stream is answered with a stream, also where it is false",
		"rou-openai-done-before-the-usage|10|OA-STREAM-003, OA-STREAM-012|with include_usage the chunk with the usage follows [DONE]")
	fx("rou-transactions-need-both-parameters|4.1|NA-ROUTE-007, NA-QUERY-012 (the list without offset)|GET /wallet/transactions is refused unless limit and offset are given", "transactions", func(m M, c *C) {
		q := c.r.URL.Query()
		if q.Get("limit") == "" || q.Get("offset") == "" {
			c.status = 400
			replace(m, M{"error": M{"code": "INVALID_QUERY", "message": "limit and offset are required."}})
		}
	})
	rt("rou-block-of-one-digit-has-no-route|4.2|NT-ROUTE-007, NT-RULE-036|the path of a block needs a height of at least two digits", func(c *C, p string) string {
		if strings.HasPrefix(p, "/api/block/") && len(p) == len("/api/block/")+1 {
			return "/nowhere"
		}
		return p
	})
	rt("rou-poll-by-get|4.2|NT-ROUTE-016 (POST /work/poll)|the worker polls with GET; POST gets 405", func(c *C, p string) string {
		if p == "/work/poll" {
			if c.r.Method == "POST" {
				c.r.Method = "PUT"
			} else if c.r.Method == "GET" {
				c.r.Method = "POST"
			}
		}
		return p
	})
	fx("rou-registration-by-post-is-405|7.2|NT-RULE-042 (answers a registration with 410)|POST to an old registration endpoint gets 405, GET 410", "!n-register", func(m M, c *C) {
		if c.r.Method == "POST" {
			c.status = 405
			m["error"] = "This path has no such method."
		}
	})
	fx("rou-patch-answers-with-the-configuration|4.1|NA-PATCH-001, NA-PATCH-003 (answer to a change)|PATCH /config answers with the new configuration", "patch", func(m M, c *C) { replace(m, clone(cfg).(M)) })
	fx("rou-openai-model-is-a-list|10|OA-ROUTE-002, OA-MODEL-101|GET /v1/models/{model} answers with a list of one model", "oa-model", func(m M, c *C) {
		replace(m, M{"object": "list", "data": L{clone(m)}})
	})
}
