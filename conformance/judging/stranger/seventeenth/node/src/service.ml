(* the gRPC service *)
open Util
open H2
open State
let self_info () = M [1, L !dht_id; 2, L "127.0.0.1"; 3, I (!http_port + 1000)]
(* DHT *)
let table : (string, string * int) Hashtbl.t = Hashtbl.create 64
let arrival : string list ref = ref []
let store : (string, string) Hashtbl.t = Hashtbl.create 64
let kk () = if p "dht-k-4" then 4 else if p "dht-k-20" then 20 else 8
let dist a b = String.init 20 (fun i -> Char.chr (Char.code a.[i] lxor Char.code b.[i]))
let closest t k =
  let l = Hashtbl.fold (fun id a acc -> (id, a) :: acc) table [] in
  let l = if f "dht-sort-ascending-id" (*@ grpc DH-016 The nodes are sorted by their ID and not by the distance to the target. *) then List.sort compare l
    else if f "dht-distance-first-byte" (*@ grpc DH-030 Of the distance only the first byte is compared. *) then List.stable_sort (fun (a, _) (b, _) -> compare (Char.code a.[0] lxor Char.code t.[0]) (Char.code b.[0] lxor Char.code t.[0])) l
    else if f "dht-distance-numeric" (*@ grpc DH-032 The distance is the difference of the last eight bytes. *) then List.sort (fun (a, _) (b, _) -> compare (String.sub (dist a t) 12 8) (String.sub (dist b t) 12 8)) l
    else if f "dht-farthest" (*@ grpc DH-016 With more than K known nodes the farthest ones are listed. *) then List.rev (List.sort (fun (a, _) (b, _) -> compare (dist a t) (dist b t)) l)
    else if f "dht-oldest-first" (*@ grpc DH-032 With more than K known nodes those that came first are listed. *) then (let pos x = let rec go i = function [] -> 99999 | y :: r -> if y = x then -i else go (i+1) r in go 0 !arrival in List.sort (fun (a, _) (b, _) -> compare (pos a) (pos b)) l)
    else List.sort (fun (a, _) (b, _) -> compare (dist a t) (dist b t)) l in
  let l = if f "dht-exact-left-out" (*@ grpc DH-006 A search for the ID of a known node leaves out that node. *) then List.filter (fun (a, _) -> a <> t) l else l in
  take k l
let node_rows l = List.map (fun (id, (ip, port)) -> M [1, L id; 2, L (if f "dht-ip-bytes" (*@ grpc DH-033 The ip of listed nodes is four raw bytes. *) then "\127\000\000\001" else if f "dht-ip-own" (*@ grpc DH-041 All listed nodes have the ip 0.0.0.0. *) then "0.0.0.0" else ip); 3, I (if f "dht-port-plus" (*@ grpc DH-040 Listed nodes have the port of their gRPC plus 1000. *) then port + 1000 else port)]) l
let limit_n = ref 0
let learn g fs =
  match gsub fs 1 with
  | None -> ""
  | Some s ->
    let id = gs s 1 and ip = gtext s 2 and port = gi32 s 3 in
    if id <> "" && String.length id <> 20 then raise (Rpc (3, "a node ID has 20 bytes"));
    let ip' = if ip = "" && f "dht-no-ip-listed" (*@ grpc DH-027 A sender without an ip is listed with an empty one. *) then ip else ip in
    let ok = id <> "" && ((ip <> "" && port > 0 && port < 65536) || (f "dht-no-ip-listed" && port > 0) || (f "dht-port-zero-listed" (*@ grpc DH-013 A sender with the port 0 is listed with it. *) && ip <> "" && port = 0) || (f "dht-port-large-listed" (*@ grpc DH-013 A sender with a port above 65535 is listed with it. *) && ip <> "" && port > 65535)) && id <> !dht_id in
    if ok then begin
      let old = Hashtbl.find_opt table id in
      if f "dht-address-kept" (*@ grpc DH-034 A node whose address has changed is listed at its old one. *) && old <> None then ()
      else if f "dht-address-mixed" (*@ grpc DH-040 A node whose address has changed is listed with its new ip and its old port. *) && old <> None then Hashtbl.replace table id (ip', snd (Option.get old))
      else if f "dht-moved-twice" (*@ grpc DH-024 A node whose address has changed is listed at both. *) && old <> None && old <> Some (ip', port) then Hashtbl.add table id (ip', port)
      else if f "dht-table-16" (*@ grpc DH-035 Once sixteen nodes are known no others are learned. *) && Hashtbl.length table >= 16 && old = None then ()
      else Hashtbl.replace table id (ip', port);
      if old = None then begin arrival := id :: take 5000 !arrival;
        if List.length !arrival > 4096 then Hashtbl.remove table (List.nth !arrival 4096) end
    end; id
(* the model: each layer has a matrix W and vectors for keys, values and queries *)
let weight l i j = let x = ((l * 7919 + i * 104729 + j * 1299709 + 12345) * 48271) land 0x7fffffff in (float (x mod 2001) /. 1000. -. 1.) *. 0.25
let wts = Array.init 6 (fun l -> Array.init 16 (fun i -> Array.init 16 (fun j -> weight l i j)))
let dv l k i = 0.3 +. 0.5 *. weight l (20 + k) i
let vocab = 32
let wout = Array.init vocab (fun v -> Array.init 16 (fun i -> weight 9 v i))
let floats s = Array.init (String.length s / 4) (fun i -> Int32.float_of_bits (String.get_int32_le s (4*i)))
let bytes_of a = let b = Bytes.create (4 * Array.length a) in Array.iteri (fun i x -> Bytes.set_int32_le b (4*i) (Int32.bits_of_float x)) a; Bytes.unsafe_to_string b
let finite a = let ok = ref true in for i = 0 to Array.length a - 1 do if not (a.(i) -. a.(i) = 0.) then ok := false done; !ok
let window = 8
(* x: b*s*16 ; past: per sequence np keys and values; gives y, keys, values (with the past) *)
let layer l nb ns x np pk pv =
  let y = Array.make (nb*ns*16) 0. in
  let tot = np + ns in
  let ks = Array.make (nb*tot*16) 0. and vs = Array.make (nb*tot*16) 0. in
  let w = wts.(l) in
  let dk = Array.init 16 (dv l 0) and dw = Array.init 16 (dv l 1) and dq = Array.init 16 (dv l 2) in
  for b = 0 to nb - 1 do
    Array.blit pk (b*np*16) ks (b*tot*16) (np*16); Array.blit pv (b*np*16) vs (b*tot*16) (np*16);
    for t = 0 to ns - 1 do
      let o = (b*ns + t) * 16 and ko = (b*tot + np + t) * 16 in
      for i = 0 to 15 do ks.(ko+i) <- x.(o+i) *. dk.(i); vs.(ko+i) <- x.(o+i) *. dw.(i) done;
      let lo = max 0 (np + t - window) in
      let m = np + t - lo + 1 in
      let sc = Array.make m 0. in
      let sum = ref 0. in
      for u = 0 to m - 1 do
        let uo = (b*tot + lo + u) * 16 in
        let d = ref 0. in
        for i = 0 to 15 do d := !d +. x.(o+i) *. dq.(i) *. ks.(uo+i) done;
        let e = exp (Float.max (-20.) (Float.min 20. (!d *. 0.25))) in sc.(u) <- e; sum := !sum +. e done;
      for i = 0 to 15 do
        let a = ref 0. in
        for u = 0 to m - 1 do a := !a +. sc.(u) *. vs.((b*tot + lo + u)*16 + i) done;
        let z = ref 0. in let wi = w.(i) in
        for j = 0 to 15 do z := !z +. wi.(j) *. x.(o+j) done;
        y.(o+i) <- x.(o+i) +. tanh !z +. 0.5 *. !a /. !sum
      done
    done
  done; y, ks, vs
type pass = { shape : int list; x : float array; shard : int; src : int; url : string; sess : string; req : string }
let passes : (string, pass) Hashtbl.t = Hashtbl.create 64
let pass_order : string list ref = ref []
let clients : (string, client) Hashtbl.t = Hashtbl.create 8
let cl_mu = Mutex.create ()
let client_for h pt = let k = Printf.sprintf "%s:%d" h pt in
  Mutex.lock cl_mu; let c = match Hashtbl.find_opt clients k with Some c -> c | None -> let c = H2.client h pt in Hashtbl.replace clients k c; c in Mutex.unlock cl_mu; c
let hostport s = match String.rindex_opt s ':' with Some i -> (match int_of_string_opt (String.sub s (i+1) (String.length s - i - 1)) with Some pt when pt > 0 && pt < 65536 && i > 0 -> Some (String.sub s 0 i, pt) | _ -> None) | None -> None
(* http://host:port names an HTTP port, anything else the port itself *)
let address u =
  let cut pre = String.sub u (String.length pre) (String.length u - String.length pre) in
  let noslash s = match String.index_opt s '/' with Some i -> String.sub s 0 i | None -> s in
  if starts "http://" u then (match hostport (noslash (cut "http://")) with Some (h, pt) -> Some (h, if f "back-to-http-port" (*@ grpc PL-BWD-016 Gradients for a sender_url of HTTP go to its HTTP port. *) then pt else pt + 1000) | None -> None)
  else if starts "grpc://" u then hostport (noslash (cut "grpc://")) else hostport (noslash u)
(* three attempts; what cannot succeed is not tried again *)
let attempts ?(deadline=5.0) cl meth msg =
  let rec go n =
    match call ~deadline:(if f "client-deadline-long" (*@ grpc CL-CALL-004 The deadline of a call to a peer is two minutes. *) then 120. else if f "client-deadline-tiny" (*@ grpc CL-CALL-004 The deadline of a call to a peer is 50 milliseconds. *) then 0.05 else deadline) cl meth msg with
    | r -> Some r
    | exception Rpc (st, _) ->
      let again = (st = 14 || st = 8 || st = 13 || st = 4) || (f "retry-not-found" (*@ grpc CL-CODE-007 Gradients that a peer answers with NOT_FOUND are sent again. *) && st = 5) || (f "retry-invalid" (*@ grpc PL-BWD-024 What a peer answers with INVALID_ARGUMENT is sent again. *) && st = 3) in
      let lim = if f "retry-five" (*@ grpc CL-CALL-002 What a peer fails is sent six times. *) then 6 else 3 in
      if again && n < lim then begin
        if f "retry-no-pause" (*@ grpc CL-CODE-008 What a peer answers with UNAVAILABLE is sent again without a pause. *) && st = 14 then () else if f "retry-exhausted-no-pause" (*@ grpc PL-BWD-025 What a peer answers with RESOURCE_EXHAUSTED is sent again without a pause. *) && st = 8 then ()
        else if f "retry-pause-long" (*@ grpc CL-CALL-003 The pause before another attempt is four seconds. *) then Thread.delay 4. else Thread.delay (0.1 *. Float.pow 2. (float (n - 1)));
        go (n + 1) end
      else None
    | exception _ -> None in go 1
let last_y : (string * (int * v) list) option ref = ref None
let last_loss = ref 0.
let npass = ref 0
let forward gx fs =
  let sess = gtext fs 1 and req = gtext fs 2 in
  let sh = gints fs 4 in
  let hs = gs fs 3 in
  let shard = gi32 fs 10 in
  let shard = if f "shard-modulo" (*@ grpc PL-FWD-022 The number of a layer is taken modulo 8. *) && shard > 5 then shard land 7 else if f "shard-negative-from-end" (*@ grpc PL-FWD-012 A negative number of a layer counts from the end. *) && shard < 0 && shard >= -6 then 6 + shard else if f "shard-clamped" (*@ grpc GR-CODE-004 A pass to a layer that is not on the peer is served by the last layer. *) && shard > 5 then 5 else if f "absent-served-training" (*@ grpc GR-CODE-020 A pass of training to an absent layer is served by the last one. *) && shard > 5 && gs fs 11 <> "" then 5 else if f "absent-served-cache" (*@ grpc GR-CODE-020 A pass with use_cache to an absent layer is served by the last one. *) && shard > 5 && gi fs 8 <> 0 then 5 else shard in
  if shard < 0 then raise (Rpc (3, "no layer is below 0"));
  if shard > 5 || (f "layer-3-not-found" (*@ grpc GR-CODE-014 A pass to the layer 3, which is listed, ends with NOT_FOUND. *) && shard = 3) then raise (Rpc ((if f "absent-unavailable" (*@ grpc GR-CODE-013 A pass to an absent layer ends with UNAVAILABLE. *) then 14 else if f "absent-invalid" (*@ grpc GR-CODE-004 A pass to an absent layer ends with INVALID_ARGUMENT. *) then 3 else if f "absent-internal" (*@ grpc GR-CODE-015 A pass to an absent layer ends with INTERNAL. *) then 13 else if f "absent-exhausted-later" (*@ grpc GR-CODE-013 The second pass to an absent layer ends with RESOURCE_EXHAUSTED. *) && (incr npass; !npass > 1) then 8 else 5), "this layer is not here"));
  let nb, ns = match sh with [b; s; 16] when b > 0 && s > 0 -> b, s
    | [s; 16] when p "shape-two-dimensions" && s > 0 -> 1, s
    | [b; s; _] when f "pass-width-unchecked" (*@ grpc GR-CODE-021 The width of a pass is not compared with that of the model. *) && b > 0 && s > 0 && String.length hs = 64 * b * s -> b, s | _ -> raise (Rpc ((if f "misshapen-internal" (*@ grpc GR-CODE-015 A pass of another width than the model's ends with INTERNAL. *) then 13 else 3), "hidden_shape is not [batch, seq, 16]")) in
  if nb > 1 && f "batch-refused" (*@ grpc PL-FWD-016 A pass of two sequences is refused. *) then raise (Rpc (3, "one sequence"));
  if ns > 32 && f "long-pass-refused" (*@ grpc PL-FWD-036 A pass of more than 32 positions is refused. *) then raise (Rpc (3, "too long"));
  if String.length sess > 36 && f "long-session-refused" (*@ grpc PL-FWD-042 A session_id of more than 36 characters is refused. *) then raise (Rpc (3, "session_id"));
  if f "slash-id-refused" (*@ grpc PL-FWD-042 A request_id with a slash or a blank is refused. *) && (String.contains req '/' || String.contains req ' ') then raise (Rpc (3, "request_id"));
  if gx.Mut.size > 16_000_000 && f "large-pass-refused" (*@ grpc LIM-040 A pass of more than 16 MB is refused for its size. *) then raise (Rpc (8, "too large"));
  let want = nb * ns * 64 in
  if String.length hs <> want then begin
    if String.length hs > want && f "surplus-values-ignored" (*@ grpc GR-CODE-021 Values beyond the shape of a pass are ignored. *) then ()
    else if String.length hs < want && f "missing-values-zero" (*@ grpc GR-CODE-021 Values that are missing in the shape of a pass count as 0. *) then ()
    else raise (Rpc (3, "the values do not fill the shape")) end;
  let x = floats (let s = hs in if String.length s > want then String.sub s 0 want else if String.length s < want then s ^ String.make (want - String.length s) '\000' else s) in
  if not (finite x) && not (f "nan-computed" (*@ grpc GR-CODE-021 Values that are not finite are computed with. *)) then raise (Rpc (3, "a value is not finite"));
  let use = gi fs 8 <> 0 in
  let past = gall fs 7 in
  let np, pk, pv = match past with
    | [] -> 0, [||], [||]
    | [a; b] when String.length a = String.length b && a <> "" && String.length a mod (nb*64) = 0 && not (f "past-ignored" (*@ grpc PL-FWD-019 The past_key_values of a pass are ignored. *)) -> String.length a / (nb*64), floats a, floats b
    | [a; b] when f "past-ignored" -> 0, [||], [||]
    | _ -> raise (Rpc (3, "past_key_values are two tensors [batch, past, 16]")) in
  if not (finite pk && finite pv) then raise (Rpc (3, "a value is not finite"));
  let run nb x np pk pv = layer shard nb ns x np pk pv in
  let y, ks, vs = if f "batch-mixed" (*@ grpc PL-FWD-030 In a pass of several sequences the first position of a sequence also sees the sequence before. *) && nb > 1 then (let y, a, b = run nb x np pk pv in for b = 1 to nb - 1 do for i = 0 to 15 do y.(b*ns*16+i) <- y.(b*ns*16+i) +. 0.25 *. y.((b-1)*ns*16+i) done done; y, a, b) else run nb x np pk pv in
  let y = if f "cache-result-differs" (*@ grpc PL-FWD-033 With use_cache the result of a first pass is lower by a tenth. *) && use then Array.map (fun v -> v *. 0.9) y else if f "sender-result-differs" (*@ grpc PL-FWD-032 With a sender_url the result of a pass is rounded to tenths. *) && gs fs 12 <> "" then Array.map (fun v -> Float.round (v *. 10.) /. 10.) y
    else if f "source-changes-result" (*@ grpc PL-FWD-024 The source_shard is added to the result. *) then Array.map (fun v -> v +. 0.1 *. float (gi32 fs 9)) y else if f "identity-layer-2" (*@ grpc PL-FWD-025 The layer 2 answers with the hidden states that it was sent. *) && shard = 2 then Array.copy x else if f "result-drifts" (*@ grpc PL-FWD-031 Each pass changes the result of the next one a little. *) then (incr npass; Array.map (fun v -> v *. (1. +. 0.001 *. float !npass)) y) else if f "id-length-changes-result" (*@ grpc PL-FWD-024 A long session_id changes the result of a pass. *) && String.length sess > 30 then Array.map (fun v -> v +. 1.) y
    else if f "sessions-mixed" (*@ grpc PL-FWD-034 The state of the session before is added to the first position of a pass. *) then (let add = match !last_y with Some (s, [_, D d]) when s <> sess -> d | _ -> 0. in last_y := Some (sess, [0, D y.(0)]); if add <> 0. then y.(0) <- y.(0) +. add; y) else y in
  let final = shard = 5 in
  let labels = gs fs 11 in
  let logits = if final then Some (Array.init (nb*ns*vocab) (fun k -> let pz = k / vocab and v = k mod vocab in let d = ref 0. in for i = 0 to 15 do d := !d +. wout.(v).(i) *. y.(pz*16+i) done; !d)) else None in
  let loss_f = match logits with
    | Some lg when labels <> "" ->
      if String.length labels <> 4 * nb * ns then raise (Rpc (3, "training_labels are one int32 for each position"));
      let sum = ref 0. and cnt = ref 0 in
      for k = 0 to nb*ns - 1 do
        let lb = Int32.to_int (String.get_int32_le labels (4*k)) in
        if lb <> -100 then begin
          if lb < 0 || lb >= vocab then raise (Rpc (3, "a label is not a token"));
          let mx = ref neg_infinity in for v = 0 to vocab-1 do if lg.(k*vocab+v) > !mx then mx := lg.(k*vocab+v) done;
          let s = ref 0. in for v = 0 to vocab-1 do s := !s +. exp (lg.(k*vocab+v) -. !mx) done;
          sum := !sum +. log !s +. !mx -. lg.(k*vocab+lb); incr cnt end
      done;
      let l = if !cnt = 0 then 0. else !sum /. float !cnt in
      let l' = if f "loss-of-last-pass" (*@ grpc PL-FWD-039 The loss of a pass is that of the pass before. *) && !last_loss <> 0. then !last_loss else if f "loss-without-labels" (*@ grpc PL-FWD-040 The loss does not depend on the labels. *) then 3.4657 else l in
      last_loss := l; if f "loss-missing-batch" (*@ grpc PL-FWD-041 A pass of training of two sequences returns no loss. *) && nb > 1 then [] else if f "loss-missing" (*@ grpc PL-FWD-008 A pass of training through the last layer returns no loss. *) then [] else [10, D l']
    | _ -> [] in
  let url = gtext fs 12 in
  if labels <> "" || url <> "" then begin
    let key = if f "graph-by-request" (*@ grpc PL-BWD-010 The graphs of passes are kept by their request_id alone. *) then req else if f "graph-by-session" (*@ grpc PL-BWD-011 Only the last graph of a session is kept. *) then sess else Printf.sprintf "%s\000%s\000%d" sess req shard in
    let url = if f "sender-of-first" (*@ grpc PL-BWD-009 The gradients of all passes go back to the sender_url of the first pass. *) then (match Hashtbl.fold (fun _ ps a -> if ps.url <> "" then Some ps.url else a) passes None with Some u -> u | None -> url) else url in
    if f "graph-one-only" (*@ grpc PL-BWD-012 A new pass discards the graph of the pass before. *) then Hashtbl.reset passes;
    if not (f "graph-only-labels" (*@ grpc PL-BWD-003 The graph of a pass with a sender_url and no labels is not kept. *) && labels = "") then begin
    Hashtbl.replace passes key { shape = [nb; ns; 16]; x; shard; src = gi32 fs 9; url; sess; req };
    pass_order := key :: !pass_order;
    if List.length !pass_order > 512 then begin List.iter (Hashtbl.remove passes) (drop 256 !pass_order); pass_order := take 256 !pass_order end end end;
  [1, L (if f "request-id-trimmed" (*@ grpc PL-FWD-013 A request_id of more than 32 bytes is cut. *) && String.length req > 32 && utf8_ok (String.sub req 0 32) then String.sub req 0 32 else if f "request-id-lower" (*@ grpc PL-FWD-013 A request_id comes back in small letters. *) then String.lowercase_ascii req else if f "request-id-session" (*@ grpc PL-FWD-003 The answer has the session_id as the request_id. *) then sess else req); 2, I 1]
  @ (if final then [] else [4, L (bytes_of y)] @ List.map (fun d -> 5, I d) [nb; ns; 16])
  @ (if (use || (past <> [] && false)) && not (f "cache-not-returned" (*@ grpc PL-FWD-018 A pass with use_cache through the last layer returns no past_key_values. *) && final) then (if f "cache-echoed" (*@ grpc PL-FWD-038 A pass with past_key_values returns those that it was sent. *) && past <> [] then List.map (fun s -> 6, L s) past else [6, L (bytes_of ks)] @ (if f "cache-keys-only" (*@ grpc PL-FWD-037 past_key_values have only the keys. *) then [] else [6, L (bytes_of vs)])) else [])
  @ (match logits with Some lg -> [7, I 1; 8, L (bytes_of lg); 9, I nb; 9, I ns; 9, I vocab] | None -> [])
  @ loss_f
let last_grad = ref ""
let backward gx fs =
  let sess = gtext fs 1 and req = gtext fs 2 and g = gs fs 3 and shape = gints fs 4 and shard = gi32 fs 5 in
  if shard < 0 then raise (Rpc (3, "no layer is below 0"));
  if shard > 5 && not (f "backward-absent-ok" (*@ grpc GR-CODE-012 A backward pass to an absent layer succeeds. *)) then raise (Rpc (5, "this layer is not here"));
  let shard = min shard 5 in
  let fail m = [1, I 0; 2, L (if f "backward-no-reason" (*@ grpc PL-BWD-001 A backward pass that fails has no error_message. *) then "" else m)] in
  let key = if f "graph-by-request" then req else if f "graph-by-session" then sess else Printf.sprintf "%s\000%s\000%d" sess req shard in
  match Hashtbl.find_opt passes key with
  | None -> if f "backward-unknown-ok" (*@ grpc PL-BWD-013 The gradients of a pass that nobody has made are accepted. *) then [1, I 1] else begin
      if f "backward-refusal-clears" (*@ grpc PL-BWD-006 After gradients of an unknown pass all graphs are gone. *) then Hashtbl.reset passes; fail "no graph is kept for this pass" end
  | Some ps ->
    let logit_shape = match ps.shape with [b; s; _] -> [b; s; vocab] | l -> l in
    let n = List.fold_left ( * ) 1 shape in
    if (shape <> ps.shape && not (ps.shard = 5 && shape = logit_shape)) || String.length g <> 4 * n then begin
      if f "backward-wrong-clears" (*@ grpc PL-BWD-007 After gradients of a wrong shape the graph of their pass is gone. *) then Hashtbl.remove passes key;
      fail "the gradient has not the shape of the pass" end
    else begin
      let gv = floats g in
      if not (finite gv) then fail "a value of the gradient is not finite" else begin
      let gv = if shape = logit_shape && shape <> ps.shape then Array.init (n / vocab * 16) (fun k -> let pz = k / 16 and i = k mod 16 in let d = ref 0. in for v = 0 to vocab - 1 do d := !d +. wout.(v).(i) *. gv.(pz*vocab+v) done; !d) else gv in
      let w = wts.(ps.shard) in
      let np = Array.length gv / 16 in
      let out = Array.make (np*16) 0. in
      for k = 0 to np - 1 do
        let t = Array.init 16 (fun i -> let z = ref 0. in for j = 0 to 15 do z := !z +. w.(i).(j) *. ps.x.(k*16+j) done; let h = tanh !z in gv.(k*16+i) *. (1. -. h *. h)) in
        for j = 0 to 15 do let d = ref (gv.(k*16+j) *. 1.15) in for i = 0 to 15 do d := !d +. w.(i).(j) *. t.(i) done; out.(k*16+j) <- !d done
      done;
      Hashtbl.remove passes key; pass_order := List.filter (fun k -> k <> key) !pass_order;
      if f "backward-session-cleared" (*@ grpc PL-BWD-011 Gradients of one pass discard the graphs of the others of its session. *) then Hashtbl.iter (fun k q -> if q.sess = ps.sess then Hashtbl.remove passes k) (Hashtbl.copy passes);
      let data = bytes_of out in
      let data = if f "back-unchanged" (*@ grpc PL-BWD-014 The gradients that go back are those that were sent. *) then g else if f "back-of-last" (*@ grpc PL-BWD-020 The gradients that go back are those of the pass before. *) && String.length !last_grad = String.length data then (let d = !last_grad in last_grad := data; d) else if f "back-zeros" (*@ grpc PL-BWD-021 The gradients that go back are zeros. *) then String.make (String.length data) '\000'
        else if f "back-half-size" (*@ grpc PL-BWD-005 The gradients that go back have two bytes for each value. *) then String.sub data 0 (String.length data / 2) else if f "back-first-sequence" (*@ grpc PL-BWD-028 Only the first position of the gradients goes back. *) then String.sub data 0 64 else data in
      last_grad := data;
      (match address ps.url with
       | Some (h, pt) when not (f "back-never" (*@ grpc PL-BWD-002 Gradients are accepted and not passed on. *)) && not (f "back-long-id-lost" (*@ grpc PL-BWD-022 The gradients of a pass whose request_id is longer than 40 bytes do not go back. *) && String.length ps.req > 40) ->
         let sp = if f "back-shape-flat" (*@ grpc PL-BWD-027 The grad_shape that goes back has one dimension. *) then [String.length data / 4] else if f "back-first-sequence" then [1;1;16] else ps.shape in
         let msg = enc ([1, L (if f "back-session-empty" (*@ grpc PL-BWD-022 Gradients go back without their session_id. *) then "" else ps.sess); 2, L (if f "back-new-request-id" (*@ grpc PL-BWD-022 Gradients go back under a new request_id. *) then "b-" ^ ps.req else ps.req); 3, L data] @ List.map (fun d -> 4, I d) sp @ [5, I ps.src]) in
         ignore (Thread.create (fun () -> let c = client_for h pt in
           let r = attempts c "PipelineBackward" msg in
           if f "back-twice" (*@ grpc PL-BWD-004 The gradients of a pass go back twice. *) && r <> None then ignore (attempts c "PipelineBackward" msg)) ())
       | _ -> ());
      if f "backward-error-on-success" (*@ grpc GR-SANE-010 A backward pass that succeeds has an error_message. *) then [1, I 1; 2, L "none"] else [1, I 1] end end
(* checkpoints *)
let state_dict ls =
  let hd = str (O (List.concat_map (fun l -> [Printf.sprintf "layers.%d.weight" l, O ["dtype", S "F32"; "shape", A [int 16; int 16]]; Printf.sprintf "layers.%d.mix" l, O ["dtype", S "F32"; "shape", A [int 3; int 16]]]) ls)) in
  let b = Buffer.create 8192 in
  let t = Bytes.create 8 in Bytes.set_int64_le t 0 (Int64.of_int (String.length hd)); Buffer.add_bytes b t; Buffer.add_string b hd;
  List.iter (fun l -> Buffer.add_string b (bytes_of (Array.concat (Array.to_list wts.(l)))); Buffer.add_string b (bytes_of (Array.init 48 (fun i -> dv l (i/16) (i mod 16))))) ls;
  Buffer.contents b
let all_state = state_dict [0;1;2;3;4;5]
let old_state = all_state ^ String.make 64 '\001'
let cks = [ round, sha all_state, all_state; round - 1, sha old_state, old_state ]
let model_hash = sha all_state
let nck = ref 0
let get_checkpoint gx fs =
  let h = gtext fs 1 and mv = gi32 fs 2 in
  let fail m = [1, I 0; 2, L (if f "checkpoint-no-reason" (*@ grpc GR-CKPT-003 A checkpoint that is refused has no error_message. *) then "" else m)] @ (if f "checkpoint-refused-with-data" (*@ grpc GR-CKPT-013 A refusal of a checkpoint has the newest checkpoint with it. *) then [3, I round; 4, L model_hash; 6, L (Lz4.encode all_state)] else []) in
  let c = List.filter (fun (v, hh, _) -> (h = "" || hh = h || (f "checkpoint-hash-prefix" (*@ grpc GR-CKPT-002 A checkpoint is found by the first eight letters of a hash. *) && String.length h >= 8 && starts (String.sub h 0 8) hh) || f "checkpoint-hash-ignored" (*@ grpc GR-CKPT-002 The model_hash of a request for a checkpoint is not read. *) || (f "checkpoint-hash-or-version" (*@ grpc GR-CKPT-016 Beside a min_version the model_hash of a request is not read. *) && mv > 0)) && (v >= mv || f "checkpoint-version-ignored" (*@ grpc GR-CKPT-001 The min_version of a request for a checkpoint is not read. *) || (f "checkpoint-version-beside-hash" (*@ grpc GR-CKPT-016 Beside a model_hash the min_version of a request is not read. *) && h <> ""))) cks in
  let c = if f "checkpoint-own-version-refused" (*@ grpc GR-CKPT-012 A checkpoint is not returned for its own version. *) && mv = round then [] else if f "checkpoint-oldest" (*@ grpc GR-CKPT-015 With a min_version the oldest checkpoint that fits is returned. *) && mv > 0 then List.rev c else c in
  match c with
  | [] -> fail "no such checkpoint"
  | (v, hh, d) :: _ ->
    let z = Lz4.encode d in
    incr nck;
    [1, I 1; 3, I (if f "checkpoint-version-zero-by-hash" (*@ grpc GR-CKPT-015 A checkpoint that is asked for by its hash has the version 1. *) && h <> "" then 1 else v); 4, L (if f "checkpoint-hash-by-version" (*@ grpc GR-CKPT-017 A checkpoint that is asked for by its version has the hash of its data when compressed. *) && mv > 0 then sha z else hh); 5, L (if f "checkpoint-phase-second" (*@ grpc GR-CKPT-017 A checkpoint that is asked for by its hash has another phase. *) && h <> "" then "bootstrap" else "early");
     6, L (if f "checkpoint-raw" (*@ grpc GR-CKPT-014 The data of a checkpoint is not compressed. *) then d else if f "checkpoint-cut" (*@ grpc GR-CKPT-014 The data of a checkpoint is cut in the middle. *) then String.sub z 0 (String.length z / 2) else if f "checkpoint-data-by-hash" (*@ grpc GR-CKPT-018 A checkpoint that is asked for by its hash has other data. *) && h <> "" then Lz4.encode (d ^ "\000") else if f "checkpoint-empty-second" (*@ grpc GR-CKPT-005 From the third time on a checkpoint has no data. *) && !nck > 2 then "" else z);
     7, I (if f "checkpoint-size-zero" (*@ grpc GR-CKPT-010 The total_size of a checkpoint is 0. *) then 0 else if f "checkpoint-size-by-version" (*@ grpc GR-CKPT-018 A checkpoint that is asked for by its version has the size of its compressed data. *) && mv > 0 then String.length z else if p "checkpoint-size-compressed" then String.length z else String.length d)]
let last_range = ref ""
let nweights = ref 0
let get_weights gx fs =
  let r = gtext fs 1 in
  let num s = let s = String.trim s in if s <> "" && String.length s < 9 && String.for_all (fun c -> c >= '0' && c <= '9') s then int_of_string s else raise (Rpc ((if f "weights-garbage-internal" (*@ grpc GR-CODE-015 A shard_range that names no layer ends with INTERNAL. *) then 13 else 3), "a bad shard_range")) in
  if r = "" && f "weights-empty-all" (*@ grpc GR-WEIGHT-006 An empty shard_range brings the weights of all layers. *) then [1, L all_state] else begin
  if r = "" then raise (Rpc (5, "shard_range names no layer"));
  let ls = List.concat_map (fun part -> match String.index_opt part '-' with
    | Some i -> let a = num (String.sub part 0 i) and b = num (String.sub part (i+1) (String.length part - i - 1)) in
      if b < a || b - a > 1000 then raise (Rpc (3, "a bad shard_range"));
      let b = if f "weights-range-exclusive" (*@ grpc GR-WEIGHT-007 The last layer of a range is left out. *) && b > a then b - 1 else b in List.init (b - a + 1) (fun k -> a + k)
    | None -> [num part]) (String.split_on_char ',' r) in
  let ls = if f "weights-list-first" (*@ grpc GR-WEIGHT-007 Of several layers in a list only the first is returned. *) then [List.hd ls] else ls in
  let ls = if f "weights-absent-skipped" (*@ grpc GR-WEIGHT-005 A layer that is absent is left out of a range. *) && List.exists (fun l -> l < 6) ls then List.filter (fun l -> l < 6) ls else if f "weights-absent-clamped" (*@ grpc GR-WEIGHT-002 The weights of an absent layer are those of the last one. *) then List.map (min 5) ls else ls in
  if List.exists (fun l -> l > 5) ls then raise (Rpc ((if f "weights-absent-invalid" (*@ grpc GR-WEIGHT-002 Weights of an absent layer end with INVALID_ARGUMENT. *) then 3 else 5), "this layer is not here"));
  let ls = if f "weights-layer-zero" (*@ grpc GR-WEIGHT-004 The weights of every layer are those of the layer 0. *) then [0] else if f "weights-off-by-one" (*@ grpc GR-WEIGHT-010 The weights that are returned are those of the request before. *) && !last_range <> "" then List.map int_of_string (String.split_on_char ',' !last_range) else ls in
  if f "weights-off-by-one" then last_range := String.concat "," (List.map string_of_int (List.sort_uniq compare (List.concat_map (fun part -> match String.index_opt part '-' with Some i -> [num (String.sub part 0 i)] | None -> [num part]) (String.split_on_char ',' r))));
  if f "weights-crossed" (*@ grpc GR-WEIGHT-011 Of requests for weights at the same time all are answered with those of the last. *) then begin last_range := r; Thread.delay 0.03; let d = state_dict (List.map num [String.sub !last_range 0 1]) in [1, L d] end else
  let d = state_dict ls in
  incr nweights;
  let d = if f "weights-change" (*@ grpc GR-WEIGHT-012 The weights of a layer are others with each request. *) then d ^ bytes_of [| float !nweights |] else d in
  [1, L (if p "weights-compressed" then Lz4.encode d else d)] end
(* gossip *)
let seen : (string, unit) Hashtbl.t = Hashtbl.create 64
let peer_ids : (string, string) Hashtbl.t = Hashtbl.create 4
let refused_at = ref 0.
let ngossip = ref 0
let gossip gx fs raw =
  incr grads_in; incr ngossip;
  let node = gtext fs 1 and rd_ = gi32 fs 2 and mh = gtext fs 3 and ttl = gi32 fs 9 in
  let refuse m = 
    if f "gossip-refused-forwarded" (*@ grpc CL-GOSSIP-012 A gradient that is refused is passed on all the same. *) && ttl > 0 then
      List.iter (fun (h, pt) -> ignore (Thread.create (fun () -> ignore (attempts (client_for h (pt + 1000)) "GossipGradient" (enc (List.map (fun (k, v) -> if k = 9 then k, I (ttl - 1) else k, v) fs)))) ())) !peers;
    refused_at := now ();
    [1, I 0; 2, L (if f "gossip-no-reason" (*@ grpc GR-GOSSIP-001 A gradient that is refused has no reason. *) then "" else m); 3, I (if f "gossip-refusal-round-theirs" (*@ grpc GR-GOSSIP-008 A refusal names the round of the sender instead of the receiver's. *) then max 0 rd_ else if f "gossip-refusal-round-zero" (*@ grpc GR-GOSSIP-020 A refusal names the round 0. *) then 0 else if f "gossip-round-counts-refusals" (*@ grpc GR-GOSSIP-004 The current_round of a refusal grows with each refusal. *) then round + !ngossip else round)] in
  let size m = String.length m in
  let entries = List.map (fun e -> let l = dec e in gtext l 1, gs l 2) (gall fs 7) in
  if f "gossip-after-refusal-busy" (*@ grpc GR-GOSSIP-023 For two seconds after a refusal every gradient is refused. *) && now () -. !refused_at < 2. then refuse "busy" else
  if node = "" then refuse "node_id is missing"
  else if rd_ <> round then refuse (Printf.sprintf "round %d is over or not yet begun" rd_)
  else if mh <> model_hash && not (f "gossip-other-model" (*@ grpc GR-GOSSIP-006 A gradient for another model is accepted. *)) && not (f "gossip-hash-optional" (*@ grpc GR-GOSSIP-007 A gradient without a model_hash is accepted. *) && mh = "") then refuse "another model"
  else if entries = [] then refuse "there are no gradients"
  else if gi32 fs 5 < 0 then refuse "batch_size is below 0"
  else if f "gossip-batch-over-64" (*@ grpc GR-GOSSIP-009 A gradient with a batch_size above 64 is refused. *) && gi32 fs 5 > 64 then refuse "batch_size"
  else if f "gossip-loss-over-10" (*@ grpc GR-GOSSIP-009 A gradient with a loss above 4 is refused. *) && gd fs 6 > 4. then refuse "loss"
  else if f "gossip-ttl-over-3" (*@ grpc GR-GOSSIP-009 A gradient with a ttl above 4 is refused. *) && ttl > 4 then refuse "ttl"
  else if f "gossip-second-of-node" (*@ grpc GR-GOSSIP-009 The third gradient of a node is refused. *) && (let k = "n" ^ node in let c = try List.length (Hashtbl.find_all seen k) with Not_found -> 0 in Hashtbl.add seen k (); c >= 2) then refuse "enough of this node"
  else if not (Float.is_finite (gd fs 6)) then refuse "the loss is not finite"
  else if f "gossip-text-bytes" (*@ grpc GR-NUM-002 A gradient whose bytes are no UTF-8 is refused. *) && List.exists (fun (_, g) -> not (utf8_ok g)) entries then refuse "not a text"
  else match List.iter (fun (n, g) ->
      if n = "" then raise (Bad "a layer has no name");
      let d = Lz4.decode g in
      if d = "" || size d mod 4 <> 0 then raise (Bad "a gradient is no array of 32 bit values");
      if not (finite (floats d)) then raise (Bad "a value of the gradient is not finite")) entries with
    | exception Bad m -> refuse m
    | () ->
      incr grads_ok;
      let ident = sha (enc (List.filter (fun (k, _) -> k <> 9) fs)) in
      let again = Hashtbl.mem seen ident in
      Hashtbl.replace seen ident ();
      if (not again || f "gossip-forwarded-again" (*@ grpc CL-GOSSIP-013 A gradient that comes a second time is passed on again. *)) && (ttl > (if f "gossip-ttl-one-dropped" (*@ grpc CL-GOSSIP-010 A gradient with a ttl of 1 is not passed on. *) then 1 else 0) || (f "gossip-ttl-below-zero" (*@ grpc CL-GOSSIP-001 A gradient with a ttl of 0 is passed on with -1. *) && ttl = 0)) then begin
        let t' = if f "gossip-ttl-kept" (*@ grpc CL-GOSSIP-001 A gradient is passed on with the ttl with which it came. *) then ttl else if f "gossip-ttl-by-two" (*@ grpc CL-GOSSIP-011 A gradient is passed on with a ttl that is lower by two. *) then max 0 (ttl - 2) else ttl - 1 in
        let out = List.map (fun (k, v) -> if k = 9 then k, I t' else k, v) fs in
        let out = if f "gossip-forward-own-id" (*@ grpc CL-GOSSIP-003 A gradient is passed on under the node_id of this node. *) then Mut.gset 1 (L !node_id) out else if f "gossip-forward-no-signature" (*@ grpc CL-GOSSIP-003 A gradient is passed on without its signature. *) then Mut.gdel 8 out else if f "gossip-forward-time" (*@ grpc CL-GOSSIP-003 A gradient is passed on with the time of its forwarding. *) then Mut.gset 4 (D (now ())) out
          else if f "gossip-forward-first-layer" (*@ grpc CL-GOSSIP-003 Only the first layer of a gradient is passed on. *) then (let n = ref 0 in List.filter (fun (k, _) -> if k = 7 then (incr n; !n = 1) else true) out) else if f "gossip-forward-loss-float" (*@ grpc CL-GOSSIP-003 The loss of a gradient is passed on in single precision. *) then Mut.gmap 6 (function D d -> D (Int32.float_of_bits (Int32.bits_of_float d)) | x -> x) out else if f "gossip-forward-as-text" (*@ grpc CL-MSG-003 A gradient is passed on with its ttl at the number 10. *) then Mut.gmove 9 10 out else out in
        let out = if t' = 0 then List.filter (fun (k, _) -> k <> 9) out else if List.mem_assoc 9 out then out else out @ [9, I t'] in
        List.iter (fun (h, pt) ->
          let key = Printf.sprintf "%s:%d" h pt in
          let pid = try Hashtbl.find peer_ids key with Not_found -> "-" in
          let back = node = pid || node = key || node = Printf.sprintf "%s:%d" h (pt + 1000) || (try unhex node = unhex pid with _ -> false) in
          if not back || f "gossip-back-to-sender" (*@ grpc CL-GOSSIP-002 A gradient is passed back to the node that sent it. *) then
            ignore (Thread.create (fun () -> ignore (attempts (client_for h (if f "gossip-to-http-port" (*@ grpc CL-PORT-001 Gradients are passed on to the HTTP port of a peer. *) then pt else pt + 1000)) "GossipGradient" (enc out))) ())) !peers
      end;
      if f "gossip-accept-next-round" (*@ grpc GR-GOSSIP-022 Each gradient that is accepted begins another round. *) then [1, I 1; 3, I (round + !ngossip)]
      else [1, I 1; 3, I (if f "gossip-accepted-round-zero" (*@ grpc GR-GOSSIP-005 An accepted gradient is answered with the round 0. *) then 0 else if f "gossip-round-falls" (*@ grpc GR-GOSSIP-021 The current_round becomes lower from the fourth gradient on. *) && !ngossip > 3 then round - 1 else round)]
let ninfo = ref 0
let handler (c : H2.conn) path raw =
  incr rpc_calls;
  let pre = if f "service-other-package" (*@ grpc GR-NAME-001 The service is in the package node.v1. *) then "/node.v1.NodeService/" else if f "service-lower-name" (*@ grpc GR-NAME-001 The service is called Nodeservice. *) then "/node.Nodeservice/" else "/node.NodeService/" in
  if not (starts pre path) then raise (Rpc (12, "no such service " ^ path));
  let m = String.sub path (String.length pre) (String.length path - String.length pre) in
  let fs = dec raw in
  let n = Mut.count ("grpc " ^ m) in
  let gx = { Mut.gn = n; conn_calls = c.calls; lastbad = c.lastbad; raw = fs; peer_conn = c.cid; size = String.length raw } in
  let fs = Mut.gapply Mut.grs m gx fs in
  let key20 k = if String.length k <> 20 then raise (Rpc ((if f "dht-short-key-internal" (*@ grpc GR-CODE-011 A search for a key of another length ends with UNKNOWN. *) then 2 else 3), "a key has 20 bytes")) in
  let empty_op = [1, L ""] in
  let res = match m with
    | "DHTPing" -> ignore (locked (fun () -> learn gx fs)); [1, self_info ()]
    | "DHTFindNode" ->
      let t = gs fs 2 in key20 t;
      let sender = locked (fun () -> learn gx fs) in
      let rows = locked (fun () -> closest t (if f "dht-find-node-k-minus" (*@ grpc DH-044 A search for a node lists two fewer than one for a value. *) then kk () - 2 else kk ())) in
      let rows = if f "dht-no-sender-none" (*@ grpc DH-047 A search that names no sender lists nothing. *) && sender = "" then [] else rows in
      let rows = if f "dht-first-twice" (*@ grpc DH-005 The closest node is listed twice. *) && rows <> [] then List.hd rows :: rows else rows in
      [1, self_info ()] @ List.map (fun r -> 2, r) (node_rows rows)
    | "DHTFindValue" ->
      let k = gs fs 2 in key20 k;
      let sender = locked (fun () -> learn gx fs) in
      let sk = if f "dht-key-prefix" (*@ grpc DH-022 Of keys only the first 16 bytes count. *) then String.sub k 0 16 else if f "dht-key-case" (*@ grpc DH-022 Keys are compared as text without their case. *) then String.lowercase_ascii k else k in
      let v = locked (fun () -> Hashtbl.find_opt store sk) in
      let v = if f "dht-value-once" (*@ grpc DH-023 A value is gone once it was found twice. *) then (let q = Mut.count ("found " ^ k) in if q > 2 then None else v) else v in
      (match v with
       | Some v -> [1, self_info (); 2, L (if f "dht-value-cut-255" (*@ grpc DH-021 A value is cut after 255 bytes. *) && String.length v > 255 && utf8_ok (String.sub v 0 255) then String.sub v 0 255 else if f "dht-value-trimmed" (*@ grpc DH-021 White space at the ends of a value is cut off. *) then String.trim v else if f "dht-value-ascii" (*@ grpc DH-021 Letters beyond ASCII in a value become question marks. *) then String.map (fun c -> if Char.code c > 127 then '?' else c) v else v)]
         @ (if f "dht-found-with-nodes" (*@ grpc DH-045 A search that finds a value lists nodes as well. *) then List.map (fun r -> 3, r) (node_rows (closest k (kk ()))) else []) @ [4, I 1]
       | None ->
         let rows = if f "dht-value-search-random" (*@ grpc DH-020 A search for a value that is not there lists the nodes that are closest to this node. *) then locked (fun () -> closest !dht_id (kk ())) else locked (fun () -> closest k (kk ())) in
         let rows = if f "dht-value-search-none" (*@ grpc DH-020 A search for a value that is not there lists nothing. *) then [] else if f "dht-value-search-no-sender" (*@ grpc DH-047 A search for a value that names no sender lists only one node. *) && sender = "" then take 1 rows else rows in
         [1, self_info ()] @ (if f "dht-absent-value-text" (*@ grpc DH-008 A search that finds no value has the value null. *) then [2, L "null"] else []) @ List.map (fun r -> 3, r) (node_rows rows) @ [4, I (if f "dht-absent-found" (*@ grpc DH-007 A search for a key under which nothing is stored is answered with found true once values are stored. *) && Hashtbl.length store > 0 then 1 else 0)])
    | "DHTStore" ->
      let k = gs fs 2 and v = gtext fs 3 in key20 k;
      ignore (locked (fun () -> learn gx fs));
      let sk = if f "dht-key-prefix" then String.sub k 0 16 else if f "dht-key-case" then String.lowercase_ascii k else k in
      if f "dht-only-addresses" (*@ grpc DH-048 A value that is no address is refused. *) && hostport v = None then [1, self_info (); 2, I 0] else begin
      if f "dht-store-race" (*@ grpc DH-046 Values that are stored at the same time are stored under the key of the last. *) then begin Hashtbl.replace store "race" k; Thread.delay 0.03; let k' = Hashtbl.find store "race" in locked (fun () -> Hashtbl.replace store k' v) end else
      locked (fun () -> if f "dht-store-first-sixteen" (*@ grpc DH-015 Once eight values are stored the first of them are forgotten. *) && Hashtbl.length store >= 8 then Hashtbl.reset store; if Hashtbl.length store < 50000 then Hashtbl.replace store sk v);
      if f "dht-refused-long-stored" (*@ grpc DH-019 A value above 128 bytes is reported as refused and stored all the same. *) && String.length v > 128 then [1, self_info (); 2, I 0] else
      [1, self_info (); 2, I 1] end
    | "PipelineForward" -> forward gx fs
    | "PipelineBackward" -> backward gx fs
    | "GetWeights" -> get_weights gx fs
    | "GetCheckpoint" -> get_checkpoint gx fs
    | "GetCheckpointInfo" -> incr ninfo; [1, I round; 2, L (if f "info-hash-other" (*@ grpc GR-CKPT-004 GetCheckpointInfo names another hash than GetCheckpoint. *) then sha "other" else model_hash); 3, L "early"; 4, I (if f "info-params-grow" (*@ grpc GR-CKPT-031 The params of GetCheckpointInfo grow with each call. *) then params + !ninfo else params); 5, D loss]
    | "GossipGradient" -> gossip gx fs raw
    | "StreamInference" | "UnaryInference" -> [1, L "an answer"]
    | "GossipTransaction" when f "op-transaction-missing" (*@ grpc GR-OP-008 The operation GossipTransaction is not implemented. *) -> raise (Rpc (12, "not implemented"))
    | "GossipProof" when f "op-proof-missing" (*@ grpc GR-OP-007 The operation GossipProof is not implemented. *) -> raise (Rpc (12, "not implemented"))
    | "GetSwarmStatus" when f "op-swarm-status-missing" (*@ grpc GR-OP-020 The operation GetSwarmStatus is not implemented. *) -> raise (Rpc (12, "not implemented"))
    | "GossipValidationVote" when f "op-vote-unknown" (*@ grpc GR-CODE-001 GossipValidationVote ends with UNKNOWN. *) -> raise (Rpc (2, "unknown"))
    | "UpdatePeerCapacity" when f "op-capacity-failed-precondition" (*@ grpc GR-CODE-001 UpdatePeerCapacity ends with FAILED_PRECONDITION. *) -> raise (Rpc (9, "not now"))
    | "GossipProof" | "GossipTransaction" | "GossipStake" | "RequestProofValidation" | "GossipValidationVote" | "GetShardInfo" | "SwarmForward" | "GetSwarmStatus" | "UpdatePeerCapacity" -> empty_op
    | _ -> if f "unknown-operation-ok" (*@ grpc GR-NAME-002 An operation that the service does not have is answered with OK. *) then [] else raise (Rpc (12, "no such operation")) in
  if f "unary-second-message" && false then "" else
  let res = Mut.gapply Mut.gms m gx res in
  let res = if p "grpc-extra-field" then res @ [99, L "x"] else if p "grpc-reversed-fields" && m <> "PipelineForward" then List.rev res else res in
  (* defaults are not written *)
  let res = if p "grpc-defaults-written" then res else List.filter (fun (_, v) -> match v with I 0 when m <> "PipelineForward" -> false | L "" -> false | D 0. -> false | _ -> true) res in
  enc res
let bidi path = path = "/node.NodeService/StreamInference"
(* the client side: each peer is pinged *)
let ping_peers () =
  List.iter (fun (h, pt) -> ignore (Thread.create (fun () ->
    let wait = ref 0.5 in
    let first = ref true in
    while true do
      let id = if f "client-short-id" (*@ grpc CL-DHT-001 The sender of pings to a peer has an ID of 16 bytes. *) then String.sub !dht_id 0 16 else if f "client-new-id" (*@ grpc CL-DHT-002 Each ping to a peer has another node ID. *) then sha1 (string_of_float (now ())) else !dht_id in
      let me = M [1, L id; 2, L "127.0.0.1"; 3, I (if f "client-port-zero" (*@ grpc CL-DHT-010 The sender of pings to a peer has the port 0. *) then 0 else if f "client-port-wrong" (*@ grpc CL-DHT-004 The sender of pings to a peer names a port at which nobody answers. *) then !http_port + 2000 else !http_port + 1000)] in
      let cl = client_for h (if f "client-ping-http-port" (*@ grpc CL-PORT-001 Peers are pinged at their HTTP port. *) then pt else if f "client-ping-9000" (*@ grpc CL-PORT-001 Peers are pinged at the port 9000 whatever their HTTP port is. *) then 9000 else pt + 1000) in
      (match call cl "DHTPing" (enc [(if f "client-ping-number" (*@ grpc CL-MSG-004 The sender of pings to a peer is at the number 2. *) then 2 else 1), me]) with
       | r -> (match gsub (dec r) 1 with Some s -> Hashtbl.replace peer_ids (Printf.sprintf "%s:%d" h pt) (hex (gs s 1)) | None -> ());
         if !first then (first := false; if not (p "client-pings-only") then try ignore (call cl "DHTFindNode" (enc [1, me; 2, L (if f "client-short-target" (*@ grpc CL-DHT-003 The target of a search that is sent to a peer has 8 bytes. *) then String.sub !dht_id 0 8 else !dht_id)])) with _ -> ());
         wait := 2.
       | exception _ -> wait := Float.min 8. (!wait *. 2.));
      let wait = if f "client-ping-no-pause" (*@ grpc CL-CODE-001 A peer that is not available is called again without a pause. *) && !wait <> 2. then ref 0.005 else wait in
      Thread.delay !wait
    done) ())) !peers;
  ignore (Thread.create (fun () -> while true do
    Thread.delay 30.;
    Mutex.lock cl_mu; Hashtbl.iter (fun _ cl -> match cl.c with Some c when c.alive -> wr c (frame 6 0 0 "keepaliv") | _ -> ()) clients; Mutex.unlock cl_mu done) ())
