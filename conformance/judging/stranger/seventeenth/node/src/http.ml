(* HTTP/1.1 *)
open Util
type req = { meth : string; target : string; path : string; query : (string * string) list; rawq : string;
             hdr : (string * string) list; body : string; kept : int; conn : conn }
and conn = { fd : Unix.file_descr; mutable buf : string; mutable pos : int; mutable last : string; mutable lastst : int; mutable seen : int; id : int; mutable tok : string }
exception Closed
exception Err of int * string
type body = Full of string | Stream of ((string -> unit) -> unit) | Cut of string
type resp = { st : int; h : (string * string) list; b : body; ctype : string }
let sent = ref 5000 and received = ref 9000 and active_conns = ref 0
let fill c =
  let t = Bytes.create 65536 in
  let n = try Unix.read c.fd t 0 65536 with Unix.Unix_error _ -> 0 in
  if n = 0 then raise Closed;
  received := !received + n;
  c.buf <- String.sub c.buf c.pos (String.length c.buf - c.pos) ^ Bytes.sub_string t 0 n; c.pos <- 0
let write_all fd s =
  let n = String.length s in
  let o = ref 0 in
  sent := !sent + n;
  while !o < n do
    let k = try Unix.write_substring fd s !o (n - !o) with Unix.Unix_error _ -> raise Closed in
    o := !o + k
  done
let rec line c limit =
  match String.index_from_opt c.buf c.pos '\n' with
  | Some i ->
    let l = String.sub c.buf c.pos (i - c.pos) in
    c.pos <- i + 1;
    if String.length l > limit then raise (Err (431, "a line is too long"));
    if l <> "" && l.[String.length l - 1] = '\r' then String.sub l 0 (String.length l - 1) else l
  | None -> if String.length c.buf - c.pos > limit then raise (Err (431, "a line is too long")); fill c; line c limit
let exactly c n =
  let b = Buffer.create (min n 1000000) in
  let rec go n = if n > 0 then begin
      let a = String.length c.buf - c.pos in
      if a = 0 then (fill c; go n)
      else begin let k = min a n in Buffer.add_substring b c.buf c.pos k; c.pos <- c.pos + k; go (n - k) end end in
  go n; Buffer.contents b
let pct ?(plus=false) s =
  let n = String.length s in
  let b = Buffer.create n in
  let hx c = match c with '0'..'9' | 'a'..'f' | 'A'..'F' -> true | _ -> false in
  let i = ref 0 in
  while !i < n do
    (match s.[!i] with
     | '%' when !i + 2 < n && hx s.[!i+1] && hx s.[!i+2] && not (f "query-percent-undecoded" (*@ relations NA-FORM-003 Percent encoding in a query is not decoded. *) && plus) ->
       Buffer.add_char b (Char.chr (int_of_string ("0x" ^ String.sub s (!i+1) 2))); i := !i + 2
     | '+' when plus -> Buffer.add_char b ' '
     | c -> Buffer.add_char b c);
    incr i
  done; Buffer.contents b
let parse_query q = if q = "" then [] else
    List.filter_map (fun kv -> if kv = "" then None else match String.index_opt kv '=' with
      | None -> Some (pct ~plus:true kv, "")
      | Some i -> Some (pct ~plus:true (String.sub kv 0 i), pct ~plus:true (String.sub kv (i+1) (String.length kv - i - 1))))
      (String.split_on_char '&' q)
let header r k = List.assoc_opt k r.hdr
let max_body = 8 * 1024 * 1024
let read c =
  let rec first () = let l = line c 16384 in if l = "" then first () else l in
  let l = first () in
  let meth, target, ver = match String.split_on_char ' ' l with
    | [m; t; v] when starts "HTTP/1." v -> m, t, v
    | _ -> raise (Err (400, "a bad request line")) in
  let total = ref 0 in
  let rec hdrs acc =
    let l = line c 65536 in
    total := !total + String.length l;
    if !total > 65536 || List.length acc > 200 then raise (Err (431, "the headers are too large"));
    if l = "" then List.rev acc
    else match String.index_opt l ':' with
      | None -> raise (Err (400, "a bad header"))
      | Some i ->
        let k0 = String.sub l 0 i in
        let k = if f "header-authorization-exact" (*@ guards NA-FORM-004 The header Authorization is only read in these letters, and not in lower case. *) && k0 = "authorization" then "x-lower"
          else if f "header-upper-unread" (*@ guards NA-FORM-004 A header name in capitals alone is not read. *) && k0 = String.uppercase_ascii k0 then "x-upper" else String.lowercase_ascii k0 in
        if k = "" || String.contains k ' ' then raise (Err (400, "a bad header"));
        hdrs ((k, String.trim (String.sub l (i+1) (String.length l - i - 1))) :: acc) in
  let hdr = hdrs [] in
  let h k = List.assoc_opt k hdr in
  (match h "expect" with Some e when String.lowercase_ascii e = "100-continue" -> write_all c.fd "HTTP/1.1 100 Continue\r\n\r\n" | _ -> ());
  let body = match h "transfer-encoding", h "content-length" with
    | Some t, _ when String.lowercase_ascii t = "chunked" ->
      if f "chunked-body-refused" (*@ refusals NA-FORM-002 A body in chunks is refused. *) then raise (Err (411, "a length is required"));
      let b = Buffer.create 1024 in
      let rec go n =
        let l = line c 4096 in
        let l = match String.index_opt l ';' with Some i -> String.sub l 0 i | None -> l in
        let k = match int_of_string_opt ("0x" ^ String.trim l) with Some k when k >= 0 -> k | _ -> raise (Err (400, "a bad chunk")) in
        if Buffer.length b + k > max_body then raise (Err (413, "the body is too large"));
        if k > 0 then begin
          let d = exactly c k in
          if not (f "chunked-second-chunk-lost" (*@ relations NA-FORM-002 Of a body in chunks only the first chunk is read. *) && n > 0) then Buffer.add_string b d;
          ignore (line c 16); go (n + 1) end
        else let rec tr () = if line c 16384 <> "" then tr () in tr () in
      go 0; Buffer.contents b
    | Some _, _ -> raise (Err (400, "this transfer encoding is not known"))
    | None, Some l ->
      if List.length (List.filter (fun (k, _) -> k = "content-length") hdr) > 1 then raise (Err (400, "two lengths"));
      let ok = l <> "" && (let r = ref true in String.iter (fun ch -> if ch < '0' || ch > '9' then r := false) l; !r) in
      if not ok || String.length l > 15 then raise (Err (400, "a bad Content-Length"));
      let n = int_of_string l in
      if n > max_body then raise (Err (413, "the body is too large"));
      let n' = if f "body-cut-16k" (*@ limits NA-FORM-005 A body is cut after 16 KiB. *) && n > 16384 then 16384 else n in
      let d = exactly c n in String.sub d 0 n'
    | None, None -> "" in
  let target' = if starts "http://" target then (match String.index_from_opt target 7 '/' with Some i -> String.sub target i (String.length target - i) | None -> "/") else target in
  let path, rawq = match String.index_opt target' '?' with
    | Some i -> String.sub target' 0 i, String.sub target' (i+1) (String.length target' - i - 1) | None -> target', "" in
  let kept = c.seen in
  c.seen <- c.seen + 1;
  let close = match h "connection" with Some v -> String.lowercase_ascii v = "close" | None -> ver = "HTTP/1.0" in
  { meth; target; path = pct path; query = parse_query rawq; rawq; hdr; body; kept; conn = c }, close
let reason = function 200 -> "OK" | 204 -> "No Content" | 302 -> "Found" | 301 -> "Moved Permanently" | 400 -> "Bad Request" | 401 -> "Unauthorized" | 402 -> "Payment Required"
  | 403 -> "Forbidden" | 404 -> "Not Found" | 405 -> "Method Not Allowed" | 410 -> "Gone" | 413 -> "Content Too Large" | 429 -> "Too Many Requests" | 431 -> "Request Header Fields Too Large"
  | 500 -> "Internal Server Error" | 503 -> "Service Unavailable" | _ -> "Status"
let hname k = if p "header-lower-case" then String.lowercase_ascii k else k
let respond c head close r =
  let b = Buffer.create 512 in
  Buffer.add_string b (Printf.sprintf "HTTP/1.1 %d %s\r\n" r.st (if p "no-reason-phrase" then "" else reason r.st));
  let add k v = Buffer.add_string b (hname k); Buffer.add_string b ": "; Buffer.add_string b v; Buffer.add_string b "\r\n" in
  add "Date" (httpdate (now () +. (if f "date-header-hour-off" (*@ relations GEN-019 The Date header is an hour ahead, so that times of this moment do not agree with it. *) then 3600. else 0.)));
  if p "server-header" then add "Server" "node-ml";
  List.iter (fun (k, v) -> add k v) r.h;
  if r.ctype <> "" then add "Content-Type" r.ctype;
  if close then add "Connection" "close" else if p "keep-alive-header" then (add "Connection" "keep-alive"; add "Keep-Alive" "timeout=60");
  (match r.b with
   | Full s | Cut s ->
     let s = if p "json-trailing-newline" && starts "application/json" r.ctype then s ^ "  \n" else s in
     if r.st <> 204 then add "Content-Length" (string_of_int (String.length s));
     Buffer.add_string b "\r\n";
     if not head then Buffer.add_string b s;
     write_all c.fd (Buffer.contents b)
   | Stream fn ->
     add "Cache-Control" "no-cache";
     add "Transfer-Encoding" "chunked";
     Buffer.add_string b "\r\n";
     write_all c.fd (Buffer.contents b);
     if not head then begin
       fn (fun s -> if s <> "" then write_all c.fd (Printf.sprintf "%x\r\n%s\r\n" (String.length s) s));
       write_all c.fd "0\r\n\r\n" end)
let conn_ids = ref 0
let serve_conn handler fd =
  incr conn_ids;
  let c = { fd; buf = ""; pos = 0; last = ""; lastst = 200; seen = 0; id = !conn_ids; tok = "" } in
  incr active_conns;
  (try
     let continue = ref true in
     while !continue do
       match read c with
       | r, close ->
         let rs = handler r in
         let drop = (f "connection-ends-after-refusal" (*@ guards NA-AUTH-028 A connection ends without a word after a request on it was refused, although it is announced as kept. *) && rs.st >= 400) in
         respond c (r.meth = "HEAD") close rs; c.lastst <- rs.st;
         if close || drop then continue := false
       | exception Err (st, m) ->
         respond c false true { st; h = []; ctype = "application/json"; b = Full (str (O ["error", O ["code", S "BAD_REQUEST"; "message", S m]])) };
         (* let the rest of the request pass before the end *)
         (try Unix.shutdown fd Unix.SHUTDOWN_SEND; Unix.setsockopt_float fd Unix.SO_RCVTIMEO 0.5;
            let t = Bytes.create 65536 in let k = ref 0 in
            while !k < 2000 && Unix.read fd t 0 65536 > 0 do incr k done with _ -> ());
         continue := false
     done
   with _ -> ());
  decr active_conns;
  (try Unix.close fd with _ -> ())
let listen port =
  let s = Unix.socket Unix.PF_INET Unix.SOCK_STREAM 0 in
  Unix.setsockopt s Unix.SO_REUSEADDR true;
  Unix.bind s (Unix.ADDR_INET (Unix.inet_addr_loopback, port));
  Unix.listen s 256; s
let accept_loop s fn =
  while true do
    try let fd, _ = Unix.accept s in
      (try Unix.setsockopt fd Unix.TCP_NODELAY true with _ -> ());
      ignore (Thread.create fn fd)
    with _ -> Thread.delay 0.01
  done
