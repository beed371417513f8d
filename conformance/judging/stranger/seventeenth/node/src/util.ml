(* fault switch, JSON, encodings, digests, times *)
let active = ref ""
let pecs : string list ref = ref []
let f id = String.equal id !active
let p id = List.mem id !pecs
let started = Unix.gettimeofday ()
let now = Unix.gettimeofday
let mu = Mutex.create ()
let locked fn = Mutex.lock mu; match fn () with v -> Mutex.unlock mu; v | exception e -> Mutex.unlock mu; raise e

type j = Null | B of bool | N of string | S of string | A of j list | O of (string * j) list
exception Bad of string

let int i = N (string_of_int i)
let fl x =
  if Float.is_integer x && Float.abs x < 1e15 then N (Printf.sprintf "%.1f" x)
  else
    let s = Printf.sprintf "%.15g" x in
    N (if float_of_string s = x then s else Printf.sprintf "%.17g" x)
let esc b s =
  String.iter (fun c -> match c with
    | '"' -> Buffer.add_string b "\\\"" | '\\' -> Buffer.add_string b "\\\\"
    | '\n' -> Buffer.add_string b "\\n" | '\r' -> Buffer.add_string b "\\r" | '\t' -> Buffer.add_string b "\\t"
    | c when Char.code c < 32 -> Buffer.add_string b (Printf.sprintf "\\u%04x" (Char.code c))
    | c -> Buffer.add_char b c) s
(* escape everything beyond ASCII *)
let esc_ascii b s =
  let n = String.length s in
  let i = ref 0 in
  while !i < n do
    let c = Char.code s.[!i] in
    if c < 128 then (esc b (String.make 1 s.[!i]); incr i)
    else begin
      let l, v = if c >= 0xf0 then 4, c land 7 else if c >= 0xe0 then 3, c land 15 else 2, c land 31 in
      let v = ref v in
      for k = 1 to l - 1 do if !i + k < n then v := (!v lsl 6) lor (Char.code s.[!i+k] land 63) done;
      (if !v >= 0x10000 then begin
        let w = !v - 0x10000 in
        Buffer.add_string b (Printf.sprintf "\\u%04x\\u%04x" (0xd800 lor (w lsr 10)) (0xdc00 lor (w land 1023)))
      end else Buffer.add_string b (Printf.sprintf "\\u%04x" !v));
      i := !i + l
    end
  done
let sep () = if p "json-spaces" then ", " else ","
let col () = if p "json-spaces" then ": " else ":"
let rec wr b v = match v with
  | Null -> Buffer.add_string b "null" | B x -> Buffer.add_string b (string_of_bool x)
  | N s -> Buffer.add_string b s
  | S s -> Buffer.add_char b '"'; (if p "json-ascii" then esc_ascii else esc) b s; Buffer.add_char b '"'
  | A l -> Buffer.add_char b '['; List.iteri (fun i x -> if i > 0 then Buffer.add_string b (sep ()); wr b x) l; Buffer.add_char b ']'
  | O l ->
    let l = if p "json-reversed" then List.rev l else if p "json-sorted" then List.sort compare l else l in
    Buffer.add_char b '{';
    List.iteri (fun i (k, x) -> if i > 0 then Buffer.add_string b (sep ()); Buffer.add_char b '"'; esc b k; Buffer.add_char b '"'; Buffer.add_string b (col ()); wr b x) l;
    Buffer.add_char b '}'
let str v = let b = Buffer.create 256 in wr b v; Buffer.contents b

let utf8_ok s =
  let n = String.length s in
  let rec go i = if i >= n then true else
    let c = Char.code s.[i] in
    let cont k = i + k < n && Char.code s.[i+k] land 0xc0 = 0x80 in
    if c < 0x80 then go (i+1)
    else if c >= 0xc2 && c < 0xe0 then cont 1 && go (i+2)
    else if c >= 0xe0 && c < 0xf0 then
      cont 1 && cont 2 && (c <> 0xe0 || Char.code s.[i+1] >= 0xa0) && (c <> 0xed || Char.code s.[i+1] < 0xa0) && go (i+3)
    else if c >= 0xf0 && c < 0xf5 then
      cont 1 && cont 2 && cont 3 && (c <> 0xf0 || Char.code s.[i+1] >= 0x90) && (c <> 0xf4 || Char.code s.[i+1] < 0x90) && go (i+4)
    else false in
  go 0
let add_utf8 b u = Buffer.add_utf_8_uchar b (Uchar.of_int u)
let parse s =
  if not (utf8_ok s) then raise (Bad "the body is not UTF-8");
  let n = String.length s in
  let pos = ref 0 in
  let fail m = raise (Bad m) in
  let peek () = if !pos < n then s.[!pos] else '\000' in
  let ws () = while !pos < n && (match s.[!pos] with ' ' | '\t' | '\n' | '\r' -> true | _ -> false) do incr pos done in
  let hex4 () =
    if !pos + 4 > n then fail "short escape";
    let h = String.sub s !pos 4 in
    String.iter (fun c -> match c with '0'..'9' | 'a'..'f' | 'A'..'F' -> () | _ -> fail "bad escape") h;
    pos := !pos + 4; int_of_string ("0x" ^ h) in
  let pstr () =
    incr pos;
    let b = Buffer.create 16 in
    let rec go () =
      if !pos >= n then fail "unterminated string";
      match s.[!pos] with
      | '"' -> incr pos
      | '\\' ->
        incr pos;
        let c = peek () in incr pos;
        (match c with
         | '"' | '\\' | '/' -> Buffer.add_char b c
         | 'n' -> Buffer.add_char b '\n' | 't' -> Buffer.add_char b '\t' | 'r' -> Buffer.add_char b '\r'
         | 'b' -> Buffer.add_char b '\b' | 'f' -> Buffer.add_char b '\012'
         | 'u' ->
           let u = hex4 () in
           if u >= 0xd800 && u < 0xdc00 then begin
             if !pos + 6 <= n && s.[!pos] = '\\' && s.[!pos+1] = 'u' then begin
               pos := !pos + 2;
               let v = hex4 () in
               if v < 0xdc00 || v > 0xdfff then fail "lone surrogate";
               add_utf8 b (0x10000 + ((u - 0xd800) lsl 10) + (v - 0xdc00))
             end else fail "lone surrogate"
           end else if u >= 0xdc00 && u < 0xe000 then fail "lone surrogate"
           else add_utf8 b u
         | _ -> fail "bad escape");
        go ()
      | c when Char.code c < 32 -> fail "control character in a string"
      | c -> Buffer.add_char b c; incr pos; go () in
    go (); Buffer.contents b in
  let lit w v = let l = String.length w in
    if !pos + l <= n && String.sub s !pos l = w then (pos := !pos + l; v) else fail "not JSON" in
  let rec value d =
    if d > 200 then fail "too deep";
    ws ();
    match peek () with
    | '{' -> incr pos; ws ();
      if peek () = '}' then (incr pos; O []) else begin
        let rec go acc = ws ();
          if peek () <> '"' then fail "a name is expected";
          let k = pstr () in ws ();
          if peek () <> ':' then fail "a colon is expected"; incr pos;
          let v = value (d+1) in ws ();
          let acc = (k, v) :: List.remove_assoc k acc in
          match peek () with ',' -> incr pos; go acc | '}' -> incr pos; O (List.rev acc) | _ -> fail "a comma is expected" in
        go [] end
    | '[' -> incr pos; ws ();
      if peek () = ']' then (incr pos; A []) else begin
        let rec go acc =
          let v = value (d+1) in ws ();
          match peek () with ',' -> incr pos; go (v :: acc) | ']' -> incr pos; A (List.rev (v :: acc)) | _ -> fail "a comma is expected" in
        go [] end
    | '"' -> S (pstr ())
    | 't' -> lit "true" (B true) | 'f' -> lit "false" (B false) | 'n' -> lit "null" Null
    | '-' | '0'..'9' ->
      let st = !pos in
      let digits () = let a = !pos in
        while !pos < n && s.[!pos] >= '0' && s.[!pos] <= '9' do incr pos done;
        if !pos = a then fail "bad number" in
      if peek () = '-' then incr pos;
      if peek () = '0' then (incr pos; (match peek () with '0'..'9' -> fail "bad number" | _ -> ())) else digits ();
      if peek () = '.' then (incr pos; digits ());
      (match peek () with 'e' | 'E' -> incr pos; (match peek () with '+' | '-' -> incr pos | _ -> ()); digits () | _ -> ());
      N (String.sub s st (!pos - st))
    | _ -> fail "not JSON" in
  let v = value 0 in
  ws (); if !pos <> n then fail "something follows the JSON"; v
let get k = function O l -> (try List.assoc k l with Not_found -> Null) | _ -> Null
let has k = function O l -> List.mem_assoc k l | _ -> false
(* an integer, also when written 5.0 or 5e0 *)
let as_int = function
  | N s -> (match int_of_string_opt s with
      | Some i when not (String.contains s 'x') -> Some i
      | _ -> let x = float_of_string s in if Float.is_integer x && Float.abs x < 9e15 then Some (int_of_float x) else None)
  | _ -> None
(* money: millionths of a unit *)
let as_micro = function
  | N s -> let x = float_of_string s in
    if Float.is_nan x || Float.abs x > 4e12 then (if x > 0. then Some max_int else None) else Some (int_of_float (Float.round (x *. 1e6)))
  | _ -> None
let money m =
  let s = if m < 0 then "-" else "" in
  let a = abs m in
  let w = a / 1000000 and r = a mod 1000000 in
  if r = 0 then N (Printf.sprintf (if p "money-integers" then "%s%d" else "%s%d.0") s w)
  else begin
    let d = Printf.sprintf "%06d" r in
    let e = ref 6 in
    if not (p "money-six-decimals") then while d.[!e - 1] = '0' do decr e done;
    N (Printf.sprintf "%s%d.%s" s w (String.sub d 0 !e))
  end
(* paths into JSON: a.b, a[], a[0], a[-1] *)
let rec upd path fn v = match path with
  | [] -> fn v
  | "[]" :: r -> (match v with A l -> A (List.map (upd r fn) l) | x -> x)
  | "[0]" :: r -> (match v with A (x :: t) -> A (upd r fn x :: t) | x -> x)
  | "[1]" :: r -> (match v with A (x :: y :: t) -> A (x :: upd r fn y :: t) | x -> x)
  | "[-1]" :: r -> (match v with A l when l <> [] -> let rl = List.rev l in A (List.rev (upd r fn (List.hd rl) :: List.tl rl)) | x -> x)
  | k :: r -> (match v with O l -> O (List.map (fun (n, x) -> if n = k then (n, upd r fn x) else (n, x)) l) | x -> x)
let path s = String.split_on_char '.' s
let set s nv j = upd (path s) (fun _ -> nv) j
let map s fn j = upd (path s) fn j
let split_last l = match List.rev l with k :: r -> List.rev r, k | [] -> [], ""
let del s j = let a, k = split_last (path s) in upd a (function O l -> O (List.remove_assoc k l) | x -> x) j
let ren s k2 j = let a, k = split_last (path s) in
  upd a (function O l -> O (List.map (fun (n, x) -> if n = k then (k2, x) else (n, x)) l) | x -> x) j
let add s v j = let a, k = split_last (path s) in
  upd a (function O l -> O (List.remove_assoc k l @ [k, v]) | x -> x) j
let numf = function N s -> float_of_string s | _ -> 0.
let plus d = function N s -> (match int_of_string_opt s with Some i -> int (i + d) | None -> fl (float_of_string s +. float d)) | x -> x
let times k = function N s -> fl (float_of_string s *. k) | x -> x
let quote = function N s -> S s | B b -> S (string_of_bool b) | x -> x

let hex s = let b = Buffer.create (2 * String.length s) in
  String.iter (fun c -> Buffer.add_string b (Printf.sprintf "%02x" (Char.code c))) s; Buffer.contents b
let is_hex s = s <> "" && String.length s land 1 = 0 &&
  (let ok = ref true in String.iter (fun c -> match c with '0'..'9' | 'a'..'f' | 'A'..'F' -> () | _ -> ok := false) s; !ok)
let unhex s = String.init (String.length s / 2) (fun i -> Char.chr (int_of_string ("0x" ^ String.sub s (2*i) 2)))
let b64a = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
let b64 s =
  let n = String.length s in
  let b = Buffer.create (n * 4 / 3 + 4) in
  let g i = if i < n then Char.code s.[i] else 0 in
  let i = ref 0 in
  while !i < n do
    let v = (g !i lsl 16) lor (g (!i+1) lsl 8) lor g (!i+2) in
    Buffer.add_char b b64a.[v lsr 18]; Buffer.add_char b b64a.[(v lsr 12) land 63];
    Buffer.add_char b (if !i + 1 < n then b64a.[(v lsr 6) land 63] else '=');
    Buffer.add_char b (if !i + 2 < n then b64a.[v land 63] else '=');
    i := !i + 3
  done; Buffer.contents b
let unb64 s =
  let b = Buffer.create (String.length s) in
  let acc = ref 0 and bits = ref 0 in
  if String.length s mod 4 <> 0 then raise (Bad "not Base64");
  String.iteri (fun i c ->
    if c = '=' then (if i < String.length s - 2 then raise (Bad "not Base64"))
    else match String.index_opt b64a c with
      | None -> raise (Bad "not Base64")
      | Some v -> acc := ((!acc lsl 6) lor v) land 0xffffff; bits := !bits + 6;
        if !bits >= 8 then (bits := !bits - 8; Buffer.add_char b (Char.chr ((!acc lsr !bits) land 255)))) s;
  Buffer.contents b

(* SHA-256: the constants are computed from the primes *)
let primes n = let rec go acc k c = if c = n then List.rev acc else
  if List.exists (fun q -> k mod q = 0) acc then go acc (k+1) c else go (k :: acc) (k+1) (c+1) in go [] 2 0
let frac_root cube q =
  (* floor(frac(root) * 2^32) with integers of zarith *)
  let x = if cube then Z.root (Z.shift_left (Z.of_int q) 96) 3 else Z.sqrt (Z.shift_left (Z.of_int q) 64) in
  Z.to_int (Z.logand x (Z.of_int 0xffffffff))
let k256 = Array.of_list (List.map (frac_root true) (primes 64))
let h256 = Array.of_list (List.map (frac_root false) (primes 8))
let pad s = let l = String.length s in
  let z = (119 - l mod 64) mod 64 in
  let t = Bytes.create 8 in Bytes.set_int64_be t 0 (Int64.of_int (l * 8));
  s ^ "\x80" ^ String.make z '\000' ^ Bytes.to_string t
let w32 s o = (Char.code s.[o] lsl 24) lor (Char.code s.[o+1] lsl 16) lor (Char.code s.[o+2] lsl 8) lor Char.code s.[o+3]
let sha256 s =
  let m = pad s in
  let h = Array.copy h256 and w = Array.make 64 0 in
  let rr x n = ((x lsr n) lor (x lsl (32 - n))) land 0xffffffff in
  for blk = 0 to String.length m / 64 - 1 do
    for i = 0 to 15 do w.(i) <- w32 m (blk*64 + i*4) done;
    for i = 16 to 63 do
      let a = w.(i-15) and b = w.(i-2) in
      w.(i) <- (w.(i-16) + (rr a 7 lxor rr a 18 lxor (a lsr 3)) + w.(i-7) + (rr b 17 lxor rr b 19 lxor (b lsr 10))) land 0xffffffff
    done;
    let a = ref h.(0) and b = ref h.(1) and c = ref h.(2) and d = ref h.(3)
    and e = ref h.(4) and g = ref h.(5) and k = ref h.(6) and l = ref h.(7) in
    for i = 0 to 63 do
      let t1 = !l + (rr !e 6 lxor rr !e 11 lxor rr !e 25) + ((!e land !g) lxor ((lnot !e) land !k)) + k256.(i) + w.(i) in
      let t2 = (rr !a 2 lxor rr !a 13 lxor rr !a 22) + ((!a land !b) lxor (!a land !c) lxor (!b land !c)) in
      l := !k; k := !g; g := !e; e := (!d + t1) land 0xffffffff; d := !c; c := !b; b := !a; a := (t1 + t2) land 0xffffffff
    done;
    List.iteri (fun i x -> h.(i) <- (h.(i) + x) land 0xffffffff) [!a; !b; !c; !d; !e; !g; !k; !l]
  done;
  let out = Bytes.create 32 in
  Array.iteri (fun i x -> Bytes.set_int32_be out (4*i) (Int32.of_int x)) h; Bytes.to_string out
let sha s = hex (sha256 s)
let sha1 s =
  let m = pad s in
  let h = [| 0x67452301; 0xefcdab89; 0x98badcfe; 0x10325476; 0xc3d2e1f0 |] and w = Array.make 80 0 in
  let rl x n = ((x lsl n) lor (x lsr (32 - n))) land 0xffffffff in
  for blk = 0 to String.length m / 64 - 1 do
    for i = 0 to 15 do w.(i) <- w32 m (blk*64 + i*4) done;
    for i = 16 to 79 do w.(i) <- rl (w.(i-3) lxor w.(i-8) lxor w.(i-14) lxor w.(i-16)) 1 done;
    let a = ref h.(0) and b = ref h.(1) and c = ref h.(2) and d = ref h.(3) and e = ref h.(4) in
    for i = 0 to 79 do
      let g, k = if i < 20 then (!b land !c) lor ((lnot !b) land !d), 0x5a827999
        else if i < 40 then !b lxor !c lxor !d, 0x6ed9eba1
        else if i < 60 then (!b land !c) lor (!b land !d) lor (!c land !d), 0x8f1bbcdc
        else !b lxor !c lxor !d, 0xca62c1d6 in
      let t = (rl !a 5 + (g land 0xffffffff) + !e + k + w.(i)) land 0xffffffff in
      e := !d; d := !c; c := rl !b 30; b := !a; a := t
    done;
    List.iteri (fun i x -> h.(i) <- (h.(i) + x) land 0xffffffff) [!a; !b; !c; !d; !e]
  done;
  let out = Bytes.create 20 in
  Array.iteri (fun i x -> Bytes.set_int32_be out (4*i) (Int32.of_int x)) h; Bytes.to_string out

let iso ?(local=false) t =
  let tm = (if local then Unix.localtime else Unix.gmtime) (Float.of_int (int_of_float (Float.floor t))) in
  let us = int_of_float ((t -. Float.floor t) *. 1e6) in
  let us = if us > 999999 then 999999 else us in
  let base = Printf.sprintf "%04d-%02d-%02dT%02d:%02d:%02d" (tm.tm_year+1900) (tm.tm_mon+1) tm.tm_mday tm.tm_hour tm.tm_min tm.tm_sec in
  if p "time-offset" then Printf.sprintf "%s.%06d+00:00" base us
  else if p "time-milliseconds" then Printf.sprintf "%s.%03dZ" base (us / 1000)
  else Printf.sprintf "%s.%06dZ" base us
let day t = let tm = Unix.gmtime t in Printf.sprintf "%04d-%02d-%02d" (tm.tm_year+1900) (tm.tm_mon+1) tm.tm_mday
let httpdate t = let tm = Unix.gmtime t in
  Printf.sprintf "%s, %02d %s %04d %02d:%02d:%02d GMT" [|"Sun";"Mon";"Tue";"Wed";"Thu";"Fri";"Sat"|].(tm.tm_wday) tm.tm_mday
    [|"Jan";"Feb";"Mar";"Apr";"May";"Jun";"Jul";"Aug";"Sep";"Oct";"Nov";"Dec"|].(tm.tm_mon) (tm.tm_year+1900) tm.tm_hour tm.tm_min tm.tm_sec
let rec take n = function x :: r when n > 0 -> x :: take (n-1) r | _ -> []
let rec drop n = function _ :: r as l -> if n > 0 then drop (n-1) r else l | [] -> []
let starts p s = String.length s >= String.length p && String.sub s 0 (String.length p) = p
let find_from s i sub =
  let n = String.length s and m = String.length sub in
  let rec go i = if i + m > n then -1 else if String.sub s i m = sub then i else go (i+1) in go i
let contains s sub = find_from s 0 sub >= 0
