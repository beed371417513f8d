(* the node API *)
open Util
open State
type out = J of int * j | Ev of ((string -> unit) -> unit) | Raw of int * (string * string) list * string * string
let err ?(details=Null) st code msg = J (st, O ["error", O (["code", S code; "message", S msg] @ (if details = Null then [] else ["details", details]))])
let bad m = err 400 "INVALID_REQUEST" m
let poor req av = err 402 "INSUFFICIENT_BALANCE" "the balance is too low for this"
    ~details:(if f "poor-details-missing" (*@ fields NA-ERR-010 A 402 has no details. *) then Null else O ["required", money req;
      "available", (if f "poor-available-atoms" (*@ relations NA-ERR-020 The available amount of a 402 is in atoms, a million times that of the balance. *) then int av else money av)])
let last_poor = ref None
let poor req av = if f "poor-stale" (*@ relations NA-ERR-020 The details of a 402 are those of the 402 before. *) then
    (match !last_poor with Some (r, a) -> last_poor := Some (req, av); poor r a | None -> last_poor := Some (req, av); poor req av) else poor req av

let peer_rows () =
  let fixed = if p "no-remembered-peers" then [] else ["203.0.113.7:8100", "worker", [1;2]; "203.0.113.9:8200", "validator", [5]] in
  List.mapi (fun i (a, r, l) -> O ["id", S ("node-" ^ String.sub (sha a) 0 16); "address", S a; "role", S r; "layers", A (List.map int l);
      "latency_ms", fl (12.5 +. 3. *. float i); "connected_since", S (iso (started -. 1800. -. 60. *. float i))])
    (fixed @ List.map (fun (h, pt) -> Printf.sprintf "%s:%d" h pt, "worker", [0;1;2]) !peers)
let my_layers = [0;1;2;3;4;5]
let status () =
  let up = now () -. started in
  O ["node_id", S !node_id; "version", S version; "uptime_seconds", int (int_of_float up); "status", S "running"; "role", S "driver"; "layers", A (List.map int my_layers);
     "peer_count", int (List.length (peer_rows ()));
     "training", O ["enabled", (if f "status-enabled-cached" (*@ relations NA-PATCH-116 The status shows training.enabled as it was at the start, whatever was changed. *) then B true else cfg_get "training.enabled"); "epoch", int epoch; "step", int gstep; "loss", fl loss];
     "resources", O ["gpu_memory_used", int 3221225472; "gpu_memory_total", int 8589934592; "cpu_percent", fl 12.5; "ram_used", int 524288000]]
let metrics () =
  let t = now () in
  let rpm = List.length (List.filter (fun x -> t -. x < 60.) !recent) in
  let avg = if !nlat = 0 then 0. else !latsum /. float !nlat in
  let r3 x = Float.round (x *. 1000.) /. 1000. in
  O ["timestamp", S (iso (fresh_ts ()));
     "inference", O ["requests_total", int !requests; "requests_per_minute", fl (float rpm); "avg_latency_ms", fl (r3 avg); "p99_latency_ms", fl (r3 !latmax); "tokens_generated", int !tokens];
     "training", O ["steps_total", int gstep; "steps_per_hour", int 240; "gradients_submitted", int !grads_in; "gradients_accepted", int !grads_ok];
     "network", O ["bytes_sent", int !Http.sent; "bytes_received", int !Http.received; "active_connections", int !Http.active_conns; "rpc_calls", int !rpc_calls];
     "rewards", O ["earned_today", fl 1.25; "earned_total", fl 31.75; "pending", fl 0.5]]
let health () = O ["healthy", B true; "checks", O ["gpu", S (if p "health-gpu-absent" then "absent" else "ok"); "network", S "ok"; "storage", S "ok"; "peers", S "ok"]]
let layers () = O ["layers", A (List.map (fun i -> O ["index", int i; "type", S (if p "layer-type-attention" && i = 0 then "attention" else "transformer"); "memory_mb", int 12; "status", S (if p "layer-status-idle" && i = 3 then "idle" else "active")]) my_layers); "total_layers", int n_layers; "my_layer_count", int (List.length my_layers)]
let network () =
  let pr = peer_rows () in
  let role r = List.length (List.filter (fun x -> get "role" x = S r) pr) in
  O ["nodes", O ["total", int (1 + List.length pr); "drivers", int (1 + role "driver"); "workers", int (role "worker"); "validators", int (role "validator")];
     "architecture", O ["layers", int n_layers; "hidden_dim", int hidden; "parameters", S (string_of_int params)];
     "capacity", O ["total_memory_gb", fl 24.; "used_memory_gb", fl 9.5];
     "training", O ["epoch", int epoch; "global_step", int gstep; "loss", fl loss]]
let nest kv = let sub pre = O (List.filter_map (fun (k, v) -> if starts pre k then Some (String.sub k (String.length pre) (String.length k - String.length pre), v) else None) kv) in
  ["training", sub "training."; "resources", sub "resources."]
let cfg_snapshot = ref []
let config () = O (["node_id", S !node_id; "port", int !http_port; "grpc_port", int (!http_port + 1000); "tracker_url", S "http://tracker.example:7000"] @ nest !cfg)
let global () =
  let en = cfg_get "training.enabled" in
  O ["global_avg_loss", fl 2.503417; "global_min_loss", fl 2.398801; "hash_agreement_rate", fl 1.0; "total_nodes_training", int 4; "successful_syncs", int 96; "failed_syncs", int 4; "sync_success_rate", fl 0.96;
     "global_steps", int gstep; "global_tokens", int 12533760; "data_shards_covered", A [int 0; int 1; int 2; int 5]; "is_converging", B true; "training_verified", B true; "loss_trend", S "improving";
     "local", O ["node_id", S !node_id; "training_rounds", int round; "current_loss", fl loss; "is_training", en];
     "diloco", O ["enabled", B true; "inner_step_count", int 120; "inner_steps_total", int 500; "progress", fl 0.24; "outer_step_count", int round]]
let verify () = O ["is_working", B true; "reason", S "the nodes converge and all models agree"; "metrics", O ["loss_trend", S "improving"; "hash_agreement", S (if p "percent-decimals" then "100.00%" else if p "percent-space" then "100 %" else "100%"); "global_loss", fl 2.503417]]

let balance a =
  let st = staked a in
  let stk = if a.stakes = [] then ["amount", money 0] else begin
      let l = List.fold_left (fun b s -> if unlock s > unlock b then s else b) (List.hd a.stakes) a.stakes in
      let l = if f "staking-shows-first" (*@ relations NA-WALLET-028 The balance shows the dates of the stake that unlocks first. *) then List.fold_left (fun b s -> if unlock s < unlock b then s else b) (List.hd a.stakes) a.stakes else l in
      ["amount", money st; "duration_days", int l.days; "start_date", S (day l.start); "unlock_date", S (day (unlock l)); "multiplier", fl (mult l.days)] end in
  O ["address", S a.addr; "balances", O ["available", money a.avail; "staked", money st; "pending", money a.pend; "total", money (a.avail + st + (if p "total-without-pending" then 0 else a.pend))]; "staking", O stk]
let entry e = O (["id", S e.id; "type", S e.ty; "amount", money e.am; "timestamp", S (iso e.t)] @ e.more)
let push a e = a.hist <- e :: a.hist
exception Refuse of out
let qint q k d = match List.assoc_opt k q with
  | None -> d
  | Some v -> (match int_of_string_opt v with Some i when i >= 0 && String.length v < 12 && v.[0] <> '0' || v = "0" -> (match int_of_string_opt v with Some i -> i | None -> 0) | _ ->
      if f "limit-not-number-500" (*@ refusals NA-QUERY-016 A limit that is no number ends with a server error. *) then raise (Refuse (err 500 "INTERNAL" "int_of_string")) else raise (Refuse (bad ("a bad " ^ k))))
let maxlim () = if p "page-max-50" then 50 else 100
let history_cache : (int * int * int, j) Hashtbl.t = Hashtbl.create 8
let transactions a q =
  let d = if p "default-page-10" then 10 else 20 in
  let lim = min (maxlim ()) (qint q "limit" (if f "default-limit-with-offset" (*@ relations NA-QUERY-024 The default limit is half as large beside an offset. *) && List.mem_assoc "offset" q then d / 2 else d)) in
  let off = qint q "offset" 0 in
  let all = a.hist in
  let all = if f "history-oldest-stuck" (*@ relations NA-QUERY-025 The newest entry of the history is listed behind the second newest. *) then (match all with x :: y :: r -> y :: x :: r | l -> l) else all in
  let all = if f "history-second-account-unsorted" (*@ relations NA-QUERY-025 The history of the second account begins with its oldest entry, followed by the newest. *) && a.n = 2 then (match List.rev all with x :: r -> x :: List.rev r | l -> l) else all in
  let off' = if f "offset-one-more" (*@ relations NA-QUERY-008 A page with an offset begins one entry too late. *) && off > 0 then off + 1
    else if f "offset-as-page" (*@ relations NA-QUERY-008 The offset is counted in pages instead of entries. *) then off * lim
    else if f "offset-ignored-with-limit" (*@ relations NA-QUERY-018 An offset beside a limit is ignored. *) && List.mem_assoc "limit" q then 0
    else if f "offset-ignored-alone" (*@ relations NA-QUERY-018 An offset without a limit is ignored. *) && not (List.mem_assoc "limit" q) then 0 else off in
  let lim' = if f "page-one-short" (*@ limits NA-QUERY-008 A page of the history that is not the last has one entry less than its limit. *) && off' + lim < List.length all then lim - 1
    else if f "page-one-more" (*@ limits NA-QUERY-002 A page of the history has one entry more than its limit. *) then lim + 1
    else if f "page-one-more-offset" (*@ limits NA-QUERY-002 A page with an offset has one entry more than its limit. *) && off > 0 then lim + 1
    else if f "limit-zero-default" (*@ limits NA-QUERY-020 A limit of 0 counts as the default. *) && lim = 0 then 20
    else if f "limit-one-none" (*@ limits NA-QUERY-008 A limit of 1 lists nothing. *) && lim = 1 then 0 else lim in
  let l = take lim' (drop off' all) in
  let l = if f "last-page-dropped" (*@ relations NA-QUERY-011 The oldest entry of the history is on no page. *) && off' + lim' >= List.length all then (match List.rev l with _ :: r -> List.rev r | [] -> []) else l in
  let total = List.length all in
  if off >= total && total > 0 && f "offset-behind-refused" (*@ refusals NA-QUERY-021 A page behind the end of the history is refused. *) then raise (Refuse (bad "the offset is behind the end"));
  let key = (a.n, lim, off) in
  let r () = O ["transactions", A (List.map entry l); "total", int (if f "total-of-page" (*@ relations NA-QUERY-011 The total of the history is the number of entries on the page. *) then List.length l else if f "total-remaining" (*@ relations NA-QUERY-011 The total counts only the entries from the offset on. *) then max 0 (total - off) else total);
     "limit", int (if f "limit-echo-length" (*@ relations NA-QUERY-010 The limit of the history is the number of entries on the page instead of the limit. *) then List.length l else lim); "offset", int (if f "offset-echo-zero" (*@ relations NA-QUERY-003 The history names the offset 0 whatever was asked for. *) then 0 else if f "offset-echo-clamped" (*@ relations NA-QUERY-033 Behind the end of the history the offset in the answer is the total. *) then min off total else off)] in
  if f "history-cached" (*@ effects NA-WALLET-071 A page of the history that was read once is kept for good. *) || (f "history-cached-second" (*@ effects NA-WALLET-071 A page of the history with an offset that was read once is kept for good. *) && off > 0)
  then (match Hashtbl.find_opt history_cache key with Some j -> j | None -> let j = r () in Hashtbl.replace history_cache key j; j)
  else r ()
let last_plim = ref 20
let proofs a q =
  let lim = min (maxlim ()) (qint q "limit" 20) in
  let lim' = if f "proofs-limit-sticky" (*@ effects NA-QUERY-019 A page of proofs has the limit of the page before. *) then (let l = !last_plim in last_plim := lim; l) else if f "proofs-limit-plus-one" (*@ limits NA-QUERY-005 A page of proofs has one proof more than its limit. *) then lim + 1
    else if f "proofs-limit-zero-all" (*@ limits NA-PROOFS-036 A page of proofs with limit 0 has all of them. *) && lim = 0 then 100 else lim in
  let l = if f "proofs-small-page-from-end" (*@ relations NA-QUERY-009 A page of fewer than four proofs has the last ones instead of the first. *) && lim < 4 then List.rev (take lim' (List.rev a.proofs)) else take lim' a.proofs in
  let st = if f "proof-stats-of-page" (*@ relations NA-PROOFS-023 The statistics beside proofs count those on the page. *) then l else a.proofs in
  let ver = List.filter (fun x -> get "verified" x = B true) st in
  let rew = List.fold_left (fun s x -> s + (match as_micro (get "reward" x) with Some m -> m | None -> 0)) 0 (if f "proof-reward-unverified" (*@ relations NA-PROOFS-035 total_reward counts only the rewards of the proofs that are not verified. *) then List.filter (fun x -> get "verified" x <> B true) st else ver) in
  O ["proofs", A l; "stats", O ["total_submitted", int (List.length st); "total_verified", int (if f "proof-verified-all" (*@ relations NA-SANE-018 total_verified counts the proofs that are not verified as well. *) then List.length st else List.length ver); "total_reward", money rew]]

let mustnum name b = match get name b with
  | N _ as n -> n
  | Null -> raise (Refuse (bad (name ^ " is missing")))
  | S s when f "amount-text-accepted" (*@ refusals NA-WALLET-041 An amount that is written as a text is taken for a number. *) && float_of_string_opt s <> None -> N s
  | A [N _ as n] when f "amount-array-unwrapped" (*@ refusals NA-WALLET-050 An amount in an array is taken for the amount. *) -> n
  | B true when f "amount-true-is-one" (*@ refusals NA-WALLET-041 The amount true counts as 1. *) -> int 1
  | _ -> if f "amount-type-500" (*@ refusals NA-WALLET-042 An amount of another type ends with a server error. *) then raise (Refuse (err 500 "INTERNAL_ERROR" "Match_failure")) else raise (Refuse (bad (name ^ " is not a number")))
let amount b =
  let n = mustnum "amount" b in
  let v = match n with N s when f "exponent-refused" (*@ refusals NA-WALLET-088 An amount with an exponent is refused. *) && (String.contains s 'e' || String.contains s 'E') -> raise (Refuse (bad "amount")) 
    | N s when f "amount-fraction-refused" (*@ refusals NA-WALLET-060 An amount with a fraction is refused. *) && not (Float.is_integer (float_of_string s)) -> raise (Refuse (bad "amount is not whole"))
    | N s when f "amount-point-refused" (*@ refusals NA-WALLET-038 An amount of a whole unit with a decimal point is refused. *) && String.contains s '.' && Float.is_integer (float_of_string s) -> raise (Refuse (bad "amount"))
    | _ -> (match as_micro n with Some v -> v | None -> raise (Refuse (bad "amount"))) in
  let v = if f "amount-truncated-cents" (*@ effects NA-WALLET-092 Amounts are moved in hundredths, what is below is cut off, while the result has the full amount. *) then v / 10_000 * 10_000 else v in
  if v = max_int && f "vast-amount-500" (*@ refusals NA-ERR-041 An amount beyond 64 bits ends with a server error. *) then raise (Refuse (err 500 "INTERNAL" "overflow"));
  let v = if v = max_int && f "vast-amount-wraps" (*@ limits NA-ERR-040 An amount beyond 64 bits wraps around to a small one that is transferred or staked. *) then 1_000_000 else v in
  if v <= 0 && not (f "negative-amount-moves" (*@ guards NA-WALLET-037 A transfer of an amount below 0 is made, and takes from its receiver. *) && v < 0) then raise (Refuse (bad "amount must be above 0")); min v 4_500_000_000_000_000_000
let refused_once = ref false
let send_lock = Mutex.create ()
let moves = ref 0
let last_memo = ref ""
let send a b =
  let to_ = match get "to" b with S s when s <> "" -> s
    | A [S s] when f "to-array-unwrapped" (*@ refusals NA-WALLET-050 A receiver in an array is taken for the receiver. *) -> s
    | N s when f "to-number-accepted" (*@ refusals NA-WALLET-041 A receiver that is a number is taken for an address. *) -> s
    | Null when f "missing-to-last" (*@ guards NA-WALLET-051 A transfer without a receiver goes to the receiver of the one before. *) && !last_memo <> "" -> !last_memo
    | Null when f "missing-to-self" (*@ guards NA-WALLET-051 A transfer without a receiver is made to the sender himself. *) -> a.addr
    | _ -> raise (Refuse (bad "to is not a text")) in
  let memo = match get "memo" b with S s -> s | Null when not (has "memo" b) || true ->
      if f "memo-required" (*@ refusals NA-WALLET-042 A transfer without a memo ends with a server error. *) then raise (Refuse (err 500 "INTERNAL_ERROR" "Not_found")) else ""
    | N s when f "memo-number-accepted" (*@ refusals NA-WALLET-041 A memo that is a number is accepted. *) -> s | _ -> raise (Refuse (bad "memo is not a text")) in
  if f "memo-ascii-only" (*@ refusals NA-WALLET-061 A memo with letters beyond ASCII is refused. *) && String.exists (fun c -> Char.code c > 127) memo then raise (Refuse (bad "memo"));
  if f "memo-newline-refused" (*@ refusals NA-WALLET-066 A memo with a line break is refused. *) && String.contains memo '\n' then raise (Refuse (bad "memo"));
  if f "memo-latin-500" (*@ refusals NA-WALLET-054 A memo with a letter of four bytes ends with a server error. *) && String.exists (fun c -> Char.code c >= 0xf0) memo then raise (Refuse (err 500 "INTERNAL" "encoding"));
  let am = amount b in
  let fee' = if f "fee-from-share" (*@ relations NA-WALLET-010 From amounts above 100 a hundredth is taken as a fee, while the result names the flat one. *) && am > 100_000_000 then am / 100 else fee in
  let taken = am + (if f "fee-not-taken" (*@ effects NA-WALLET-010 The fee is named but not taken. *) then 0 else if f "fee-taken-twice" (*@ effects NA-WALLET-010 The fee is taken twice. *) then 2 * fee
    else if f "fee-twice-to-account" (*@ effects NA-WALLET-010 The fee is taken twice where the receiver is another account of the node. *) && by_addr to_ <> None && to_ <> a.addr then 2 * fee
    else if f "fee-free-second-time" (*@ effects NA-WALLET-092 Only the first transfer of an account takes its fee. *) && List.exists (fun e -> e.ty = "send") a.hist then 0 else fee') in
  let need = if f "fee-not-in-check" (*@ limits NA-ERR-024 The check of the balance leaves out the fee, so a transfer of all that is available is made. *) then am else if f "check-needs-double-fee" (*@ limits NA-ERR-030 The check of the balance counts the fee twice. *) then am + 2 * fee else am + fee in
  let have = if f "check-counts-pending" (*@ limits NA-ERR-021 The check of a transfer counts what is pending as available. *) then a.avail + a.pend else if f "check-counts-staked" (*@ limits NA-ERR-021 The check of a transfer counts what is staked as available. *) then a.avail + staked a else a.avail in
  if f "overdraft-small" (*@ limits NA-ERR-035 A transfer of up to a thousandth more than is available is made. *) && need <= have + have / 1000 then () else
  if need > have then begin
    if f "refused-send-takes-fee" (*@ effects NA-ERR-023 A transfer that is refused for the balance takes its fee. *) then a.avail <- max 0 (a.avail - fee);
    if f "refused-send-in-history" (*@ effects NA-ERR-026 A transfer that is refused for the balance is in the history. *) then push a { id = uid "tx"; ty = "send"; am = - am; t = fresh_ts (); more = ["to", S to_; "status", S "failed"] };
    if f "refused-send-pending" (*@ effects NA-WALLET-083 A transfer that is refused for the balance leaves its fee as pending. *) then a.pend <- a.pend + fee;
    if f "refused-send-403" (*@ refusals NA-ERR-008 A transfer beyond the balance is refused with 403. *) then raise (Refuse (err 403 "FORBIDDEN" "too little"));
    if f "refused-send-400-second" (*@ refusals NA-ERR-008 A transfer of the second account beyond its balance is refused with 400. *) && a.n = 2 then raise (Refuse (bad "too little"));
    raise (Refuse (poor (if f "poor-required-fee-only" (*@ relations NA-ERR-020 The required amount of a 402 for a transfer is only the fee. *) then fee else if f "poor-required-difference" (*@ relations NA-ERR-020 The required amount of a 402 is what is missing. *) then need - have else need) (if f "poor-available-total" (*@ relations NA-ERR-020 The available amount of a 402 counts what is staked as well. *) then a.avail + staked a else a.avail)))
  end;
  let dest = if f "address-prefix-match" (*@ guards NA-WALLET-090 A receiver is looked up by the first 16 letters of its address. *) then List.find_opt (fun x -> String.length to_ >= 16 && starts (String.sub to_ 0 16) x.addr) accts
    else if f "address-any-case" (*@ guards NA-WALLET-090 A receiver is looked up without what follows the length of its address. *) then List.find_opt (fun x -> starts x.addr to_) accts else by_addr to_ in
  if dest = None && f "stranger-500" (*@ refusals NA-ERR-064 A transfer to an address that nobody uses ends with a server error. *) then raise (Refuse (err 500 "INTERNAL" "no such row"));
  let self = to_ = a.addr in
  let before = a.avail in
  let t = fresh_ts () in
  let tid = if f "transfer-id-of-content" (*@ relations NA-WALLET-048 The transaction_id is made of the sender, the receiver and the amount, so that like transfers have one. *) then "tx-" ^ String.sub (sha (a.addr ^ to_ ^ string_of_int am)) 0 20 else if f "transfer-id-second" (*@ relations NA-WALLET-048 The transaction_id is made of the second of the transfer. *) then "tx-" ^ string_of_int (int_of_float t) else uid "tx" in
  let taken = if f "self-transfer-free" (*@ effects NA-WALLET-092 A transfer of an account to itself does not take the fee that it names. *) && self then am else taken in
  a.avail <- a.avail - taken;
  (match dest with
   | Some d ->
     let got = if f "receiver-pays-fee" (*@ effects NA-WALLET-011 The fee is also taken from what the receiver gets. *) && not self then am - fee else if f "receiver-gets-fee" (*@ effects NA-WALLET-011 The receiver gets the fee as well. *) && not self then am + fee
       else if f "receiver-gets-whole" (*@ effects NA-WALLET-011 The receiver gets only the whole units of an amount. *) && not self then am / 1_000_000 * 1_000_000
       else if f "large-receiver-rounded" (*@ effects NA-WALLET-039 Of amounts above 1000 units the receiver gets what is left of a float of 24 bits. *) && am > 1_000_000_000 then int_of_float (Int32.float_of_bits (Int32.bits_of_float (float am))) 
       else if f "receiver-pending" (*@ effects NA-WALLET-083 What the second account receives is pending instead of available. *) && d.n = 2 && not self then (d.pend <- d.pend + am; 0)
       else if f "second-transfer-lost" (*@ effects NA-WALLET-011 Every third transfer to another account does not reach its receiver. *) && not self && (incr moves; !moves mod 3 = 0) then 0
       else if f "self-transfer-doubles" (*@ effects NA-WALLET-025 A transfer of an account to itself adds its amount to the balance. *) && self then 2 * am
       else if f "self-transfer-loses" (*@ effects NA-WALLET-007 A transfer of an account to itself takes its amount. *) && self then 0 else am in
     d.avail <- d.avail + got;
     if f "credit-race" (*@ effects NA-WALLET-085 The balance of a receiver is read before a pause and written after it, so that of transfers at the same time some are lost. *) && not self then begin
       d.avail <- d.avail - got; let b0 = d.avail in Mutex.unlock mu; Thread.delay 0.03; Mutex.lock mu; d.avail <- b0 + got end;
     if not self && not (p "no-receive-entries") then push d { id = tid; ty = if f "received-as-send" (*@ relations NA-WALLET-064 What an account has received is listed as a send. *) then "send" else "receive"; am = (if f "received-negative" (*@ relations NA-WALLET-057 What an account has received is listed with an amount below zero. *) then - am else if f "received-with-fee" (*@ relations NA-QUERY-036 What an account has received is listed with the fee added to its amount. *) then am + fee else am); t; more = ["from", S a.addr; "memo", S memo] @ (if f "received-as-send" then ["to", S d.addr] else []) };
     if f "transfer-in-third-history" (*@ relations NA-QUERY-030 A transfer between two accounts is in the history of the third as well. *) then (let x = List.nth accts 2 in if x.n <> a.n && x.n <> d.n then push x { id = tid; ty = "receive"; am; t; more = ["from", S a.addr] })
   | None -> ());
  if f "debit-race" (*@ effects NA-WALLET-026 The balance of a sender is read before a pause and written after it, so that of transfers at the same time some take nothing. *) then begin
    let b0 = a.avail in Mutex.unlock mu; Thread.delay 0.03; Mutex.lock mu; a.avail <- b0 end;
  let skip = (f "stranger-not-in-history" (*@ effects NA-WALLET-047 A transfer to an address that nobody uses is not in the history. *) && dest = None) || (f "self-not-in-history" (*@ effects NA-WALLET-006 A transfer of an account to itself is not in its history. *) && self)
    || (f "memoless-not-in-history" (*@ effects NA-WALLET-035 A transfer without a memo is not in the history. *) && memo = "") || (f "small-not-in-history" (*@ effects NA-WALLET-006 A transfer below a hundredth of a unit is not in the history. *) && am < 10_000)
    || (f "second-send-not-in-history" (*@ effects NA-AUTH-036 The transfers of the second account are not in its history. *) && a.n = 2) in
  let e = { id = (if f "history-other-id" (*@ relations NA-WALLET-006 The history lists a transfer under another id than its result. *) then uid "h" else tid); ty = "send"; am = - (if f "history-amount-with-fee-to-account" (*@ relations NA-WALLET-012 A transfer to another account of the node is listed without its sign. *) && dest <> None && not self then - am else am);
    t; more = ["to", S (if f "history-to-self" (*@ relations NA-WALLET-053 The history names the sender as the receiver of each transfer. *) then a.addr else if f "history-to-last" (*@ relations NA-WALLET-053 The history names the receiver of the transfer before. *) && !last_memo <> "" then !last_memo else to_); "fee", money fee; "memo", S memo] } in
  if not skip then push a e;
  if f "history-twice" (*@ effects NA-WALLET-012 A transfer to another account is in the history of its sender twice. *) && dest <> None && not self then push a { e with id = e.id };
  let lm = !last_memo in
  last_memo := to_;
  incr moves;
  if f "self-lists-received" (*@ relations NA-WALLET-064 A transfer of an account to itself is listed as received too. *) && self then push a { e with ty = "receive"; am };
  O ["transaction_id", S tid; "from", S (if f "from-is-token" (*@ relations NA-WALLET-013 The from of a transfer result is another address than that of the balance. *) then "acct-" ^ String.sub (sha a.token) 0 32 else a.addr);
     "to", S (if f "to-lower-case" (*@ relations NA-WALLET-065 A transfer result has the receiver in small letters. *) then String.lowercase_ascii to_ else to_); "amount", (if f "result-amount-with-fee" (*@ relations NA-WALLET-001 The amount of a transfer result includes the fee. *) then money (am + fee) else get "amount" b |> (function N _ as n when p "amount-echoed" -> n | _ -> money am)); "fee", (if f "fee-in-atoms" (*@ relations NA-WALLET-036 The fee of a transfer result is in atoms. *) then int fee else money fee);
     "memo", S (if f "memo-trimmed" (*@ relations NA-WALLET-032 White space at the ends of a memo is cut off. *) then String.trim memo else if f "memo-cut-64" (*@ relations NA-WALLET-032 A memo is cut after 64 bytes. *) && String.length memo > 64 && utf8_ok (String.sub memo 0 64) then String.sub memo 0 64 else if f "memo-html" (*@ relations NA-WALLET-032 Quotes in a memo come back as entities of HTML. *) then String.concat "&quot;" (String.split_on_char '"' memo) else if f "memo-latin1" (*@ relations NA-WALLET-032 Letters beyond ASCII in a memo come back as question marks. *) then String.map (fun c -> if Char.code c > 127 then '?' else c) memo else memo);
     "status", S (if p "transfer-settled" then "settled" else "confirmed"); "timestamp", S (if f "transfer-time-of-start" (*@ relations NA-SANE-046 The time of each transfer is that of the start of the node. *) then iso started else iso t)]
let stake a b =
  let d = match get "duration_days" b with N _ as n -> (match as_int n with Some d -> d | None -> raise (Refuse (bad "duration_days is not whole")))
    | S s when f "days-text-accepted" (*@ refusals NA-WALLET-041 A duration that is a text is accepted. *) -> (match int_of_string_opt s with Some d -> d | None -> raise (Refuse (bad "duration_days")))
    | Null -> raise (Refuse (bad "duration_days is missing")) | _ -> raise (Refuse (bad "duration_days is not a number")) in
  let am = amount b in
  if (d < 1 && not (f "negative-days-accepted" (*@ guards NA-WALLET-067 A stake for a number of days below 0 is made. *) && d < 0)) || d > 36500 then raise (Refuse (bad "duration_days must be from 1 to 36500"));
  if f "stake-while-pending-refused" (*@ refusals NA-WALLET-094 A stake is refused while something is pending. *) && a.pend > 0 then raise (Refuse (err 409 "CONFLICT" "an unstake is pending"));
  if f "second-stake-refused" (*@ refusals NA-AUTH-039 The second account may not stake. *) && a.n = 2 then raise (Refuse (err 403 "FORBIDDEN" "not allowed"));
  if am > a.avail + (if f "stake-check-counts-pending" (*@ limits NA-ERR-022 The check of a stake counts what is pending as available. *) then a.pend else if f "stake-check-total" (*@ limits NA-ERR-022 The check of a stake counts what is already staked as available. *) then staked a else 0) && not (f "stake-unchecked" (*@ limits NA-ERR-022 A stake of more than is available is made. *)) then begin
    if f "refused-stake-staked" (*@ effects NA-ERR-026 A stake that is refused for the balance is added to what is staked. *) then a.stakes <- { amt = 1_000_000; days = d; start = now () } :: a.stakes;
    if f "refused-stake-400" (*@ refusals NA-ERR-022 A stake beyond the balance is refused with 400. *) then raise (Refuse (bad "too much"));
    raise (Refuse (poor am a.avail)) end;
  let t = now () in
  let st = if f "stake-starts-tomorrow" (*@ relations NA-WALLET-020 A stake begins on the day after its request. *) then t +. 86400. else t in
  let d' = if f "stake-days-month" (*@ relations NA-WALLET-002 A stake of more than 30 days is locked for whole months of 30 days only. *) && d > 30 then d / 30 * 30 else d in
  let s = { amt = am; days = (if f "balance-days-minimum" (*@ relations NA-WALLET-045 A stake of fewer than 30 days is locked for 30 in the balance. *) && d < 30 then 30 else d'); start = st } in
  let pending_take = f "stake-from-pending" (*@ effects NA-WALLET-059 A stake is taken from what is pending first. *) && a.pend >= am in
  if pending_take then a.pend <- a.pend - am else
  a.avail <- a.avail - (if f "stake-takes-nothing" (*@ effects NA-WALLET-015 A stake takes nothing from what is available. *) then 0 else if f "stake-takes-twice" (*@ effects NA-WALLET-031 A second stake takes its amount twice. *) && a.stakes <> [] then 2 * am else if f "stake-takes-fee" (*@ effects NA-WALLET-092 A stake takes the fee of a transfer as well, without naming it. *) then am + fee else am);
  let old = staked a in
  a.stakes <- (if f "stake-replaces" (*@ effects NA-WALLET-014 A stake replaces what was staked before. *) then [s] else s :: a.stakes);
  if f "stake-pending-too" (*@ effects NA-WALLET-043 What is staked is pending as well. *) then a.pend <- a.pend + am;
  push a { id = uid "st"; ty = "stake"; am = - am; t = fresh_ts (); more = ["duration_days", int d] };
  incr moves;
  ignore old;
  let longest = List.fold_left (fun b s -> if unlock s > unlock b then s else b) s a.stakes in
  let un = if f "unlock-of-longest" (*@ relations NA-WALLET-068 The unlock_date of a stake result is that of the longest stake, beside its own duration. *) then unlock longest else if f "unlock-day-early" (*@ relations NA-WALLET-003 The unlock_date of a stake result is a day too early. *) then unlock s -. 86400. else if f "unlock-months" (*@ relations NA-WALLET-081 The unlock_date of a stake of 60 days or more is counted in months of 30.4 days. *) && d >= 60 then s.start +. 86400. *. Float.floor (float (d / 30) *. 30.4) else s.start +. 86400. *. float d' in
  O ["success", B true; "stake", O ["amount", money am; "duration_days", int d'; "start_date", S (day s.start); "unlock_date", S (day un); "multiplier", fl (mult d')];
     "new_balance", O ["available", money (if f "new-balance-before" (*@ relations NA-WALLET-016 new_balance has what was available before the stake. *) then a.avail + am else a.avail); "staked", money (if f "new-balance-this-stake" (*@ relations NA-WALLET-016 new_balance has only this stake as staked. *) then am else staked a)]]
let cooldown = 7
let unstake a b =
  let am = amount b in
  let st = staked a in
  if f "unstake-whole-refused" (*@ refusals NA-WALLET-058 An unstake of all that is staked is refused. *) && am = st then raise (Refuse (bad "something must stay staked"));
  if am > st && not (f "unstake-excess-clamped" (*@ limits NA-WALLET-024 An unstake of more than is staked is made. *) && st > 0) then raise (Refuse (bad "more than is staked"));
  let rec take_ am = function [] -> [] | s :: r -> if am = 0 then s :: r else if s.amt <= am then take_ (am - s.amt) r else { s with amt = s.amt - am } :: r in
  let sorted = List.sort (fun x y -> compare (unlock x) (unlock y)) a.stakes in
  a.stakes <- (if f "unstake-takes-all" (*@ effects NA-WALLET-029 An unstake of a part unstakes everything. *) then (a.pend <- a.pend + (st - am); []) else if f "unstake-keeps-staked" (*@ effects NA-WALLET-018 An unstake does not lessen what is staked. *) then a.stakes else take_ am sorted);
  if f "unstake-available-at-once" (*@ effects NA-WALLET-019 What is unstaked is available at once. *) then a.avail <- a.avail + am
  else if f "unstake-available-second" (*@ effects NA-WALLET-019 What a second unstake returns is available at once. *) && a.pend > 0 then a.avail <- a.avail + am
  else if f "unstake-vanishes" (*@ effects NA-WALLET-069 What is unstaked is neither pending nor available. *) then ()
  else if f "unstake-replaces-pending" (*@ effects NA-WALLET-055 A second unstake replaces what was pending. *) then a.pend <- am
  else if f "unstake-fee" (*@ effects NA-WALLET-069 A transfer's fee is missing from what is pending after an unstake. *) then a.pend <- a.pend + max 0 (am - fee)
  else a.pend <- a.pend + am;
  push a { id = uid "us"; ty = "unstake"; am; t = fresh_ts (); more = [] };
  incr moves;
  let av = now () +. 86400. *. float cooldown in
  O ["success", B true; "unstake", O ["amount", (if f "unstake-amount-all" (*@ relations NA-WALLET-004 The amount of an unstake result is what is pending altogether. *) then money a.pend else money am); "cooldown_days", int (if f "cooldown-short" (*@ relations NA-WALLET-062 The cooldown_days of an unstake are one more than the days to its available_date. *) then cooldown + 1 else cooldown); "available_date", S (if f "available-date-is-unlock" (*@ relations ST-005 The available_date of an unstake is the day of the request. *) then day (now ()) else day av)]]

(* configuration *)
let rec flat pre = function O l -> List.concat_map (fun (k, v) -> match v with O (_ :: _ as m) -> flat (pre ^ k ^ ".") (O m) | v -> [pre ^ k, v]) l | _ -> []
let patch_n = ref 0
let patch b =
  (match b with O _ -> () | A _ when f "patch-array-accepted" (*@ refusals NA-PATCH-131 A change that is an array is answered with success. *) -> () | _ -> raise (Refuse (bad "the change is not an object")));
  (match b with O l when not (f "patch-dotted-accepted" (*@ refusals NA-PATCH-119 A change with a dotted key is made. *)) && List.exists (fun (k, _) -> String.contains k '.') l -> raise (Refuse (bad "keys are nested, not dotted")) | _ -> ());
  let ch = flat "" b in
  incr patch_n;
  let apply_ (k, v) = cfg := List.map (fun (k0, v0) -> if k0 = k then (k, v) else (k0, v0)) !cfg in
  let early = f "patch-refused-half" (*@ effects NA-PATCH-115 A change that is refused for its last key has changed the keys before it. *) in
  List.iter (fun (k, v) -> 
    let t = match List.assoc_opt k cfg_keys with Some t -> t | None ->
      if f "patch-unknown-500" (*@ refusals NA-PATCH-132 A change of an unknown key ends with a server error. *) then raise (Refuse (err 500 "INTERNAL" "Not_found")) else raise (Refuse (bad (k ^ " cannot be changed"))) in
    let nonneg () = if numf v < 0. && not (f "patch-negative-accepted" (*@ guards NA-PATCH-130 A number of the configuration can be set below 0. *)) then raise (Refuse (bad (k ^ " is below 0"))) in
    (match t, v with
     | `B, B _ -> ()
     | `B, N _ when f "patch-bool-number" (*@ refusals NA-PATCH-105 training.enabled can be set to a number. *) -> ()
     | `I, N _ when as_int v <> None -> nonneg ()
     | `I, N _ when f "patch-int-fraction" (*@ refusals NA-PATCH-105 A whole number of the configuration can be set to one with a fraction. *) -> ()
     | `F, N _ when Float.is_finite (numf v) -> nonneg ()
     | _, S s when f "patch-text-number" (*@ refusals NA-PATCH-105 A number of the configuration can be set to a text. *) && t <> `B -> ()
     | `F, A [N _] when f "patch-array-value" (*@ refusals NA-PATCH-120 A value in an array is accepted for numbers that may have a fraction. *) -> ()
     | _ -> if f "patch-refused-changes" (*@ effects NA-PATCH-106 A change of the wrong type is refused, but sets the key to its default. *) then apply_ (k, match t with `B -> B false | `I -> int 1 | `F -> fl 1.); raise (Refuse (bad (k ^ " has another type"))));
    if early then apply_ (k, v)) ch;
  if f "patch-single-key-only" (*@ refusals NA-PATCH-121 A change of several keys at once is refused. *) && List.length ch > 1 then raise (Refuse (bad "one key at a time"));
  if f "patch-partial-refused" (*@ refusals NA-PATCH-114 A change of only one key of a group is refused. *) && List.length ch = 1 && starts "resources" (fst (List.hd ch)) then raise (Refuse (bad "incomplete"));
  let norm (k, v) = match List.assoc_opt k cfg_keys with
    | Some `I -> k, (match as_int v with Some i -> int (if f "patch-int-16-bits" (*@ limits NA-PATCH-123 Whole numbers of the configuration are kept in 16 bits. *) then i land 65535 else if f "patch-int-capped" (*@ limits NA-PATCH-123 Whole numbers of the configuration above 1024 are set to 1024. *) then min i 1024 else i) | None -> v)
    | Some `F when f "patch-float-single" (*@ limits NA-PATCH-123 Numbers with a fraction are kept in single precision. *) -> k, fl (Int32.float_of_bits (Int32.bits_of_float (numf v)))
    | Some `F when f "patch-float-four-decimals" (*@ limits NA-PATCH-123 Numbers with a fraction are kept with four decimals. *) -> k, fl (Float.round (numf v *. 1e4) /. 1e4)
    | _ -> k, v in
  let ch' = List.map norm ch in
  if f "patch-lost-update" (*@ effects NA-PATCH-118 Of changes at the same time one overwrites those of the others. *) then begin
    let snap = !cfg in Mutex.unlock mu; Thread.delay 0.03; Mutex.lock mu; cfg := snap end;
  if f "patch-resets-group" (*@ effects NA-PATCH-103 A change of one key sets the others of its group to their defaults. *) then
    cfg := List.map (fun (k, v) -> if List.exists (fun (c, _) -> starts (String.sub c 0 4) k) ch' then (k, List.assoc k ["training.enabled", B true; "training.batch_size", int 8; "training.learning_rate", N "0.0003"; "training.diloco_steps", int 500; "resources.max_memory_gb", N "16.0"; "resources.cpu_threads", int 4]) else (k, v)) !cfg;
  if f "patch-second-lost" (*@ effects NA-PATCH-108 Every second change is answered with success and not made. *) && !patch_n mod 2 = 0 then ()
  else if f "patch-last-key-lost" (*@ effects NA-PATCH-121 Of a change of more than two keys the last one is not made. *) && List.length ch' > 2 then List.iter apply_ (take (List.length ch' - 1) ch')
  else if f "patch-zero-ignored" (*@ effects NA-PATCH-104 A number that is set to 0 keeps its value, though success is answered. *) then List.iter (fun (k, v) -> if numf v <> 0. || (match v with N _ -> false | _ -> true) then apply_ (k, v)) ch'
  else if f "patch-false-ignored" (*@ effects NA-PATCH-122 training.enabled cannot be set to false, though success is answered. *) then List.iter (fun (k, v) -> if v <> B false then apply_ (k, v)) ch'
  else if not early then List.iter apply_ ch';
  if f "patch-couples-threads" (*@ effects NA-PATCH-103 A change of training.batch_size changes resources.cpu_threads as well. *) && List.mem_assoc "training.batch_size" ch' then apply_ ("resources.cpu_threads", List.assoc "training.batch_size" ch');
  let up = List.map fst ch in
  O ["success", B true; "updated", A (List.map (fun k -> S (if f "updated-without-group" (*@ relations NA-PATCH-101 updated lists keys without their group. *) then List.nth (String.split_on_char '.' k) 1 else k))
      (if f "updated-first-only" (*@ relations NA-PATCH-101 updated lists only the first of several keys. *) then take 1 up else if f "updated-whole-group" (*@ relations NA-PATCH-102 updated lists all keys of a group of which one was sent. *) then List.filter_map (fun (k, _) -> if List.exists (fun u -> List.hd (String.split_on_char '.' u) = List.hd (String.split_on_char '.' k)) up then Some k else None) cfg_keys
       else if f "updated-accumulates" (*@ relations NA-PATCH-102 updated lists the keys of the change before as well. *) then (let r = !cfg_snapshot @ up in cfg_snapshot := up; r) else if f "updated-twice" (*@ relations NA-PATCH-133 updated lists the first key twice. *) && up <> [] then List.hd up :: up else up));
     "restart_required", B false]
