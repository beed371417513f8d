(* the chain: blocks, accounts in atoms, signed requests *)
open Util
type job = { rid : string; hash : string; from : string; provider : string; prompt : string; maxt : int; price : int; jfee : int; expires : int; jnonce : int; ck : string; mutable state : string; mutable resp : j; at : float; ah : int; mutable polled : string; mutable endh : int }
type tx = { txh : string; kind : string; dec : j; result : j; raw : string }
type block = { height : int; bhash : string; prev : string; time : float; txs : tx list }
type ac = { mutable spend : int; mutable lock : int; mutable nonce : int }
let chain_id = "nml-testing-1"
let price = 5000 and fee = 100
let accounts : (string, ac) Hashtbl.t = Hashtbl.create 16
let acct k = match Hashtbl.find_opt accounts k with Some a -> a | None -> { spend = 0; lock = 0; nonce = 0 }
let blocks : block array ref = ref (Array.make 4096 { height = 0; bhash = ""; prev = ""; time = 0.; txs = [] })
let top = ref 0
let jobs : (string, job) Hashtbl.t = Hashtbl.create 64
let order : string list ref = ref []   (* all jobs, newest first *)
let over : string list ref = ref []    (* completed or expired, newest first *)
let root r = sha ("root of round " ^ string_of_int r)
let rounds = 24
let serving = root (rounds - 1) and training = root rounds
let dataset = str (O ["name", S "small words"; "tokens", A (List.init 400 (fun i -> int (i * 7919 mod 32)))])
let dataset_sha = sha dataset
let adapter = "ADAPTER1" ^ String.concat "" (List.init 400 (fun i -> sha256 (string_of_int i)))
let adapter_sha = sha adapter
let base = "BASE0001" ^ String.concat "" (List.init 900 (fun i -> sha256 ("b" ^ string_of_int i)))
let base_sha = sha base
let validators = List.map (fun (n, pw) -> Ec.(sha ("validator " ^ n)), n, pw) ["north", 40; "south", 30; "east", 20; "west", 10]
let genesis = str (O ["chain_id", S chain_id; "genesis_time", S "2026-01-05T00:00:00Z"; "dataset_sha256", S dataset_sha; "base_sha256", S base_sha;
  "supply_atoms", S "900000000000"; "validators", A (List.map (fun (o, n, pw) -> O ["name", S n; "owner", S ("02" ^ o); "power", int pw]) validators)])
let genesis_hash = sha genesis
let artifacts = [dataset_sha, dataset; adapter_sha, adapter; base_sha, base; genesis_hash, genesis]
let losses = Array.init (rounds + 1) (fun r -> Printf.sprintf "%.9f" (2.471820354 +. 0.0310357 *. float (rounds - r) +. 0.000113 *. float (r * r mod 7)))
let add_block time txs =
  let h = !top + 1 in
  let prev = if h = 1 then String.make 64 '0' else !blocks.(h-1).bhash in
  if h >= Array.length !blocks then blocks := Array.append !blocks (Array.make 4096 !blocks.(0));
  let b = { height = h; prev; time; txs; bhash = sha (Printf.sprintf "%d %s %f %s" h prev time (String.concat "," (List.map (fun t -> t.txh) txs))) } in
  !blocks.(h) <- b; top := h
let last_block = ref 0.
let finish j st resp =
  j.state <- st; j.resp <- resp; j.endh <- !top + 1;
  over := j.rid :: !over;
  (* only the latest 128 are kept *)
  let keep = if f "jobs-kept-64" (*@ limits LIM-008 Only the latest 64 jobs that are over can be looked up. *) then 64 else if f "jobs-kept-8" (*@ limits ST-003 Only the latest 8 jobs that are over can be looked up. *) then 8 else 128 in
  List.iteri (fun i r -> if i >= keep then Hashtbl.remove jobs r) !over;
  over := take keep !over
let expire_due () =
  let due = List.filter_map (fun r -> match Hashtbl.find_opt jobs r with Some j when j.state = "pending" && j.expires <= !top + 1 + (if f "expires-early" (*@ effects NT-RULE-096 A request expires two blocks before its block expiry. *) then 2 else 0) -> Some j | _ -> None) !order in
  List.map (fun j ->
    let a = acct j.from in
    let back = if f "refund-with-fee" (*@ effects NT-RULE-098 The refund of an expired request has the price twice. *) then 2 * j.price else if f "refund-missing" (*@ effects ST-004 An expired request has a refund record, but its price is not returned. *) then 0 else j.price in
    a.lock <- a.lock - (if f "refund-keeps-locked" (*@ effects NT-RULE-103 After a refund the price is still locked. *) then 0 else j.price); a.spend <- a.spend + back;
    if f "expired-called-completed" (*@ effects NT-RULE-089 A request that nobody answers is completed with an empty output at its block expiry. *) then finish j "completed" (O ["output", S ""; "tokens", int 0]) else
    finish j "expired" (O ["amount_atoms", S (string_of_int (if f "refund-record-zero" (*@ relations NT-RULE-160 The record of a refund has an amount of 0. *) then 0 else if f "refund-record-large" (*@ relations NT-RULE-160 The record of a refund has an amount of a million times what was paid. *) then j.price * 1_000_000 else j.price)); "to", S j.from; "height", int (!top + 1)]);
    { txh = sha ("expiry " ^ j.rid); kind = "expiry"; dec = O ["kind", S "inference_expiry"; "request_id", S j.rid]; result = O ["code", int 0; "request_id", S j.rid]; raw = "" }) due
let tick_block txs = 
  let ex = expire_due () in
  let t = now () in
  last_block := t;
  add_block t (txs @ ex)
let decode_envelope raw =
  let e = parse raw in
  match get "body" e, get "public_key" e, get "signature" e with
  | S b, S k, S s -> b, k, s
  | _ -> raise (Bad "body, public_key and signature are needed")
let rid_of body = sha ("request " ^ body)
let known_hash : (string, string) Hashtbl.t = Hashtbl.create 64
exception Deny of int * string
let broadcast raw =
  if String.length raw > 65536 then raise (Deny (7, "the transaction is too large"));
  let body, pk, sg = try decode_envelope raw with Bad m -> raise (Deny (2, m)) in
  let hash = sha raw in
  let b = try parse body with Bad m -> raise (Deny (2, m)) in
  let s k = match get k b with S x -> x | _ -> raise (Deny (2, k ^ " is missing")) in
  let i k = match as_int (get k b) with Some x -> x | None -> raise (Deny (2, k ^ " is missing")) in
  if Hashtbl.mem known_hash hash && not (f "replay-taken" (*@ guards NT-RULE-051 A signed request that is broadcast once more is paid once more. *)) then raise (Deny (6, "this transaction was seen before"));
  if s "kind" <> "inference_request" then raise (Deny (2, "another kind"));
  if s "chain_id" <> chain_id && not (f "other-chain-accepted" (*@ guards NT-RULE-047 A request that is signed for another chain is accepted. *)) then raise (Deny (3, "another chain"));
  if Ec.decode pk = None then raise (Deny (4, "a bad public key"));
  if not (f "signature-unchecked" (*@ guards NT-RULE-046 A request with the signature of other content is accepted. *)) && not (Ec.verify pk body sg) then raise (Deny (4, "the signature is wrong"));
  let a = match Hashtbl.find_opt accounts (if f "payer-is-alpha" (*@ effects NT-RULE-085 A request of another account is paid by the account that asked last. *) && Hashtbl.mem known_hash "last" then Hashtbl.find known_hash "last" else pk) with Some a -> a | None -> raise (Deny (5, "the account has nothing")) in
  Hashtbl.replace known_hash "last" pk;
  let pr = i "price_atoms" and fe = i "fee_atoms" in
  let n = i "nonce" and ex = i "expires_height" and mt = i "max_tokens" in
  let prompt = s "prompt" in
  if n <> a.nonce && not (f "replay-taken") then raise (Deny (8, Printf.sprintf "the next nonce is %d" a.nonce));
  if pr <> price || fe <> fee then raise (Deny (9, "another price"));
  if s "checkpoint" <> serving then raise (Deny (10, "another checkpoint is served"));
  if mt < 1 || mt > 1024 then raise (Deny (2, "max_tokens"));
  if f "multibyte-prompt-refused" (*@ refusals NT-RULE-105 A signed request whose prompt has letters beyond ASCII is refused. *) && String.exists (fun c -> Char.code c > 127) prompt then raise (Deny (2, "prompt"));
  if f "long-prompt-refused" (*@ refusals NT-RULE-105 A signed request whose prompt has more than 40 letters is refused. *) && String.length prompt > 40 then raise (Deny (2, "prompt"));
  if ex <= !top + (if f "expired-accepted" (*@ guards NT-RULE-048 A request that is past its block expiry is accepted and answered. *) then -10000 else 0) then raise (Deny (11, "the expiry has passed"));
  if a.spend < pr + fe then raise (Deny (5, "too little can be spent"));
  let rid = if f "request-id-is-hash" (*@ relations NT-RULE-013 The id of a request is the hash of its transaction. *) then hash else rid_of body in
  let take_ = pr + (if f "native-fee-twice" (*@ effects NT-RULE-078 A signed request takes its fee twice. *) then 2 * fe else if f "native-price-per-token" (*@ effects NT-RULE-078 A signed request of more than 16 tokens takes twice its price. *) && mt > 16 then pr + fe else fe) in
  a.spend <- a.spend - take_;
  a.lock <- a.lock + (if f "nothing-locked" (*@ relations NT-RULE-103 The price of a pending request counts in the total of its account, but is not locked. *) then 0 else pr);
  a.nonce <- (if f "nonce-by-two" (*@ effects NT-RULE-107 The next nonce grows by two with each request. *) then a.nonce + 2 else if f "nonce-stuck" (*@ effects NT-RULE-049 The next nonce does not change with an accepted request. *) then a.nonce else a.nonce + 1);
  if not (f "replay-taken") then Hashtbl.replace known_hash hash rid;
  let kept = if f "prompt-cut-32" (*@ relations NT-RULE-086 The record of a request has only the first 32 bytes of its prompt. *) && String.length prompt > 32 && utf8_ok (String.sub prompt 0 32) then String.sub prompt 0 32 else prompt in
  let j = { rid; hash; from = pk; provider = s "provider"; prompt = kept; maxt = mt; price = pr; jfee = fe; expires = (if f "expired-accepted" then max ex (!top + 20) else ex); jnonce = n; ck = s "checkpoint"; state = "pending"; resp = Null; at = now (); ah = !top + 1; polled = ""; endh = 0 } in
  Hashtbl.replace jobs rid j;
  order := rid :: take 2000 !order;
  let bl = { txh = hash; kind = "request"; dec = O ["kind", S "inference_request"; "hash", S hash; "request_id", S rid; "public_key", S pk; "signature", S sg; "nonce", int n; "provider", S j.provider; "checkpoint", S j.ck;
      "prompt", S (if f "block-prompt-latin" (*@ relations NT-RULE-052 A block shows letters beyond ASCII in a prompt as question marks. *) then String.map (fun c -> if Char.code c > 127 then '?' else c) prompt else prompt); "max_tokens", int mt; "price_atoms", S (string_of_int pr); "fee_atoms", S (string_of_int fe); "expires_height", int ex];
      result = O ["code", int 0; "request_id", S rid; "hash", S hash]; raw } in
  if not (f "broadcast-not-in-block" (*@ relations NT-RULE-052 A request of more than 24 tokens is in no block. *) && mt > 24) then tick_block [bl];
  hash, rid
let queue () = List.length (List.filter (fun r -> match Hashtbl.find_opt jobs r with Some j -> j.state = "pending" | None -> false) !order)
let answer j out toks worker =
  let a = acct j.from in
  a.lock <- a.lock - (if f "locked-after-answer" (*@ effects NT-RULE-080 What was locked for a request stays locked once it is completed. *) then 0 else j.price);
  if f "answered-refunded" (*@ effects NT-RULE-078 The price of a completed request is returned as well. *) then a.spend <- a.spend + j.price;
  let w = Hashtbl.find_opt accounts worker in
  (match w with Some w -> w.spend <- w.spend + j.price | None -> ());
  finish j "completed" (O ["output", S out; "tokens", int toks; "worker", S worker; "completed_height", int (!top + 1)]);
  tick_block [{ txh = sha ("result " ^ j.rid); kind = "result"; dec = O ["kind", S "inference_result"; "request_id", S j.rid; "worker", S worker; "output", S out]; result = O ["code", int 0; "request_id", S j.rid]; raw = "" }]
let unknown_provider = "02" ^ String.make 64 '7'
let worker_step () =
  let pend = List.filter_map (fun r -> match Hashtbl.find_opt jobs r with Some j when j.state = "pending" && j.provider = Ec.key "provider" && j.polled = "" && now () -. j.at > 0.5 -> Some j | _ -> None) !order in
  let pend = if f "worker-newest-only" (*@ effects NT-RULE-073 While a request is pending that nobody answers, none is answered. *) && List.exists (fun r -> match Hashtbl.find_opt jobs r with Some j -> j.state = "pending" && j.provider <> Ec.key "provider" | None -> false) !order then [] else pend in
  List.iter (fun j -> let g = Gen.gen ~prompt:j.prompt ~max:j.maxt ~temp:0. ~stops:[] () in answer j g.text g.n (Ec.key "provider")) (List.rev pend)
let request_body ?(chain=chain_id) ~provider ~ck ~nonce ~prompt ~maxt ~expires () =
  Printf.sprintf {|{"chain_id":%s,"checkpoint":%s,"expires_height":%d,"fee_atoms":%d,"kind":"inference_request","max_tokens":%d,"nonce":%d,"price_atoms":%d,"prompt":%s,"provider":%s}|}
    (str (S chain)) (str (S ck)) expires fee maxt nonce price (str (S prompt)) (str (S provider))
let envelope body pk sg = Printf.sprintf {|{"body":%s,"public_key":%s,"signature":%s}|} (str (S body)) (str (S pk)) (str (S sg))
let seed_request = ref ""
let init () =
  List.iter (fun (n, v) -> Hashtbl.replace accounts (Ec.key n) { spend = v; lock = 0; nonce = 0 }) ["alpha", 500_000_000_000; "beta", 300_000_000_000; "worker", 2_000_000; "provider", 40_000_000];
  let t0 = started -. 62. in
  for h = 1 to 60 do
    let t = t0 +. float h in
    let req n who prompt exp = 
      let a = acct (Ec.key who) in
      let body = request_body ~provider:(if exp then unknown_provider else Ec.key "provider") ~ck:serving ~nonce:a.nonce ~prompt ~maxt:12 ~expires:(if exp then h + 4 else h + 200) () in
      let raw = envelope body (Ec.key who) (Ec.sign (Ec.sec who) body) in
      let rid = rid_of body and hash = sha raw in
      Hashtbl.replace known_hash hash rid;
      let j = { rid; hash; from = Ec.key who; provider = (if exp then unknown_provider else Ec.key "provider"); prompt; maxt = 12; price; jfee = fee; expires = (if exp then h + 4 else h + 200); jnonce = a.nonce; ck = serving; state = "pending"; resp = Null; at = t; ah = h; polled = ""; endh = 0 } in
      a.nonce <- a.nonce + 1; a.spend <- a.spend - fee - price; a.lock <- a.lock + price;
      Hashtbl.replace jobs rid j; order := rid :: !order;
      if n = 0 then seed_request := rid;
      { txh = hash; kind = "request"; raw; dec = O ["kind", S "inference_request"; "hash", S hash; "request_id", S rid; "public_key", S (Ec.key who); "nonce", int j.jnonce; "provider", S j.provider; "checkpoint", S serving; "prompt", S prompt; "max_tokens", int 12; "price_atoms", S (string_of_int price); "fee_atoms", S (string_of_int fee); "expires_height", int j.expires]; result = O ["code", int 0; "request_id", S rid; "hash", S hash] } in
    let res r = match Hashtbl.find_opt jobs r with Some j when j.state = "pending" && j.provider = Ec.key "provider" ->
        let g = Gen.gen ~prompt:j.prompt ~max:12 ~temp:0. ~stops:[] () in
        (acct j.from).lock <- (acct j.from).lock - price; (acct (Ec.key "provider")).spend <- (acct (Ec.key "provider")).spend + price;
        finish j "completed" (O ["output", S g.text; "tokens", int g.n; "worker", S (Ec.key "provider"); "completed_height", int h]);
        [{ txh = sha ("result " ^ r); kind = "result"; raw = ""; dec = O ["kind", S "inference_result"; "request_id", S r; "worker", S (Ec.key "provider"); "output", S g.text]; result = O ["code", int 0; "request_id", S r] }] | _ -> [] in
    let txs = match h with
      | 40 -> [req 0 "alpha" "What does the river say?" false] | 41 -> res !seed_request
      | 44 -> [req 1 "beta" "Name the birds of the garden." false] | 45 -> res (List.hd !order)
      | 48 -> [req 2 "alpha" "Nobody answers this." true]
      | 56 -> [req 3 "beta" "How far is the harbor, señor?" false] | 57 -> res (List.hd !order)
      | _ -> [] in
    let ex = expire_due () in
    let ex = if h mod 2 = 0 && h / 2 <= rounds then { txh = sha ("update " ^ string_of_int (h/2)); kind = "update"; raw = ""; dec = O ["kind", S "training_update"; "round", int (h/2); "root", S (root (h/2))]; result = O ["code", int 0; "round", int (h/2)] } :: ex else ex in
    add_block t (txs @ ex)
  done;
  last_block := now ()
