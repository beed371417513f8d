(* OpenAI's routes *)
open Util
open Nodeapi
let oerr st ?(param=Null) ?(code=Null) m = J (st, O ["error", O ["message", S m; "type", S "invalid_request_error"; "param", param; "code", code]])
exception Oe of out
let no ?(st=400) ?(k="") m = raise (Oe (oerr st ~param:(if k = "" then Null else S k) m))
let created0 = 1767600000
let models = [ "nml-small"; "nml-small-chat" ]
let model m = O ["id", S m; "object", S "model"; "created", int created0; "owned_by", S "node"]
let listing () = O ["object", S "list"; "data", A (List.map model models)]
let last_stop : string list ref = ref []
let oacache : (string, Gen.result list) Hashtbl.t = Hashtbl.create 16
let complete chat b =
  (match b with O _ -> () | _ -> no "the body is not an object");
  let streaming = get "stream" b = B true in
  let o k d fn = match get k b with Null -> if f "openai-null-refused" (*@ refusals OA-MIX-011 A parameter that is null is refused. *) && has k b then no ~k (k ^ " is null") else d | v -> fn v in
  let lax = (f "openai-stream-unchecked" (*@ refusals OA-REFUSE-011 With stream true the ranges of numbers are not checked. *) && streaming) || (f "openai-completions-unchecked" (*@ refusals OA-REFUSE-009 The ranges of numbers are not checked for completions. *) && not chat) in
  let num k lo hi = function N _ as n -> let x = numf n in if (x < lo || x > hi) && not lax then no ~k (k ^ " is out of range") else x | _ -> no ~k (k ^ " is not a number") in
  let whole k lo hi v = match as_int v with Some i -> if (i < lo || i > hi) && not lax then no ~k (k ^ " is out of range") else i | None -> no ~k (k ^ " is not a whole number") in
  let boolean k = function B x -> x | _ -> no ~k (k ^ " is not true or false") in
  let md = match get "model" b with S m -> m | Null when f "openai-model-default" (*@ refusals OA-REFUSE-002 A chat without a model gets the first one. *) && chat -> List.hd models | Null when f "openai-completion-model-default" (*@ refusals OA-REFUSE-008 A completion without a model gets the first one. *) && not chat -> List.hd models
    | N s when f "openai-model-number" (*@ refusals OA-REFUSE-004 A model that is a number is answered by the first one. *) -> List.hd models | _ -> no ~k:"model" "model is missing" in
  let md = if List.mem md models then md else if f "openai-unknown-model" (*@ refusals OA-REFUSE-006 A chat with an unknown model is answered by the first one. *) && chat then List.hd models else if f "openai-unknown-model-completion" (*@ refusals OA-REFUSE-012 A completion with an unknown model is answered by the first one. *) && not chat then List.hd models else raise (Oe (oerr 404 ~param:(S "model") ~code:(S "model_not_found") "no such model")) in
  let prompts = if chat then begin
      match get "messages" b with
      | A (_ :: _ as l) ->
        let ms = List.map (fun m -> match m with
          | O _ ->
            (match get "role" m with S ("system" | "user" | "assistant" | "tool" | "developer" | "function") -> () | _ -> no ~k:"messages" "a message has no role");
            (match get "content" m with S s -> s
              | A parts -> String.concat "" (List.map (fun pt -> match get "text" pt with S s -> s | _ -> no ~k:"messages" "a part has no text") parts)
              | Null when get "role" m = S "assistant" -> "" | _ -> no ~k:"messages" "a message has no content")
          | _ -> no ~k:"messages" "a message is no object") l in
        let ms = if f "openai-last-message-only" (*@ relations OA-MIX-013 Only the last message of a chat is read. *) then [List.hd (List.rev ms)] else ms in
        [String.concat "\n" ("chat" :: ms)]
      | A [] when f "openai-empty-messages" (*@ refusals OA-REFUSE-001 A chat with no message in its list is answered. *) -> ["chat"]
      | _ -> no ~k:"messages" "messages are missing" end
    else match get "prompt" b with S s -> [s] | Null -> ["<|endoftext|>"]
      | A (S _ :: _ as l) -> List.map (function S s -> s | _ -> no ~k:"prompt" "prompt") l
      | A (N _ :: _ as l) -> List.iter (fun n -> if as_int n = None then no ~k:"prompt" "prompt") l; [str (A l)]
      | A (A _ :: _ as l) -> List.map (function A _ as x -> str x | _ -> no ~k:"prompt" "prompt") l
      | _ -> no ~k:"prompt" "prompt is not a text" in
  let maxt = o "max_tokens" (if f "openai-completion-default-64" (*@ limits OA-TEXT-113 Without max_tokens a completion has 64 tokens. *) && not chat then 64 else if chat then 64 else 16) (whole "max_tokens" (if chat then 1 else 0) 8192) in
  let maxt = if chat then o "max_completion_tokens" maxt (fun v -> let k = whole "max_completion_tokens" 1 8192 v in if f "openai-max-completion-ignored" (*@ limits OA-CHAT-114 max_completion_tokens is not read. *) then maxt else k) else maxt in
  let temp = o "temperature" 1. (num "temperature" 0. 2.) in
  ignore (o "top_p" 1. (num "top_p" 0. 1.)); ignore (o "presence_penalty" 0. (num "presence_penalty" (-2.) 2.)); ignore (o "frequency_penalty" 0. (num "frequency_penalty" (-2.) 2.));
  let n = o "n" 1 (whole "n" 1 128) in
  if chat then ignore (o "top_logprobs" 0 (whole "top_logprobs" 0 20));
  let logp = if chat then o "logprobs" false (boolean "logprobs") else o "logprobs" false (fun v -> ignore (whole "logprobs" 0 5 v); true) in
  if not chat then (let bo = o "best_of" n (whole "best_of" 0 20) in if bo < n && n <= 20 then no ~k:"best_of" "best_of is below n");
  let echo = if chat then false else o "echo" false (boolean "echo") in
  ignore (o "logit_bias" Null (function O _ as x -> x | _ -> no ~k:"logit_bias" "logit_bias is no object"));
  ignore (o "user" "" (function S s -> s | _ -> no ~k:"user" "user is no text")); ignore (o "seed" 0 (whole "seed" min_int max_int));
  if not chat then ignore (o "suffix" "" (function S s -> s | _ -> no ~k:"suffix" "suffix is no text"));
  let stream = o "stream" false (boolean "stream") in
  let incl = o "stream_options" false (function O _ as x -> (match get "include_usage" x with B y -> y | Null -> false | _ -> no ~k:"stream_options" "include_usage") | _ -> no ~k:"stream_options" "stream_options is no object") in
  let stops = o "stop" [] (function S s -> [s] | A l -> if List.length l > 4 && not lax then no ~k:"stop" "more than four stop sequences"; List.map (function S s -> s | _ -> no ~k:"stop" "stop has something that is no text") l | _ -> no ~k:"stop" "stop is not a text") in
  let stops = List.filter (fun s -> s <> "") stops in
  let stops = if f "openai-stop-text-ignored" (*@ relations OA-MIX-008 A stop sequence that is a text, and not in an array, is ignored for a stream. *) && stream && (match get "stop" b with S _ -> true | _ -> false) then [] else if f "openai-stop-kept" (*@ relations OA-MIX-010 The stop sequences of a request end the text of the next one without any. *) then (let r = if stops = [] then !last_stop else stops in last_stop := stops; r)
    else if f "openai-stop-case" (*@ relations OA-MIX-009 Stop sequences are looked for in small letters as well, so that one that is not in the text ends it. *) then List.concat_map (fun s -> [s; String.lowercase_ascii s]) stops else if f "openai-stop-first-choice" (*@ relations OA-TEXT-110 Of several choices of a completion only the first is ended by stop sequences. *) && not chat && n > 1 then stops else stops in
  let t0 = now () in
  let maxg = if f "openai-n-shares-tokens" (*@ limits OA-CHAT-109 With n above 1 the choices of a chat end with half of the tokens, and the finish_reason length. *) && chat && n > 1 then max 1 (maxt / 2) else if f "openai-max-plus-one" (*@ limits OA-CHAT-108 A chat has one token more than max_tokens where n is above 1. *) && chat && n > 1 then maxt + 1 else if f "openai-completion-max-plus" (*@ limits OA-TEXT-108 A stream of a completion has one token more than max_tokens. *) && not chat && stream then maxt + 1 else maxt in
  let rs = List.concat_map (fun pt -> List.init n (fun i -> Gen.gen ~natural:(if chat then 64 else 0) ~prompt:(if f "openai-stream-other-seed" (*@ relations OA-MIX-005 A stream of a chat has another text than the chat without a stream. *) && stream && chat then pt ^ " " else if f "openai-default-changes" (*@ relations OA-MIX-012 A chat with n 1 named has another text than without it. *) && has "n" b && n = 1 then pt ^ "\t" else pt) ~max:maxg ~temp ~stops:(if f "openai-stop-first-choice" && not chat && i > 0 then [] else stops) ())) prompts in
  let ptok = List.fold_left (fun s x -> s + Gen.prompt_tokens x) 0 prompts in
  let ptok = if f "openai-prompt-per-choice" (*@ relations OA-MIX-006 With n above 1 the tokens of the prompt count for each choice. *) then ptok * n else if f "openai-prompt-with-logprobs" (*@ relations OA-MIX-006 With stop sequences a prompt has four tokens more. *) && stops <> [] then ptok + 4 else ptok in
  let ctok = List.fold_left (fun s (r : Gen.result) -> s + r.n) 0 rs in
  let ctok = if f "openai-usage-first-choice" (*@ relations OA-MIX-007 The usage of a stream with n above 1 counts only the first choice. *) && stream then (List.hd rs).n else ctok in
  State.done_ 1 ctok ((now () -. t0) *. 1000. +. 0.02);
  let usage = O ["prompt_tokens", int ptok; "completion_tokens", int ctok; "total_tokens", int (ptok + ctok)] in
  let id = (if chat then "chatcmpl-" else "cmpl-") ^ (if f "openai-id-of-prompt" (*@ relations OA-CHAT-102 The id of a chat completion is made of its prompt. *) && chat then String.sub (sha (List.hd prompts)) 0 20 else if f "openai-text-id-of-prompt" (*@ relations OA-TEXT-102 The id of a completion is made of its prompt. *) && not chat then String.sub (sha (List.hd prompts)) 0 20 else locked (fun () -> State.uid "x")) in
  let cr = int_of_float (now ()) in
  let fr (r : Gen.result) = if r.stopped then (if f "openai-stop-length" (*@ relations OA-CHAT-111 The finish_reason of a chat that a stop sequence has ended is length. *) && chat && stops <> [] then "length" else if f "openai-text-stop-length" (*@ relations OA-TEXT-111 The finish_reason of a completion that a stop sequence has ended is length. *) && not chat then "length" else "stop") else if f "openai-length-stop-short" (*@ relations OA-CHAT-107 The finish_reason of a chat of one token is max_tokens. *) && maxt = 1 then "max_tokens" else "length" in
  let lp toks = if not logp then Null else if chat then O ["content", A (List.map (fun t -> O ["token", S t; "logprob", fl (if f "openai-logprob-positive" (*@ relations OA-CHAT-115 The log probabilities are positive. *) then 0.7 else -0.7); "bytes", A (List.init (String.length t) (fun i -> int (Char.code t.[i]))); "top_logprobs", A []]) toks); "refusal", Null]
    else O ["tokens", A (List.map (fun t -> S t) toks); "token_logprobs", A (List.map (fun _ -> fl (-0.7)) toks); "top_logprobs", Null; "text_offset", A (let o = ref 0 in List.map (fun t -> let v = !o in o := v + Gen.cps t; int v) toks)] in
  let head ob = ["id", S id; "object", S ob; "created", int cr; "model", S md] in
  let pre i = if echo then List.nth prompts (i / n) else "" in
  if not stream then begin
    let txt (r : Gen.result) = if f "openai-stop-in-text" (*@ relations OA-CHAT-110 The text of a chat has the stop sequence that ends it. *) && chat && r.stopped && stops <> [] then r.text ^ List.hd stops else r.text in
    let cs = List.mapi (fun i (r : Gen.result) -> if chat then O ["index", int i; "message", O ["role", S "assistant"; "content", S (txt r); "refusal", Null]; "logprobs", lp r.pieces; "finish_reason", S (fr r)]
        else O ["index", int (if f "openai-text-index-zero" (*@ relations OA-TEXT-106 The index of every choice of a completion is 0. *) then 0 else i); "text", S (pre i ^ r.text); "logprobs", lp r.pieces; "finish_reason", S (fr r)]) rs in
    let cs = if f "openai-n-one-less" (*@ limits OA-CHAT-105 A chat with n above 2 has one choice less. *) && chat && n > 2 then take (n - 1) cs else if f "openai-text-n-ignored" (*@ limits OA-TEXT-105 A completion has one choice whatever n is. *) && not chat then take 1 cs else cs in
    J (200, O (head (if chat then "chat.completion" else "text_completion") @ ["choices", A cs; "usage", usage])) end
  else Ev (fun w ->
    let nchunk = ref 0 in
    let send cs us = 
      incr nchunk;
      let h = head (if chat then "chat.completion.chunk" else "text_completion") in
      let h = if f "openai-chunk-id-changes" (*@ relations OA-STREAM-005 The last chunk of a stream has another id than the others. *) && cs <> [] && (match get "finish_reason" (List.hd cs) with S _ -> true | _ -> false) then ("id", S (id ^ "e")) :: List.tl h else if f "openai-chunk-created-changes" (*@ relations OA-STREAM-006 created counts the chunks of a stream. *) then List.map (fun (k, v) -> if k = "created" then k, int (cr + !nchunk) else k, v) h
        else if f "openai-chunk-model-missing" (*@ fields OA-CHUNK-008 From the second chunk of a stream on model is null. *) && !nchunk > 1 then List.map (fun (k, v) -> if k = "model" then k, Null else k, v) h else h in
      let j = O (h @ ["choices", A cs] @ (if incl || f "openai-usage-unasked" (*@ relations OA-STREAM-011 The last chunk of a stream has usage though nobody asked. *) && us = Null && cs <> [] && (match get "finish_reason" (List.hd cs) with S _ -> true | _ -> false) then (if f "openai-usage-null-missing" (*@ fields OA-STREAM-013 With include_usage the other chunks have no usage instead of null. *) && us = Null then [] else ["usage", if incl then us else usage]) else [])) in
      w ("data: " ^ str j ^ "\n\n") in
    let rs' = if f "openai-stream-n-one" (*@ relations OA-STREAM-010 A stream of a chat has one choice whatever n is. *) && chat then take 1 rs else rs in
    List.iteri (fun i (r : Gen.result) ->
      let i = if f "openai-stream-index-zero" (*@ relations OA-STREAM-010 The index of every choice of a stream is 0. *) then 0 else i in
      if chat && not (p "openai-no-role-chunk") then send [O ["index", int i; "delta", O ["role", S (if f "openai-role-user" (*@ relations OA-STREAM-015 The first chunk of the second and later choices has no role assistant, but user. *) && i > 0 then "user" else "assistant"); "content", S ""]; "logprobs", Null; "finish_reason", Null]] Null;
      let pieces = if f "openai-stream-drops-second" (*@ relations OA-MIX-005 Of a stream of more than eight tokens the second is left out. *) && List.length r.pieces > 8 then List.hd r.pieces :: drop 2 r.pieces else if f "openai-stream-trims" (*@ relations OA-MIX-005 The pieces of a stream of a completion are without blanks at their beginning. *) && not chat then List.map String.trim r.pieces else r.pieces in
      let pieces = if echo then pre i :: pieces else pieces in
      List.iteri (fun k t -> 
        let d = if chat then O (["content", S t] @ (if p "openai-no-role-chunk" && k = 0 then ["role", S "assistant"] else [])) else Null in
        send [O (["index", int i] @ (if chat then ["delta", d] else ["text", S t]) @ ["logprobs", lp [t]; "finish_reason", if f "openai-finish-early" (*@ relations OA-MIX-004 The finish_reason of a choice is in the chunk before its last piece of text. *) && k = List.length pieces - 2 then S (fr r) else Null])] Null) pieces;
      if not (f "openai-finish-missing" (*@ relations OA-STREAM-009 A choice of a stream that a stop sequence ends has no finish_reason. *) && r.stopped && stops <> []) then
      send [O (["index", int i] @ (if chat then ["delta", O []] else ["text", S ""]) @ ["logprobs", Null; "finish_reason", S (fr r)])] Null) rs';
    if incl && not (f "openai-usage-chunk-missing" (*@ relations OA-STREAM-012 With include_usage and n above 1 no chunk has the usage. *) && n > 1) then send (if f "openai-usage-chunk-choices" (*@ relations OA-STREAM-012 The chunk with the usage has a choice as well. *) then [O ["index", int 0; "delta", O []; "logprobs", Null; "finish_reason", Null]] else []) usage;
    if f "openai-done-missing" (*@ fields OA-STREAM-003 A stream of a chat with include_usage ends without [DONE]. *) && incl then () else if f "openai-text-done-missing" (*@ fields OA-MIX-001 A stream of completions ends without [DONE]. *) && not chat then () else
    w "data: [DONE]\n\n")
