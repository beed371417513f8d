// Money: balance, transfers, history, stakes.
#include "http.hpp"
#include <cmath>
#include <thread>

static json balance_json(const Account& a) {
  i64 total = a.available + a.staked + a.pending;
  if (peculiar("total-without-pending")) total -= a.pending;
  json st = {{"amount", units(a.staked)}};
  if (a.staked > 0) {
    st["duration_days"] = fault("balance-days-of-request") ? a.days + 1 : a.days;
    st["start_date"] = day(a.start);
    st["unlock_date"] = day(fault("balance-unlock-one-day-early") ? a.unlock - 86400 * UNIT : a.unlock);
    st["multiplier"] = a.multiplier;
  }
  auto u = [](i64 v) -> json {
    if (fault("balances-in-atoms")) return v;
    return units(v);
  };
  return {{"address", a.address}, {"balances", {{"available", u(a.available)}, {"staked", u(a.staked)}, {"pending", u(a.pending)}, {"total", u(total)}}}, {"staking", st}};
}

static void balance(Call& c) {
  Lock l(S.m);
  Account a = S.accounts[c.address];
  static std::map<string, Account> cached;
  if (fault("balance-cached")) {
    if (!cached.count(c.address)) cached[c.address] = a;
    a = cached[c.address];
  }
  json j = balance_json(a);
  send_json(c, 200, j);
}

// An amount of the body in atoms; false: the refusal has been sent.
static bool amount_of(Call& c, i64& out) {
  json v = c.body.contains("amount") ? c.body["amount"] : json();
  if (v.is_array() && v.size() == 1 && fault("amount-in-array-accepted")) v = v[0];
  if (v.is_string() && fault("amount-text-accepted")) { try { v = std::stod(v.get<string>()); } catch (...) {} }
  if (v.is_string() && fault("amount-any-text-is-zero-point-one") ) v = 0.1;
  if (v.is_boolean() && fault("amount-bool-accepted")) v = v.get<bool>() ? 1 : 0;
  if (v.is_string() && fault("amount-text-crashes")) { send_error(c, 500, "INTERNAL", "type must be number, but is string"); return false; }
  if (v.is_null() && fault("amount-missing-is-one")) v = 1;
  if (v.is_number_float() && fault("whole-amount-with-point-refused") && v.get<double>() == std::floor(v.get<double>())) v = json();
  if (v.is_number_integer() && fault("whole-amount-without-point-refused")) v = json();
  if (!v.is_number()) { send_error(c, 400, "INVALID_REQUEST", "amount must be a number"); return false; }
  double d = v.get<double>();
  bool negative_ok = fault("negative-transfer-accepted") && c.route == "POST /api/v1/wallet/send";
  if ((fault("negative-stake-accepted") && c.route == "POST /api/v1/wallet/stake") || (fault("negative-unstake-accepted") && c.route == "POST /api/v1/wallet/unstake")) negative_ok = true;
  if (fault("amount-truncated-to-units")) d = std::trunc(d);
  if (!std::isfinite(d) || (d <= 0 && !negative_ok) || std::fabs(d) > 1e12) { send_error(c, 400, "INVALID_REQUEST", "amount must be above zero"); return false; }
  out = std::llround(d * UNIT);
  if (out == 0) { send_error(c, 400, "INVALID_REQUEST", "amount must be at least 0.000001"); return false; }
  return true;
}

static void poor(Call& c, i64 required, i64 available) {
  if (fault("poor-required-is-what-lacks")) required = required - available;
  send_error(c, 402, "INSUFFICIENT_BALANCE", "the account has too little", {{"required", units(required)}, {"available", units(available)}});
}

static std::mutex slow_m;

static void transfer(Call& c) {
  if (!read_body(c)) return;
  i64 amount = 0;
  json to = c.body.contains("to") ? c.body["to"] : json();
  static json last_to;
  if (fault("receiver-remembered")) { if (to.is_null()) to = last_to; else last_to = to; }
  if (!to.is_string() || to.get<string>().empty() || to.get<string>().size() > 200) { send_error(c, 400, "INVALID_REQUEST", "to must be an address"); return; }
  string memo, receiver = to;
  if (c.body.contains("memo")) {
    json m = c.body["memo"];
    if (!m.is_string() || m.get<string>().size() > 4096) { send_error(c, 400, "INVALID_REQUEST", "memo must be a string of at most 4096 bytes"); return; }
    memo = m;
  }
  if (fault("memo-letters-refused")) for (unsigned char ch : memo) if (ch > 127) { send_error(c, 400, "INVALID_REQUEST", "memo must be ASCII"); return; }
  if (!amount_of(c, amount)) return;
  if (peculiar("no-transfers-to-self") && receiver == c.address) { send_error(c, 400, "INVALID_REQUEST", "the receiver is the sender"); return; }
  i64 fee = transfer_fee(), need = amount + fee, seen = 0;
  if (fault("overdrawn-at-once")) {   // the balance is checked before the lock is taken
    { Lock l(S.m); seen = S.accounts[c.address].available; }
    if (seen < need) { poor(c, need, seen); return; }
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
  }
  if (fault("lost-transfer-at-once")) {   // read, wait, write back
    { Lock l(S.m); seen = S.accounts[c.address].available; }
    std::this_thread::sleep_for(std::chrono::milliseconds(15));
  }
  Lock l(S.m);
  Account& a = S.accounts[c.address];
  if (fault("lost-transfer-at-once") && seen >= need) a.available = seen;
  i64 must = fault("fee-not-checked") ? amount : need;
  if (fault("staked-can-be-spent") && a.available < must && a.available + a.staked >= must) a.available += 0; else
  if (a.available < must && !fault("overdrawn-at-once")) {
    i64 was = a.available;
    if (fault("refused-transfer-takes-fee")) a.available -= std::min(fee, a.available);
    if (fault("refused-transfer-in-history")) note(a, S.fresh_id("tx"), "send", -amount, {{"to", receiver}, {"fee", units(fee)}, {"memo", memo}});
    poor(c, need, was);
    return;
  }
  string id = S.fresh_id("tx");
  if (fault("transfer-id-of-content")) id = "tx-" + sha256_hex(a.address + receiver + std::to_string(amount)).substr(0, 20);
  i64 take = need;
  if (fault("fee-shown-in-atoms")) {}
  bool self = receiver == a.address;
  if (fault("self-transfer-loses-amount") && self) { a.available -= take; }
  else if (fault("self-transfer-gains-amount") && self) { a.available += amount - fee; }
  else {
    if (!fault("sender-not-debited") || self) a.available -= take;
    Account& b = S.accounts[receiver];
    if (b.address.empty()) b.address = receiver;
    i64 give = amount;
    if (fault("receiver-not-credited") && !self) give = 0;
    if (fault("receiver-pays-fee") && !self) { give -= fee; S.accounts[c.address].available += fee; }
    if (fault("receipt-pending") && !self) { b.pending += give; give = 0; }
    b.available += give;
    if (!self) note(b, id, fault("receipt-listed-as-send") ? "send" : "receive", fault("receipt-below-zero") || fault("receipt-listed-as-send") ? -amount : amount,
                    fault("receipt-listed-as-send") ? json{{"to", b.address}, {"memo", memo}} : json{{"from", c.address}, {"memo", memo}});
  }
  Account& me = S.accounts[c.address];
  json more = {{"to", fault("history-names-sender-as-receiver") ? me.address : receiver}, {"fee", units(fee)}, {"memo", memo}};
  bool listed = !(fault("transfer-not-in-history") || (fault("transfer-without-memo-not-listed") && memo.empty()) ||
                  (fault("transfer-to-stranger-not-listed") && S.accounts[receiver].key.empty()) || (fault("self-transfer-not-listed") && self));
  i64 shown = -amount;
  if (fault("history-send-amount-positive")) shown = amount;
  string listed_id = fault("history-other-id") ? "h" + id : id;
  if (listed) note(me, listed_id, "send", shown, more);
  if (listed && fault("transfer-listed-twice")) note(me, S.fresh_id("tx"), "send", shown, more);
  json r = {{"transaction_id", id}, {"from", me.address}, {"to", receiver}, {"amount", units(amount)}, {"fee", units(fee)}, {"memo", memo}, {"status", peculiar("transfers-accepted-only") ? "accepted" : "confirmed"}, {"timestamp", iso(now_us())}};
  if (fault("memo-cut-at-32")) r["memo"] = memo.substr(0, std::min<size_t>(32, memo.size() ? memo.size() : 0));
  if (fault("fee-shown-in-atoms")) r["fee"] = fee;
  if (r["memo"].is_string() && !utf8_ok(r["memo"])) r["memo"] = "";
  send_json(c, 200, r);
}

static void history(Call& c) {
  i64 limit = peculiar("short-pages") ? 5 : 20, offset = 0, v = 0;
  int got = query_int(c, "limit", v);
  if (got < 0 || (got && v < 0)) {
    send_error(c, 400, "INVALID_REQUEST", "limit must be a number that is not negative"); return;
  }
  if (got) limit = std::min<i64>(v, 100);
  int goto_ = query_int(c, "offset", v);
  if (goto_ < 0 || (goto_ && v < 0)) { send_error(c, 400, "INVALID_REQUEST", "offset must be a number that is not negative"); return; }
  if (goto_) offset = v;
  if (fault("history-offset-is-page")) v = offset * limit; else v = offset;
  if (fault("history-offset-ignored-without-limit") && !got) v = 0;
  Lock l(S.m);
  Account& a = S.accounts[c.address];
  vector<const Entry*> all;
  for (auto& e : a.history) {
    if (peculiar("history-without-charges") && e.type == "inference") continue;
    all.push_back(&e);
  }
  if (!peculiar("history-oldest-first")) std::reverse(all.begin(), all.end());
  if (fault("history-order-by-amount-on-small-pages") && limit < 10)
    std::stable_sort(all.begin(), all.end(), [](auto x, auto y) { return x->amount < y->amount; });
  size_t total = all.size(), most = limit;
  if (fault("history-limit-off-by-one")) most++;
  if (fault("history-limit-ignored")) most = 20;
  if (fault("history-limit-zero-is-all") && limit == 0) most = 100;
  if (fault("history-new-entries-not-paged")) {   // the index of pages is made at the start
    size_t old = c.address == S.tokens["tok-a"] ? 36 : 34;
    if (all.size() > old && v > 0) v += all.size() - old;
  }
  json list = json::array();
  for (size_t i = v; i < total && list.size() < most; i++) {
    const Entry& e = *all[i];
    json j = {{"id", e.id}, {"type", e.type}, {"amount", units(e.amount)}, {"timestamp", iso(e.at)}};
    for (auto& m : e.more.items()) j[m.key()] = m.value();
    if (fault("history-in-atoms")) j["amount"] = e.amount;
    list.push_back(j);
  }
  if (fault("history-page-lacks-last") && list.size() == most && most > 1) list.erase(list.size() - 1);
  size_t said = total;
  if (fault("history-total-of-page")) said = list.size();
  i64 said_limit = limit, said_offset = offset;
  send_json(c, 200, {{"transactions", list}, {"total", said}, {"limit", said_limit}, {"offset", said_offset}});
}

static void stake(Call& c) {
  if (!read_body(c)) return;
  i64 amount = 0;
  if (!amount_of(c, amount)) return;
  json d = c.body.contains("duration_days") ? c.body["duration_days"] : json();
  if (!d.is_number_integer() || d.get<i64>() < 1 || d.get<i64>() > 3650) { send_error(c, 400, "INVALID_REQUEST", "duration_days must be a whole number from 1 to 3650"); return; }
  int days = d;
  if (peculiar("stake-minimum") && (amount < 5 * UNIT || days < 7)) { send_error(c, 400, "INVALID_REQUEST", "a stake has at least 5 units and 7 days"); return; }
  Lock l(S.m);
  Account& a = S.accounts[c.address];
  if (a.available < amount && !fault("stake-not-covered")) {
    if (fault("refused-stake-stakes")) a.staked += amount;
    poor(c, amount, a.available);
    return;
  }
  i64 now = now_us();
  if (!fault("stake-takes-nothing")) a.available -= fault("stake-taken-twice") ? 2 * amount : fault("stake-takes-fee") ? amount + transfer_fee() : amount;
  if (fault("stake-replaces-stake")) a.staked = amount; else if (!fault("stake-adds-nothing")) a.staked += amount;
  if (fault("stake-becomes-pending")) a.pending += amount;
  int held = days;
  if (fault("stake-months-of-30")) held = days >= 30 ? 30 : days;
  i64 until = now + i64(held) * 86400 * UNIT;
  if (a.staked > amount && a.unlock > until && !fault("later-stake-unlocks-all")) until = a.unlock;
  i64 start = now;
  a.start = start;
  a.unlock = until;
  a.days = int((until / UNIT / 86400) - (start / UNIT / 86400));
  a.multiplier = 1 + std::min(a.days, 365) / 365.0;
  if (!peculiar("stakes-not-listed")) note(a, S.fresh_id("tx"), "stake", -amount, {{"duration_days", days}});
  json s = {{"amount", units(amount)}, {"duration_days", a.days}, {"start_date", day(a.start)}, {"unlock_date", day(until)}, {"multiplier", a.multiplier}};
  if (fault("stake-unlock-off-by-one")) s["unlock_date"] = day(until, 1);
  json nb = {{"available", units(a.available)}, {"staked", units(a.staked)}};
  if (fault("new-balance-of-before")) nb = {{"available", units(a.available + amount)}, {"staked", units(a.staked - amount)}};
  send_json(c, 200, {{"success", true}, {"stake", s}, {"new_balance", nb}});
}

static void unstake(Call& c) {
  if (!read_body(c)) return;
  i64 amount = 0;
  if (!amount_of(c, amount)) return;
  Lock l(S.m);
  Account& a = S.accounts[c.address];
  if (amount > a.staked && !fault("unstake-more-than-staked")) {
    if (fault("refused-unstake-clears")) { a.pending += a.staked; a.staked = 0; }
    if (fault("unstake-excess-cut")) amount = a.staked;
    else { send_error(c, 400, "INSUFFICIENT_STAKE", "less than that is staked"); return; }
  }
  int cooldown = peculiar("long-cooldown") ? 21 : 7;
  if (fault("unstake-at-once")) a.available += amount;
  else if (fault("unstake-replaces-pending")) a.pending = amount;
  else if (fault("unstake-available-and-pending")) a.available += amount, a.pending += amount;
  else a.pending += amount;
  if (fault("unstake-takes-all")) a.staked = 0;
  else if (!fault("unstake-leaves-stake")) a.staked -= amount;
  if (!peculiar("stakes-not-listed")) note(a, S.fresh_id("tx"), "unstake", amount);
  i64 at = now_us() + i64(fault("unstake-cooldown-in-hours") ? 0 : fault("unstake-date-one-off") ? cooldown + 1 : cooldown) * 86400 * UNIT;
  json u = {{"amount", units(amount)}, {"cooldown_days", cooldown}, {"available_date", day(at)}};
  send_json(c, 200, {{"success", true}, {"unstake", u}});
}

void add_wallet_routes() {
  add_route("GET", "/api/v1/wallet/balance", true, balance);
  add_route("POST", "/api/v1/wallet/send", true, transfer);
  add_route("GET", "/api/v1/wallet/transactions", true, history);
  add_route("POST", "/api/v1/wallet/stake", true, stake);
  add_route("POST", "/api/v1/wallet/unstake", true, unstake);
}
