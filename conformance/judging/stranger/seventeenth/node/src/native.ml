(* the public native API *)
open Util
open Chain
open Nodeapi
let atoms n = S (string_of_int n)
let nerr st m = J (st, O ["error", S m])
let whole s = s <> "" && String.length s < 16 && (let ok = ref true in String.iter (fun c -> if c < '0' || c > '9' then ok := false) s; !ok)
let block_json ?(full=false) b =
  let txs = List.map (fun t -> if full then t.dec else t.dec) b.txs in
  let res = List.map (fun t -> t.result) b.txs in
  let res = if f "results-one-less" (*@ relations NT-RULE-128 A block with transactions has one result less by itself. *) && full then (match res with _ :: r -> r | [] -> []) else if f "list-results-null" (*@ relations NT-RULE-066 In the list of blocks the results of a block with transactions are null. *) && not full then List.map (fun _ -> Null) res else res in
  let res = if f "list-results-of-other" (*@ relations NT-RULE-093 In the list of blocks the results name the hash as the request. *) && not full then List.map (fun r -> match get "hash" r with S h -> set "request_id" (S h) r | _ -> r) res else res in
  O ["height", int (if f "block-height-off" (*@ relations NT-RULE-025 A block by itself has a height that is lower by one. *) && full then b.height - 1 else b.height); "hash", S (if f "block-hash-upper" (*@ relations NT-RULE-104 The hash of a block by itself is in capitals. *) && full then String.uppercase_ascii b.bhash else if f "block-hash-differs-tx" (*@ relations NT-RULE-035 A block with transactions has another hash in the list than by itself. *) && not full && b.txs <> [] then sha b.bhash else b.bhash);
     "previous_hash", S (if f "previous-hash-own" (*@ relations NT-RULE-124 A block names its own hash as that of the block before. *) then b.bhash else if f "previous-hash-skips" (*@ relations NT-RULE-124 A block that was made for a transaction names the hash of the block two before it. *) && b.txs <> [] && b.height > 2 then !blocks.(b.height-2).bhash else b.prev); "time", S (if f "block-time-now" (*@ relations NT-RULE-123 The time of a block is that of its reading. *) then iso (now ()) else if f "block-time-tx-early" (*@ relations NT-RULE-125 The time of a block with transactions is five seconds too early. *) && b.txs <> [] then iso (b.time -. 5.) else iso b.time);
     "tx_count", int (if f "tx-count-plus" (*@ relations NT-RULE-128 tx_count of a block with transactions is one too high in the list. *) && not full && txs <> [] then List.length txs + 1 else List.length txs); "transactions", (if full then A txs else A (List.map (fun t -> match get "kind" t with k -> O (["kind", k] @ (match get "request_id" t with Null -> [] | r -> ["request_id", r]) @ (match get "prompt" t with Null -> [] | r -> ["prompt", r]))) txs)); "results", A res]
exception No of out
let page q name top =
  let lim = match List.assoc_opt "limit" q with None -> if p "native-page-10" then 10 else 20 | Some s -> if whole s then int_of_string s else if f "native-limit-garbage-500" (*@ refusals NT-RULE-140 A limit of a native page that is no number ends with a server error. *) then raise (No (nerr 500 "failure")) else raise (No (nerr 400 "a bad limit")) in
  if lim > 100 then raise (No (nerr 400 "limit is at most 100"));
  if f "native-limit-28-fails" (*@ limits NT-PAGE-025 A limit of a native page above 24 ends with a server error. *) && lim > 24 then raise (No (nerr 500 "buffer"));
  let lim = if f "native-limit-sticky-20" (*@ limits NT-PAGE-022 A native page with a bound has at most five entries. *) && List.mem_assoc "before" q then min lim 5 else if f "native-limit-plus" (*@ limits NT-PAGE-001 A native page with a bound has one entry more than its limit. *) && List.mem_assoc "before" q && lim > 0 then lim + 1 else if f "native-limit-zero" (*@ limits NT-PAGE-020 A limit of 0 of a native page counts as the default. *) && lim = 0 then 20 else lim in
  let before = match List.assoc_opt "before" q with None -> top + 1 | Some s -> if whole s then min (int_of_string s) (top + 1) else raise (No (nerr 400 ("a bad " ^ name))) in
  let before = if f "before-inclusive-small" (*@ relations NT-PAGE-012 A native page with a limit below 4 has the entry of its bound, and longer ones have not. *) && List.mem_assoc "before" q && lim < 4 then min (top + 1) (before + 1) else if f "before-skips" (*@ relations NT-PAGE-010 A native page with a bound leaves out the entry below it. *) && List.mem_assoc "before" q then before - 1
    else if f "before-offset" (*@ relations NT-PAGE-002 The parameter before is counted from the newest entry. *) && List.mem_assoc "before" q then max 0 (top + 1 - before) else if f "before-zero-all" (*@ limits NT-PAGE-020 A native page with before 0 begins with the newest entry. *) && before = 0 then top + 1
    else if f "before-ignored-no-limit" (*@ relations NT-PAGE-004 The parameter before is ignored where no limit is given. *) && not (List.mem_assoc "limit" q) then top + 1 else before in
  let rec go h n = if n = 0 || h < 1 then [] else h :: go (h - 1) (n - 1) in
  let l = go (before - 1) lim in
  if f "native-order-ascending" (*@ relations NT-PAGE-023 A native page with a bound lists its entries upwards. *) && List.mem_assoc "before" q then List.rev l else if f "native-page-hole" (*@ relations NT-PAGE-006 A native page of more than ten entries leaves out its sixth. *) && lim > 10 then List.filteri (fun i _ -> i <> 5) l else if f "native-page-repeats" (*@ relations NT-PAGE-005 A native page lists its last entry twice. *) then (match List.rev l with x :: r -> List.rev (x :: x :: r) | [] -> [])
  else if f "native-newest-late" (*@ relations NT-PAGE-007 The list without a bound begins with the third newest entry. *) && not (List.mem_assoc "before" q) then drop 2 l else l
let pair_cache = ref Null
let network () =
  let b = !blocks.(!top) in
  let h = b.height in
  let hh = if f "pair-hash-before" (*@ relations NT-RULE-021 The hash of the network identity is that of the block before its height. *) then b.prev else if f "pair-hash-later" (*@ relations NT-RULE-037 After the first signed request the hash of the network identity is no longer renewed. *) && Hashtbl.mem known_hash "last" then !blocks.(60).bhash else b.bhash in
  let h = if f "height-behind" (*@ relations NT-RULE-106 The height of the network identity is five behind that of the list of blocks, with the hash that goes with it. *) then h - 5 else h in
  let hh = if f "height-behind" then !blocks.(h).bhash else hh in
  O ["chain_id", S chain_id; "genesis_hash", S genesis_hash; "height", int h; "block_hash", S hh; "training_round", int (if f "network-round-behind" (*@ relations NT-RULE-075 The training round of the network identity is behind that of the newest update. *) then rounds - 2 else rounds); "supply_atoms", S "900000000000"; "ready", B true; "version", S "0.4.0"]
let up r = 
  O ["round", int r; "loss", N losses.(r); "root", S (root r); "previous_root", S (if f "previous-root-own" (*@ relations NT-RULE-124 An update names its own root as the one before it. *) then root r else root (r - 1)); "height", int (2 * r); "accepted", B true]
let model () = O ["frozen_parameters", int 29184; "trained_parameters", int 12800; "revision", S "r7"; "training_root", S training; "serving_root", S (if f "model-serving-root-new" (*@ relations NT-RULE-077 The serving root of the model is that of training, and not the one of the inference information. *) then training else serving); "loss", N (if f "model-loss-rounded" (*@ relations NT-RULE-087 The losses of updates have fewer decimals than that of the model. *) then losses.(rounds) ^ "13" else losses.(rounds)); "best_loss", N losses.(rounds);
  "execution_profile", S "float32-le"; "base", O ["path", S ("/artifacts/sha256/" ^ base_sha); "size", int (String.length base); "sha256", S base_sha]]
let checkpoint () = O ["chain_id", S chain_id; "genesis_hash", S genesis_hash; "round", int (if f "checkpoint-round-old" (*@ relations NT-RULE-058 The round of the checkpoint is one before that of the newest update. *) then rounds - 1 else rounds); "root", S (if f "checkpoint-root-other" (*@ relations NT-RULE-076 The root of the checkpoint is none of those of the model. *) then root 3 else training);
  "adapter", O ["path", S ("/artifacts/sha256/" ^ (if f "checkpoint-path-dead" (*@ relations NT-RULE-084 The path of the adapter in the checkpoint leads to nothing. *) then sha adapter_sha else adapter_sha)); "size", int (String.length adapter + (if f "adapter-size-off" (*@ relations NT-RULE-137 The size of the adapter in the checkpoint is not that of the file. *) then 8 else 0)); "sha256", S adapter_sha]]
let last_acct = ref ""
let account pk =
  let a = acct pk in
  let a = if f "account-of-last" (*@ relations NT-RULE-059 An account that has nothing shows the amounts of the account that was read before it. *) && not (Hashtbl.mem accounts pk) && !last_acct <> "" then acct !last_acct else a in
  last_acct := pk;
  O ["public_key", S (if f "account-key-lower" (*@ relations NT-RULE-126 An account names the key of the provider instead of its own. *) then Ec.key "provider" else pk); "spendable_atoms", atoms a.spend; "locked_atoms", atoms a.lock; "total_atoms", atoms (if f "total-without-locked" (*@ relations NT-RULE-103 The total of an account leaves out what is locked. *) then a.spend else a.spend + a.lock); "next_nonce", int a.nonce]
let last_rec = ref Null
let record id =
  match Hashtbl.find_opt jobs id with
  | None -> None
  | Some j ->
    let st = if f "completed-then-expired" (*@ effects NT-RULE-097 A completed request is shown as expired from its block expiry on. *) && j.state = "completed" && !top >= j.expires then "expired" else if f "state-upper" (*@ fields NT-RULE-135 The state of a pending request is written in capitals. *) && j.state = "pending" then "PENDING" else if f "pending-shown-completed" (*@ relations ST-001 A pending request is shown as completed at once, without a response. *) && j.state = "pending" then "completed" else j.state in
    let resp = if f "response-lost-later" (*@ effects NT-RULE-083 The response of a request is gone three seconds after it was made. *) && j.state = "completed" && now () -. j.at > 3.5 then Null else if f "response-with-time" (*@ relations NT-RULE-081 The response of a completed request has the time of its reading in its output. *) && j.state = "completed" then set "output" (S (iso (now ()))) j.resp else j.resp in
    Some (O (["request_id", S (if f "record-id-hash" (*@ relations NT-RULE-134 The record of a request names the hash of its transaction as its id. *) then j.hash else j.rid); "status", S st; "tx_hash", S (if f "record-hash-id" (*@ relations NT-RULE-159 The record of a request has its id as the hash of the transaction. *) then j.rid else j.hash); "public_key", S (if f "record-key-provider" (*@ relations NT-RULE-108 The record of a request has the key of the provider as that of whoever asked. *) then Ec.key "provider" else j.from); "prompt", S j.prompt; "max_tokens", int j.maxt; "price_atoms", atoms j.price; "fee_atoms", atoms j.jfee; "checkpoint", S j.ck; "provider", S j.provider; "expires_height", int (if f "record-expiry-relative" (*@ relations NT-RULE-158 The record of a request has the number of blocks until its expiry. *) then j.expires - j.ah else j.expires); "height", int j.ah]
      @ (match j.state with "completed" -> if resp = Null && not (f "response-lost-later") then [] else ["response", resp] | "expired" -> if f "refund-record-missing" (*@ relations NT-RULE-062 The record of an expired request says nothing of its refund. *) then [] else ["refund", j.resp] | _ -> [])))
let info () = O ["chain_id", S chain_id; "genesis_hash", S genesis_hash; "serving_root", S serving; "default_provider", S (Ec.key "provider"); "heartbeat", O ["state", S "alive"; "age_seconds", int 1]; "price_atoms", atoms price; "fee_atoms", atoms fee; "queue_length", int (if f "queue-counts-all" (*@ relations NT-RULE-082 The queue counts all requests since the start, also those that are over. *) then List.length !order else queue ())]
let vals q =
  let lim = match List.assoc_opt "limit" q with Some s when whole s -> int_of_string s | Some _ -> raise (No (nerr 400 "a bad limit")) | None -> 50 in
  let off = match List.assoc_opt "offset" q with Some s when whole s -> int_of_string s | Some _ -> raise (No (nerr 400 "a bad offset")) | None -> 0 in
  let l = List.map (fun (o, n, pw) -> O ["owner", S ("02" ^ o); "name", S n; "power", int pw; "bond_atoms", atoms (pw * 1_000_000)]) validators in
  let l = if f "validator-twice" (*@ relations NT-RULE-136 The first validator is listed again at the end. *) then l @ [List.hd l] else l in
  O ["validators", A (take lim (drop off l)); "total", int (List.length l); "limit", int lim; "offset", int off]
let work_status () = O ["sponsor", Null; "stages", A [S "inference"]; "attempts_remaining", int 3; "pending_jobs", int (queue ())]
(* the worker protocol: the signature covers "poll|chain|worker|nonce" or "result|chain|worker|request_id|output" *)
let signed_poll b =
  match get "worker" b, get "nonce" b, get "signature" b with
  | S w, S n, S s -> if Ec.verify w (Printf.sprintf "poll|%s|%s|%s" chain_id w n) s || f "poll-signature-unchecked" (*@ guards NT-RULE-053 A poll for work with the signature of other content is answered. *) then w else raise (No (nerr 401 "the signature is wrong"))
  | S w, _, Null when f "poll-unsigned" (*@ guards NT-RULE-039 A poll for work without a signature is answered with success. *) -> w
  | _ -> raise (No (nerr 400 "worker, nonce and signature are needed"))
let work_poll b =
  let w = signed_poll b in
  let cand = List.filter_map (fun r -> match Hashtbl.find_opt jobs r with Some j when j.state = "pending" && (j.provider = w || (w = Ec.key "worker" && j.provider = Ec.key "provider")) && (j.polled = "" || j.polled = w) -> Some j | _ -> None) (List.rev !order) in
  if not (Hashtbl.mem accounts w) then O ["job", Null] else
  match cand with [] -> O ["job", Null] | j :: _ -> j.polled <- w; O ["job", O ["request_id", S j.rid; "prompt", S j.prompt; "max_tokens", int j.maxt; "checkpoint", S j.ck; "expires_height", int j.expires; "attempt", int 1]]
let work_result b =
  match get "worker" b, get "request_id" b, get "output" b, get "signature" b with
  | S w, S r, S o, S s ->
    if not (Ec.verify w (Printf.sprintf "result|%s|%s|%s|%s" chain_id w r o) s) && not (f "result-signature-unchecked" (*@ guards NT-RULE-053 A result of a worker with the signature of other content is taken. *)) then raise (No (nerr 401 "the signature is wrong"));
    (match Hashtbl.find_opt jobs r with
     | Some j when j.state = "pending" && j.polled = w -> answer j o (match as_int (get "tokens" b) with Some t -> t | None -> 0) w; O ["accepted", B true; "request_id", S r]
     | _ -> raise (No (nerr 404 "no such job of this worker")))
  | _ -> raise (No (nerr 400 "worker, request_id, output and signature are needed"))
(* JSON-RPC *)
let rpc_calls_n = ref 0
let rpc body =
  let e id c m = O ["jsonrpc", S "2.0"; "id", id; "error", O ["code", int c; "message", S m]] in
  match (try parse body with Bad _ -> Null) with
  | O _ as b ->
    let id = match get "id" b with (N _ | S _) as i -> i | _ -> Null in
    let id = if f "rpc-id-text-lost" (*@ relations NT-RULE-095 An answer of /rpc to a call whose id is a text has the id null. *) then (match id with S _ -> Null | x -> x) else if f "rpc-id-last" (*@ relations NT-RULE-095 An answer of /rpc counts its own ids. *) then (incr rpc_calls_n; int !rpc_calls_n) else id in
    let ok r = O ["jsonrpc", S "2.0"; "id", id; "result", r] in
    let pr = get "params" b in
    let fail c m = raise (No (J (200, e id c m))) in
    (match pr with Null | O _ -> () | A [] -> () | _ -> fail (-32602) "params is not an object");
    let height ?(top=(!top)) () = match get "height" pr with Null -> None | N _ as n -> (match as_int n with Some i -> Some i | None -> fail (-32602) "height") | S s when whole s -> if f "rpc-height-text-ignored" (*@ relations NT-RULE-151 A height that is a text is ignored by the method block of /rpc. *) then None else Some (int_of_string s) | _ -> fail (-32602) "height is not a number" in
    let m = match get "method" b with S m -> m | _ -> fail (-32600) "method is missing" in
    let m = if f "rpc-method-case" (*@ guards NT-RULE-154 The names of methods are compared without their case, and methods of the engine are found so. *) && m <> String.lowercase_ascii m then "other" else m in
    let blockid bl = O ["block_id", O ["hash", S (if f "rpc-block-hash-before" (*@ relations NT-RULE-069 A block of /rpc has only the hash of the block before it. *) then bl.prev else bl.bhash)]; "block", O ["header", O ["chain_id", S chain_id; "height", S (string_of_int bl.height); "time", S (iso bl.time); "last_block_id", O ["hash", S bl.prev]]; "data", O ["txs", A (List.filter_map (fun t -> if t.raw = "" then None else Some (S (b64 t.raw))) bl.txs)]]] in
    (match m with
     | "status" -> let t = !top in let bl = !blocks.(t) in
       ok (O ["node_info", O ["network", S (if f "rpc-status-old-chain" (*@ relations NT-RULE-070 The status of /rpc names the earlier chain. *) then "nml-reference-v03" else chain_id); "version", S "0.4.0"]; "sync_info", O ["latest_block_height", S (string_of_int (if f "rpc-status-height-stuck" (*@ relations NT-RULE-150 The status of /rpc has the height of the start. *) then 60 else t)); "latest_block_hash", S (if f "rpc-status-hash-before" (*@ relations NT-RULE-150 The status of /rpc has the hash of the block before its height. *) then bl.prev else bl.bhash); "latest_block_time", S (iso bl.time); "catching_up", B false]])
     | "block" -> 
       let h = match height () with None -> if f "rpc-block-needs-height" (*@ refusals NT-RULE-099 The method block of /rpc without a height is refused. *) then fail (-32602) "height" else !top | Some h -> h in
       let h = if f "rpc-block-clamped" (*@ limits NT-RULE-152 For a height above the chain the method block of /rpc returns the newest block. *) && h > !top then !top else if f "rpc-block-latest" (*@ relations NT-RULE-057 The method block of /rpc returns the newest block for every height. *) then !top else if f "rpc-block-off" (*@ relations NT-RULE-151 The method block of /rpc returns the block above the height. *) && get "height" pr <> Null && h < !top then h + 1 else h in
       if h < 1 || h > !top then fail (-32603) "no block at this height" else ok (blockid !blocks.(h))
     | "validators" -> (match height () with Some h when h < 1 || h > !top -> fail (-32603) "no such height" | None when f "rpc-validators-need-height" (*@ refusals NT-RULE-099 The method validators of /rpc without a height is refused. *) -> fail (-32602) "height" | _ -> ());
       ok (O ["block_height", S (string_of_int !top); "validators", A (List.map (fun (o, _, pw) -> O ["address", S (String.sub o 0 40); "voting_power", S (string_of_int (if f "rpc-powers-scaled" (*@ relations NT-RULE-153 The powers of the validators of /rpc are ten times those of the native API. *) then 10 * pw else pw))]) validators); "count", S "4"; "total", S "4"])
     | "abci_query" ->
       let d = match get "data" pr with S d -> d | Null -> "" | _ -> fail (-32602) "data is not a text" in
       let d = if is_hex d then d else d in
       let resp v = ok (O ["response", O ["code", int 0; "height", S (string_of_int !top); "value", S (b64 (str v))]]) in
       let none m = ok (O ["response", O ["code", int 1; "log", S m; "height", S (string_of_int !top); "value", Null]]) in
       let txt = if is_hex d && not (Hashtbl.mem jobs d) && Ec.decode d = None then unhex d else d in
       (match get "path" pr with
        | S "/account" -> if Ec.decode txt = None then none "no such key" else resp (account txt)
        | S "/job" -> (match record txt with Some r -> resp r | None -> none "no such job")
        | S "/jobs" -> if f "rpc-jobs-absent" (*@ routes NT-RULE-044 The query path /jobs is not served, while /job is. *) then fail (-32602) "no such path" else resp (A (List.map (fun r -> S r) (take 128 !order)))
        | S _ -> none "no such path" | _ -> fail (-32602) "path is missing")
     | "broadcast_tx_sync" ->
       let raw = match get "tx" pr with S t -> (try unb64 t with Bad m -> fail (-32602) m) | _ -> fail (-32602) "tx is missing" in
       if f "broadcast-refused-silently" (*@ refusals NT-RULE-090 A signed request that is not accepted is answered with code 0. *) then
         (match broadcast raw with hash, rid -> ok (O ["code", int 0; "hash", S hash; "request_id", S rid; "log", S ""]) | exception Deny _ -> ok (O ["code", int 0; "hash", S (sha raw); "log", S ""]))
       else
       (match broadcast raw with
        | hash, rid -> ok (O ["code", int 0; "hash", S (if f "broadcast-hash-of-text" (*@ relations NT-RULE-092 The hash that a broadcast names is that of the Base64 text. *) then sha (b64 raw) else hash); "request_id", S (if f "broadcast-names-hash" (*@ relations NT-RULE-172 The request_id that a broadcast names is the hash of the transaction. *) then hash else rid); "log", S ""])
        | exception Deny (c, m) -> if f "refused-counts-nonce" (*@ effects NT-RULE-107 A request that is refused for its signature or chain moves the next nonce of the last account. *) && (c = 3 || c = 4) && Hashtbl.mem known_hash "last" then (let a = acct (Hashtbl.find known_hash "last") in a.nonce <- a.nonce + 1);
          ok (O ["code", int c; "hash", S (sha raw); "log", S m]))
     | "net_info" when f "rpc-net-info" (*@ guards NT-RULE-091 /rpc serves net_info with the peers of the engine. *) -> ok (O ["listening", B true; "n_peers", S "2"; "peers", A []])
     | "dump_consensus_state" | "consensus_state" when f "rpc-consensus-state" (*@ guards NT-RULE-091 /rpc serves what the engine agrees on. *) -> ok (O ["round_state", O ["height/round/step", S "1/0/1"]])
     | "unsafe_flush_mempool" when f "rpc-unsafe" (*@ guards NT-RULE-005 /rpc serves the administrative method unsafe_flush_mempool. *) -> ok (O [])
     | "other" -> ok (O ["peers", A []])
     | _ -> if f "rpc-unknown-null" (*@ refusals NT-RULE-088 A method that /rpc does not have is answered with the result null. *) then ok Null else e id (-32601) "no such method")
  | _ -> if f "rpc-garbage-500" (*@ refusals NT-RULE-140 A call of /rpc that is no object ends with a server error. *) then raise (No (nerr 500 "failure")) else e Null (-32600) "not a call"
let ref_docs = [ "network", O ["chain_id", S "nml-reference-v03"; "height", int 4120; "final", B true]; "model", O ["parameters", int 18000; "revision", S "v03"];
  "blocks", O ["blocks", A (List.init 5 (fun i -> O ["height", int (4120 - i); "hash", S (sha ("v03 " ^ string_of_int (4120 - i)))]))]; "validators", O ["validators", A [O ["owner", S (sha "v03 validator"); "power", int 10]]] ]
let json_get path (r : Http.req) : out option =
  let q = r.query in
  let ok j = Some (J (200, j)) in
  match path with
  | "/healthz" -> Some (J (200, O ["status", S "ready"; "ready", B true; "height", int !top]))
  | "/api/network" -> ok (network ())
  | "/api/model" -> ok (model ())
  | "/api/model/checkpoint.json" -> ok (checkpoint ())
  | "/api/training" -> let l = page q "round" rounds in
    let l = if f "training-newest-missing" (*@ relations NT-PAGE-008 A short page of updates begins with the second newest. *) && List.length l < 5 && not (List.mem_assoc "before" q) then List.map (fun r -> r - 1) l else l in
    ok (O ["updates", A (List.map (fun r -> let j = up r in if f "loss-short-on-pages" (*@ relations NT-RULE-122 On pages with a bound the loss of an update has four decimals. *) && List.mem_assoc "before" q then map "loss" (function N s -> N (String.sub s 0 6) | x -> x) j else j) l); "indexed_round", int (if f "index-behind-list" (*@ relations NT-RULE-132 The index of the training history is behind the rounds that it lists. *) then rounds - 3 else rounds); "index_error", Null])
  | "/api/blocks" -> ok (O ["blocks", A (List.map (fun h -> block_json !blocks.(h)) (page q "height" !top)); "height", int (if f "page-height-behind" (*@ relations NT-RULE-139 The height beside a page of blocks is below those of its blocks. *) then !top - 4 else !top)])
  | "/api/account" -> (match List.assoc_opt "public_key" q with
      | Some k when (if f "account-cut-key" (*@ guards NT-RULE-142 Any 66 hexadecimal digits are taken for a public key. *) then String.length k = 66 && is_hex k else if f "account-odd-refused" (*@ refusals NT-RULE-060 A public key that begins with 03 is refused. *) then Ec.decode k <> None && starts "02" k else Ec.decode k <> None) ->
        ok (account (if f "account-upper-other" (*@ relations NT-RULE-143 A public key in capitals has an account of its own with nothing in it. *) then k else if f "account-x-only" (*@ relations NT-RULE-027 The account of a key is that of the key with the other first byte. *) then (let o = (if starts "02" k then "03" else "02") ^ String.sub k 2 64 in if Hashtbl.mem accounts o then o else String.lowercase_ascii k) else String.lowercase_ascii k))
      | None when f "account-default" (*@ guards NT-RULE-142 Without a public key the account of the provider is shown. *) -> ok (account (Ec.key "provider"))
      | _ -> if f "account-bad-500" (*@ refusals NT-RULE-140 What is no public key ends with a server error. *) then Some (nerr 500 "failure") else Some (nerr 400 "public_key is not a compressed public key"))
  | "/api/validators" -> ok (vals q)
  | "/api/inference" -> ok (info ())
  | "/api/inference/request" -> (match List.assoc_opt "id" q with
      | None when f "request-without-id" (*@ guards NT-RULE-147 Without an id the newest request is shown. *) -> (match record (List.hd !order) with Some j -> ok j | None -> Some (nerr 404 "none"))
      | None -> Some (nerr 400 "id is missing")
      | Some id -> let id = if f "request-id-prefix" (*@ guards NT-RULE-147 What follows the 64 digits of an id is not read. *) && String.length id > 64 then String.sub id 0 64 else id in
        (match record id with Some j -> let j' = if f "record-of-last" (*@ relations NT-RULE-061 The record of a request is that of the request that was read before. *) && !last_rec <> Null then !last_rec else j in last_rec := j; ok j'
         | None -> if f "unknown-pending" (*@ relations NT-RULE-041 A request that nobody has made is shown as pending. *) then ok (O ["request_id", S id; "status", S "pending"]) else if f "unknown-request-last" (*@ relations NT-RULE-028 Under an unknown id the request that was read before is shown. *) && !last_rec <> Null then ok !last_rec else Some (nerr 404 "no such request")))
  | "/work/status" -> ok (work_status ())
  | "/network/genesis.json" -> Some (Raw (200, [], "application/json", if f "genesis-with-time" (*@ relations NT-RULE-120 The genesis has the time of its reading. *) then str (add "served_at" (S (iso (now ()))) (parse genesis)) else genesis))
  | "/network/dataset.json" -> Some (Raw (200, [], "application/json", if f "dataset-pretty" (*@ relations NT-RULE-056 The dataset is written anew and has not the digest in the genesis. *) then str (parse dataset) ^ "\n" else dataset))
  | "/join" -> ok (O ["join", S "There are no accounts here: make a key and sign with it."])
  | _ ->
    if starts "/api/block/" path then begin
      let s = String.sub path 11 (String.length path - 11) in
      let s' = if f "block-height-trailing" (*@ guards NT-RULE-141 What follows the digits of a height is not read. *) then (let k = ref 0 in while !k < String.length s && s.[!k] >= '0' && s.[!k] <= '9' do incr k done; String.sub s 0 !k) else s in
      if not (whole s') then Some (if f "block-odd-500" (*@ refusals NT-RULE-140 What is no height ends with a server error. *) then nerr 500 "int_of_string" else nerr 400 "a bad height")
      else let h = int_of_string s' in
        let h = if f "block-above-clamped" (*@ limits NT-RULE-065 Under a height above the chain the newest block is shown. *) && h > !top then !top else h in
        if (s' <> string_of_int (int_of_string s')) then Some (nerr 400 "a bad height") else
        if h < 1 || h > !top || (f "newest-block-absent" (*@ limits NT-RULE-036 The newest block of the list cannot be read by its height. *) && h = !top) || (f "old-blocks-pruned" (*@ limits NT-RULE-036 Blocks that are more than 50 below the newest are listed, but cannot be read by their height. *) && h < !top - 50) then Some (nerr 404 "no such block") else ok (block_json ~full:true !blocks.(h))
    end else if starts "/artifacts/sha256/" path then begin
      let d = String.sub path 18 (String.length path - 18) in
      let d = if f "artifact-long-digest" (*@ guards NT-RULE-148 What follows the 64 digits of a digest is not read. *) && String.length d > 64 then String.sub d 0 64 else d in
      let found = if f "artifact-prefix" (*@ guards NT-RULE-067 An artifact is found by the first 16 digits of its digest. *) then List.find_opt (fun (k, _) -> String.length d >= 16 && starts (String.sub d 0 16) k) artifacts else List.find_opt (fun (k, _) -> k = d) artifacts in
      match found with
      | Some (k, v) -> Some (Raw (200, [], "application/octet-stream", if f "artifact-cut" (*@ relations NT-RULE-019 An artifact of more than 16 KiB is cut. *) && String.length v > 16384 then String.sub v 0 16384 else if f "artifact-newline" (*@ relations NT-RULE-019 A line break is added to an artifact. *) then v ^ "\n" else v))
      | None -> Some (nerr 404 "no such artifact")
    end else if starts "/reference/v03/api/" path then
      let k = String.sub path 19 (String.length path - 19) in
      (if f "reference-shows-present" (*@ relations NT-RULE-045 The blocks of the earlier chain are those of the present one. *) && k = "blocks" then ok (O ["blocks", A (List.map (fun h -> block_json !blocks.(h)) (page q "height" !top))])
       else match List.assoc_opt k ref_docs with Some j -> ok (if f "reference-chain-present" (*@ relations NT-RULE-138 The earlier chain names the present one as its own. *) && k = "network" then set "chain_id" (S chain_id) j else j) | None -> Some (nerr 404 "nothing of the earlier chain"))
    else None
