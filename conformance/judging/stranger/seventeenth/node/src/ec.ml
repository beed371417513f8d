(* ECDSA over secp256k1 *)
let hz = Z.of_string
let prime = hz "0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEFFFFFC2F"
let order = hz "0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141"
let gx = hz "0x79BE667EF9DCBBAC55A06295CE870B07029BFCDB2DCE28D959F2815B16F81798"
let gy = hz "0x483ADA7726A3C4655DA4FBFC0E1108A8FD17B448A68554199C47D08FFB10D4B8"
type pt = Inf | P of Z.t * Z.t
let md x = Z.erem x prime
let dbl = function Inf -> Inf | P (x, y) ->
  let l = md Z.(of_int 3 * x * x * invert (md (of_int 2 * y)) prime) in
  let x3 = md Z.(l * l - x - x) in P (x3, md Z.(l * (x - x3) - y))
let add a b = match a, b with
  | Inf, q | q, Inf -> q
  | P (x1, y1), P (x2, y2) ->
    if Z.equal x1 x2 then (if Z.equal y1 y2 then dbl a else Inf)
    else let l = md Z.((y2 - y1) * invert (md (x2 - x1)) prime) in
      let x3 = md Z.(l * l - x1 - x2) in P (x3, md Z.(l * (x1 - x3) - y1))
let mul k q = let r = ref Inf and b = ref q in
  for i = 0 to Z.numbits k - 1 do if Z.testbit k i then r := add !r !b; b := dbl !b done; !r
let of_bytes s = if s = "" then Z.zero else hz ("0x" ^ Util.hex s)
let to_hex z = let s = Z.format "%x" z in String.make (max 0 (64 - String.length s)) '0' ^ s
let g = P (gx, gy)
let pub d = match mul d g with Inf -> "" | P (x, y) -> (if Z.is_odd y then "03" else "02") ^ to_hex x
let decode h =
  if String.length h <> 66 || not (Util.is_hex h) || not (Util.starts "02" h || Util.starts "03" h) then None
  else let x = hz ("0x" ^ String.sub h 2 64) in
    if Z.geq x prime then None else
    let y2 = md Z.(x * x * x + of_int 7) in
    let y = Z.powm y2 Z.((prime + one) / of_int 4) prime in
    if not (Z.equal (md Z.(y * y)) y2) then None
    else Some (P (x, if Z.is_odd y = (h.[1] = '3') then y else Z.sub prime y))
let secret name = Z.add Z.one (Z.erem (of_bytes (Util.sha256 ("seventeenth account " ^ name))) (Z.sub order Z.one))
let sign d msg =
  let z = of_bytes (Util.sha256 msg) in
  let k = Z.add Z.one (Z.erem (of_bytes (Util.sha256 (to_hex d ^ msg))) (Z.sub order Z.one)) in
  match mul k g with Inf -> "" | P (x, _) ->
    let r = Z.erem x order in
    let s = Z.erem Z.(invert k order * (z + r * d)) order in
    let s = if Z.gt s Z.(order / of_int 2) then Z.sub order s else s in
    to_hex r ^ to_hex s
let verify ph msg sg =
  String.length sg = 128 && Util.is_hex sg && match decode ph with None -> false | Some q ->
    let r = hz ("0x" ^ String.sub sg 0 64) and s = hz ("0x" ^ String.sub sg 64 64) in
    let ok v = Z.sign v > 0 && Z.lt v order in
    ok r && ok s && Z.leq s Z.(order / of_int 2) &&
    (let z = of_bytes (Util.sha256 msg) in
     let w = Z.invert s order in
     match add (mul (Z.erem Z.(z * w) order) g) (mul (Z.erem Z.(r * w) order) q) with
     | Inf -> false | P (x, _) -> Z.equal (Z.erem x order) r)
let names = ["alpha"; "beta"; "worker"; "provider"]
let keys = List.map (fun n -> n, let d = secret n in d, pub d) names
let key n = snd (List.assoc n keys)
let sec n = fst (List.assoc n keys)
