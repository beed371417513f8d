(* LZ4 frames; xxHash32 *)
open Util
let m32 = 0xffffffff
let p1 = 2654435761 and p2 = 2246822519 and p3 = 3266489917 and p4 = 668265263 and p5 = 374761393
let rl x n = ((x lsl n) lor (x lsr (32 - n))) land m32
let le s o = Char.code s.[o] lor (Char.code s.[o+1] lsl 8) lor (Char.code s.[o+2] lsl 16) lor (Char.code s.[o+3] lsl 24)
let xxh s =
  let n = String.length s in
  let o = ref 0 in
  let h = ref (if n >= 16 then begin
      let v = [| (p1 + p2) land m32; p2; 0; (m32 + 1 - p1) land m32 |] in
      while !o + 16 <= n do
        for i = 0 to 3 do v.(i) <- (rl ((v.(i) + le s (!o + 4*i) * p2) land m32) 13 * p1) land m32 done;
        o := !o + 16
      done;
      (rl v.(0) 1 + rl v.(1) 7 + rl v.(2) 12 + rl v.(3) 18) land m32
    end else p5) in
  h := (!h + n) land m32;
  while !o + 4 <= n do h := (rl ((!h + le s !o * p3) land m32) 17 * p4) land m32; o := !o + 4 done;
  while !o < n do h := (rl ((!h + Char.code s.[!o] * p5) land m32) 11 * p1) land m32; incr o done;
  h := ((!h lxor (!h lsr 15)) * p2) land m32;
  h := ((!h lxor (!h lsr 13)) * p3) land m32;
  !h lxor (!h lsr 16)
let put32 b v = for i = 0 to 3 do Buffer.add_char b (Char.chr ((v lsr (8*i)) land 255)) done
let block_decode out s o n =
  let e = o + n and start = Buffer.length out in
  ignore start;
  let i = ref o in
  let byte () = if !i >= e then raise (Bad "the LZ4 block is cut"); let c = Char.code s.[!i] in incr i; c in
  let len l = if l < 15 then l else begin
      let t = ref l and c = ref (byte ()) in
      while !c = 255 do t := !t + 255; c := byte () done; !t + !c end in
  let fin = ref false in
  while not !fin do
    let t = byte () in
    let l = len (t lsr 4) in
    if !i + l > e then raise (Bad "the LZ4 block is cut");
    Buffer.add_substring out s !i l; i := !i + l;
    if !i >= e then fin := true else begin
      let a = byte () in let off = a lor (byte () lsl 8) in
      let ml = len (t land 15) + 4 in
      let pos = Buffer.length out - off in
      if off = 0 || pos < 0 then raise (Bad "an LZ4 match lies before the data");
      if Buffer.length out + ml > 120_000_000 then raise (Bad "the LZ4 frame is too large");
      if off >= ml then Buffer.add_string out (Buffer.sub out pos ml)
      else begin
        let pat = Buffer.sub out pos off in
        let k = ref 0 in
        while !k + off <= ml do Buffer.add_string out pat; k := !k + off done;
        Buffer.add_substring out pat 0 (ml - !k)
      end
    end
  done
let decode s =
  let n = String.length s in
  let need k = if k > n then raise (Bad "the LZ4 frame is cut") in
  need 7;
  if le s 0 <> 0x184D2204 then raise (Bad "not an LZ4 frame");
  let flg = Char.code s.[4] in
  if flg lsr 6 <> 1 then raise (Bad "another version of LZ4 frames");
  let indep = flg land 32 <> 0 and bsum = flg land 16 <> 0 and csize = flg land 8 <> 0 and csum = flg land 4 <> 0 and dict = flg land 1 <> 0 in
  if f "lz4-linked-blocks-unread" (*@ grpc GR-GOSSIP-024 A gradient whose LZ4 frame has linked blocks is refused. *) && not indep then raise (Bad "linked blocks are not supported");
  if f "lz4-block-checksum-unread" (*@ grpc GR-GOSSIP-024 A gradient whose LZ4 frame has checksums of blocks is refused. *) && bsum then raise (Bad "block checksums are not supported");
  if f "lz4-content-size-required" (*@ grpc GR-GOSSIP-024 A gradient whose LZ4 frame does not name the size of its content is refused. *) && not csize then raise (Bad "the content size is missing");
  if f "lz4-content-size-unread" (*@ grpc GR-GOSSIP-024 A gradient whose LZ4 frame names the size of its content is refused. *) && csize then raise (Bad "bad header");
  if f "lz4-no-content-checksum" (*@ grpc GR-GOSSIP-024 A gradient whose LZ4 frame has a checksum of its content is refused. *) && csum then raise (Bad "bad trailer");
  if f "lz4-only-small-blocks" (*@ grpc GR-GOSSIP-024 A gradient whose LZ4 frame allows blocks above 64 KiB is refused. *) && (Char.code s.[5] lsr 4) land 7 > 4 then raise (Bad "block size");
  let o = ref 6 in
  let size = if csize then (need (!o + 9); let v = le s !o lor (le s (!o + 4) lsl 32) in o := !o + 8; Some v) else None in
  if dict then (need (!o + 5); o := !o + 4);
  if Char.code s.[!o] <> (xxh (String.sub s 4 (!o - 4)) lsr 8) land 255 then raise (Bad "the checksum of the LZ4 header is wrong");
  incr o;
  let out = Buffer.create (4 * n) in
  let rec go () =
    need (!o + 4);
    let w = le s !o in o := !o + 4;
    if w <> 0 then begin
      let l = w land 0x7fffffff in
      need (!o + l);
      if w land 0x80000000 <> 0 then begin
        if f "lz4-stored-blocks-unread" (*@ grpc GR-GOSSIP-024 A gradient whose LZ4 frame has a block that is not compressed is refused. *) then raise (Bad "uncompressed block");
        Buffer.add_substring out s !o l end
      else if indep then begin
        let t = Buffer.create (4*l) in block_decode t s !o l; Buffer.add_buffer out t
      end else block_decode out s !o l;
      o := !o + l;
      if bsum then (need (!o + 4); if le s !o <> xxh (String.sub s (!o - l) l) then raise (Bad "the checksum of an LZ4 block is wrong"); o := !o + 4);
      go ()
    end in
  go ();
  let r = Buffer.contents out in
  (match size with Some v when v <> String.length r -> raise (Bad "the LZ4 frame has another size than it says") | _ -> ());
  if csum then (need (!o + 4); if le s !o <> xxh r then raise (Bad "the checksum of the LZ4 content is wrong"); o := !o + 4);
  r
(* a block of nothing but literals *)
let literal_block s =
  let b = Buffer.create (String.length s + 16) in
  let n = String.length s in
  if n < 15 then Buffer.add_char b (Char.chr (n lsl 4)) else begin
    Buffer.add_char b '\xf0';
    let r = ref (n - 15) in
    while !r >= 255 do Buffer.add_char b '\xff'; r := !r - 255 done;
    Buffer.add_char b (Char.chr !r) end;
  Buffer.add_string b s; Buffer.contents b
let encode s =
  let b = Buffer.create (String.length s + 64) in
  put32 b 0x184D2204;
  let big = p "lz4-large-blocks" in
  let csum = p "lz4-content-checksum" || f "checkpoint-bad-checksum" (*@ grpc GR-CKPT-014 The LZ4 frame of a checkpoint ends with a wrong checksum of its content. *) in
  let bsum = p "lz4-block-checksums" and csz = not (p "lz4-no-content-size") in
  let flg = 64 lor (if p "lz4-linked" then 0 else 32) lor (if bsum then 16 else 0) lor (if csz then 8 else 0) lor (if csum then 4 else 0) in
  let hb = Buffer.create 16 in
  Buffer.add_char hb (Char.chr flg); Buffer.add_char hb (Char.chr ((if big then 7 else 4) lsl 4));
  if csz then (put32 hb (String.length s); put32 hb 0);
  let h = Buffer.contents hb in
  Buffer.add_string b h; Buffer.add_char b (Char.chr ((xxh h lsr 8) land 255));
  let bs = if big then 4194304 else 65536 in
  let o = ref 0 in
  while !o < String.length s do
    let l = min bs (String.length s - !o) in
    let d = String.sub s !o l in
    let d, fl = if p "lz4-literal-blocks" then (let c = literal_block d in if String.length c > bs then d, 0x80000000 else c, 0) else d, 0x80000000 in
    put32 b (String.length d lor fl); Buffer.add_string b d;
    if bsum then put32 b (xxh d);
    o := !o + l
  done;
  put32 b 0; if csum then put32 b (xxh s lxor (if f "checkpoint-bad-checksum" then 1 else 0));
  Buffer.contents b
