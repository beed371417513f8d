(* the state of the node API *)
open Util
type stake = { amt : int; days : int; start : float }
type entry = { id : string; ty : string; am : int; t : float; more : (string * j) list }
type acct = { n : int; token : string; addr : string; mutable avail : int; mutable stakes : stake list; mutable pend : int; mutable hist : entry list; proofs : j list }
let http_port = ref 0
let node_id = ref "" and dht_id = ref ""
let peers : (string * int) list ref = ref []
let fee = 10_000
let iso_t = iso
let mk_proofs n k =
  List.init k (fun i -> let t = started -. 3600. *. float (i + 1) -. 17. in
    O ["id", S (Printf.sprintf "proof-%d-%04d" n (k - i)); "type", S (if i mod 3 = 2 then "backward" else "forward"); "layer", int (i mod 6);
       "timestamp", S (iso t); "verified", B (i mod 4 <> 3); "reward", money (250_000 + 10_000 * i)])
let reward_entries n proofs =
  List.filter_map (fun pr -> if get "verified" pr <> B true then None else
    let i = match get "id" pr with S s -> s | _ -> "" in
    let m = match as_micro (get "reward" pr) with Some m -> m | None -> 0 in
    Some { id = "rw-" ^ i; ty = "reward"; am = m; t = started -. 3600. *. float (List.length proofs + 1 - int_of_string ("0u" ^ String.sub i (String.length i - 4) 4)) ; more = ["details", O ["proof_id", S i; "role", S "worker"]] }) proofs
let mk n token avail k =
  let proofs = mk_proofs n k in
  { n; token; addr = "acct-" ^ String.sub (sha ("address " ^ token)) 0 32; avail; stakes = []; pend = 0; hist = reward_entries n proofs; proofs }
let accts = [ mk 1 "tok-main-7f3a91" 1_000_000_000_000 9; mk 2 "tok-second-c04d22" 500_000_000_000 5; mk 3 "tok-little-88be10" 5_000_000 2; mk 4 "tok-nearly-none-3e5f" 400 0 ]
let expired = "tok-expired-51d09c"
let by_token t = List.find_opt (fun a -> a.token = t) accts
let by_addr a = List.find_opt (fun x -> x.addr = a) accts
let staked a = List.fold_left (fun s x -> s + x.amt) 0 a.stakes
let unlock s = s.start +. 86400. *. float s.days
let counter = ref 0
let uid pre = incr counter; Printf.sprintf "%s-%s" pre (String.sub (sha (Printf.sprintf "%f %d %d" started !http_port !counter)) 0 20)
let mult d = 1.0 +. Float.round (float d /. 365. *. 100.) /. 100.

(* configuration *)
let cfg_keys = [ "training.enabled", `B; "training.batch_size", `I; "training.learning_rate", `F; "training.diloco_steps", `I; "resources.max_memory_gb", `F; "resources.cpu_threads", `I ]
let cfg : (string * j) list ref = ref [ "training.enabled", B true; "training.batch_size", int 8; "training.learning_rate", N "0.0003"; "training.diloco_steps", int 500; "resources.max_memory_gb", N "16.0"; "resources.cpu_threads", int 4 ]
let cfg_get k = List.assoc k !cfg
let version = "1.7.2"
let epoch = 3 and gstep = 6120 and round = 24 and n_layers = 6 and hidden = 16 and params = 2336
let loss = 2.471820354

(* counters *)
let requests = ref 0 and tokens = ref 0 and rpc_calls = ref 0 and grads_in = ref 41 and grads_ok = ref 40
let lat : float list ref = ref [] and nlat = ref 0 and latsum = ref 0. and latmax = ref 0.
let recent : float list ref = ref []
let done_ count toks ms =
  locked (fun () ->
    requests := !requests + count; tokens := !tokens + toks; incr nlat; latsum := !latsum +. ms; if ms > !latmax then latmax := ms;
    recent := now () :: take 600 !recent)
let last_ts = ref 0.
let fresh_ts () = let t = now () in let t = if t <= !last_ts then !last_ts +. 0.000002 else t in last_ts := t; t
