package main

import (
	"encoding/json"
	"strings"
	"time"
)

func days(d int) time.Duration { return time.Duration(d) * 24 * time.Hour }

func (a *Account) multiplier() float64 {
	if P("multiplier-always-one") {
		return 1
	}
	return 1 + float64(a.days)/365
}

func (a *Account) staking() M {
	if a.staked == 0 {
		if P("empty-stake-has-nulls") {
			return M{"amount": amt(0), "duration_days": nil, "start_date": nil, "unlock_date": nil, "multiplier": nil}
		}
		return M{"amount": amt(0)}
	}
	return M{"amount": amt(a.staked), "duration_days": a.days, "start_date": date(a.start),
		"unlock_date": date(a.start.Add(days(a.days))), "multiplier": round3(a.multiplier())}
}

func getBalance(c *C) {
	a := c.acct
	if F("gua-second-reader-gets-the-first-account") && a.token == "tok-b" {
		if t := lastBalance; time.Since(t) < 50*time.Millisecond {
			a = accounts["tok-a"]
		}
	}
	lastBalance = time.Now()
	total := a.avail + a.staked + a.pending
	if P("total-without-pending") {
		total -= a.pending
	}
	c.ok(M{"address": a.addr, "balances": M{"available": amt(a.avail), "staked": amt(a.staked), "pending": amt(a.pending), "total": amt(total)},
		"staking": a.staking()})
}

var lastBalance time.Time

func (c *C) poor(required json.Number, have int64) {
	c.fail(402, "INSUFFICIENT_BALANCE", "The account has too little for this.", M{"required": required, "available": amt(have)})
}

func (a *Account) add(m M) M {
	m["timestamp"] = ts(now())
	a.hist = append(a.hist, m)
	return m
}

func byAddr(s string) *Account {
	for _, a := range accounts {
		if a.addr == s {
			return a
		}
	}
	return nil
}

func postSend(c *C) {
	if !c.object() {
		return
	}
	a := c.acct
	to, ok := c.in["to"].(string)
	if l, is := c.in["to"].(L); is && len(l) > 0 && F("ref-to-in-an-array-accepted") {
		to, ok = l[0].(string)
	}
	if !ok || to == "" || len(to) > 200 {
		if F("ref-send-without-to-goes-to-nobody") && c.in["to"] == nil {
			to = "orr1burn"
		} else if F("ref-send-number-as-receiver") && !ok && c.in["to"] != nil {
			to = "0"
		} else {
			c.bad("to must be an address.")
			return
		}
	}
	if P("only-known-address-forms") && !strings.HasPrefix(to, "orr1") {
		c.bad("to must begin with orr1.")
		return
	}
	memo, isText := c.in["memo"].(string)
	_, hasMemo := c.in["memo"]
	if hasMemo && !isText {
		if !F("ref-memo-object-accepted") {
			c.bad("memo must be a string.")
			return
		}
	}
	maxMemo := 500
	if P("memo-limit-of-64") {
		maxMemo = 64
	}
	if P("memo-required") && !hasMemo {
		c.bad("memo is missing.")
		return
	}
	if len([]rune(memo)) > maxMemo {
		c.bad("memo is too long.")
		return
	}
	v := c.in["amount"]
	if s, is := v.(string); is && F("ref-amount-as-text-accepted") {
		v = json.Number(s)
	}
	if b, is := v.(bool); is && b && F("ref-amount-true-is-one") {
		v = json.Number("1")
	}
	if l, is := v.(L); is && F("ref-amount-in-array-accepted") && len(l) > 0 {
		v = l[0]
	}
	if n, is := v.(json.Number); is {
		if F("ref-negative-transfer-accepted") && strings.HasPrefix(string(n), "-") {
			v = n[1:]
		}
		if F("ref-amount-with-point-zero-refused") && strings.HasSuffix(string(n), ".0") {
			c.bad("amount must have no trailing zeros.")
			return
		}
		if F("ref-amount-one-as-int-refused") && n == "1" {
			c.bad("amount must have decimals.")
			return
		}
	}
	if v == nil && F("ref-send-without-amount-500") {
		c.fail(500, "INTERNAL", "nil amount", nil)
		return
	}
	amount, huge, good := money(v)
	if !good {
		c.bad("amount must be a number above 0 with at most six decimals.")
		return
	}
	if F("ref-very-large-transfer-is-invalid") && (huge || amount > 1000000*unit) {
		c.bad("amount is too large.")
		return
	}
	f := int64(fee)
	if P("no-transfer-fee") {
		f = 0
	}
	if P("fee-of-one-percent") {
		f = fee + amount/100
	}
	self := to == a.addr
	need := amount + f
	if huge {
		c.poor(v.(json.Number), a.avail)
		return
	}
	if F("eff-concurrent-transfers-share-one-balance") {
		was := a.avail
		mu.Unlock()
		time.Sleep(40 * time.Millisecond)
		mu.Lock()
		a.avail = was
	}
	short := need > a.avail
	if F("ref-overdraft-by-fee-accepted") && amount <= a.avail {
		short = false
	}
	if F("ref-second-account-may-overdraw") && a.token == "tok-b" {
		short = false
	}
	if F("ref-self-transfer-of-too-much-accepted") && self {
		short = false
	}
	if F("eff-transfer-draws-on-the-stake") && short && need <= a.avail+a.staked {
		a.staked -= need - a.avail
		a.avail, short = need, false
	}
	if sameTransfer(c, to, amount, memo) {
		return
	}
	if short {
		if o := byAddr(to); o != nil && !self && F("eff-refused-transfer-still-arrives") {
			o.avail += amount
		}
		if F("eff-refused-transfer-costs-the-fee") {
			a.avail -= f
		}
		if F("eff-refused-transfer-in-history") {
			a.add(M{"id": nextID("tx"), "type": "send", "amount": amt(-amount), "to": to, "memo": memo})
		}
		if F("ref-poor-transfer-409") {
			c.fail(409, "INSUFFICIENT_BALANCE", "The account has too little for this.", nil)
			return
		}
		if F("ref-poor-transfer-success-status-failed") {
			c.ok(M{"transaction_id": nextID("tx"), "from": a.addr, "to": to, "amount": amt(amount), "fee": amt(f), "memo": memo, "status": "failed", "timestamp": ts(now())})
			return
		}
		if F("ref-402-required-leaves-the-fee-out") {
			need = amount
		}
		c.poor(amt(need), a.avail)
		return
	}
	id := nextID("tx")
	if F("rel-transaction-id-repeats") && c.n%2 == 0 {
		seq--
		id = "tx_" + hx("tx" + "_repeated")[:20]
		if lastTx != "" {
			id = lastTx
		}
	}
	lastTx = id
	var other *Account
	if !self {
		other = byAddr(to)
	}
	charge := f
	if F("eff-fee-taken-twice") {
		charge = 2 * f
	}
	if F("eff-fee-not-taken") {
		charge = 0
	}
	if F("eff-fee-not-taken-for-whole-units") && amount%unit == 0 {
		charge = 0
	}
	out := amount
	if F("eff-large-transfer-taken-twice") && amount >= 3*unit {
		out = 2 * amount
	}
	if F("eff-transfer-takes-whole-units-only") {
		out = amount / unit * unit
	}
	if self {
		out = 0
		if F("eff-self-transfer-costs-two-fees") {
			charge = 2 * f
		}
		if F("eff-self-transfer-takes-the-amount") {
			out = amount
		}
		if F("eff-self-transfer-adds-the-amount") {
			out = -amount
		}
	}
	a.avail -= out + charge
	if other != nil {
		in := amount
		if F("eff-tiny-transfers-do-not-arrive") && amount < 1000 {
			in = 0
		}
		if F("eff-receiver-gets-amount-less-fee") {
			in = amount - f
		}
		if F("eff-receiver-gets-nothing-without-memo") && !hasMemo {
			in = 0
		}
		if F("eff-receiver-gets-pending") {
			other.pending += amount
			in = 0
		}
		if F("eff-large-transfer-drawn-from-receiver") && amount >= 2*unit {
			in = -amount
		}
		other.avail += in
		if !F("eff-fee-is-charged-to-receiver-too") {
		} else {
			other.avail -= f
		}
	}
	e := M{"id": id, "type": "send", "amount": amt(-amount), "to": to, "fee": amt(f)}
	if memo != "" {
		e["memo"] = memo
	}
	if F("rel-history-send-names-its-sender") && other != nil {
		e["to"] = a.addr
	}
	sender := a
	if F("eff-send-recorded-for-receiver-only") && other != nil {
		sender = other
	}
	if F("eff-send-to-stranger-not-recorded") && other == nil && !self ||
		F("eff-send-without-memo-not-recorded") && !hasMemo || F("eff-self-transfer-not-recorded") && self {
		sender = &Account{}
	}
	sender.add(e)
	if F("eff-send-recorded-twice") && !self {
		a.add(clone(e).(M))
	}
	if F("eff-every-third-send-not-recorded") && c.n%3 == 0 {
		a.hist = a.hist[:len(a.hist)-1]
	}
	if other != nil {
		other.add(M{"id": id, "type": "receive", "amount": amt(amount), "from": a.addr, "memo": memo})
	}
	a.nonce++
	st := "confirmed"
	if P("transfer-status-accepted") {
		st = "accepted"
	}
	addBlock(M{"type": "transfer", "from": a.addr, "to": to, "amount_atoms": atoms(amount), "fee_atoms": atoms(f)})
	res := M{"transaction_id": id, "from": a.addr, "to": to, "amount": amt(amount), "fee": amt(f), "memo": memo, "status": st, "timestamp": ts(now())}
	rememberTransfer(c, res)
	c.ok(res)
}

var lastTx string

func getTransactions(c *C) {
	def := 20
	if P("default-page-of-five") {
		def = 5
	}
	max := 100
	if P("pages-up-to-ten") {
		max = 10
	}
	if !c.limits(def, max, "limit", "offset") {
		return
	}
	h := c.acct.hist
	n := len(h)
	lim, off := c.q["limit"], c.q["offset"]
	l := L{}
	start := off
	start, lim = historyPage(c, n, start, lim)
	if F("lim-second-page-starts-one-late") && off > 0 {
		start++
	}
	if F("lim-second-page-repeats-one") && off > 0 {
		start--
	}
	if F("lim-offset-counts-pages") {
		start = off * lim
	}
	if F("lim-offset-ignored") {
		start = 0
	}
	if F("lim-offset-above-forty-ignored") && off > 40 {
		start = 0
	}
	if F("lim-default-offset-is-one") && c.r.URL.Query().Get("offset") == "" {
		start = 1
	}
	if F("lim-zero-limit-means-all") && lim == 0 {
		lim = 100
	}
	if F("lim-one-more-than-limit") && lim > 3 {
		lim++
	}
	if F("lim-small-limit-raised-to-five") && lim < 5 {
		lim = 5
	}
	if F("lim-history-keeps-the-last-fifty") && n > 50 {
		h = h[n-50:]
	}
	for i := start; i < len(h) && len(l) < lim; i++ {
		l = append(l, clone(h[len(h)-1-i]))
	}
	if P("history-oldest-first") {
		l = L{}
		for i := off; i < n && len(l) < lim; i++ {
			l = append(l, clone(h[i]))
		}
	}
	c.ok(M{"transactions": l, "total": n, "limit": c.q["limit"], "offset": c.q["offset"]})
}

func getProofs(c *C) {
	if !c.limits(20, 100, "limit") {
		return
	}
	ver, sum := 0, int64(0)
	for _, p := range proofs {
		if p["verified"].(bool) {
			ver++
		}
		a, _, _ := money(p["reward"])
		sum += a
	}
	lim := c.q["limit"]
	if F("lim-proofs-one-more") && lim < 32 {
		lim++
	}
	if F("lim-proofs-limit-ignored-above-twenty") && lim > 20 {
		lim = 20 + 80
	}
	if F("lim-proofs-of-limit-one-empty") && lim == 1 {
		lim = 0
	}
	if F("lim-proofs-limit-above-their-number") && lim > len(proofs) {
		lim = 20
	}
	l := L{}
	for i := 0; i < len(proofs) && i < lim; i++ {
		j := len(proofs) - 1 - i
		if F("lim-limited-proofs-are-verified-ones") && c.q["limit"] < 30 && proofs[j]["verified"] == false {
			continue
		}
		if F("lim-short-proof-page-has-the-oldest") && lim < 10 {
			j = i
		}
		if F("rel-proofs-change-order") && c.n%2 == 0 {
			j = i
		}
		l = append(l, clone(proofs[j]))
	}
	c.ok(M{"proofs": l, "stats": M{"total_submitted": len(proofs), "total_verified": ver, "total_reward": amt(sum)}})
}

func postStake(c *C) {
	if !c.object() {
		return
	}
	a := c.acct
	v := c.in["amount"]
	if s, is := v.(string); is && F("ref-stake-amount-text-accepted") {
		v = json.Number(s)
	}
	amount, huge, good := money(v)
	if n, is := v.(json.Number); is && F("ref-negative-stake-accepted") && strings.HasPrefix(string(n), "-") {
		amount, huge, good = money(n[1:])
		amount = -amount
	}
	d, isDays := intOf(c.in["duration_days"])
	if _, is := c.in["duration_days"].(string); is && F("ref-duration-text-accepted") {
		d, isDays = 30, true
	}
	if _, is := c.in["duration_days"].(M); is && F("ref-duration-object-accepted") {
		d, isDays = 30, true
	}
	if !good || !isDays || d < 1 || d > 3650 {
		c.bad("amount must be a number above 0, and duration_days a whole number from 1 to 3650.")
		return
	}
	least := int64(minStake)
	if P("large-minimum-stake") {
		least = 100 * unit
	}
	if P("shortest-stake-thirty-days") && d < 30 {
		c.bad("duration_days must be at least 30.")
		return
	}
	if !huge && amount < least && amount > 0 {
		c.fail(400, "STAKE_TOO_SMALL", "The stake is below the minimum.", nil)
		return
	}
	if huge {
		c.poor(v.(json.Number), a.avail)
		return
	}
	if F("ref-stake-of-all-refused") && amount == a.avail {
		c.poor(amt(amount), a.avail)
		return
	}
	if amount > a.avail && !(F("ref-stake-of-a-little-more-accepted") && amount < a.avail+unit) {
		if F("ref-poor-stake-400") {
			c.bad("amount is too large.")
			return
		}
		if F("ref-poor-stake-success-false") {
			c.ok(M{"success": false})
			return
		}
		if F("eff-refused-stake-is-staked") {
			a.staked += amount
			a.start, a.days = now(), d
		}
		if F("eff-refused-stake-becomes-pending") && a.avail >= minStake {
			c.poor(amt(amount), a.avail)
			a.avail -= minStake
			a.pending += minStake
			return
		}
		if F("eff-poor-stake-stakes-what-there-is") {
			amount = a.avail
		} else {
			c.poor(amt(amount), a.avail)
			return
		}
	}
	today := now().Truncate(24 * time.Hour)
	left := 0
	if a.staked > 0 {
		left = int(a.start.Add(days(a.days)).Sub(today).Hours() / 24)
	}
	was := a.days
	a.days = d
	if left > d {
		a.days = left
	}
	if F("eff-second-stake-keeps-the-shorter-lock") && left > 0 {
		a.days = was
		if d < was {
			a.days = d
		}
	}
	if F("eff-second-stake-keeps-old-lock") && left > 0 {
		a.days = was
	}
	if F("eff-stake-locked-at-most-a-year") && a.days > 365 {
		a.days = 365
	}
	if F("eff-stake-locks-a-day-less") {
		a.days--
	}
	if F("eff-stake-in-whole-months") {
		a.days = d / 30 * 30
	}
	a.start = today
	if F("eff-stake-begins-tomorrow") {
		a.start = today.Add(days(1))
	}
	a.staked += amount
	out := amount
	if F("eff-second-stake-taken-twice") && c.n > 1 {
		out = 2 * amount
	}
	if F("eff-stake-not-taken-from-available") {
		out = 0
	}
	a.avail -= out
	if F("eff-second-stake-replaces-the-first") {
		a.staked = amount
	}
	if F("eff-stake-also-pending") {
		a.pending += amount
	}
	a.nonce++
	addBlock(M{"type": "stake", "from": a.addr, "amount_atoms": atoms(amount), "days": a.days})
	a.add(M{"id": nextID("tx"), "type": "stake", "amount": amt(-amount)})
	s := a.staking()
	s["amount"] = amt(amount)
	if F("eff-stake-of-the-second-account-goes-to-the-first") && a.token == "tok-b" {
		o := accounts["tok-a"]
		defer func() {
			a.staked -= amount
			o.staked, o.start, o.days = o.staked+amount, a.start, a.days
		}()
	}
	if F("eff-stake-costs-a-fee-too") {
		defer func() { a.avail -= fee }()
	}
	c.ok(M{"success": true, "stake": s, "new_balance": M{"available": amt(a.avail), "staked": amt(a.staked)}})
}

func postUnstake(c *C) {
	if !c.object() {
		return
	}
	a := c.acct
	v := c.in["amount"]
	if v == nil && F("ref-unstake-without-amount-unstakes-all") && a.staked > 0 {
		v = amt(a.staked)
	}
	if b, is := v.(bool); is && b && F("ref-unstake-true-is-one") {
		v = json.Number("1")
	}
	amount, huge, good := money(v)
	if !good {
		c.bad("amount must be a number above 0.")
		return
	}
	if huge || amount > a.staked {
		if F("ref-unstake-too-much-accepted") && !huge {
			a.staked = amount
		} else if F("ref-unstake-too-much-gives-all") && a.staked > 0 {
			amount = a.staked
		} else {
			st := 400
			if P("excess-unstake-409") {
				st = 409
			}
			c.fail(st, "INSUFFICIENT_STAKE", "Less is staked than that.", nil)
			return
		}
	}
	cd := cooldown
	if P("long-cooldown") {
		cd = 60
	}
	today := now().Truncate(24 * time.Hour)
	if left := int(a.start.Add(days(a.days)).Sub(today).Hours() / 24); left > cd {
		cd = left
	}
	out := amount
	if F("eff-partial-unstake-takes-all") {
		out = a.staked
	}
	if F("eff-unstake-leaves-the-stake") {
		out = 0
	}
	if F("eff-second-unstake-not-taken") && c.n > 1 {
		out = 0
	}
	a.staked -= out
	if F("eff-unstake-shortens-the-lock-of-the-rest") && a.staked > 0 {
		a.start, a.days = today, cooldown
	}
	if F("eff-unstaked-at-once-available") {
		a.avail += amount
	} else {
		a.pending += amount
	}
	if F("eff-unstaked-half-available") {
		a.avail += amount / 2
	}
	a.nonce++
	addBlock(M{"type": "unstake", "from": a.addr, "amount_atoms": atoms(amount)})
	a.add(M{"id": nextID("tx"), "type": "unstake", "amount": amt(amount)})
	c.ok(M{"success": true, "unstake": M{"amount": amt(amount), "cooldown_days": cd, "available_date": date(today.Add(days(cd)))}})
}
