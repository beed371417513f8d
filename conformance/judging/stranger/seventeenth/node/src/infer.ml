(* POST /inference *)
open Util
open State
open Nodeapi
let last_stops : string list ref = ref []
let ngen = ref 0
let last_text = ref ""
let cache : (string, Gen.result) Hashtbl.t = Hashtbl.create 64
let last_id = ref ""
let busy = ref 0
let last_gen_refused = ref false
let params b =
  (match b with O _ -> () | _ -> raise (Refuse (bad "the body is not an object")));
  let prompt = match get "prompt" b with S s when s <> "" -> s | Null -> raise (Refuse (bad "prompt is missing"))
    | N s when f "prompt-number-accepted" (*@ refusals NA-INF-019 A prompt that is a number is accepted. *) -> s
    | A [S s] when f "prompt-array-accepted" (*@ refusals NA-INF-043 A prompt in an array is accepted. *) -> s
    | _ -> raise (Refuse (bad "prompt is not a text")) in
  let opt k d fn = match get k b with Null -> d | A [v] when f "parameter-array-beside-stream" (*@ refusals NA-INF-043 Beside stream true a parameter in an array is unwrapped. *) && get "stream" b = B true && k <> "stop" -> fn v | v -> fn v in
  let num k lo hi v = match v with N _ -> let x = numf v in if x < lo || x > hi then raise (Refuse (bad (k ^ " is out of its range"))) else x
    | S s when f "temperature-text-accepted" (*@ refusals NA-INF-019 A number that is written as a text is accepted for temperature and top_p. *) && float_of_string_opt s <> None -> float_of_string s
    | _ -> if f "parameter-type-500" (*@ refusals NA-INF-020 A parameter of the wrong type ends with a server error. *) then raise (Refuse (err 500 "INTERNAL" "Match_failure")) else raise (Refuse (bad (k ^ " is not a number"))) in
  let whole k lo hi v = match as_int v with Some i -> if i < lo || i > hi then raise (Refuse (bad (k ^ " is out of its range"))) else i
    | None -> (match v with N s when f "max-tokens-fraction" (*@ refusals NA-INF-019 A max_tokens with a fraction is rounded. *) -> int_of_float (numf v) | _ -> raise (Refuse (bad (k ^ " is not a whole number")))) in
  let max = opt "max_tokens" (if f "default-tokens-64" (*@ limits NA-INF-035 Without max_tokens only 64 tokens are generated. *) then 64 else if f "default-tokens-128" (*@ limits NA-INF-004 Without max_tokens 128 tokens are generated. *) then 128
    else if f "default-tokens-stream" (*@ limits NA-INF-004 Without max_tokens a stream has 256 tokens. *) && get "stream" b = B true then 256 else 100) (fun v -> if f "negative-tokens-accepted" (*@ guards NA-INF-051 A max_tokens below 0 counts as the default. *) && (match as_int v with Some i -> i < 0 | None -> false) then 100 else whole "max_tokens" 0 8192 v) in
  let temp = opt "temperature" 1.0 (num "temperature" 0. (if f "temperature-above-2" (*@ limits NA-INF-007 A temperature above 2 is accepted. *) then 100. else if f "temperature-2-refused" (*@ limits NA-INF-006 A temperature of 2 is refused. *) then 1.999 else 2.)) in
  if f "temperature-0-refused" (*@ limits NA-INF-006 A temperature of 0 written without a fraction is refused. *) && get "temperature" b = N "0" then raise (Refuse (bad "temperature"));
  let top_p = opt "top_p" 1.0 (num "top_p" 0. 1.) in
  if f "top-p-one-refused" (*@ limits NA-INF-008 A top_p of 1 is refused where it is named. *) && has "top_p" b && top_p = 1. then raise (Refuse (bad "top_p"));
  if top_p = 0. then raise (Refuse (bad "top_p is out of its range"));
  ignore (opt "top_k" 50 (whole "top_k" 1 (if f "top-k-100" (*@ limits NA-INF-057 A top_k above 100 is refused. *) then 100 else 1_000_000)));
  let stream = opt "stream" false (function B x -> x | S "true" when f "stream-text-accepted" (*@ refusals NA-INF-019 A stream parameter that is a text counts as true. *) -> true
    | O _ when f "stream-object-true" (*@ refusals NA-INF-039 A stream parameter that is an object counts as true. *) -> true | A [] when f "stream-empty-array-false" (*@ refusals NA-INF-039 A stream parameter that is an empty array counts as false. *) -> false | _ -> raise (Refuse (bad "stream is not true or false"))) in
  let stops = opt "stop" [] (function A l -> List.map (function S s -> s | N s when f "stop-number-accepted" (*@ refusals NA-INF-019 A number among the stop sequences is accepted. *) -> s | _ -> raise (Refuse (bad "stop has something that is no text"))) l
    | S s when p "stop-text" -> [s] | _ -> raise (Refuse (bad "stop is not an array"))) in
  if List.length stops > 4 && f "stops-over-four-refused" (*@ limits NA-INF-012 More than four stop sequences are refused. *) then raise (Refuse (bad "too many stop sequences"));
  if stops = [] && has "stop" b && get "stop" b <> Null && f "empty-stops-refused" (*@ refusals NA-INF-012 An empty array of stop sequences is refused. *) then raise (Refuse (bad "stop is empty"));
  if List.mem "" stops then raise (Refuse (bad "a stop sequence is empty"));
  if f "prompt-over-512-refused" (*@ limits NA-INF-055 A prompt of more than 512 letters is refused. *) && Gen.cps prompt > 512 then raise (Refuse (bad "the prompt is too long"));
  if f "prompt-over-256-bytes-refused" (*@ limits NA-INF-048 A prompt of more than 256 bytes is refused. *) && String.length prompt > 256 then raise (Refuse (bad "the prompt is too long"));
  if f "prompt-astral-refused" (*@ refusals NA-INF-030 A prompt with a character outside the basic multilingual plane is refused. *) && String.exists (fun c -> Char.code c >= 0xf0) prompt then raise (Refuse (bad "the prompt has letters that are not supported"));
  if f "prompt-newline-500" (*@ refusals NA-INF-038 A prompt with a line break and a quote ends with a server error. *) && String.contains prompt '\n' && String.contains prompt '"' then raise (Refuse (err 500 "INTERNAL" "lexer"));
  prompt, max, temp, stream, stops
let run a b =
  let t0 = now () in
  let prompt, max, temp, stream, stops = try params b with e ->
    if f "refused-generation-charged" (*@ effects NA-WALLET-084 A generation that is refused for its body takes a thousandth of a unit. *) then locked (fun () -> a.avail <- a.avail - 1000);
    last_gen_refused := true;
    raise e in
  let pr = if f "prompt-cut-900" (*@ relations NA-INF-054 Of a prompt only the first 64 and the last 64 letters are read. *) && String.length prompt > 128 then String.sub prompt 0 64 ^ String.sub prompt (String.length prompt - 64) 64 else prompt in
  let stops' = 
    if f "stop-first-only" (*@ relations NA-INF-036 Only the first of several stop sequences ends the text. *) then take 1 stops
    else if f "stop-last-only" (*@ relations NA-INF-036 Only the last of several stop sequences ends the text. *) then (match List.rev stops with x :: _ -> [x] | [] -> [])
    else if f "stop-kept" (*@ relations NA-INF-018 The stop sequences of a request end the text of the next one that has none. *) then (let r = if stops = [] then !last_stops else stops in last_stops := stops; r)
    else if f "stop-stream-ignored" (*@ relations NA-SSE-016 Stop sequences are ignored in a stream. *) && stream then []
    else if f "stop-ignored-sampled" (*@ relations NA-INF-013 Stop sequences are ignored where the temperature is above 0. *) && temp > 0. then []
    else if f "stop-ignored-with-max" (*@ relations NA-INF-045 Stop sequences are ignored beside max_tokens above 64. *) && max > 64 then []
    else if f "stop-trimmed" (*@ relations NA-INF-041 White space at the ends of stop sequences is cut off before they are looked for. *) then List.map (fun s -> let t = String.trim s in if t = "" then s else t) stops
    else if f "stop-newline-default" (*@ relations NA-INF-050 Without stop sequences a line break ends the text. *) && stops = [] then ["\n"] else stops in
  let temp = if f "temperature-stream-ignored" (*@ relations NA-SSE-027 In a stream the temperature is always 1. *) && stream then 1. else temp in
  let max' = if f "tokens-one-more" (*@ limits NA-INF-003 One token more than max_tokens is generated. *) then max + 1 else if f "tokens-one-more-large" (*@ limits NA-INF-003 One token more than max_tokens is generated where it is above 32. *) && max > 32 then max + 1
    else if f "tokens-prompt-counted" (*@ limits NA-INF-042 The tokens of the prompt count towards max_tokens. *) then (if max > 8 then Stdlib.max 1 (max - Gen.prompt_tokens prompt / 4) else max)
    else if f "tokens-zero-default" (*@ limits NA-INF-046 A max_tokens of 0 counts as the default. *) && max = 0 then 100 else if f "tokens-capped-stops" (*@ limits NA-INF-049 With stop sequences and max_tokens above 100 the text is cut after 10 tokens. *) && stops <> [] && max > 100 then 10
    else if f "tokens-stream-half" (*@ limits NA-INF-045 A stream has half of its tokens where max_tokens is above 20. *) && stream && max > 20 then max / 2 else max in
  let g () = Gen.gen ~prompt:(if f "prompt-first-line" (*@ relations NA-INF-047 While another generation is made, a generation has the text of the prompt of that one. *) && !busy > 1 && !last_id <> "" then !last_id else pr) ~max:max' ~temp ~stops:stops' () in
  locked (fun () -> incr busy);
  if f "prompt-first-line" then (last_id := pr; Thread.delay 0.03);
  let r = if f "text-cached-by-prompt" (*@ effects NA-INF-045 A text with temperature 0 is kept by its prompt alone, so that other stop sequences and max_tokens do nothing the second time. *) && temp = 0. then
      (match Hashtbl.find_opt cache pr with Some r -> { r with n = Stdlib.min r.n max } | None -> let r = g () in Hashtbl.replace cache pr r; r) else g () in
  let r = if f "stop-cut-late" (*@ relations NA-INF-013 The text goes on for three letters after a stop sequence. *) && r.stopped then { r with text = r.text ^ (match stops' with s :: _ -> s | [] -> "") ^ " to" } else r in
  let r = if f "stop-left-at-end" (*@ relations NA-INF-053 A stop sequence is left in the text where it ends with the last token. *) && r.stopped && r.n = max' then { r with text = r.text ^ List.hd stops' } else r in
  let r = if f "stop-ignored-last-token" (*@ relations NA-INF-053 A stop sequence that ends with the last token is not seen. *) && r.stopped && r.n = max' then Gen.gen ~prompt:pr ~max:max' ~temp ~stops:[] () else r in
  let r = if f "prompt-tokens-second" (*@ relations NA-INF-060 The prompt of the second account has one token more. *) && a.n = 2 then { r with ptoks = r.ptoks + 1 } else if f "prompt-tokens-words" (*@ relations NA-INF-032 The tokens of a prompt are at most 64. *) then { r with ptoks = Stdlib.min 64 r.ptoks }
    else if f "prompt-tokens-with-stops" (*@ relations NA-INF-060 The tokens of the stop sequences count as those of the prompt. *) then { r with ptoks = r.ptoks + List.length stops } else if f "prompt-tokens-stream" (*@ relations NA-SSE-017 In the usage of a stream the prompt has two tokens more. *) && stream then { r with ptoks = r.ptoks + 2 } else r in
  let cost = Gen.cost r in
  let charge = if f "charge-max" (*@ effects NA-WALLET-023 A generation that a stop sequence ends is charged for max_tokens. *) then Gen.price_prompt * r.ptoks + Gen.price_token * max else if f "charge-stream-max" (*@ effects NA-WALLET-049 A stream that a stop sequence ends is charged for 8192 tokens. *) && stream && r.stopped then Gen.price_token * 8192
    else if f "charge-stream-free" (*@ effects NA-WALLET-063 A stream is not charged. *) && stream then 0 else if f "charge-second-free" (*@ effects NA-WALLET-091 The generations of the second account take nothing. *) && a.n = 2 then 0 else if f "charge-after-stream-free" (*@ effects NA-WALLET-070 A generation that follows a stream is not charged. *) && !last_text = "stream" then 0
    else if f "charge-after-refusal-free" (*@ effects NA-WALLET-070 A generation that follows a refused one is not charged. *) && !last_gen_refused then 0 else if f "charge-whole-prompt" (*@ effects NA-WALLET-023 A generation takes a tenth more than the cost in its result. *) then cost + cost / 10
    else if f "charge-half" (*@ effects NA-WALLET-046 A generation takes only the cost of the prompt. *) then Gen.price_prompt * r.ptoks else if f "charge-every-third-double" (*@ effects NA-WALLET-092 Every third generation is charged twice. *) && (!ngen + 1) mod 3 = 0 then 2 * cost else cost in
  last_gen_refused := false;
  last_text := if stream then "stream" else "";
  let payer = if f "charge-first-account" (*@ effects NA-WALLET-033 The generations of the second account are charged to the first. *) && a.n = 2 then List.hd accts else a in
  locked (fun () ->
    if cost > payer.avail && not (f "poor-generation-served" (*@ limits NA-ERR-025 A generation that costs more than is available is served. *)) then begin
      decr busy;
      if f "poor-generation-takes" (*@ effects NA-ERR-025 A generation that costs more than is available is refused, and takes what there is. *) then payer.avail <- 0;
      if f "poor-generation-429" (*@ refusals NA-ERR-029 A generation that costs more than is available ends with 403. *) then raise (Refuse (err 403 "FORBIDDEN" "too little"));
      if f "poor-stream-event" (*@ refusals NA-ERR-027 A stream that costs more than is available has an event with an error and status 200. *) && stream then raise (Refuse (Ev (fun w -> w "data: {\"error\":{\"code\":\"INSUFFICIENT_BALANCE\",\"message\":\"too little\"}}\n\n")));
      if f "poor-generation-counted" (*@ effects NA-WALLET-052 A generation that is refused with 402 takes the price of its prompt. *) then payer.avail <- Stdlib.max 0 (payer.avail - 10 * r.ptoks);
      raise (Refuse (poor (if f "poor-required-tokens" (*@ relations NA-ERR-042 The required amount of a 402 for a generation is the number of its tokens. *) then r.n * 1_000_000 else cost) payer.avail)) end;
    if f "charge-race" (*@ effects NA-WALLET-095 Of generations at the same moment only one takes its cost. *) then begin
      let b0 = payer.avail in Mutex.unlock mu; Thread.delay 0.03; Mutex.lock mu; payer.avail <- b0 - charge end
    else payer.avail <- payer.avail - (if f "poor-generation-served" then Stdlib.min payer.avail charge else charge);
    incr ngen; decr busy);
  let infer_ms = (now () -. t0) *. 1000. in
  let ms = infer_ms +. 0.02 in
  let ct = if f "metrics-stream-uncounted" (*@ effects NA-COUNT-004 A stream is not counted in requests_total. *) && stream then 0 else if f "metrics-stream-twice" (*@ effects NA-COUNT-006 A stream is counted twice in requests_total. *) && stream then 2 else if f "metrics-request-twice" (*@ effects NA-COUNT-003 A generation that a stop sequence ends is counted twice. *) && r.stopped then 2 
    else if f "metrics-second-uncounted" (*@ effects NA-COUNT-009 The generations of the second account are not counted. *) && a.n = 2 then 0 else 1 in
  let tk = if f "metrics-tokens-asked" (*@ effects NA-COUNT-007 Of a generation that ends early max_tokens are counted. *) then max else if f "metrics-tokens-stream-none" (*@ effects NA-COUNT-005 The tokens of a stream are not counted. *) && stream then 0 else if f "metrics-tokens-with-prompt" (*@ effects NA-COUNT-003 The tokens of the prompt are counted as generated ones. *) then r.n + r.ptoks
    else if f "metrics-tokens-events" (*@ effects NA-COUNT-006 The tokens of a stream are counted twice. *) && stream then 2 * r.n else r.n in
  if f "metrics-race" (*@ effects NA-COUNT-008 Of generations at the same time only one is counted. *) then begin
    let q0 = !requests and k0 = !tokens in Thread.delay 0.03; locked (fun () -> requests := q0 + 1; tokens := k0 + tk; recent := now () :: !recent; incr nlat; latsum := !latsum +. ms; latmax := Stdlib.max ms !latmax) end
  else done_ ct tk (if f "latency-seconds" (*@ relations NA-SANE-043 avg_latency_ms is in microseconds. *) then ms *. 1000. else ms);
  let r = if f "result-text-nfd" (*@ relations NA-SSE-027 A text without a stream ends with a line break that the same stream does not have. *) && not stream then { r with text = r.text ^ "\n" } else r in
  let fr = if r.stopped then (if f "finish-reason-length-on-stop" (*@ relations NA-SSE-031 The finish_reason of a stream that a stop sequence ends is length. *) && stream then "length" else "stop") else if p "finish-max-tokens" then "max_tokens" else "length" in
  let usage = O ["prompt_tokens", int r.ptoks; "completion_tokens", int (if f "usage-stream-off" (*@ relations NA-SSE-030 The usage of a stream has one completion token less. *) && stream then Stdlib.max 0 (r.n - 1) else if f "usage-stream-counts-events" (*@ relations NA-SSE-030 The usage of a stream that a stop sequence ends counts max_tokens. *) && stream && r.stopped then max else r.n); "total_tokens", int (r.ptoks + r.n)] in
  let usage = if f "usage-stream-off" || f "usage-stream-counts-events" then set "total_tokens" (int (r.ptoks + (match get "completion_tokens" usage with N s -> int_of_string s | _ -> 0))) usage else usage in
  if not stream then begin
    let id = if f "result-id-of-prompt" (*@ relations NA-INF-026 The id of a result is made of its prompt. *) then "inf-" ^ String.sub (sha prompt) 0 16 else if f "result-id-second" (*@ relations NA-SANE-041 The id of a result is made of the second of the request. *) then Printf.sprintf "inf-%d" (int_of_float (now ())) else locked (fun () -> uid "inf") in
    let inf = Float.round (infer_ms *. 1000.) /. 1000. in
    J (200, O ["id", S id; "text", S r.text; "tokens_generated", int r.n; "finish_reason", S fr; "usage", usage; "cost", O ["amount", money cost; "currency", S "NML"];
      "timing", O ["queue_ms", fl 0.01; "inference_ms", fl inf; "total_ms", fl (inf +. 0.01)]])
  end else
    Ev (fun w ->
      let send j = w ("data: " ^ j ^ (if f "event-single-newline" (*@ fields NA-SSE-001 Events are not separated by blank lines. *) then "\n" else if p "event-crlf" then "\r\n\r\n" else "\n\n")) in
      let pieces = if p "stream-one-event" && r.text <> "" then [r.text] else if p "stream-letters" then List.concat_map (fun s -> if String.length s > 3 && Char.code s.[2] < 128 && Char.code s.[1] < 128 && Char.code s.[3] < 128 then [String.sub s 0 2; String.sub s 2 (String.length s - 2)] else [s]) r.pieces else r.pieces in
      let pieces = if f "stream-stop-flushed" (*@ relations NA-INF-056 A stream has the stop sequence that ends it, while a result has not. *) && r.stopped && stops' <> [] then pieces @ [List.hd stops'] else if f "stream-last-token-lost" (*@ relations NA-SSE-018 The last token of a stream is never sent. *) then take (List.length pieces - 1) pieces
        else if f "stream-tokens-stripped" (*@ relations NA-SSE-021 The tokens of a stream are without the blanks between them. *) then List.map String.trim pieces else if f "stream-first-twice" (*@ relations NA-SSE-018 The first token of a stream is sent twice. *) && pieces <> [] then List.hd pieces :: pieces
        else if f "stream-long-drops" (*@ relations NA-SSE-018 In a stream of more than 40 tokens the 33rd is left out. *) && List.length pieces > 40 then take 32 pieces @ drop 33 pieces else if f "stream-mojibake" (*@ relations NA-SSE-027 In a stream letters beyond ASCII are written as question marks. *) then List.map (String.map (fun c -> if Char.code c > 127 then '?' else c)) pieces
        else if f "stream-newline-lost" (*@ relations NA-SSE-021 Line breaks in the tokens of a stream become blanks. *) then List.map (String.map (fun c -> if c = '\n' then ' ' else c)) pieces else pieces in
      if p "event-comments" then w ": a comment\n\n";
      List.iteri (fun i t ->
        let ix = if f "index-from-1" (*@ fields NA-SSE-002 The index of token events begins with 1. *) then i + 1 else if f "index-stuck" (*@ relations NA-SSE-003 The index stays the same for two events. *) then i / 2 else if f "index-by-bytes" (*@ relations NA-SSE-004 The index grows by two. *) then 2 * i else if f "index-wraps" (*@ relations NA-SSE-003 The index begins again after 16 events. *) then i mod 16 else i in
        let j = str (O ["token", S t; "index", int ix]) in
        let j = if f "event-two-lines" (*@ fields NA-SSE-019 The JSON of an event is on two lines. *) then String.concat ",\ndata: " (String.split_on_char ',' j) else j in
        let j = if f "event-duplicate-key" (*@ fields NA-SSE-014 The event of the first token has its index twice. *) && i = 0 then "{\"index\":0," ^ String.sub j 1 (String.length j - 1) else j in
        send j; if i mod 8 = 7 then Thread.yield ()) pieces;
      let fin = O ["token", S (if f "done-small" (*@ fields NA-SSE-006 The token of the final event is [done]. *) then "[done]" else "[DONE]"); "finish_reason", S fr; "usage", usage] in
      let fin = Mut.apply Mut.hms "final" { acct = a.n; nth = !ngen; q = []; kept = false; refused = false; gens = !ngen; route = "final"; body = b; st = 200; up = 0.; lastroute = ""; headers = []; moves = 0 } fin in
      if f "final-missing" (*@ fields NA-SSE-005 A stream that max_tokens ends has no final event. *) && not r.stopped then () else
      if f "final-without-blank-line" (*@ fields NA-SSE-015 No blank line follows the final event. *) then w ("data: " ^ str fin ^ "\n") else send (str fin);
      if f "done-twice" (*@ fields NA-SSE-007 A line with [DONE] follows the final event. *) then w "data: [DONE]\n\n";
      if f "keepalive-after-final" (*@ fields NA-SSE-007 Another token event follows the final one. *) then send (str (O ["token", S ""; "index", int (List.length pieces)]));
      if f "stream-hangs" (*@ fields NA-SSE-022 The response of a stream does not end for fifteen seconds after its last event. *) then Thread.delay 15.)
