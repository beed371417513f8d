(* the text generator: words that are picked by a hash *)
open Util
let words = Array.of_list (String.split_on_char ' ' "the a river node moves slowly over stones while light gathers in café windows and naïve birds carry small letters across Zürich toward morning under heavy clouds where gardens wait for rain with patient roots near the señor who counts every step as signal returns from distant hills again without haste until evening falls on quiet streets because nobody knew which path was longer than memory yet each answer holds one grain of salt beside copper wheels turning beneath façade walls after crêpe smoke drifts past iron gates into open fields through winter glass before summer forgets its own name among scattered maps beyond blue harbors like paper ships between silver tides when thunder speaks softly if anyone listens then silence grows deeper still around ancient bridges made by careful hands along jalapeño rows behind wooden doors against northern wind inside a library full of unread books above the œuvre of clocks")
let nw = Array.length words
let cps s = let n = ref 0 in String.iter (fun c -> if Char.code c land 0xc0 <> 0x80 then incr n) s; !n
let prompt_tokens s = 1 + cps s
type result = { text : string; pieces : string list; n : int; stopped : bool; ptoks : int }
let gen ?(natural=0) ~prompt ~max ~temp ~stops () =
  let seed0 = if temp = 0. then sha256 ("t0" ^ prompt) else sha256 (Printf.sprintf "%f %d %s" (now ()) (Random.bits ()) prompt) in
  let h0 = w32 seed0 0 land 0x3fffffff in
  let h = ref h0 in
  let max', nat = if natural > 0 && max > natural then natural, true else max, false in
  let toks = List.init max' (fun i ->
    h := (!h * 1103515245 + 12345 + i) land 0x3fffffffffff;
    let w = words.((!h lsr 9) mod nw) in
    (if i = 0 then "" else if i mod 23 = 22 then "\n" else " ") ^ w ^ (if i mod 7 = 6 then "." else if i mod 11 = 10 then "," else "")) in
  let full = String.concat "" toks in
  let stops = List.filter (fun s -> s <> "") stops in
  let cut = List.fold_left (fun best s -> let i = find_from full 0 s in if i >= 0 && (fst best < 0 || i < fst best) then (i, i + String.length s) else best) (-1, 0) stops in
  let ptoks = prompt_tokens prompt in
  if fst cut < 0 then { text = full; pieces = toks; n = max'; stopped = nat; ptoks }
  else begin
    let at, e = cut in
    let rec go n off acc = function
      | [] -> n, List.rev acc
      | t :: r ->
        let l = String.length t in
        let acc = if off >= at then acc else if off + l <= at then t :: acc else String.sub t 0 (at - off) :: acc in
        if off + l >= e then n + 1, List.rev acc else go (n + 1) (off + l) acc r in
    let n, pieces = go 0 0 [] toks in
    { text = String.sub full 0 at; pieces; n; stopped = true; ptoks }
  end
let price_prompt = 10 and price_token = 1000
let cost r = price_prompt * r.ptoks + price_token * r.n
