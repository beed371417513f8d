package main

import (
	"encoding/json"
	"strings"
)

func limitDecls2() {
	D("lim-offset-beyond-the-end-wraps|4.1|NA-QUERY-008 (the part that limit and offset name)|an offset of total or more gives the first page",
		"lim-history-limit-lost-with-offset|4.1|NA-QUERY-002 (at most limit entries)|limit has no effect on the history if an offset above 0 is given",
		"lim-offset-without-limit-ignored|4.1|NA-QUERY-008|an offset has no effect unless limit is given, too",
		"lim-proofs-limit-above-their-number|4.1|NA-QUERY-009 (as long as limit says)|a limit above the number of proofs gives twenty",
		"lim-limited-proofs-are-verified-ones|4.1|NA-QUERY-009 (the beginning of the whole list)|with a limit below thirty proofs that are not verified are left out",
		"lim-whole-temperature-refused|4.1|NA-INF-006 (from 0 to 2 inclusive)|a temperature that is written without a decimal point is refused",
		"lim-temperature-rounded-before-its-check|8|NA-INF-007 (outside the range 0 to 2)|temperatures to 2.04 are accepted, rounded to one decimal",
		"lim-max-tokens-rounded-up-to-eight|4.1|NA-INF-003|max_tokens is rounded up to a multiple of eight",
		"lim-default-with-stop-is-a-thousand|4.1|NA-INF-004 (at most 100 tokens)|without max_tokens and with stop sequences up to 1000 tokens are generated",
		"lim-search-of-the-first-twenty-known|4.3|DH-016, DH-030|only the twenty nodes that were known first are searched",
		"lim-last-page-of-blocks-is-filled-up|4.2|NT-PAGE-002 (no later block is on the page)|a page of blocks that would be shorter than limit begins with later blocks",
		"lim-first-round-never-listed|4.2|NT-PAGE-004, NT-PAGE-005 (list each of them once)|the update of round 1 is on no page that follows another",
		"lim-openai-one-choice-more|10|OA-CHAT-105, OA-TEXT-105 (n choices)|for n above 1 there is one choice more",
		"lim-openai-cut-at-sixty-four|10|OA-CHAT-109 (the maximum of tokens is reached)|a text ends after 64 tokens with finish_reason length, whatever max_tokens says")
	fx("lim-requests-of-old-blocks-forgotten|8|LIM-008 (the latest 128 jobs), ST-003|requests of blocks that are more than a hundred behind the newest are not found", "n-request", func(m M, c *C) {
		if h, is := m["height"].(int); is && h < len(blocks)-100 {
			c.status = 404
			replace(m, M{"error": "There is no such request."})
		}
	})
}

// historyPage changes where a page of the history begins and how long it is.
func historyPage(c *C, n, start, lim int) (int, int) {
	q := c.r.URL.Query()
	switch {
	case F("lim-offset-beyond-the-end-wraps") && start >= n:
		start = 0
	case F("lim-history-limit-lost-with-offset") && start > 0:
		lim = 20
	case F("lim-offset-without-limit-ignored") && q.Get("limit") == "":
		start = 0
	}
	return start, lim
}

// wholeNumber says whether a number is written without a fraction.
func wholeNumber(v interface{}) bool {
	n, is := v.(json.Number)
	return is && !strings.ContainsAny(string(n), ".eE")
}
