(* HTTP/2 with HPACK, protobuf, gRPC server and client *)
open Util
let huff = [|13;23;28;28;28;28;28;28;28;24;30;28;28;30;28;28;28;28;28;28;28;28;30;28;28;28;28;28;28;28;28;28;
6;10;10;12;13;6;8;11;10;10;8;11;8;6;6;6;5;5;5;6;6;6;6;6;6;6;7;8;15;6;12;10;
13;6;7;7;7;7;7;7;7;7;7;7;7;7;7;7;7;7;7;7;7;7;7;7;8;7;8;13;19;13;14;6;
15;5;6;5;6;5;6;6;6;5;7;7;6;6;6;5;6;7;6;5;5;6;7;7;7;7;7;15;11;14;13;28;
20;22;20;20;22;22;22;23;22;23;23;23;23;23;24;23;24;24;22;23;24;23;23;23;23;21;22;23;22;23;23;24;
22;21;20;22;22;23;23;21;23;22;22;24;21;22;23;23;21;21;22;21;23;22;23;23;20;22;22;22;23;22;22;23;
26;26;20;19;22;23;22;25;26;26;26;27;27;26;24;25;19;21;26;27;27;26;27;24;21;21;26;26;28;27;27;27;
20;24;20;21;22;21;21;23;22;22;25;25;24;24;26;23;26;27;26;26;27;27;27;27;27;28;27;27;27;27;27;26;30|]
let codes : (int, int) Hashtbl.t = Hashtbl.create 512
let () =
  let code = ref 0 and prev = ref 0 in
  for l = 5 to 30 do
    code := !code lsl (if !prev = 0 then 0 else 1); prev := l;
    Array.iteri (fun s hl -> if hl = l then (Hashtbl.replace codes ((l lsl 32) lor !code) s; incr code)) huff
  done
let unhuff s =
  let b = Buffer.create 32 in
  let c = ref 0 and l = ref 0 in
  String.iter (fun ch -> for i = 7 downto 0 do
      c := (!c lsl 1) lor ((Char.code ch lsr i) land 1); incr l;
      (match Hashtbl.find_opt codes ((!l lsl 32) lor !c) with
       | Some 256 -> raise (Bad "EOS") | Some v -> Buffer.add_char b (Char.chr v); c := 0; l := 0 | None -> if !l > 30 then raise (Bad "Huffman")) done) s;
  Buffer.contents b
let static = [| "",""; ":authority",""; ":method","GET"; ":method","POST"; ":path","/"; ":path","/index.html"; ":scheme","http"; ":scheme","https";
":status","200"; ":status","204"; ":status","206"; ":status","304"; ":status","400"; ":status","404"; ":status","500"; "accept-charset",""; "accept-encoding","gzip, deflate";
"accept-language",""; "accept-ranges",""; "accept",""; "access-control-allow-origin",""; "age",""; "allow",""; "authorization",""; "cache-control",""; "content-disposition","";
"content-encoding",""; "content-language",""; "content-length",""; "content-location",""; "content-range",""; "content-type",""; "cookie",""; "date",""; "etag",""; "expect","";
"expires",""; "from",""; "host",""; "if-match",""; "if-modified-since",""; "if-none-match",""; "if-range",""; "if-unmodified-since",""; "last-modified",""; "link",""; "location","";
"max-forwards",""; "proxy-authenticate",""; "proxy-authorization",""; "range",""; "referer",""; "refresh",""; "retry-after",""; "server",""; "set-cookie",""; "strict-transport-security","";
"transfer-encoding",""; "user-agent",""; "vary",""; "via",""; "www-authenticate","" |]
type dyn = { mutable tab : (string * string) list; mutable size : int; mutable cap : int }
let evict d = 
  let rec go acc sz = function
    | (k, v) :: r when sz + String.length k + String.length v + 32 <= d.cap -> go ((k, v) :: acc) (sz + String.length k + String.length v + 32) r
    | _ -> d.size <- sz; List.rev acc in
  d.tab <- go [] 0 d.tab
let hpack d s =
  let n = String.length s in
  let i = ref 0 in
  let byte () = if !i >= n then raise (Bad "HPACK"); let c = Char.code s.[!i] in incr i; c in
  let num first bits =
    let m = (1 lsl bits) - 1 in
    let v = first land m in
    if v < m then v else begin
      let rec go v sh = let b = byte () in let v = v + ((b land 127) lsl sh) in if b land 128 <> 0 then go v (sh + 7) else v in go v 0 end in
  let text () = let b = byte () in let l = num b 7 in
    if !i + l > n then raise (Bad "HPACK");
    let t = String.sub s !i l in i := !i + l; if b land 128 <> 0 then unhuff t else t in
  let entry k = if k = 0 then raise (Bad "HPACK") else if k < 62 then static.(k) else (match List.nth_opt d.tab (k - 62) with Some e -> e | None -> raise (Bad "HPACK index")) in
  let out = ref [] in
  while !i < n do
    let b = byte () in
    if b land 128 <> 0 then out := entry (num b 7) :: !out
    else if b land 0xc0 = 0x40 then begin
      let k = num b 6 in let name = if k = 0 then text () else fst (entry k) in
      let v = text () in
      out := (name, v) :: !out; d.tab <- (name, v) :: d.tab; evict d end
    else if b land 0xe0 = 0x20 then (d.cap <- num b 5; evict d)
    else begin let k = num b 4 in let name = if k = 0 then text () else fst (entry k) in out := (name, text ()) :: !out end
  done; List.rev !out
let henc l = let b = Buffer.create 128 in
  let st s = let n = String.length s in
    if n < 127 then Buffer.add_char b (Char.chr n) else begin
      Buffer.add_char b '\127'; let r = ref (n - 127) in
      while !r >= 128 do Buffer.add_char b (Char.chr (!r land 127 lor 128)); r := !r lsr 7 done; Buffer.add_char b (Char.chr !r) end;
    Buffer.add_string b s in
  List.iter (fun (k, v) -> Buffer.add_char b '\000'; st k; st v) l; Buffer.contents b

(* protobuf *)
type v = I of int | D of float | L of string | M of (int * v) list | F32 of string
let rec varint b x = if x >= 0 && x < 128 then Buffer.add_char b (Char.chr x) else (Buffer.add_char b (Char.chr (x land 127 lor 128)); varint b (x lsr 7))
let vi b x = if x >= 0 then varint b x else begin
    (* a negative number has ten bytes *)
    for i = 0 to 8 do Buffer.add_char b (Char.chr (((x asr (7*i)) land 127) lor 128)) done; Buffer.add_char b '\001' end
let rec enc l =
  let b = Buffer.create 256 in
  List.iter (fun (k, v) -> match v with
    | I x -> varint b (k lsl 3); vi b x
    | D x -> varint b (k lsl 3 lor 1); let t = Bytes.create 8 in Bytes.set_int64_le t 0 (Int64.bits_of_float x); Buffer.add_bytes b t
    | L s -> varint b (k lsl 3 lor 2); varint b (String.length s); Buffer.add_string b s
    | F32 s -> varint b (k lsl 3 lor 5); Buffer.add_string b s
    | M l -> let s = enc l in varint b (k lsl 3 lor 2); varint b (String.length s); Buffer.add_string b s) l;
  Buffer.contents b
let rec rd s i = 
  let rec go v sh = if !i >= String.length s || sh > 63 then raise (Bad "the message is cut");
    let b = Char.code s.[!i] in incr i;
    let v = v lor ((b land 127) lsl sh) in if b land 128 <> 0 then go v (sh + 7) else v in go 0 0
let dec s =
  let n = String.length s in
  let i = ref 0 in
  let out = ref [] in
  while !i < n do
    let t = rd s i in
    let k = t lsr 3 in
    if k = 0 then raise (Bad "field 0");
    (match t land 7 with
     | 0 -> out := (k, I (rd s i)) :: !out
     | 1 -> if !i + 8 > n then raise (Bad "cut"); out := (k, D (Int64.float_of_bits (String.get_int64_le s !i))) :: !out; i := !i + 8
     | 2 -> let l = rd s i in if l < 0 || !i + l > n then raise (Bad "cut"); out := (k, L (String.sub s !i l)) :: !out; i := !i + l
     | 5 -> if !i + 4 > n then raise (Bad "cut"); out := (k, F32 (String.sub s !i 4)) :: !out; i := !i + 4
     | _ -> raise (Bad "wire type"))
  done; List.rev !out
let i32 x = let y = x land 0xffffffff in if y >= 0x80000000 then y - 0x100000000 else y
(* the last of a field counts; a wire type other than that of the field is an unknown field *)
let gi l k = List.fold_left (fun a (n, v) -> match v with I x when n = k -> x | _ -> a) 0 l
let gi32 l k = i32 (gi l k)
let gs l k = List.fold_left (fun a (n, v) -> match v with L x when n = k -> x | _ -> a) "" l
let gd l k = List.fold_left (fun a (n, v) -> match v with D x when n = k -> x | _ -> a) 0. l
let gtext l k = let s = gs l k in if utf8_ok s then s else raise (Bad "a string is not UTF-8")
let gsub l k = List.fold_left (fun a (n, v) -> match v with L x when n = k -> Some ((match a with Some y -> y | None -> []) @ dec x) | _ -> a) None l
let gall l k = List.filter_map (fun (n, v) -> match v with L x when n = k -> Some x | _ -> None) l
let gints l k = List.concat_map (fun (n, v) -> if n <> k then [] else match v with I x -> [x]
    | L s -> let i = ref 0 in let r = ref [] in while !i < String.length s do r := rd s i :: !r done; List.rev !r | _ -> []) l

(* frames *)
exception Closed = Http.Closed
type stream = { sid : int; mutable hd : (string * string) list; data : Buffer.t; mutable swin : int; mutable fin : bool; mutable dead : bool;
                mutable trailers : (string * string) list; mutable status_done : bool }
type conn = { fd : Unix.file_descr; wm : Mutex.t; wc : Condition.t; mutable cwin : int; mutable iwin : int; mutable maxf : int;
              streams : (int, stream) Hashtbl.t; dy : dyn; mutable alive : bool; cid : int; mutable calls : int; mutable lastbad : bool; ib : Buffer.t }
let rd_exact fd n =
  let b = Bytes.create n in
  let o = ref 0 in
  while !o < n do
    let k = try Unix.read fd b !o (n - !o) with Unix.Unix_error _ -> 0 in
    if k = 0 then raise Closed; Http.received := !Http.received + k; o := !o + k done;
  Bytes.unsafe_to_string b
let frame ty fl sid payload =
  let b = Buffer.create (9 + String.length payload) in
  let n = String.length payload in
  List.iter (fun x -> Buffer.add_char b (Char.chr (x land 255))) [n lsr 16; n lsr 8; n; ty; fl; sid lsr 24; sid lsr 16; sid lsr 8; sid];
  Buffer.add_string b payload; Buffer.contents b
let be32 v = let b = Bytes.create 4 in Bytes.set_int32_be b 0 (Int32.of_int v); Bytes.to_string b
let wr c s = Mutex.lock c.wm; (try Http.write_all c.fd s with _ -> c.alive <- false); Mutex.unlock c.wm
let send_data c st data fin =
  let n = String.length data in
  let o = ref 0 in
  let first = ref true in
  while (!first || !o < n) && c.alive && not st.dead do
    first := false;
    Mutex.lock c.wm;
    while c.alive && not st.dead && !o < n && (c.cwin <= 0 || st.swin <= 0) do Condition.wait c.wc c.wm done;
    let k = if !o >= n then 0 else min (min (n - !o) c.maxf) (min c.cwin st.swin) in
    c.cwin <- c.cwin - k; st.swin <- st.swin - k;
    (try Http.write_all c.fd (frame 0 (if fin && !o + k >= n then 1 else 0) st.sid (String.sub data !o k)) with _ -> c.alive <- false);
    o := !o + k;
    Mutex.unlock c.wm
  done
let new_conn fd =
  incr Http.conn_ids;
  { fd; wm = Mutex.create (); wc = Condition.create (); cwin = 65535; iwin = 65535; maxf = 16384; streams = Hashtbl.create 16;
    dy = { tab = []; size = 0; cap = 4096 }; alive = true; cid = !Http.conn_ids; calls = 0; lastbad = false; ib = Buffer.create 0 }
let big = 64 * 1024 * 1024
let settings = let e k v = String.init 6 (fun i -> Char.chr ((if i < 2 then k lsr (8*(1-i)) else v lsr (8*(5-i))) land 255)) in
  e 3 1000 ^ e 4 big ^ e 5 1048576
let hello c = wr c (frame 4 0 0 settings ^ frame 8 0 0 (be32 (big - 65535)))
let find c sid = match Hashtbl.find_opt c.streams sid with Some s -> s | None ->
  let s = { sid; hd = []; data = Buffer.create 256; swin = c.iwin; fin = false; dead = false; trailers = []; status_done = false } in
  Hashtbl.replace c.streams sid s; s
(* reads frames until the connection ends; on_headers and on_data are told of each change of a stream *)
let pump c on_change =
  let hb = Buffer.create 256 in
  let cont = ref 0 and cfl = ref 0 in
  let headers_done sid =
    let l = hpack c.dy (Buffer.contents hb) in
    Buffer.clear hb; cont := 0;
    let s = find c sid in
    if s.hd = [] then s.hd <- l else s.trailers <- l;
    if !cfl land 1 <> 0 then s.fin <- true;
    on_change s in
  (try
    while c.alive do
      let h = rd_exact c.fd 9 in
      let n = (Char.code h.[0] lsl 16) lor (Char.code h.[1] lsl 8) lor Char.code h.[2] in
      let ty = Char.code h.[3] and fl = Char.code h.[4] in
      let sid = w32 h 5 land 0x7fffffff in
      if n > 1048576 + 100 then raise (Bad "frame size");
      let d = rd_exact c.fd n in
      let strip d = if fl land 8 <> 0 then (let pl = Char.code d.[0] in String.sub d 1 (String.length d - 1 - pl)) else d in
      match ty with
      | 0 ->
        let x = strip d in
        let s = find c sid in
        Buffer.add_string s.data x;
        if Buffer.length s.data > 105 * 1024 * 1024 then (s.dead <- true);
        if fl land 1 <> 0 then s.fin <- true;
        if n > 0 then wr c ((if s.fin then "" else frame 8 0 sid (be32 n)) ^ frame 8 0 0 (be32 n));
        on_change s
      | 1 ->
        let x = strip d in
        let x = if fl land 32 <> 0 then String.sub x 5 (String.length x - 5) else x in
        Buffer.add_string hb x; cfl := fl; cont := sid;
        if fl land 4 <> 0 then headers_done sid
      | 9 -> Buffer.add_string hb d; if fl land 4 <> 0 then headers_done !cont
      | 3 -> (match Hashtbl.find_opt c.streams sid with Some s -> s.dead <- true; s.fin <- true; Mutex.lock c.wm; Condition.broadcast c.wc; Mutex.unlock c.wm; on_change s; Hashtbl.remove c.streams sid | None -> ())
      | 4 -> if fl land 1 = 0 then begin
          Mutex.lock c.wm;
          for i = 0 to n / 6 - 1 do
            let k = (Char.code d.[6*i] lsl 8) lor Char.code d.[6*i+1] and v = w32 d (6*i+2) in
            if k = 4 then begin let df = v - c.iwin in c.iwin <- v; Hashtbl.iter (fun _ s -> s.swin <- s.swin + df) c.streams end
            else if k = 5 then c.maxf <- min v 1048576
          done;
          Condition.broadcast c.wc; Mutex.unlock c.wm;
          wr c (frame 4 1 0 "") end
      | 6 -> if fl land 1 = 0 && not (f "ping-unanswered" (*@ grpc LIM-041 HTTP/2 pings are not answered. *))
          && not (f "ping-unanswered-idle" (*@ grpc LIM-041 HTTP/2 pings are not answered on a connection on which no call was made yet. *) && c.calls = 0) then
          wr c (frame 6 1 0 (if f "ping-ack-zeroed" (*@ grpc LIM-041 The acknowledgement of an HTTP/2 ping has zeros instead of the data of the ping. *) then String.make 8 '\000' else d))
      | 7 -> ()
      | 8 -> let v = w32 d 0 land 0x7fffffff in
        Mutex.lock c.wm;
        if sid = 0 then c.cwin <- c.cwin + v else (match Hashtbl.find_opt c.streams sid with Some s -> s.swin <- s.swin + v | None -> ());
        Condition.broadcast c.wc; Mutex.unlock c.wm
      | _ -> ()
    done
  with _ -> ());
  Mutex.lock c.wm; c.alive <- false; Condition.broadcast c.wc; Mutex.unlock c.wm;
  Hashtbl.iter (fun _ s -> s.dead <- true; s.fin <- true; (try on_change s with _ -> ())) (Hashtbl.copy c.streams)
let envelope s = let b = Buffer.create (5 + String.length s) in Buffer.add_char b '\000'; Buffer.add_string b (be32 (String.length s)); Buffer.add_string b s; Buffer.contents b
exception Rpc of int * string
let max_msg = 100 * 1024 * 1024
let pct s = let b = Buffer.create 64 in
  String.iter (fun c -> if c >= ' ' && c <= '~' && c <> '%' then Buffer.add_char b c else Buffer.add_string b (Printf.sprintf "%%%02X" (Char.code c))) s; Buffer.contents b
(* handler: connection -> method path -> raw message -> reply messages *)
let serve handler bidi fd =
  let c = new_conn fd in
  incr Http.active_conns;
  let finish s st msg started =
    let tr = ["grpc-status", string_of_int st] @ (if msg = "" then [] else ["grpc-message", pct msg]) in
    let tr = if p "grpc-extra-trailer" then tr @ ["x-node", "ml"] else tr in
    if not s.dead then wr c (frame 1 5 s.sid (henc (if started then tr else [":status", "200"; "content-type", "application/grpc"] @ tr)));
    Hashtbl.remove c.streams s.sid in
  let unary s () =
    let path = try List.assoc ":path" s.hd with Not_found -> "" in
    c.calls <- c.calls + 1;
    try
      let d = Buffer.contents s.data in
      if String.length d < 5 then raise (Rpc (3, "a message is missing"));
      if d.[0] <> '\000' then raise (Rpc (12, "compression is not supported"));
      let n = w32 d 1 in
      if n > max_msg then raise (Rpc (8, "the message is larger than 100 MiB"));
      if String.length d < 5 + n then raise (Rpc (3, "the message is cut"));
      if String.length d > 5 + n then raise (Rpc (3, "more than one message"));
      let r = handler c path (String.sub d 5 n) in
      c.lastbad <- false;
      wr c (frame 1 4 s.sid (henc [":status", "200"; "content-type", if p "grpc-proto-type" then "application/grpc+proto" else "application/grpc"]));
      send_data c s (envelope r) false;
      if f "unary-second-message" (*@ grpc GR-OP-023 GetCheckpointInfo answers with two messages. *) && path = "/node.NodeService/GetCheckpointInfo" then send_data c s (envelope r) false;
      finish s 0 "" true
    with
    | Rpc (st, m) -> c.lastbad <- true; finish s st m false; if f "connection-ends-after-bad-call" (*@ grpc GR-CODE-016 After a call that is refused with INVALID_ARGUMENT the connection is closed. *) && st = 3 then (try Unix.shutdown fd Unix.SHUTDOWN_ALL with _ -> ())
    | Bad m -> c.lastbad <- true; finish s (if f "garbage-internal" (*@ grpc GR-CODE-002 A message that cannot be read is answered with INTERNAL. *) then 13 else if f "garbage-unknown" (*@ grpc GR-CODE-002 A message that cannot be read is answered with UNKNOWN. *) then 2 else 3) m false;
      if f "connection-ends-after-garbage" (*@ grpc GR-CODE-003 A message that cannot be read ends the connection. *) then (try Unix.shutdown fd Unix.SHUTDOWN_ALL with _ -> ())
    | Closed -> ()
    | e -> finish s 13 (Printexc.to_string e) false in
  (try
    if rd_exact fd 24 <> "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" then raise Closed;
    hello c;
    let got = Hashtbl.create 8 in
    pump c (fun s ->
      if s.hd <> [] then begin
        let path = try List.assoc ":path" s.hd with Not_found -> "" in
        if bidi path then begin
          (* a reply for each message as it comes *)
          let off = try Hashtbl.find got s.sid with Not_found -> (wr c (frame 1 4 s.sid (henc [":status", "200"; "content-type", "application/grpc"])); 0) in
          let off = ref off in
          let d = Buffer.contents s.data in
          let go = ref true in
          while !go && String.length d >= !off + 5 do
            let n = w32 d (!off + 1) in
            if String.length d >= !off + 5 + n then begin
              let r = try handler c path (String.sub d (!off + 5) n) with _ -> "" in
              if not (f "stream-inference-one-message" (*@ grpc GR-OP-022 StreamInference refuses a second message in one call. *) && !off > 0) then send_data c s (envelope r) false;
              off := !off + 5 + n end
            else go := false
          done;
          Hashtbl.replace got s.sid !off;
          if s.fin && not s.status_done then (s.status_done <- true; finish s (if f "stream-inference-one-message" && String.length d > 5 + w32 d 1 then 3 else 0) "" true)
        end else if s.fin && not s.status_done then begin
          s.status_done <- true;
          if not s.dead then ignore (Thread.create (unary s) ())
          else if Buffer.length s.data > max_msg then finish s 8 "the message is larger than 100 MiB" false
        end end)
  with _ -> ());
  decr Http.active_conns;
  (try Unix.close fd with _ -> ())

(* client: one connection per peer, kept *)
type client = { host : string; port : int; cm : Mutex.t; mutable c : conn option; mutable next : int; mutable lastuse : float }
let client host port = { host; port; cm = Mutex.create (); c = None; next = 1; lastuse = 0. }
let connect cl =
  let addr = try Unix.inet_addr_of_string cl.host with _ -> (try (Unix.gethostbyname cl.host).Unix.h_addr_list.(0) with _ -> raise (Rpc (14, "no such host"))) in
  let fd = Unix.socket Unix.PF_INET Unix.SOCK_STREAM 0 in
  (try Unix.connect fd (Unix.ADDR_INET (addr, cl.port)) with _ -> Unix.close fd; raise (Rpc (14, "the peer cannot be reached")));
  Unix.setsockopt fd Unix.TCP_NODELAY true;
  let c = new_conn fd in
  wr c "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"; hello c;
  ignore (Thread.create (fun () -> pump c (fun s -> Mutex.lock c.wm; Condition.broadcast c.wc; Mutex.unlock c.wm); (try Unix.close fd with _ -> ())) ());
  cl.next <- 1; cl.c <- Some c; c
let call ?(deadline=5.0) cl meth msg =
  Mutex.lock cl.cm;
  let c, sid = (match (match cl.c with Some c when c.alive -> c | _ -> connect cl) with
    | c -> let s = cl.next in cl.next <- s + 2; Mutex.unlock cl.cm; c, s
    | exception e -> Mutex.unlock cl.cm; raise e) in
  cl.lastuse <- now ();
  let s = find c sid in
  let to_ = if f "client-no-deadline" (*@ grpc CL-CALL-001 The calls to a peer have no deadline. *) then [] else ["grpc-timeout", Printf.sprintf "%dm" (int_of_float (deadline *. 1000.))] in
  wr c (frame 1 4 sid (henc ([":method", "POST"; ":scheme", "http"; ":path", "/node.NodeService/" ^ meth; ":authority", Printf.sprintf "%s:%d" cl.host cl.port;
    "te", "trailers"; "content-type", "application/grpc"; "user-agent", "node-ml/1.0"] @ to_)));
  send_data c s (envelope msg) true;
  let lim = now () +. deadline in
  while c.alive && not s.fin && now () < lim do Thread.delay 0.0005 done;
  Hashtbl.remove c.streams sid;
  if not s.fin && c.alive then (wr c (frame 3 0 sid (be32 8)); raise (Rpc (4, "deadline")));
  let hd = s.trailers @ s.hd in
  match List.assoc_opt "grpc-status" hd with
  | Some "0" -> let d = Buffer.contents s.data in if String.length d >= 5 then String.sub d 5 (String.length d - 5) else ""
  | Some k -> raise (Rpc ((match int_of_string_opt k with Some x -> x | None -> 2), try List.assoc "grpc-message" hd with Not_found -> ""))
  | None -> raise (Rpc (14, "the connection ended"))
