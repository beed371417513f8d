(* conditions of faults that change an answer or a request as it passes *)
open Util
type cx = { acct : int; nth : int; q : (string * string) list; kept : bool; refused : bool; gens : int; route : string; body : j; st : int; up : float; lastroute : string; headers : (string * string) list; moves : int }
let always _ = true
let second c = c.acct = 2
let notfirst c = c.nth > 1
let from k c = c.nth >= k
let every k c = c.nth mod k = 0
let kept c = c.kept
let afterref c = c.refused
let hasq k c = List.mem_assoc k c.q
let aftergen c = c.gens > 0
let qv k v c = List.assoc_opt k c.q = Some v
let after r c = c.lastroute = r
let tokd c = List.mem_assoc "authorization" c.headers
let moved c = c.moves > 0
type fn = j -> j
type hm = { id : string; kind : string; rid : string; say : string; route : string; cond : cx -> bool; fn : cx -> j -> j }
let hms : hm list ref = ref []
let hrs : hm list ref = ref []
let all : (string * string * string * string) list ref = ref []
let reg l id kind rid say route cond fn = all := (id, kind, rid, say) :: !all; if !active = "" || true then l := { id; kind; rid; say; route; cond; fn } :: !l
let hm id kind rid say route cond fn = reg hms id kind rid say route cond (fun _ j -> fn j)
let hr id kind rid say route cond fn = reg hrs id kind rid say route cond (fun _ j -> fn j)
let apply l route cx j = List.fold_left (fun j m -> if m.id = !active && m.route = route && m.cond cx then (try m.fn cx j with _ -> j) else j) j !l
let counts : (string, int) Hashtbl.t = Hashtbl.create 50
let count r = let n = (try Hashtbl.find counts r with Not_found -> 0) + 1 in Hashtbl.replace counts r n; n
(* gRPC *)
type gx = { gn : int; conn_calls : int; lastbad : bool; raw : (int * H2.v) list; peer_conn : int; size : int }
type gmm = { gid : string; meth : string; gc : gx -> bool; gf : gx -> (int * H2.v) list -> (int * H2.v) list }
let gms : gmm list ref = ref [] and grs : gmm list ref = ref []
let gm id kind rid say meth gc gf = gms := { gid = id; meth; gc; gf = (fun _ l -> gf l) } :: !gms
let gr id kind rid say meth gc gf = grs := { gid = id; meth; gc; gf = (fun _ l -> gf l) } :: !grs
let gapply l meth gx fs = List.fold_left (fun fs m -> if m.gid = !active && (m.meth = meth || (m.meth = "DHT" && starts "DHT" meth) || m.meth = "*") && m.gc gx then (try m.gf gx fs with Bad m -> raise (Bad m) | _ -> fs) else fs) fs !l
let galways _ = true
let gfrom k g = g.gn >= k
let gevery k g = g.gn mod k = 0
let gkept g = g.conn_calls > 1
let gbad g = g.lastbad
let ghas n g = List.mem_assoc n g.raw
let gfirst g = g.gn = 1
let gdel n l = List.filter (fun (k, _) -> k <> n) l
let gset n v l = if List.mem_assoc n l then List.map (fun (k, x) -> if k = n then (k, v) else (k, x)) l else l @ [n, v]
let gmove a b l = List.map (fun (k, v) -> if k = a then (b, v) else (k, v)) l
let gmap n fn l = List.map (fun (k, v) -> if k = n then (k, fn v) else (k, v)) l
let gswap a b l = List.map (fun (k, v) -> if k = a then (b, v) else if k = b then (a, v) else (k, v)) l
