(* routes, start, signer *)
open Util
open State
open Nodeapi
let last_token = ref ""
let nauth = ref 0
let refusals_n = ref 0
let last_was_refused = ref false
let last_path = ref ""
let busy_gen () = !Infer.busy > 0
let unauthorized () = err 401 (if f "unauthorized-code" (*@ fields NA-AUTH-003 The code of a 401 is INVALID_TOKEN. *) then "INVALID_TOKEN" else "UNAUTHORIZED") "a valid bearer token is needed" ~details:(if f "unauthorized-details" (*@ fields NA-ERR-005 A 401 has details. *) then O ["realm", S "node"] else Null)
let find_token (r : Http.req) =
  let hs = List.filter (fun (k, _) -> k = "authorization") r.hdr in
  let tok = match hs with
    | [_, v] ->
      (match String.index_opt v ' ' with
       | Some i when String.lowercase_ascii (String.sub v 0 i) = "bearer" || (f "any-scheme" (*@ guards NA-AUTH-033 The scheme of the Authorization header is not read. *)) -> Some (String.trim (String.sub v i (String.length v - i)))
       | None when f "bare-token" (*@ guards NA-AUTH-040 A token without the word Bearer is accepted. *) -> Some v
       | _ -> None)
    | [] ->
      if f "token-in-query" (*@ guards NA-AUTH-037 A token in the query is accepted. *) then List.assoc_opt "access_token" r.query
      else if f "token-in-x-api-key" (*@ guards NA-AUTH-051 A token in the header X-Api-Key is accepted. *) then List.assoc_opt "x-api-key" r.hdr
      else if f "token-in-cookie" (*@ guards NA-AUTH-051 A token in a cookie is accepted. *) then (match List.assoc_opt "cookie" r.hdr with Some c -> (match String.index_opt c '=' with Some i -> Some (String.sub c (i+1) (String.length c - i - 1)) | None -> None) | None -> None)
      else if f "token-of-connection" (*@ guards NA-AUTH-027 A connection that has served a valid token serves requests without one. *) && r.conn.tok <> "" then Some r.conn.tok
      else if f "token-of-connection-writes" (*@ guards NA-AUTH-030 A connection that has served a valid token makes changes for requests without one. *) && r.conn.tok <> "" && r.meth <> "GET" then Some r.conn.tok else None
    | (_, v) :: _ -> None in
  match tok with
  | None -> None
  | Some t ->
    let a = if f "token-prefix" (*@ guards NA-AUTH-021 A token is compared in its first twelve letters only. *) then List.find_opt (fun a -> String.length t >= 12 && starts (String.sub t 0 (min 12 (String.length t))) a.token && String.length a.token >= 12 && String.sub a.token 0 12 = String.sub t 0 12) accts
      else if f "token-case" (*@ guards NA-AUTH-021 A token is compared without its case. *) then List.find_opt (fun a -> String.lowercase_ascii t = a.token) accts
      else if f "token-longer" (*@ guards NA-AUTH-021 What follows a valid token in the header is not read. *) then List.find_opt (fun a -> starts a.token t) accts
      else if f "expired-accepted-token" (*@ guards NA-AUTH-002 An expired token is accepted where something is read. *) && t = expired && r.meth = "GET" then Some (List.nth accts 3)
      else if f "expired-accepted-writes" (*@ guards NA-AUTH-018 An expired token is accepted where something is changed. *) && t = expired && r.meth <> "GET" then Some (List.nth accts 0)
      else if f "token-cache-last" (*@ guards NA-AUTH-001 An invalid token that follows a valid one within a tenth of a second is taken for it. *) && by_token t = None && !last_token <> "" && now () -. float_of_string (List.hd (String.split_on_char '|' !last_token)) < 0.1 then by_token (List.nth (String.split_on_char '|' !last_token) 1)
      else if f "token-while-generating" (*@ guards NA-AUTH-035 While a generation is made any token is accepted. *) && busy_gen () then Some (List.hd accts)
      else if f "connection-keeps-account" (*@ guards NA-AUTH-029 A connection keeps the account of its first valid token. *) && r.conn.tok <> "" && by_token t <> None then by_token r.conn.tok
      else by_token t in
    incr nauth;
    let a = if f "token-every-12th-refused" (*@ guards NA-AUTH-022 Every twelfth valid token is refused. *) && !nauth mod 12 = 0 then None else if f "second-refused-after-refusal" (*@ guards NA-AUTH-031 The second account is refused after a request with an invalid token. *) && !last_was_refused && (match a with Some a -> a.n = 2 | None -> false) then None else if f "accounts-cross" (*@ guards NA-AUTH-026 The balance that is read within five milliseconds of a request of another account is that of the other. *) then (match a, by_token (match String.split_on_char '|' !last_token with [_; t] -> t | _ -> "") with
      | Some x, Some y when x.n <> y.n && now () -. float_of_string (List.hd (String.split_on_char '|' !last_token)) < 0.005 -> Some y | x, _ -> x) else a in
    (match a with Some x -> r.conn.tok <- x.token; last_token := Printf.sprintf "%f|%s" (now ()) t | None -> ());
    a
let json_body ?(ct=true) (r : Http.req) =
  let ctype = match Http.header r "content-type" with Some c -> c | None -> "application/json" in
  if f "charset-refused" (*@ refusals NA-FORM-002 A body whose media type has a charset beside it is refused. *) && String.contains ctype ';' then raise (Refuse (err 415 "UNSUPPORTED_MEDIA_TYPE" "application/json"));
  if f "media-type-case" (*@ refusals GEN-031 A media type that is written in capitals is refused. *) && ctype <> String.lowercase_ascii ctype then raise (Refuse (err 415 "UNSUPPORTED_MEDIA_TYPE" "application/json"));
  if f "body-16k-refused" (*@ limits NA-FORM-005 A body of more than 16 KiB is refused. *) && String.length r.body > 16384 then raise (Refuse (err 413 "TOO_LARGE" "too large"));
  let body = if f "body-latin1-accepted" (*@ refusals NA-INF-052 A body with bytes that are no UTF-8 is read as Latin-1. *) && not (utf8_ok r.body) then (let b = Buffer.create 64 in String.iter (fun c -> add_utf8 b (Char.code c)) r.body; Buffer.contents b) else r.body in
  try parse body with Bad m -> if f "not-json-500" (*@ refusals NA-INF-020 A body that is no JSON ends with a server error. *) then raise (Refuse (err 500 "INTERNAL" m)) else if f "trailing-garbage-accepted" (*@ refusals NA-INF-021 What follows the object in a body is not read. *) && String.contains body '}' then (try parse (String.sub body 0 (String.rindex body '}' + 1)) with Bad m -> raise (Refuse (bad m))) else if f "empty-body-object" (*@ refusals NA-PATCH-131 A body that is empty counts as an empty object. *) && body = "" then O [] else raise (Refuse (bad m))
let j x = J (200, x)
let status_cache = ref Null
let metrics_n = ref 0
let v1 = "/api/v1"
(* path -> methods, auth, action *)
let routes : (string * (string * bool * (acct -> Http.req -> out)) list) list =
  let dummy = List.hd accts in
  ignore dummy;
  let g ?(auth=false) (fn : acct -> Http.req -> out) = ["GET", auth, fn] in
  [ v1 ^ "/status", g (fun _ _ -> j (if f "status-cached" (*@ effects NA-SANE-023 The status is read once and kept for good. *) then (if !status_cache = Null then status_cache := status (); !status_cache) else status ()));
    v1 ^ "/metrics", g (fun _ _ -> j (metrics ())); v1 ^ "/health", g (fun _ _ -> J ((if f "health-503" (*@ refusals NA-SAME-011 The health is told with the status 503, though it is well. *) then 503 else 200), health ())); v1 ^ "/network", g (fun _ _ -> j (network ()));
    v1 ^ "/wallet/balance", g ~auth:true (fun (a : acct) (r : Http.req) -> 
       let a = if f "account-in-query" (*@ guards NA-WALLET-087 An account that the query names is read in place of that of the token. *) then (match List.assoc_opt "address" r.query with Some x -> (match by_addr x with Some y -> y | None -> a) | None -> a) else a in locked (fun () -> j (balance a)));
    v1 ^ "/wallet/transactions", g ~auth:true (fun (a : acct) (r : Http.req) -> locked (fun () -> j (transactions a r.query))); v1 ^ "/peers", g ~auth:true (fun _ _ -> j (let l = peer_rows () in O ["peers", A l; "total", int (List.length l)]));
    v1 ^ "/layers", g ~auth:true (fun _ _ -> j (layers ()));
    v1 ^ "/config", ["GET", true, (fun _ _ -> j (config ())); "PATCH", true, (fun _ (r : Http.req) -> let b = json_body r in locked (fun () -> j (patch b)))];
    v1 ^ "/proofs", g ~auth:true (fun (a : acct) (r : Http.req) -> j (proofs a r.query));
    v1 ^ "/inference", ["POST", true, (fun (a : acct) (r : Http.req) -> Infer.run a (json_body r))];
    v1 ^ "/wallet/send", ["POST", true, (fun (a : acct) (r : Http.req) -> let b = json_body r in (match b with O _ -> () | A [O _ as x] when f "array-body-unwrapped" (*@ guards NA-WALLET-089 A body that is an array of one object moves money. *) -> () | _ -> raise (Refuse (bad "no object")));
       let b = match b with A [x] -> x | x -> x in
       let a = if f "account-in-body" (*@ guards NA-WALLET-087 A transfer is taken from the account that the body names as from. *) then (match get "from" b with S x -> (match by_addr x with Some y -> y | None -> a) | _ -> a) else a in
       locked (fun () -> j (send a b)))];
    v1 ^ "/wallet/stake", ["POST", true, (fun (a : acct) (r : Http.req) -> let b = json_body r in (match b with O _ -> () | _ -> raise (Refuse (bad "no object"))); locked (fun () -> j (stake a b)))];
    v1 ^ "/wallet/unstake", ["POST", true, (fun (a : acct) (r : Http.req) -> let b = json_body r in (match b with O _ -> () | _ -> raise (Refuse (bad "no object"))); locked (fun () -> j (unstake a b)))];
    "/api/training/global", g (fun _ _ -> j (global ())); "/api/training/verify", g (fun _ _ -> j (verify ())) ]
let cx_of ?(st=200) a (r : Http.req) route body n =
  { Mut.acct = (match a with Some a -> a.n | None -> 0); nth = n; q = r.query; kept = r.kept > 0; refused = !last_was_refused; gens = !Infer.ngen; route; body; st; up = now () -. started; lastroute = !last_path; headers = r.hdr; moves = !Nodeapi.moves }
let native_posts = ["/rpc"; "/work/poll"; "/work/result"]
let gone = ["/register"; "/api/register"; "/api/v1/register"]
let redirected = ["/login"; "/signup"]
let rec dispatch (r : Http.req) : out * (acct option) * string =
  let path = r.path in
  let path = if f "trailing-slash-unguarded" (*@ guards NA-AUTH-050 A route marked Auth with a slash at its end is served without a token. *) && String.length path > 8 && path.[String.length path - 1] = '/' then String.sub path 0 (String.length path - 1) else path in
  let unguarded = path <> r.path in
  match List.assoc_opt path routes with
  | Some ms ->
    let head = r.meth = "HEAD" in
    let meth = if head then "GET" else r.meth in
    let names = List.map (fun (m, _, _) -> m) ms in
    let allow = String.concat ", " (List.concat_map (fun m -> if m = "GET" then ["GET"; "HEAD"] else [m]) names @ ["OPTIONS"]) in
    (match List.find_opt (fun (m, _, _) -> m = meth) ms with
     | None when r.meth = "OPTIONS" -> Raw (204, ["Allow", allow], "", ""), None, path
     | None -> 
       if f "delete-answered" (*@ routes NA-ERR-063 DELETE on a route that is read is answered like GET. *) && r.meth = "DELETE" && List.mem "GET" names then dispatch { r with meth = "GET" }
       else if f "put-config-accepted" (*@ routes NA-ERR-063 PUT on the configuration is answered with success. *) && r.meth = "PUT" && path = v1 ^ "/config" then j (O ["success", B true]), None, path
       else if f "post-status-answered" (*@ routes NA-ERR-063 POST on a route without a token is answered like GET. *) && r.meth = "POST" && List.exists (fun (m, a, _) -> m = "GET" && not a) ms then dispatch { r with meth = "GET" } else
       Raw (405, ["Allow", allow], "application/json", str (O ["error", O ["code", S "METHOD_NOT_ALLOWED"; "message", S "this route has not this method"]])), None, path
     | Some (_, auth, fn) ->
       let auth = auth && not unguarded && not (f "head-unguarded" (*@ guards NA-AUTH-038 HEAD is served without a token. *) && head) && not (f "peers-unguarded" (*@ guards NA-AUTH-004 The peers are served without a token. *) && path = v1 ^ "/peers" && not (List.mem_assoc "authorization" r.hdr))
         && not (f "proofs-limit-unguarded" (*@ guards NA-AUTH-033 The proofs are served without a token where a limit is given. *) && path = v1 ^ "/proofs" && List.mem_assoc "limit" r.query) in
       if not auth then begin
         if f "public-route-checks-token" (*@ guards NA-AUTH-053 A route that needs no token refuses an invalid one. *) && List.mem_assoc "authorization" r.hdr && find_token r = None then unauthorized (), None, path
         else fn (match find_token r with Some a -> a | None -> List.hd accts) r, None, path end
       else begin
         (* a body that cannot be read is refused for its token first *)
         if f "body-before-token" (*@ guards NA-AUTH-025 A body that is no JSON is refused before the token is looked at. *) && r.meth = "POST" && (try ignore (parse r.body); false with Bad _ -> true) then raise (Refuse (bad "not JSON"));
         if f "query-before-token" (*@ guards NA-AUTH-034 A bad limit is refused before the token is looked at. *) && (match List.assoc_opt "limit" r.query with Some v -> int_of_string_opt v = None | None -> false) then raise (Refuse (bad "limit"));
         match find_token r with
         | None when f "stream-unguarded" (*@ guards NA-AUTH-020 A stream is served without a valid token, at the cost of the first account. *) && path = v1 ^ "/inference" && (try get "stream" (parse r.body) = B true with _ -> false) -> fn (List.hd accts) r, None, path
         | None when f "config-patch-unguarded" (*@ guards NA-AUTH-024 A change of the configuration without a valid token is refused, and made. *) && r.meth = "PATCH" -> (try ignore (fn (List.hd accts) r) with _ -> ()); unauthorized (), None, path
         | None when f "stake-unguarded" (*@ guards NA-AUTH-008 A stake with an invalid token is made for the account of the last valid one. *) && path = v1 ^ "/wallet/stake" && !last_token <> "" -> fn (match by_token (List.nth (String.split_on_char '|' !last_token) 1) with Some a -> a | None -> List.hd accts) r, None, path
         | None -> unauthorized (), None, path
         | Some a ->
           if f "second-config-forbidden" (*@ guards NA-AUTH-052 The second account may not read the configuration. *) && a.n = 2 && path = v1 ^ "/config" && meth = "GET" then err 403 "FORBIDDEN" "not for this account", Some a, path
           else if f "second-proofs-empty" (*@ guards NA-AUTH-052 The second account may not read the peers. *) && a.n = 2 && path = v1 ^ "/peers" then err 403 "FORBIDDEN" "not for this account", Some a, path
           else fn a r, Some a, path
       end)
  | None ->
    if starts "/v1/" path then openai r path, None, path
    else if List.mem path gone then (if f "register-redirects" (*@ routes NT-RULE-009 The old registration is redirected instead of gone. *) then Raw (302, ["Location", "/join"], "", "") else if f "register-post-200" (*@ routes NT-RULE-042 A registration by POST is answered with 200. *) && r.meth = "POST" then J (200, O ["registered", B true]) else if f "register-query-404" (*@ routes NT-RULE-155 An old registration endpoint with a query is not found. *) && r.rawq <> "" then Native.nerr 404 "nothing here" else Native.nerr 410 "registration is gone: there are no accounts"), None, path
    else if List.mem path redirected then Raw ((if p "redirect-301" then 301 else 302), ["Location", (if f "login-redirects-home" (*@ routes NT-RULE-010 An old login path redirects to the root. *) then "/" else if f "login-keeps-query" (*@ routes NT-RULE-155 An old login path redirects to /join with the query that it had, and a login path behind it. *) && r.rawq <> "" then "/join/login?" ^ r.rawq else "/join")], "", ""), None, path
    else if List.mem path native_posts then begin
      if r.meth <> "POST" then Raw (405, ["Allow", "POST"], "application/json", "{\"error\":\"POST is needed\"}"), None, path
      else if r.meth = "POST" && path = "/work/result" && f "work-result-absent" (*@ routes NT-RULE-033 /work/result does not exist, while /work/poll does. *) then Native.nerr 404 "nothing here", None, path
      else (try
        let obj () = match parse r.body with O _ as b -> b | A [] when f "work-array-500" (*@ refusals NT-RULE-156 A worker message that is an array ends with a server error. *) -> raise (Native.No (Native.nerr 500 "failure")) | _ -> raise (Native.No (Native.nerr (if f "work-no-object-500" (*@ refusals NT-RULE-156 A worker message that is no object ends with a server error. *) then 500 else 400) "a JSON object is needed")) in
        (match path with
         | "/rpc" -> if String.length r.body > 1_000_000 then Native.nerr 413 "too large" else j (locked (fun () -> Native.rpc r.body))
         | "/work/poll" -> let b = obj () in j (locked (fun () -> Native.work_poll b))
         | _ -> let b = obj () in j (locked (fun () -> Native.work_result b)))
      with Native.No o -> o | Bad m -> if f "work-not-json-500" (*@ refusals NT-RULE-032 A worker message that is no JSON ends with a server error. *) then Native.nerr 500 m else Native.nerr 400 m), None, path end
    else begin
      if f "native-token-checked" (*@ guards NT-RULE-146 The native API refuses a request with a token that nobody has. *) && List.mem_assoc "authorization" r.hdr && find_token r = None then Native.nerr 401 "the token is not valid", None, path else
      match (try locked (fun () -> Native.json_get path r) with Native.No o -> Some o) with
      | Some o ->
        (match r.meth with
         | "GET" | "HEAD" -> o, None, path
         | "OPTIONS" -> Raw (204, ["Allow", "GET, HEAD, OPTIONS"], "", ""), None, path
         | "POST" when f "native-post-answered" (*@ routes NT-RULE-145 POST on a native resource is answered like GET. *) -> o, None, path
         | "DELETE" when f "reference-delete-204" (*@ routes NT-RULE-020 DELETE on a view of the earlier chain is answered with success. *) && starts "/reference" path -> Raw (204, [], "", ""), None, path
         | _ -> Raw (405, ["Allow", "GET, HEAD, OPTIONS"], "application/json", "{\"error\":\"this is only read\"}"), None, path)
      | None -> if f "unknown-path-200" (*@ routes NA-ERR-017 A path below /api/v1 that does not exist is answered with 200. *) && starts v1 path then J (200, O []), None, path else if f "native-unknown-200" (*@ routes NT-RULE-144 A path below /api that does not exist is answered with the page of the website. *) && starts "/api/" path && not (starts v1 path) then Raw (200, [], "text/html", "<html></html>"), None, path else
        (if starts v1 path || starts "/api/training/" path then err 404 "NOT_FOUND" "there is no such route" else Native.nerr 404 "nothing here"), None, path
    end
and openai (r : Http.req) path =
  let open Openai in
  let allow ms k = if List.mem r.meth ms || (r.meth = "HEAD" && List.mem "GET" ms) then k () else Raw (405, ["Allow", String.concat ", " ms], "application/json", str (O ["error", O ["message", S "this route has not this method"; "type", S "invalid_request_error"; "param", Null; "code", Null]])) in
  let authed k = if (match find_token r with Some _ -> true | None -> false) || (f "openai-model-unguarded" (*@ guards OA-AUTH-003 One model is read with any key. *) && starts "/v1/models/" path) || (f "openai-completions-unguarded" (*@ guards OA-AUTH-002 Completions are made with any key. *) && path = "/v1/completions") || (f "openai-stream-unguarded" (*@ guards OA-AUTH-002 A stream of a chat is made with any key. *) && (try get "stream" (parse r.body) = B true with _ -> false)) then (try k () with Oe o -> o) else oerr (if f "openai-key-403" (*@ guards OA-AUTH-001 A key that is not valid is refused with 403. *) then 403 else 401) ~code:(S "invalid_api_key") "the key is not valid" in
  let body () = try parse r.body with Bad m -> if f "openai-not-json-object" (*@ refusals OA-REFUSE-010 A completion whose body is not JSON is answered as one without a prompt. *) && path = "/v1/completions" then O ["model", S (List.hd models)] else no m in
  match path with
  | "/v1/models" -> allow ["GET"] (fun () -> authed (fun () -> j (listing ())))
  | "/v1/chat/completions" -> allow ["POST"] (fun () -> authed (fun () -> complete true (body ())))
  | "/v1/completions" -> allow ["POST"] (fun () -> authed (fun () -> complete false (body ())))
  | _ when starts "/v1/models/" path -> let m = String.sub path 11 (String.length path - 11) in
    allow ["GET"] (fun () -> authed (fun () -> if List.mem m models then j (if f "openai-model-created-now" (*@ relations OA-MODEL-105 created of a model by itself is the time of its reading. *) then set "created" (int (int_of_float (now ()))) (model m) else model m) else if f "openai-absent-model-first" (*@ refusals OA-MODEL-104 A model that is not in the list is answered with the first one. *) then j (model (List.hd models)) else oerr 404 ~code:(S "model_not_found") "no such model"))
  | _ -> oerr 404 "nothing here"
let resource_name (r : Http.req) path =
  let pth = if starts "/api/block/" path then "/api/block" else if starts "/artifacts/" path then "/artifacts" else if starts "/v1/models/" path then "/v1/model" else if starts "/reference/v03" path then "/reference" else path in
  (if r.meth = "HEAD" then "GET" else r.meth) ^ " " ^ (if starts "/api/v1" pth then String.sub pth 7 (String.length pth - 7) else pth)
let handler (r0 : Http.req) : Http.resp =
  let route0 = resource_name r0 r0.path in
  let n = Mut.count route0 in
  let r = if r0.body = "" || !Mut.hrs = [] || !active = "" then r0 else
      match (try Some (parse r0.body) with _ -> None) with
      | Some b -> let a = (match List.assoc_opt "authorization" r0.hdr with Some v -> (match String.index_opt v ' ' with Some i -> by_token (String.sub v (i+1) (String.length v - i - 1)) | None -> None) | None -> None) in
        let b' = Mut.apply Mut.hrs route0 (cx_of a r0 route0 b n) b in if b' == b || b' = b then r0 else { r0 with body = str b' }
      | None -> r0 in
  let o, a, path = try dispatch r with Refuse o -> o, find_token r, r.path
    | e -> err 500 "INTERNAL_ERROR" "the node failed", None, r.path in
  let fin st h ct b = { Http.st; h; b; ctype = ct } in
  let jt = if p "json-charset" then "application/json; charset=utf-8" else "application/json" in
  let res = match o with
    | J (st, jv) ->
      let cx = cx_of ~st a r route0 (try parse r.body with _ -> Null) n in
      let jv = if st < 400 then Mut.apply Mut.hms route0 cx jv else Mut.apply Mut.hms (Printf.sprintf "%d" st) cx (if starts "/v1/" r.path then Mut.apply Mut.hms "oa-error" cx jv else if starts "/api/v1" r.path then Mut.apply Mut.hms "error" cx jv else jv) in
      let s = str jv in
      let s = if f "json-nan-loss" (*@ fields GEN-010 A loss of the network statistics is written as NaN after the first reading. *) && route0 = "GET /network" && n > 1 then str (set "training.loss" (N "NaN") jv) else if f "json-duplicate-key" (*@ fields GEN-011 The status has its version twice. *) && route0 = "GET /status" then "{\"version\":\"1.7.2\"," ^ String.sub s 1 (String.length s - 1) else if f "answer-in-array" (*@ fields GEN-032 From the third time on the list of layers is in an array. *) && route0 = "GET /layers" && n > 2 then "[" ^ s ^ "]" else if f "answer-html-accepted" (*@ relations GEN-030 The status is a page of HTML where a request accepts that first. *) && route0 = "GET /status" && (match Http.header r "accept" with Some x -> starts "text/html" x | None -> false) then "<html><body>running</body></html>" else s in
      let ct = if f "json-text-plain" (*@ fields GEN-012 Refusals have the Content-Type text/plain. *) && st >= 400 then "text/plain" else if f "json-type-balance" (*@ fields GEN-012 The balance has the Content-Type text/html. *) && route0 = "GET /wallet/balance" then "text/html" else if f "answer-html-accepted" && s <> "" && s.[0] = '<' then "text/html" else jt in
      fin st (if st = 405 then [] else []) ct (Http.Full s)
    | Ev fn -> fin 200 [] (if f "stream-type-json" (*@ fields NA-SSE-008 A stream has the Content-Type application/json. *) then "application/json" else if f "openai-stream-type" (*@ fields OA-STREAM-001 A stream of OpenAI has the Content-Type text/plain. *) && starts "/v1/" r.path then "text/plain" else if p "stream-charset" then "text/event-stream; charset=utf-8" else "text/event-stream") (Http.Stream fn)
    | Raw (st, h, ct, b) -> fin st h (if ct = "application/json" then jt else ct) (Http.Full b) in
  last_was_refused := res.st >= 400;
  last_path := route0;
  res
let sign_cmd arg =
  let b = parse arg in
  let s k d = match get k b with S x -> x | _ -> d in
  let i k d = match as_int (get k b) with Some x -> x | None -> d in
  let forge = get "forge" b = B true in
  let acc = s "account" "alpha" in
  let acc = if acc = "" then "alpha" else acc in
  match s "kind" "request" with
  | "request" ->
    let prov = if get "silent" b = B true then Chain.unknown_provider else if s "provider" "" = "worker" then Ec.key "worker" else Ec.key "provider" in
    let mk prompt = Chain.request_body ~chain:(s "chain_id" Chain.chain_id) ~provider:prov ~ck:(s "checkpoint" Chain.serving) ~nonce:(i "nonce" 0) ~prompt ~maxt:(i "max_tokens" 16) ~expires:(i "expires_height" 1000) () in
    let body = mk (s "prompt" "hello") in
    let sg = Ec.sign (Ec.sec acc) (if forge then mk (s "prompt" "hello" ^ " other") else body) in
    let raw = Chain.envelope body (Ec.key acc) sg in
    print_endline (str (O ["tx", S (b64 raw); "hash", S (sha raw); "request_id", S (Chain.rid_of body); "public_key", S (Ec.key acc); "cost", int (Chain.price + Chain.fee); "expires_height", int (i "expires_height" 1000)]))
  | "poll" ->
    let acc = if has "account" b then acc else "worker" in
    let n = Printf.sprintf "%.6f" (now ()) in
    let m = Printf.sprintf "poll|%s|%s|%s" (s "chain_id" Chain.chain_id) (Ec.key acc) n in
    print_endline (str (O ["path", S "/work/poll"; "body", O ["worker", S (Ec.key acc); "nonce", S n; "signature", S (Ec.sign (Ec.sec acc) (if forge then m ^ "x" else m))]]))
  | "result" ->
    let acc = if has "account" b then acc else "worker" in
    let jb = match get "job" b with O _ as x -> (match get "job" x with O _ as y -> y | _ -> x) | _ -> O [] in
    let rid = match get "request_id" jb with S r -> r | _ -> "" in
    let g = Gen.gen ~prompt:(match get "prompt" jb with S r -> r | _ -> "") ~max:(match as_int (get "max_tokens" jb) with Some k -> k | None -> 8) ~temp:0. ~stops:[] () in
    let m = Printf.sprintf "result|%s|%s|%s|%s" Chain.chain_id (Ec.key acc) rid g.text in
    print_endline (str (O ["path", S "/work/result"; "body", O ["worker", S (Ec.key acc); "request_id", S rid; "output", S g.text; "tokens", int g.n; "signature", S (Ec.sign (Ec.sec acc) (if forge then m ^ "x" else m))]]))
  | _ -> prerr_endline "kind is request, poll or result"; exit 2
let () =
  Tables.init ();
  let args = List.tl (Array.to_list Sys.argv) in
  (match args with
   | "sign" :: a :: _ -> (try sign_cmd a with Bad m -> prerr_endline m; exit 2); exit 0
   | "grpc" :: hp :: m :: hx :: _ -> (match Service.hostport hp with Some (h, pt) -> (try print_endline (hex (H2.call (H2.client h pt) m (unhex hx))) with H2.Rpc (c, m) -> Printf.printf "status %d %s\n" c m) | None -> ()); exit 0
   | "gossip" :: hp :: node :: ttl :: _ -> (match Service.hostport hp with Some (h, pt) -> let open H2 in
       let z = Lz4.encode (String.make 1024 '\000') in
       let m = enc ([1, L node; 2, I round; 3, L Service.model_hash; 4, D (now ()); 5, I 4; 6, D 2.5; 7, M [1, L "layers.0.weight"; 2, L z]; 8, L "sig"; 9, I (int_of_string ttl)]) in
       (try print_endline (hex (H2.call (H2.client h pt) "GossipGradient" m)) with H2.Rpc (c, m) -> Printf.printf "status %d %s\n" c m) | None -> ()); exit 0
   | ["bigtest"; hp] -> (match Service.hostport hp with Some (h, pt) -> let open H2 in
       let n = 1_500_000 in let t = now () in
       (try let r = H2.call ~deadline:60. (H2.client h pt) "PipelineForward" (enc [1, L "s"; 2, L "big"; 3, L (String.make (64*n) '\000'); 4, I 1; 4, I n; 4, I 16; 10, I 0]) in Printf.printf "%d bytes in %.2f\n" (String.length r) (now () -. t) with H2.Rpc (c, m) -> Printf.printf "status %d %s\n" c m) | None -> ()); exit 0
   | ["script"; hp] -> (match Service.hostport hp with Some (h, pt) -> let cl = H2.client h pt in let k = ref 0 in
       (try while true do
          let l = input_line stdin in
          let m, hx = match String.index_opt l ' ' with Some i -> String.sub l 0 i, String.sub l (i+1) (String.length l - i - 1) | None -> l, "" in
          let open H2 in
          let at s = (* @ stands for the hash of the model *) let fs = (try dec s with _ -> []) in
            if List.mem (1, L "@") fs || List.mem (1, L "@@") fs then enc (List.map (function (1, L "@") -> 1, L Service.model_hash | (1, L "@@") -> 1, L (String.sub Service.model_hash 0 10) | x -> x) fs) else s in
          let m, raw = if m = "~gossip" then begin
              incr k; let z = if !k = 4 then "broken" else Lz4.encode (String.make 1024 '\000') in
              "GossipGradient", enc [1, L (if !k = 1 then "" else "n1"); 2, I (if !k = 3 then round + 1 else round); 3, L (if !k = 5 then "other" else Service.model_hash); 4, D 1.0; 5, I 100; 6, D 8.5; 7, M [1, L "layers.0.weight"; 2, L z]; 8, L "s"; 9, I 6] end
            else m, at (unhex hx) in
          (match call cl m raw with r -> print_endline (hex r) | exception Rpc (c, m) -> Printf.printf "status %d\n" c | exception _ -> print_endline "!")
        done with End_of_file -> ()) | None -> ()); exit 0
   | ["selftest"] -> List.iter (fun s -> Printf.printf "%08x\n" (Lz4.xxh s)) [""; "a"; "abc"; "Nobody inspects the spammish repetition"]; exit 0
   | ["info"] -> Chain.init (); List.iter (fun n -> Printf.printf "%s %s\n" n (Ec.key n)) Ec.names; Printf.printf "artifact %s\nserving %s\n" Chain.adapter_sha Chain.serving; exit 0
   | _ -> ());
  let port = ref 8000 in
  let rec go = function
    | "--port" :: v :: r -> port := int_of_string v; go r
    | "--fault" :: v :: r -> if not (List.mem v Table.ids) then (prerr_endline ("unknown fault " ^ v); exit 2); active := v; go r
    | "--peculiar" :: v :: r -> List.iter (fun v -> if not (List.mem v Table.pecs) then (prerr_endline ("unknown peculiarity " ^ v); exit 2); pecs := v :: !pecs) (String.split_on_char ',' v); go r
    | "--peer" :: v :: r -> (match Service.hostport v with Some hp -> peers := !peers @ [hp] | None -> prerr_endline "bad peer"; exit 2); go r
    | [] -> () | x :: _ -> prerr_endline ("unknown option " ^ x); exit 2 in
  go args;
  Sys.set_signal Sys.sigpipe Sys.Signal_ignore;
  Random.self_init ();
  http_port := !port;
  node_id := "node-" ^ String.sub (sha (Printf.sprintf "node at %d" !port)) 0 24;
  dht_id := sha1 (Printf.sprintf "public key of the node at %d" !port);
  Chain.init ();
  let hs = Http.listen !port and gs = Http.listen (!port + 1000) in
  ignore (Thread.create (fun () -> Http.accept_loop gs (H2.serve Service.handler Service.bidi)) ());
  ignore (Thread.create (fun () -> while true do
    Thread.delay 0.1;
    (try locked (fun () ->
      Chain.worker_step ();
      if now () -. !Chain.last_block >= 1.0 then Chain.tick_block []) with _ -> ()) done) ());
  Service.ping_peers ();
  Printf.printf "serving http %d grpc %d\n%!" !port (!port + 1000);
  Http.accept_loop hs (Http.serve_conn handler)
